"""Evaluate and bound symbolic dimensions, and the constraints that they need.

A dimension is a term object of JAX: a sum of products of variables and operations, see `dim_terms`.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import SymbolicScope, is_symbolic_dim, symbolic_shape

from tf2jax_lite.jaxprs.compat import dim_terms, inconclusive_comparison, max_dim, min_dim
from tf2jax_lite.values.static import is_symbolic
from tf2jax_lite.values.symbolic_float import FloatDim

_MAX_ENUMERATED = 1 << 20  # values of a single variable
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, 100)
"""Sample values of each of several variables."""

_LARGE = (*SIZES, 10_000, 10_000_000)  # a signal may have to last a second

MAX_SAMPLED_VARIABLES = 4
"""Expressions of more variables are not sampled."""

DYNAMIC = "found_"
"""Prefix of the variables of data-dependent dimensions (`tracker.py`); no symbol of an exported function has it."""

_MAX_VARIABLES = 10  # an expression of several is largest at a corner of their ranges; there are 2 ** n corners


def factors_in(dim: Any) -> Iterator[Any]:
    """Yield the factors of a dimension, and those of their operands; see `dim_terms`."""
    if not is_symbolic_dim(dim):
        return
    for _, factors in dim_terms(dim):
        for factor, _ in factors:
            yield factor
            if not isinstance(factor, str):
                for operand in factor[1:]:
                    yield from factors_in(operand)


def names_in(dim: Any) -> frozenset[str]:
    """Return the variables of a dimension; none for any other value."""
    if isinstance(dim, FloatDim):
        dim = dim.dividend
    return _names(dim) if is_symbolic_dim(dim) else frozenset()


@functools.lru_cache(maxsize=4096)
def _names(dim: Any) -> frozenset[str]:
    return frozenset(factor for factor in factors_in(dim) if isinstance(factor, str))


def operations_in(dim: Any) -> set[str]:
    """Return the operations in a dimension: ``floordiv``, ``mod``, ``max``, ``min``."""
    return {factor[0] for factor in factors_in(dim) if not isinstance(factor, str)}


def numbers_in(dim: Any) -> Iterator[int]:
    """Yield the coefficients and exponents of a dimension and of its operands."""
    if not is_symbolic_dim(dim):
        yield dim
        return
    for times, factors in dim_terms(dim):
        yield times
        for factor, power in factors:
            yield power
            for operand in () if isinstance(factor, str) else factor[1:]:
                yield from numbers_in(operand)


def is_linear(dim: Any) -> bool:
    """Return whether a dimension is a sum of variables, minima, maxima, a number."""
    if not is_symbolic_dim(dim):
        return True
    return operations_in(dim) <= {"max", "min"} and all(
        not factors
        or (
            (abs(times) == 1 and len(factors) == 1 and factors[0][1] == 1)
            and (isinstance(factors[0][0], str) or all(map(is_linear, factors[0][0][1:])))
        )
        for times, factors in dim_terms(dim)
    )


def linear_terms(dim: Any) -> dict[str, int] | None:
    """Return a dimension's coefficients by variable; None if it is not linear.

    That of "" is the constant.
    """
    found: dict[str, int] = {}
    for times, factors in dim_terms(dim) if is_symbolic_dim(dim) else ((dim, ()),):
        (name, power), *others = factors or (("", 1),)
        if others or power != 1 or not isinstance(name, str):
            return None
        found[name] = times
    return found


def variable(name: str, scope: SymbolicScope) -> Any:
    """Return the dimension that is a variable."""
    return symbolic_shape(name, scope=scope)[0]


def _extreme(of_arrays: Any, of_numbers: Any, of_sizes: Any) -> Callable[..., Any]:
    def chosen(a: Any, b: Any) -> Any:
        if isinstance(a, jax.Array) or isinstance(b, jax.Array):
            return of_arrays(a, b)
        return (of_numbers if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else of_sizes)(a, b)

    return chosen


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": _extreme(jnp.maximum, np.maximum, max_dim),
    "min": _extreme(jnp.minimum, np.minimum, min_dim),
}


def value(dim: Any, given: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """Evaluate a dimension for given values: ints, arrays or dimensions.

    Args:
      functions: other definitions of operations, by name: ``floordiv``, ``mod``, ``max``, ``min``.
    """
    if not is_symbolic_dim(dim):
        return dim
    total: Any = None
    for times, factors in dim_terms(dim):
        found = product(abs(times) if total is not None else times, factors, given, functions)
        if total is None:
            total = found
        else:
            total = total + found if times > 0 else total - found
    return total


def product(
    times: int,
    factors: Sequence[tuple[Any, int]],
    given: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Evaluate a term of a dimension; see `value`."""
    parts = [] if times in (1, -1) and factors else [times]
    for factor, power in factors:
        if isinstance(factor, str):
            found = given[factor]
        else:
            name, *operands = factor
            function = (functions or {}).get(name) or _FUNCTIONS[name]
            found = function(*[value(operand, given, functions) for operand in operands])
        parts.append(found if power == 1 else found**power)
    whole = functools.reduce(operator.mul, parts)
    return -whole if times == -1 and factors else whole


def largest(dim: Any, bounds: Mapping[str, int]) -> int | None:
    """Return a dimension's maximum for variables from 1 to ``bounds``, or None."""
    found = sorted(names_in(dim))
    if len(found) == 1 and bounds[found[0]] <= _MAX_ENUMERATED:
        return int(np.max(value(dim, {found[0]: np.arange(1, bounds[found[0]] + 1)})))
    if has_no_extreme_corner(dim):
        return None
    corners = itertools.product(*[(1, bounds[name]) for name in found])
    return max(int(value(dim, dict(zip(found, corner, strict=True)))) for corner in corners)


def has_no_extreme_corner(dim: Any) -> bool:
    """Return whether a dimension's maximum may be at no corner, or has too many.

    A corner is the smallest or largest value of each variable.
    """
    return "mod" in operations_in(dim) or len(names_in(dim)) > _MAX_VARIABLES


class Constraint(NamedTuple):
    """A constraint on symbolic dimensions: one is at least as large as another.

    JAX needs one to know that ``b*n - b`` is not negative, though sizes are at least 1. Another, such as ``b >= 5``,
    restricts sizes: ``tf.zeros([b - 5])`` needs b to be 5 or more, and TensorFlow fails for smaller ones.
    """

    larger: Any
    smaller: Any

    def __str__(self) -> str:
        """Return the text that ``jax.export.symbolic_shape`` takes."""
        if is_symbolic_dim(self.larger):
            return f"{self.larger} >= {self.smaller}"
        return f"{self.smaller} <= {self.larger}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it holds for given sizes."""
        return bool(value(self.larger, sizes) >= value(self.smaller, sizes))

    def holds_for_all(self) -> bool:
        """Return whether it holds for all sampled sizes."""
        return all(self._samples(SIZES))

    def holds_for_some(self) -> bool:
        """Return whether it holds for a sample of small and large sizes."""
        return any(self._samples(_LARGE))

    def _samples(self, tried: Sequence[int]) -> list[bool]:
        """Return for each sample if it holds; [False] if unsampled."""
        names = sorted(names_in(self.larger) | names_in(self.smaller))
        if not 0 < len(names) <= MAX_SAMPLED_VARIABLES:
            return [False]
        grid = np.meshgrid(*[np.array(tried)] * len(names))
        sizes = dict(zip(names, grid, strict=True))
        return (value(self.larger, sizes) - value(self.smaller, sizes) >= 0).reshape(-1).tolist()


def constraint_asked_for(error: BaseException) -> Constraint | None:
    """Return the constraint that JAX would need for an inconclusive comparison.

    None if the error is another one, a size depends on data, or the constraint holds for no sampled sizes.
    """
    found = inconclusive_comparison(error)
    if found is None or any(name.startswith(DYNAMIC) for dim in found for name in names_in(dim)):
        return None
    constraint = Constraint(*found)
    return constraint if constraint.holds_for_some() else None


def constraint_of_shapes(shapes: Sequence[Sequence[Any]]) -> Constraint | None:
    """Return a constraint that would make sizes of operands equal: ``n <= 20``.

    The first n of 20 rows are min(n, 20) rows. Adding n rows to them needs n <= 20, or TensorFlow fails.
    """
    dims = {dim for shape in shapes for dim in shape if is_symbolic_dim(dim)}
    for dim in dims:
        terms = dim_terms(dim)
        if len(terms) == 1 and terms[0][0] == 1 and len(terms[0][1]) == 1:
            ((factor, power),) = terms[0][1]
            if power == 1 and not isinstance(factor, str) and factor[0] == "min":
                limits, sizes = (
                    [o for o in factor[1:] if is_symbolic_dim(o) is symbolic] for symbolic in (False, True)
                )
                if limits and sizes and sizes[0] in dims and not any(n.startswith(DYNAMIC) for n in names_in(dim)):
                    return Constraint(limits[0], sizes[0])
    return None


_Evaluate = Callable[[Any], Any]
_Term = tuple[int, tuple[tuple[Any, int], ...]]


def _inner_quotient(terms: Sequence[_Term]) -> tuple[Any, int, int] | None:
    """Return (dividend, divisor, addend) if the terms are a quotient plus addend."""
    # Otherwise return None.
    (number, factors), *others = terms
    if number != 1 or len(factors) != 1 or any(of for _, of in others):
        return None
    ((factor, power),) = factors
    if power != 1 or isinstance(factor, str) or factor[0] != "floordiv":
        return None
    _, dividend, divisor = factor
    if not isinstance(divisor, int) or divisor < 1:
        return None
    return dividend, divisor, sum(added for added, _ in others)


def _quotient(evaluate: _Evaluate, of_term: Callable[..., Any], dividend: Any, divisor: Any) -> Any:
    """Return ``dividend // divisor`` in canonical form, for a dividend in that form."""
    if not isinstance(divisor, int) or divisor < 1 or not is_symbolic_dim(dividend):
        return dividend // divisor
    quotient = functools.partial(_quotient, evaluate, of_term)
    terms = dim_terms(dividend)
    if terms[0][0] < 0:
        return -quotient(divisor - 1 - dividend, divisor)
    whole: Any = 0
    for number, factors in terms:
        # Rounded toward zero, so that no term changes its sign; but the rest of a constant is positive.
        part = int(number / divisor) if factors else number // divisor
        whole = whole + (of_term(part, factors) if part else 0)
    rest = dividend - divisor * whole
    if is_symbolic_dim(whole):
        return whole + quotient(rest, divisor)
    common = math.gcd(divisor, *(number for number, factors in terms if factors))
    if common > 1:
        parts = [of_term(number // common, factors) for number, factors in terms if number // common]
        return quotient(sum(parts), divisor // common)
    if is_symbolic_dim(rest) and (inner := _inner_quotient(dim_terms(rest))):
        of, by, added = inner
        return whole + quotient(evaluate(of) + added * by, by * divisor)
    return whole + rest // divisor


@functools.lru_cache(maxsize=4096)
def canonical_dim(size: Any) -> Any:
    """Return a dimension in canonical form."""
    if not is_symbolic_dim(size) or not {"floordiv", "mod"} & operations_in(size):
        return size
    given = {name: variable(name, size.scope) for name in names_in(size)}

    def remainder(dividend: Any, divisor: Any) -> Any:
        if not isinstance(divisor, int) or divisor < 1:
            return dividend % divisor
        return dividend - divisor * quotient(dividend, divisor)

    def evaluate(dim: Any) -> Any:
        return value(dim, given, functions)

    def of_term(times: int, factors: Sequence[tuple[Any, int]]) -> Any:
        return product(times, factors, given, functions)

    quotient = functools.partial(_quotient, evaluate, of_term)
    functions = {"floordiv": quotient, "mod": remainder}
    return evaluate(size)


def canonical_array(array: Any) -> Any:
    """Return an array with its dimensions in canonical form.

    The array is padded by the difference, which is 0: XLA drops the padding once sizes are static.
    """
    shape = tuple(map(canonical_dim, array.shape))
    if shape == array.shape:
        return array
    more = [(0, wanted - size, 0) for wanted, size in zip(shape, array.shape, strict=True)]
    return lax.pad(array, np.zeros((), array.dtype), more)


def canonical_result(value: Any) -> Any:
    """Return an array with its dimensions in canonical form; others unchanged."""
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return canonical_array(value)
    if not is_symbolic(value):
        return value
    found = np.empty_like(value)
    found.flat[:] = [canonical_dim(v) if is_symbolic_dim(v) else v for v in value.flat]
    return found
