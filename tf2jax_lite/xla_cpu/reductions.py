"""Reductions over leading axes of long rows on CPU, and argmax and argmin.

XLA (of JAX 0.10) computes a reduction of floats column by column where rows are longer than some 2^14 values: each
value of a column is in another page of memory, and several columns are not vectorized. Added up row by row, sixteen at
a time, it takes a fourth to a sixtieth of that (two cores with AVX-512).

`argmax` and `argmin` compare pairs of value and index one after the other. The largest value, and then the first index
that has it, are two vectorized reductions: mostly a half to a ninth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length

from . import cost_model
from .materialize import materialize
from .rules import call, with_cpu_rule
from .selection import Rule, by_table, choose

_EXACT = 1 << 24  # integers up to here are exact in float32


def has_long_rows(shape: Sequence[Any], axes: Sequence[int]) -> bool:
    """Return whether a reduction has long rows; False for symbolic sizes."""
    if not axes or not all(isinstance(n, int) for n in shape):
        return False
    first, last = min(axes), max(axes)
    rows = math.prod(shape[first : last + 1])
    return len(axes) == last - first + 1 and rows > 1 and math.prod(shape[last + 1 :]) > cost_model.REDUCE_MAX_ROW


def reduce_axes(fn: Callable[..., Any], x: Any, axes: tuple[int, ...]) -> Any:
    """Return ``fn(x, axes)``, on CPU row by row where rows are long.

    Args:
      fn: ``lax.reduce_sum``, ``lax.reduce_max`` or ``lax.reduce_min``.
      x: an array.
      axes: its axes to reduce over, none negative.
    """
    if has_long_rows(jnp.shape(x), axes) and jnp.issubdtype(x.dtype, jnp.floating):
        return call(fn, x, axes=tuple(axes))
    return fn(x, axes)


def repeats_long_rows(shape: Sequence[Any], result: Sequence[Any]) -> bool:
    """Return whether broadcasting between two shapes repeats long rows."""
    first = len(result) - len(shape)
    repeated = [i for i, n in enumerate(result) if i < first or (shape[i - first] == 1 and n != 1)]
    return has_long_rows(result, repeated)


def broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """Return ``jnp.broadcast_to``, with a derivative by `reduce_axes`.

    Args:
      x: an array of at most as many axes.
      shape: of the result.
    """
    axes = tuple(range(len(shape) - x.ndim, len(shape)))
    return call(lax.broadcast_in_dim, x, shape=tuple(shape), broadcast_dimensions=axes)


def arg_reduce(fn: Callable[..., Any], x: Any, axis: int) -> Any:
    """Return ``fn(x, axis, int32)``, on CPU from the largest or smallest values.

    Args:
      fn: ``lax.argmax`` or ``lax.argmin``.
      x: an array without NaN.
      axis: the axis that is searched, not negative.

    Returns:
      The first index of the value, int32.
    """
    return call(fn, lax.stop_gradient(ensure_length(x, axis, 1)), axis=axis, index_dtype=np.dtype(np.int32))


def _is_by_rows(x: Any, *, axes: tuple[int, ...], **params: Any) -> bool:
    return has_long_rows(x.shape, axes) and jnp.issubdtype(x.dtype, jnp.floating)


def _by_rows(x: Any, *, axes: tuple[int, ...], fn: Callable[..., Any], **params: Any) -> Any:
    first, last = min(axes), max(axes)
    if last > first:
        x = lax.reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))
    return _rows(x, first, fn)  # not reshaped otherwise: x may be read in its present layout, too


def _rows(x: Any, axis: int, fn: Callable[..., Any]) -> Any:
    """Reduce one axis of an array of static shape."""
    count = x.shape[axis]
    full, rest = divmod(count, cost_model.REDUCE_ROWS)
    if full == 0:
        return _tree(x, axis, fn)
    total = _tree(lax.slice_in_dim(x, 0, cost_model.REDUCE_ROWS, axis=axis), axis, fn)
    if full > 1:

        def step(index: Any, total: Any) -> Any:
            starts = [np.int32(0)] * x.ndim
            # JAX's own index is wider in 64-bit mode.
            starts[axis] = lax.convert_element_type(index, np.int32) * np.int32(cost_model.REDUCE_ROWS)
            sizes = [cost_model.REDUCE_ROWS if d == axis else n for d, n in enumerate(x.shape)]
            part = lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)
            return fn(total, _tree(part, axis, fn))

        total = lax.fori_loop(np.int32(1), np.int32(full), step, total)
    return fn(total, _tree(lax.slice_in_dim(x, count - rest, count, axis=axis), axis, fn)) if rest else total


def _tree(x: Any, axis: int, fn: Callable[..., Any]) -> Any:
    """Reduce a few rows, pair by pair."""
    parts = [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]
    while len(parts) > 1:
        pairs = [fn(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def _is_two_reductions(x: Any, *, axes: tuple[int, ...], **params: Any) -> bool:
    (axis,) = axes
    size = x.shape[axis]
    return isinstance(size, int) and size >= 1 and (axis != x.ndim - 1 or size >= cost_model.ARG_MIN_LAST_AXIS)


def _two_reductions(x: Any, *, axes: tuple[int, ...], index_dtype: Any, fn: Callable[..., Any], of: Any) -> Any:
    (axis,) = axes
    size = x.shape[axis]

    def over(fn: Callable[..., Any], of: Any, x: Any) -> Any:
        return fn(x, axes) if choose(RULES, x, axes=axes) is None else _by_rows(x, axes=axes, fn=of)

    # Materialized, as XLA would write the largest value once for each index; and floats, as it is slow with integers.
    best = materialize(over(fn, of, x))
    found = lax.eq(x, lax.broadcast_in_dim(best, x.shape, [d for d in range(x.ndim) if d != axis]))
    dtype = np.dtype(np.float32) if size <= _EXACT else index_dtype
    indices = lax.broadcasted_iota(dtype, x.shape, axis)
    indices = lax.select(found, indices, lax.full(x.shape, size - 1, dtype))
    return lax.convert_element_type(over(lax.reduce_min, lax.min, indices), index_dtype)


RULES = (
    Rule("reduce_by_rows", _is_by_rows, _by_rows, "XLA reduces long rows column by column, one page for each value."),
)
ARG_RULES = (
    Rule(
        "argmax_two_reductions",
        _is_two_reductions,
        _two_reductions,
        "XLA compares pairs of value and index one by one; two reductions vectorize. Not for NaN.",
    ),
)


for _primitive, _fn in ((lax.reduce_sum_p, lax.add), (lax.reduce_max_p, lax.max), (lax.reduce_min_p, lax.min)):
    with_cpu_rule(_primitive, by_table(RULES, fn=_fn))
with_cpu_rule(lax.broadcast_in_dim_p)
with_cpu_rule(lax.argmax_p, by_table(ARG_RULES, fn=lax.reduce_max, of=lax.max))
with_cpu_rule(lax.argmin_p, by_table(ARG_RULES, fn=lax.reduce_min, of=lax.min))
