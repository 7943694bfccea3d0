"""Induction variables: a body's integers with static values throughout.

They come from static inputs, from carried counters (such as the length of a list that each iteration extends), and
from static stacks of indices (such as those that an earlier loop saved for its gradient).

Such an integer is an array of the values of all iterations, or `Affine`, which needs no array: the number of iterations
may be symbolic or large.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from tf2jax_lite.jaxprs.compat import Literal, Var, max_dim, min_dim

from .body import Body

# The primitives of index arithmetic in numpy: jax.numpy counts a negative index from the end.
_INDEX_ARITHMETIC = {
    lax.add_p: np.add,
    lax.sub_p: np.subtract,
    lax.mul_p: np.multiply,
    lax.lt_p: np.less,
    lax.select_n_p: lambda which, no, yes: np.where(which, yes, no),
}
RESHAPES = frozenset({lax.broadcast_in_dim_p, lax.convert_element_type_p, lax.squeeze_p, lax.reshape_p, lax.copy_p})
"""The primitives that keep a number, as an array of one element."""
COMPARISONS: dict[Any, Callable[[Any], Any]] = {
    lax.lt_p: lambda d: d < 0,
    lax.le_p: lambda d: d <= 0,
    lax.gt_p: lambda d: d > 0,
    lax.ge_p: lambda d: d >= 0,
}
"""Tests of the difference of a comparison's operands, by primitive."""
_ARITHMETIC = {lax.add_p, lax.sub_p, lax.lt_p, lax.select_n_p, *RESHAPES}
INDEXING = frozenset({*_ARITHMETIC, lax.dynamic_slice_p})
"""The primitives that an element is read from a stack with."""


@dataclasses.dataclass(frozen=True)
class Affine:
    """The integer ``step * t + first`` in iteration t of ``trips``."""

    step: int
    first: Any
    trips: Any

    @property
    def after(self) -> Any:
        """The value after the last iteration."""
        return self.first + self.step * self.trips

    def values(self, count: int, dtype: Any) -> np.ndarray:
        """Return the values in the first ``count`` iterations."""
        return (self.first + self.step * np.arange(count, dtype=np.int64)).astype(dtype)

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        """Return the sum with another such integer, or their difference."""
        return Affine(self.step + sign * other.step, self.first + sign * other.first, self.trips)

    def always(self, test: Callable[[Any], Any]) -> bool | None:
        """Return the result of a monotonic test in all iterations; None if it changes."""
        try:
            first, last = bool(test(self.first)), bool(test(self.after - self.step))
        except Exception:  # symbolic dimensions do not always compare
            return None
        return first if first == last else None


class Access(NamedTuple):
    """An element along an axis for each iteration, consecutively.

    Attributes:
      step: 1, or -1 if indices decrease.
    """

    axis: int
    first: Any
    step: int


def induction_variables(body: Body, eqns: Sequence[Any], starts: Mapping[Any, Any]) -> dict[Any, Affine]:
    """Return the carried integers that each iteration changes by a constant.

    Args:
      starts: the carried integers that are static in the first iteration, and their values there.
    """
    defined_by = {v: e for e in eqns for v in e.outvars}
    found = {}
    for before, after in zip(body.carry, body.carry_out, strict=True):
        eqn = defined_by.get(after) if isinstance(after, Var) else None
        if before not in starts or eqn is None or eqn.primitive not in (lax.add_p, lax.sub_p):
            continue
        operands = eqn.invars[::-1] if eqn.primitive is lax.add_p and eqn.invars[1] is before else eqn.invars
        if operands[0] is before and isinstance(operands[1], Literal):
            step = int(operands[1].val) * (1 if eqn.primitive is lax.add_p else -1)
            found[before] = Affine(step, starts[before], body.trips)
    return found


def index_values(
    eqns: Sequence[Any], constants: Mapping[Any, Any], xs: Mapping[Any, Any], trips: Any
) -> dict[Any, Any]:
    """Return the static integers and booleans that are computed of static ones.

    Args:
      constants: loop-invariant numbers, and stacks of numbers.
      xs: arrays of the numbers in all iterations, or `Affine`.

    Returns:
      ``xs`` with the results of equations added; a boolean of `Affine` values is that of all iterations.
    """
    found = dict(xs)
    for eqn in eqns:
        result = eqn.outvars[0].aval if len(eqn.outvars) == 1 else None
        if result is None or getattr(result, "shape", None) not in ((), (1,)) or not is_integer(result.dtype):
            continue
        if eqn.primitive.name == "dim_as_value":
            found[eqn.outvars[0]] = Affine(0, eqn.params["dim"], trips)
        if eqn.primitive.name == "materialize" and isinstance(eqn.invars[0], Var) and eqn.invars[0] in found:
            found[eqn.outvars[0]] = found[eqn.invars[0]]
        if not any(isinstance(v, Var) and v in found for v in eqn.invars):
            continue
        operands: list[Any] = [v.val if isinstance(v, Literal) else found.get(v, constants.get(v)) for v in eqn.invars]
        if any(isinstance(a, Affine) or a is True or a is False for a in operands):
            value = _affine(eqn, operands, trips)
        else:
            value = None if any(a is None for a in operands) else _folded(eqn, operands, result)
        if value is not None:
            found[eqn.outvars[0]] = value
    return found


def consecutive(index: Any, axis: int, shape: Sequence[Any]) -> Access | None:
    """Return an index's access to consecutive elements, all in range; else None.

    Args:
      index: an integer for each iteration, as an array or `Affine`.
    """
    if isinstance(index, Affine):
        first = index.first if index.step > 0 else index.after - index.step
        try:
            is_inside = bool(first >= 0 and first + index.trips <= shape[axis])
        except Exception:  # symbolic dimensions do not always compare
            return None
        return Access(axis, first, index.step) if is_inside and abs(index.step) == 1 else None
    count = len(index)
    for step in (1, -1):
        first = int(index[::step][0])
        if (
            isinstance(shape[axis], int)
            and 0 <= first <= shape[axis] - count
            and np.array_equal(index[::step], np.arange(first, first + count))
        ):
            return Access(axis, first, step)
    return None


def fold_index(eqn: Any, operands: Sequence[Any]) -> list[Any] | None:
    """Evaluate index arithmetic on static operands in numpy; None for other equations.

    JAX would compile a program for each.
    """
    function = _INDEX_ARITHMETIC.get(eqn.primitive)
    if function is None or any(v.aval.shape for v in eqn.invars) or not all(map(is_static, operands)):
        return None
    return [np.asarray(function(*operands), eqn.outvars[0].aval.dtype)]


def is_static(value: Any) -> bool:
    """Return whether a value is static: known while tracing."""
    return isinstance(value, (np.ndarray, np.generic, int, float))


def is_integer(dtype: Any) -> bool:
    """Return whether a dtype is that of integers or booleans."""
    return jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_


def _folded(eqn: Any, operands: Sequence[Any], result: Any) -> np.ndarray | None:
    """Evaluate an equation on arrays of the values in all iterations."""
    shapes = [v.aval.shape for v in eqn.invars]
    if eqn.primitive in RESHAPES:
        return np.reshape(operands[0], (-1, *result.shape)).astype(result.dtype) if shapes[0] in ((), (1,)) else None
    if eqn.primitive is lax.dynamic_slice_p:
        stack, index = operands
        if len(shapes[0]) != 1 or np.ndim(stack) != 1:
            return None
        return np.asarray(stack)[np.clip(index, 0, len(stack) - 1)][:, None].astype(result.dtype)
    numbers = fold_index(eqn, operands) if eqn.primitive in _ARITHMETIC else None
    return None if numbers is None else numbers[0]


def _affine(eqn: Any, operands: Sequence[Any], trips: Any) -> Affine | bool | None:
    """Evaluate an equation on `Affine` integers, and booleans of all iterations."""
    primitive = eqn.primitive
    if primitive is lax.select_n_p:
        which = operands[0]
        return _lifted(operands[1 + which], trips) if isinstance(which, bool) else None
    parts = [_lifted(value, trips) for value in operands]
    if any(part is None for part in parts):
        return None
    x: Any = parts[0]
    y: Any = parts[-1]
    if primitive in RESHAPES:
        return x
    if primitive is lax.neg_p:
        return Affine(-x.step, -x.first, trips)
    if primitive is lax.add_p or primitive is lax.sub_p:
        return x.plus(y, 1 if primitive is lax.add_p else -1)
    if primitive is lax.mul_p and (x.step == 0 or y.step == 0) and not any(is_symbolic_dim(p.first) for p in (x, y)):
        return Affine(x.step * y.first + y.step * x.first, x.first * y.first, trips)
    if primitive in COMPARISONS:
        return x.plus(y, -1).always(COMPARISONS[primitive])
    if primitive is lax.min_p or primitive is lax.max_p:
        is_first = x.plus(y, -1).always(COMPARISONS[lax.le_p if primitive is lax.min_p else lax.ge_p])
        if is_first is None and x.step == y.step == 0:
            return Affine(0, (min_dim if primitive is lax.min_p else max_dim)(x.first, y.first), trips)
        return None if is_first is None else x if is_first else y
    if primitive is lax.clamp_p:
        low, value, high = parts
        at_most = COMPARISONS[lax.le_p]
        is_inside = low.plus(value, -1).always(at_most) and value.plus(high, -1).always(at_most)  # type: ignore[union-attr]
        return value if is_inside else None
    return None


def _lifted(value: Any, trips: Any) -> Affine | None:
    """Return an integer as `Affine`; None for other values."""
    if isinstance(value, Affine):
        return value
    if is_symbolic_dim(value):
        return Affine(0, value, trips)
    array = np.asarray(value)
    return Affine(0, int(array.reshape(())), trips) if array.size == 1 and array.dtype.kind in "iu" else None
