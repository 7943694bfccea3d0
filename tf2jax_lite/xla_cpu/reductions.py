"""Reductions over leading axes on CPU, of rows that are long, and the places of the largest and smallest.

XLA (of JAX 0.10) takes a reduction of floats column by column where rows are longer than some 2^14 values: each value
of a column is in another page of memory, and nothing is done for several columns at once. Added up row by row, sixteen
at a time, it takes a fourth to a sixtieth of that (two cores with AVX-512).

`argmax` and `argmin` compare pairs of value and place one after the other. The largest value, and then the first place
that has it, are two reductions of many values at once: mostly a half to a ninth of the time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length

from .materialize import once
from .rules import call, twin

__all__ = ["is_long", "is_spread", "place", "reduced", "spread"]

_LONGEST = 1 << 14  # values of a row that XLA takes as fast
_TOGETHER = 16
_FEWEST_PLACES = 32  # along the last axis: fewer XLA compares as fast
_EXACT = 1 << 24  # whole numbers up to here are exact in float32


def is_long(shape: Sequence[Any], axes: Sequence[int]) -> bool:
    """Returns whether a reduction over these axes has rows that are long; False where sizes are symbolic."""
    if not axes or not all(isinstance(n, int) for n in shape):
        return False
    first, last = min(axes), max(axes)
    rows = math.prod(shape[first : last + 1])
    return len(axes) == last - first + 1 and rows > 1 and math.prod(shape[last + 1 :]) > _LONGEST


def reduced(fn: Callable[..., Any], x: Any, axes: tuple[int, ...]) -> Any:
    """Returns ``fn(x, axes)``, on CPU row by row where rows are long.

    Args:
      fn: ``lax.reduce_sum``, ``lax.reduce_max`` or ``lax.reduce_min``.
      x: an array.
      axes: its axes to reduce over, none negative.
    """
    if is_long(jnp.shape(x), axes) and jnp.issubdtype(x.dtype, jnp.floating):
        return call(fn, x, axes=tuple(axes))
    return fn(x, axes)


def is_spread(shape: Sequence[Any], wide: Sequence[Any]) -> bool:
    """Returns whether broadcasting from one shape to another repeats rows that are long."""
    first = len(wide) - len(shape)
    repeated = [i for i, n in enumerate(wide) if i < first or (shape[i - first] == 1 and n != 1)]
    return is_long(wide, repeated)


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Returns ``jnp.broadcast_to(x, shape)``, whose derivative is a sum as `reduced` makes it.

    Args:
      x: an array of at most as many axes.
      shape: of the result.
    """
    axes = tuple(range(len(shape) - x.ndim, len(shape)))
    return call(lax.broadcast_in_dim, x, shape=tuple(shape), broadcast_dimensions=axes)


def place(fn: Callable[..., Any], x: Any, axis: int) -> Any:
    """Returns ``fn(x, axis, int32)``, on CPU from the largest or smallest values.

    Args:
      fn: ``lax.argmax`` or ``lax.argmin``.
      x: an array without NaN.
      axis: the axis that is searched, not negative.

    Returns:
      The first place of the value, int32.
    """
    return call(fn, lax.stop_gradient(ensure_length(x, axis, 1)), axis=axis, index_dtype=np.dtype(np.int32))


def _by_rows(x: Any, *, axes: tuple[int, ...], fn: Callable[..., Any], **params: Any) -> Any:
    if not is_long(x.shape, axes) or not jnp.issubdtype(x.dtype, jnp.floating):
        return None
    first, last = min(axes), max(axes)
    if last > first:
        x = lax.reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))
    return _rows(x, first, fn)  # not reshaped otherwise: what gives x may be wanted as it lies, too


def _rows(x: Any, axis: int, fn: Callable[..., Any]) -> Any:
    """Reduces one axis of an array whose sizes are known."""
    count = x.shape[axis]
    whole, rest = divmod(count, _TOGETHER)
    if whole == 0:
        return _tree(x, axis, fn)
    total = _tree(lax.slice_in_dim(x, 0, _TOGETHER, axis=axis), axis, fn)
    if whole > 1:

        def step(index: Any, total: Any) -> Any:
            starts = [np.int32(0)] * x.ndim
            # JAX's own index is wider in 64-bit mode.
            starts[axis] = lax.convert_element_type(index, np.int32) * np.int32(_TOGETHER)
            sizes = [_TOGETHER if d == axis else n for d, n in enumerate(x.shape)]
            part = lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)
            return fn(total, _tree(part, axis, fn))

        total = lax.fori_loop(np.int32(1), np.int32(whole), step, total)
    return fn(total, _tree(lax.slice_in_dim(x, count - rest, count, axis=axis), axis, fn)) if rest else total


def _tree(x: Any, axis: int, fn: Callable[..., Any]) -> Any:
    """Reduces a few rows, pair by pair."""
    parts = [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]
    while len(parts) > 1:
        pairs = [fn(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def _place(x: Any, *, axes: tuple[int, ...], index_dtype: Any, fn: Callable[..., Any], among: Any) -> Any:
    (axis,) = axes
    size = x.shape[axis]
    if not isinstance(size, int) or size < 1 or (axis == x.ndim - 1 and size < _FEWEST_PLACES):
        return None

    def over(fn: Callable[..., Any], among: Any, x: Any) -> Any:
        found = _by_rows(x, axes=axes, fn=among)
        return fn(x, axes) if found is None else found

    # A mark, as XLA would write the largest value down once for each place; and floats, as it is slow with integers.
    best = once(over(fn, among, x))
    found = lax.eq(x, lax.broadcast_in_dim(best, x.shape, [d for d in range(x.ndim) if d != axis]))
    dtype = np.dtype(np.float32) if size <= _EXACT else index_dtype
    places = lax.broadcasted_iota(dtype, x.shape, axis)
    places = lax.select(found, places, lax.full(x.shape, size - 1, dtype))
    return lax.convert_element_type(over(lax.reduce_min, lax.min, places), index_dtype)


for _primitive, _fn in ((lax.reduce_sum_p, lax.add), (lax.reduce_max_p, lax.max), (lax.reduce_min_p, lax.min)):
    twin(_primitive, functools.partial(_by_rows, fn=_fn))
twin(lax.broadcast_in_dim_p)
twin(lax.argmax_p, functools.partial(_place, fn=lax.reduce_max, among=lax.max))
twin(lax.argmin_p, functools.partial(_place, fn=lax.reduce_min, among=lax.min))
