"""Evaluate a jaxpr with dynamic dimensions on arrays padded to their bounds.

`Sizes` evaluates symbolic dimensions: capacity (static) and actual size (run time).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Var, bind
from tf2jax_lite.jaxprs.evaluate import evaluate, inner, parts
from tf2jax_lite.support.errors import OpError, Tf2JaxError
from tf2jax_lite.values.static import as_array

from .bounds import is_data_dependent
from .dim_expr import has_no_extreme_corner, largest, names_in, value
from .primitives import truncate_p
from .unification import affected_by_assumptions

_SAMPLE = 1000  # a size


def is_symbolic(shape: Sequence[Any]) -> bool:
    """Return whether a shape has a data-dependent dimension."""
    return any(is_data_dependent(d) for d in shape)


class Sizes:
    """The upper bounds and the run-time values of the variables in dimensions.

    Attributes:
      checks: bool scalars, one per assumption about sizes: whether it holds.

    Args:
      others: the symbolic dimensions of arguments, by name; they are not data-dependent.
    """

    def __init__(self, others: Mapping[str, Any] | None = None) -> None:
        self._others = dict(others or {})
        self._bounds: dict[str, Any] = {}
        self._actual: dict[str, Any] = {}
        self.checks: list[Any] = []

    def define(self, name: str, bound: Any, actual: Any) -> None:
        """Define a variable.

        Args:
          actual: its value, an int32 scalar.
        """
        self._bounds[name] = bound
        self._actual[name] = actual

    @property
    def values(self) -> dict[str, Any]:
        """The value of each variable."""
        return dict(self._actual)

    def with_values(self, values: Mapping[str, Any]) -> Sizes:
        """Return the same upper bounds with other values of the variables, and no checks."""
        out = Sizes(self._others)
        out._bounds.update(self._bounds)
        out._actual.update(values)
        return out

    def capacity(self, dim: Any) -> Any:
        """Return the upper bound of a dimension: an int, or a dimension of ``others``."""
        if not is_data_dependent(dim):
            return dim
        found = sorted(names_in(dim) - self._others.keys())
        known = {name: self._bounds[name] for name in found if name in self._bounds}
        bound = None
        if names_in(dim) == known.keys() and all(isinstance(v, int) for v in known.values()):
            bound = largest(dim, known)
        elif len(known) == len(found):
            bound = self._with_others(dim, found)
        if bound is None:
            raise OpError(f"the dimension {dim} has no known upper bound")
        return max(0, bound) if isinstance(bound, int) else bound

    def _with_others(self, dim: Any, found: Sequence[str]) -> Any:
        if has_no_extreme_corner(dim):
            return None
        # The corner of the maximum does not depend on the values of the others: a sample of those finds it.
        sizes = dict.fromkeys(self._others, _SAMPLE)
        corners = [dict(zip(found, at, strict=True)) for at in itertools.product((False, True), repeat=len(found))]

        def sampled(corner: Mapping[str, bool]) -> int:
            samples = {name: self._sampled(self._bounds[name]) if high else 1 for name, high in corner.items()}
            return int(value(dim, sizes | samples))

        best = max(corners, key=sampled)
        return value(dim, self._others | {name: self._bounds[name] if high else 1 for name, high in best.items()})

    def _sampled(self, bound: Any) -> int:
        return value(bound, dict.fromkeys(self._others, _SAMPLE))

    def actual(self, dim: Any) -> Any:
        """Return the run-time size of a dimension: an int, or an int32 scalar."""
        if isinstance(dim, int):
            return dim
        others = {name: jnp.asarray(value).astype(np.int32) for name, value in self._others.items()}
        return value(dim, others | self._actual)

    def padded_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the shape with each dimension replaced by its capacity."""
        return tuple(self.capacity(d) for d in shape)

    def valid(self, shape: Sequence[Any], axes: Sequence[int] | None = None) -> Any:
        """Return a mask of the valid elements; None if all are valid.

        The padded axes are ``axes``, all by default. The mask is a bool array that broadcasts to the padded shape.
        """
        found = None
        for axis in range(len(shape)) if axes is None else axes:
            if not is_data_dependent(shape[axis]):
                continue
            extent = tuple(self.capacity(shape[axis]) if i == axis else 1 for i in range(len(shape)))
            valid = lax.broadcasted_iota(np.int32, extent, axis) < self.actual(shape[axis])
            found = valid if found is None else found & valid
        return found

    def filled(self, x: Any, shape: Sequence[Any], value: Any, axes: Sequence[int] | None = None) -> Any:
        """Return a padded array with ``value`` in its padding along axes (all)."""
        valid = self.valid(shape, axes)
        return x if valid is None else jnp.where(valid, x, jnp.asarray(value, x.dtype))


Rule = Callable[["Evaluator", Any, list[Any]], list[Any]]
"""Evaluates one equation: takes it and its padded operands, returns its padded results."""

rules: dict[str, Rule] = {}


def rule(*names: str, bounded: bool = False) -> Callable[[Rule], Rule]:
    """Register the rule of some primitives.

    Args:
      bounded: whether the padding of floating-point results is set to 0, which stops NaN gradients there.
    """

    def register(found: Rule) -> Rule:
        rules.update(dict.fromkeys(names, _bounded(found) if bounded else found))
        return found

    return register


def _bounded(found: Rule) -> Rule:
    def result(ev: Evaluator, var: Any, value: Any) -> Any:
        aval = var.aval
        return ev.sizes.filled(value, aval.shape, 0) if jnp.issubdtype(aval.dtype, jnp.inexact) else value

    @functools.wraps(found)
    def bounded(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
        return [result(ev, *pair) for pair in zip(eqn.outvars, found(ev, eqn, args), strict=True)]

    return bounded


class Evaluator:
    """Evaluates equations on padded arrays.

    Padding holds arbitrary finite values, and rules keep them from valid elements. Gradients flow the other way: where
    valid operands influence padding of the result, the rule is `bounded`: a NaN gradient of padding stops there.

    Args:
      sizes: the variables in dimensions; equations of `truncate_p` define more.
    """

    def __init__(self, sizes: Sizes):
        self.sizes = sizes
        self._symbolic: dict[int, bool] = {}

    def run(self, closed: Any, args: Sequence[Any]) -> list[Any]:
        """Evaluate a jaxpr, closed or open."""

        def literal(value: Any) -> Any:
            # A literal may have numpy's 64-bit dtype where the equation expects JAX's 32-bit one.
            return as_array(value) if isinstance(value, np.ndarray | np.generic) else value

        return evaluate(closed, args, self._equation, literal=literal)

    def inside(self, closed: Any, *args: Any) -> list[Any]:
        """Evaluate a jaxpr in a trace of its own, with its own variables and checks."""
        return [jnp.asarray(v) for v in Evaluator(self.sizes.with_values(self.sizes.values)).checked(closed, args)]

    def checked(self, closed: Any, args: Sequence[Any], indices: Sequence[bool] | None = None) -> list[Any]:
        """Evaluate a jaxpr.

        Results that depend on a violated assumption about sizes are invalidated. Floating-point and complex results
        become NaN, integers ``iinfo(dtype).min``, unsigned ones ``.max``.

        Args:
          indices: for results that leave the program padded, whether they are indices of an op, whose padding is -1 or
            0 already; all other padding becomes 0.
        """
        results = self.run(closed, args)
        if indices is not None:
            results = list(map(self._filled, parts(closed)[0].outvars, results, indices))
        if not self.sizes.checks:
            return results
        fits = functools.reduce(operator.and_, self.sizes.checks)
        affected = affected_by_assumptions(parts(closed)[0])
        return [
            self._invalidated(v, x, fits) if isinstance(v, Var) and v in affected else x
            for v, x in zip(parts(closed)[0].outvars, results, strict=True)
        ]

    def _filled(self, var: Any, value: Any, is_index: bool) -> Any:
        """Return a result with the filler that users see in its padding."""
        shape = var.aval.shape
        if not is_symbolic(shape) or jnp.issubdtype(value.dtype, jax.dtypes.extended):
            return value
        return self.sizes.filled(value, shape, jnp.clip(value, -1, 0) if is_index else 0)

    def _invalidated(self, var: Any, value: Any, fits: Any) -> Any:
        dtype = var.aval.dtype
        if jnp.issubdtype(dtype, jnp.integer):  # the fill values of jnp.take
            info = jnp.iinfo(dtype)
            return jnp.where(fits, value, info.min if jnp.issubdtype(dtype, jnp.signedinteger) else info.max)
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise OpError(
                f"two data-dependent sizes are assumed to be equal, and a result of dtype {dtype} has no value that "
                "marks it invalid if they are not"
            )
        return value * jnp.where(fits, 1, jnp.nan).astype(value.dtype)  # a product, so the gradient is NaN, too

    def _equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        if not self._is_dynamic(eqn):
            return bind(eqn, *args)
        found = rules.get(eqn.primitive.name)
        if found is None:
            raise unsupported(eqn)
        try:
            return found(self, eqn, args)
        except OpError as error:
            where = str(eqn.source_info.name_stack)
            if where and "(node " not in str(error):  # raised inside of a call, without its node
                raise OpError(f"{error} (node {where!r})") from error
            raise
        except Tf2JaxError:
            raise
        except Exception as error:  # of JAX, about operands that a rule padded
            raise OpError(f"JAX's {describe(eqn)}: {type(error).__name__}: {str(error).split(chr(10))[0]}") from error

    def is_symbolic(self, closed: Any) -> bool:
        """Return whether an equation of a jaxpr has a data-dependent dimension."""
        jaxpr, _ = parts(closed)
        if id(jaxpr) not in self._symbolic:
            self._symbolic[id(jaxpr)] = any(map(self._is_dynamic, jaxpr.eqns))
        return self._symbolic[id(jaxpr)]

    def _is_dynamic(self, eqn: Any) -> bool:
        if (
            eqn.primitive is truncate_p
            or is_data_dependent(eqn.params.get("dim", 0))
            or any(is_symbolic(v.aval.shape) for v in _shaped(eqn))
        ):
            return True
        return any(map(self.is_symbolic, inner(eqn.params)))


def _shaped(eqn: Any) -> Iterator[Any]:
    return (v for v in (*eqn.invars, *eqn.outvars) if hasattr(v.aval, "shape"))


def describe(eqn: Any) -> str:
    """Return an equation's primitive, operand shapes and node, for messages."""
    where = str(eqn.source_info.name_stack)
    shapes = ", ".join(str(list(v.aval.shape)) for v in eqn.invars if hasattr(v.aval, "shape"))
    return f"{eqn.primitive.name} of shapes {shapes}" + (f" (node {where!r})" if where else "")


def unsupported(eqn: Any) -> OpError:
    """Return the error for an equation without a rule for dynamic dimensions."""
    return OpError(f"JAX's {describe(eqn)} cannot have a size that depends on traced values there")
