"""Equality assumptions between dynamic dimensions, collected across traces.

TensorFlow compares sizes at run time. Here a program is traced: where a node fails because two sizes meet that are not
known to be equal, `Unifier` assumes that they are, and `driver` traces the program again with one dimension for both.
The evaluator checks each assumption at run time: results that depend on one (`affected_by_assumptions`) are NaN if it
does not hold.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.export import is_symbolic_dim

from tf2jax_lite.jaxprs.compat import Literal, Var, dim_terms
from tf2jax_lite.jaxprs.evaluate import equations, without_unread
from tf2jax_lite.values import static

from .bounds import dim_upper_bound, equal_where_large, is_data_dependent
from .dim_expr import DYNAMIC, factors_in, names_in, numbers_in, value
from .primitives import truncate_p


def affected_by_assumptions(jaxpr: Any) -> set[Any]:
    """Return variables that depend on a dimension with assumed size or capacity."""
    assumed = [eqn for outer in jaxpr.eqns for eqn in assumptions(outer)]
    if any(isinstance(eqn.params["dim"], int) for eqn in assumed):  # a constant in the program could be this size
        return {v for eqn in jaxpr.eqns for v in eqn.outvars}
    affected = {name for eqn in assumed for name in names_in(eqn.params["dim"])}
    found: set[Any] = set()
    for eqn in jaxpr.eqns:
        if any(assumptions(eqn)) or affected & variables_of(eqn) or not found.isdisjoint(_vars(eqn.invars)):
            found.update(eqn.outvars)
    return found


def assumptions(eqn: Any) -> Iterator[Any]:
    """Yield the equations in this one that assume a size or a sufficient capacity."""
    for other in equations(eqn):
        if other.primitive is truncate_p and not (
            is_constant(other) or (other.params["name"] and other.params["is_sure"])
        ):
            yield other


def is_constant(eqn: Any) -> bool:
    """Return whether an equation of `truncate_p` keeps a static number of rows."""
    return isinstance(eqn.invars[1], Literal)


def without_dead_sizes(closed: Any, unbounded: set[str]) -> Any:
    """Eliminate dead equations, so that the jaxpr may do without unbounded variables.

    Assumptions about other variables stay, because they are checked there.
    """
    return without_unread(closed, lambda eqn: any(unbounded.isdisjoint(variables_of(e)) for e in assumptions(eqn)))


def variables_of(eqn: Any) -> set[str]:
    """Return the names of the dimension variables of an equation."""
    return {name for dim in _dims(eqn) for name in names_in(dim)}


def variables_in(jaxpr: Any) -> set[str]:
    """Return the names of the dimension variables of a jaxpr and those inside of it."""
    return {name for outer in jaxpr.eqns for eqn in equations(outer) for name in variables_of(eqn)}


def _dims(eqn: Any) -> Iterator[Any]:
    for v in (*eqn.invars, *eqn.outvars):
        yield from getattr(v.aval, "shape", ())
    yield eqn.params.get("dim", 0)


def _vars(atoms: Any) -> Iterator[Any]:
    return (v for v in atoms if isinstance(v, Var))


SINGLE = f"{DYNAMIC}0"
"""Variable of dimensions that are 1 in a call and symbolic in the signature, where 1 must not broadcast."""


def variable_of(dim: Any) -> str:
    """Return the variable v of a dimension ``v - 1``, "" for any other dimension."""
    terms = dim_terms(dim) if is_symbolic_dim(dim) else ()
    if len(terms) != 2 or terms[1] != (-1, ()) or terms[0][0] != 1:
        return ""
    (name, power), *others = terms[0][1]
    return name if not others and power == 1 and isinstance(name, str) and name.startswith(DYNAMIC) else ""


def _numbers(dim: Any) -> list[int]:
    """Return the numbers of data-dependent variables in a dimension."""
    return [int(name.removeprefix(DYNAMIC)) for name in names_in(dim) if name.startswith(DYNAMIC)]


@dataclasses.dataclass
class Equalities:
    """Assumptions about dimensions that hold for all traces of a program.

    Attributes:
      dims: for a variable's name, the dimension that equals the variable less 1.
      capacities: for a variable's name, the assumed upper bound of its dimension.
      expressions: for a dimension that is not a single variable, the dimension that equals it.
    """

    dims: dict[str, Any] = dataclasses.field(default_factory=dict)
    capacities: dict[str, Any] = dataclasses.field(default_factory=dict)
    expressions: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.dims) + len(self.capacities) + len(self.expressions)


@dataclasses.dataclass
class Unifier:
    """Adds equalities between dimensions that a node cannot combine otherwise.

    Attributes:
      equalities: the assumptions, of earlier traces too.
      unbounded: variables without an upper bound.
      expected: for a variable of those, the upper bound that holds for valid inputs.
      capacities: for each variable of this trace, the capacity of its arrays.
    """

    equalities: Equalities
    unbounded: set[str]
    expected: Mapping[str, Any]
    capacities: Mapping[str, Any]

    def unify(self, shapes: Sequence[Sequence[Any]], fitting: Callable[[], Sequence[Mapping[str, int]]]) -> bool:
        """Assume two dimensions of a node's operands equal; False if impossible.

        Args:
          fitting: returns values of variables for which the node works. Dimensions that differ for one of them need not
            be equal, such as the sizes along the axis of a concatenation.
        """
        found = fitting()

        def may_differ(one: Any, other: Any) -> bool:
            return any(value(one, sizes) != value(other, sizes) for sizes in found)

        for a, b in itertools.combinations(shapes, 2):
            # Align the shapes at their last axes, as broadcasting does, or at their first: first the alignment with
            # fewer mismatches.
            alignments = [_broadcast_pairs(a, b), list(zip(a, b, strict=False))]
            alignments.sort(key=_mismatches)
            pairs = [pair for pair in itertools.chain(*alignments) if not may_differ(*pair)]
            if any(self._replace_where_large(*sorted(pair, key=_length)) for pair in pairs):
                return True
            # Dimensions that do not face each other: fixed sizes may be anything, so only data-dependent ones.
            others = [*zip(a[-1:], b[-2:-1], strict=False)]
            others += [pair for pair in itertools.product(a, b) if all(map(is_data_dependent, pair))]
            for one, other in (*pairs, *(pair for pair in others if not may_differ(*pair))):
                if self._equate(one, other) or self._equate(other, one):
                    return True
            for one, other in pairs:
                both = is_data_dependent(one) and is_data_dependent(other)
                if both and (self._replace(one, other) or self._replace(other, one)):
                    return True
        # Last, fixed sizes: equal to a dynamic one unless they broadcast.
        for a, b in itertools.combinations(shapes, 2):
            pairs = itertools.product(a, b) if found else _broadcast_pairs(a, b)
            if any(not may_differ(*pair) and self._equate_to_fixed(*pair, is_needed=bool(found)) for pair in pairs):
                return True
        return False

    def unify_counts(self, shape: Sequence[Any], other: Sequence[Any]) -> bool:
        """Assume the equality that makes element counts equal, if there is just one."""
        one, two = list(shape), list(other)
        for dim in shape:
            if dim in two:
                one.remove(dim)
                two.remove(dim)
        a, b = ([math.prod(d for d in dims if isinstance(d, int))] for dims in (one, two))
        a += [dim for dim in one if not isinstance(dim, int)]
        b += [dim for dim in two if not isinstance(dim, int)]
        if len(a) > len(b):
            a, b = b, a
        if len(b) != 2 or not b[0] or a[0] % b[0] or (len(a) == 2 and a[0] != b[0]):
            return False
        size = a[1] if len(a) == 2 else a[0] // b[0]
        return (
            self._equate(b[1], size, must=True)
            or self._equate(size, b[1], must=True)
            or (not is_data_dependent(size) and self._replace_by_fixed(b[1], size))
        )

    def _equate_to_fixed(self, one: Any, other: Any, *, is_needed: bool) -> bool:
        """Equate a dynamic to a fixed dimension; to 1 only if it does not broadcast."""
        fixed, dim = sorted((one, other), key=is_data_dependent)
        if is_data_dependent(fixed) or not (is_needed or fixed not in (0, 1)):
            return False
        return self._equate(dim, fixed, must=True) or self._replace_by_fixed(dim, fixed)

    def _replace_by_fixed(self, dim: Any, fixed: Any) -> bool:
        """Replace a sum of dimensions by a fixed one."""
        known = not is_data_dependent(dim) or variable_of(dim) or dim in self.equalities.expressions
        if known or SINGLE in names_in(dim) | names_in(fixed):
            return False
        self.equalities.expressions[dim] = fixed
        return True

    def _replace(self, dim: Any, other: Any) -> bool:
        """Replace a dimension that is not a single variable by another one that is older."""
        known = dim in self.equalities.expressions or SINGLE in names_in(dim) | names_in(other)
        if known or max(_numbers(dim)) <= max(_numbers(other)):
            return False
        self.equalities.expressions[dim] = other
        return True

    def _replace_where_large(self, other: Any, dim: Any) -> bool:
        """Replace a dimension by a shorter one, equal for large enough variables."""
        # The sizes of a zero and of all but the last of n parts are ``max(n - 1, 0) + 1`` together, so n.
        shorter = _length(other) < _length(dim) and is_data_dependent(dim) and SINGLE not in names_in(dim)
        if not shorter or dim in self.equalities.expressions or not equal_where_large(dim, other):
            return False
        self.equalities.expressions[dim] = other
        return True

    def _equate(self, dim: Any, other: Any, *, must: bool = False) -> bool:
        """Equate ``v - 1`` to an older dimension, or bound v if it is unbounded."""
        # must: whether nothing but equality works; of two operands one could broadcast.
        name = variable_of(dim)
        if not name or not (must or is_data_dependent(other) or self._is_plausible(name, other)):
            return False
        (number,), numbers, size = _numbers(dim), _numbers(other), dim_upper_bound(other)
        is_single = is_symbolic_dim(other) and dim_terms(other) == ((1, ((SINGLE, 1),)),)
        if number in numbers or (is_single and name not in self.expected):
            return False
        if max(numbers, default=0) > number:
            if name not in self.unbounded or size is None:
                return False
            self.equalities.capacities[name] = size  # the next trace equates the other dimension to this one
        elif name in self.equalities.dims:
            return False
        else:
            self.equalities.dims[name] = other
        return True

    def _is_plausible(self, name: str, fixed: Any) -> bool:
        """Return whether a fixed size may be a dynamic one: its capacity, or unknown."""
        return fixed != 1 and (name in self.unbounded or self.capacities.get(name) == fixed)


def _broadcast_pairs(a: Sequence[Any], b: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of dimensions that broadcasting compares."""
    return list(zip(a[::-1], b[::-1], strict=False))


def _length(dim: Any) -> int:
    """Return the number of factors and numbers of a dimension."""
    return sum(1 for _ in itertools.chain(factors_in(dim), numbers_in(dim)))


def _mismatches(pairs: list[tuple[Any, Any]]) -> int:
    return sum(one is not other and one != other and 1 not in (one, other) for one, other in pairs)


# Two sizes that are unlikely in a program, with many divisors for reshapes.
_SIZES = (120, 168)
_MAX_TRIED = 512


def fitting_sizes(
    run: Callable[[list[Any]], Any], inputs: Sequence[Any], shapes: Sequence[Sequence[Any]]
) -> Sequence[Mapping[str, int]]:
    """Return the samples of symbolic variables for which a node accepts its operands.

    Each variable takes two values, and each fixed size of an operand. So an equality that the node needs holds in all
    returned samples, and one that it does not need fails in some.

    Args:
      inputs: traced arrays, static arrays with symbolic entries, and other static values.
      shapes: of the inputs, symbolic entries of static ones included.
    """
    sizes = {size for shape in shapes for size in shape}
    variables = sorted({name for size in sizes for name in names_in(size)})
    fixed = {size for size in sizes if isinstance(size, int)}
    # A size of 1 broadcasts, so it tells nothing about equalities; it is a sample only if no other works.
    for tried in ({*_SIZES, *fixed} - {0, 1}, {*_SIZES, *fixed}):
        chosen = sorted(tried if len(tried) ** len(variables) <= _MAX_TRIED else _SIZES)
        # A data-dependent dimension is its variable minus 1.
        each = [[size + name.startswith(DYNAMIC) for size in chosen] for name in variables]
        some = itertools.islice(itertools.product(*each), _MAX_TRIED)
        found = [dict(zip(variables, numbers, strict=True)) for numbers in some]
        if fitting := [given for given in found if _fits(run, inputs, given)]:
            return fitting
    return []


def _fits(run: Callable[[list[Any]], Any], inputs: Sequence[Any], sizes: Mapping[str, int]) -> bool:
    def call(chosen: Mapping[int, Any]) -> None:
        run([chosen.get(i, v) for i, v in enumerate(given)])

    try:
        given: list[Any] = list(inputs)
        structs = {}
        for i, v in enumerate(inputs):
            if static.is_symbolic(v):
                given[i] = np.array([value(dim, sizes) for dim in v.reshape(-1)], np.int32).reshape(v.shape)
            elif isinstance(v, jax.Array):
                structs[i] = jax.ShapeDtypeStruct(tuple(value(dim, sizes) for dim in v.shape), v.dtype)
        jax.eval_shape(call, structs)
    except Exception:  # any error of the node about its operands' sizes
        return False
    return True
