"""Running sums and products on CPU.

JAX lays them out as a tree: some two log(n) passes over all values, with gaps. Row by row there is one pass, where a
step along the axis is a row of values: a third to an eightieth of the time (two cores with AVX-512, JAX 0.10). The
long last axis is laid out so, in 16 parts, whose totals are added to what comes after them: half the time. Running
log-sum-exps are a window of reductions in JAX on CPU, each of all values before it; the tree takes a tenth of that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .rules import call, twin

__all__ = ["running"]

_SHORTEST = 16  # values of a row, for which a step of a loop pays
_WRITTEN_OUT = 16  # rows that need no loop
_LONG = 4096  # values of a last axis from which on it is worth turning
_PARTS = 16


def running(fn: Callable[..., Any], x: Any, axis: int, reverse: bool) -> Any:
    """Returns ``fn(x, axis=axis, reverse=reverse)``, on CPU row by row where rows are not short.

    Args:
      fn: ``lax.cumsum``, ``lax.cumprod`` or ``lax.cumlogsumexp``.
      x: an array.
      axis: not negative.
      reverse: whether the last element comes first.
    """
    spelled = fn is lax.cumlogsumexp or _has_rows(x, axis)
    return call(fn, x, axis=axis, reverse=reverse) if spelled else fn(x, axis=axis, reverse=reverse)


def _has_rows(x: Any, axis: int) -> bool:
    if not all(isinstance(n, int) for n in x.shape):
        return False
    after = math.prod(x.shape[axis + 1 :])
    return x.shape[axis] > 1 and (after >= _SHORTEST or _is_long(x, axis))


def _is_long(x: Any, axis: int) -> bool:
    return axis == x.ndim - 1 and x.shape[axis] >= _LONG


def _row_by_row(x: Any, *, axis: int, reverse: bool, fn: Callable[..., Any], written: int = _WRITTEN_OUT) -> Any:
    if not _has_rows(x, axis):
        return None
    if _is_long(x, axis):
        # Parts of a product could overflow where the whole does not.
        return _in_parts(x, reverse=reverse) if fn is lax.add else None
    shape, count = x.shape, x.shape[axis]
    x = lax.reshape(x, (math.prod(shape[:axis]), count, math.prod(shape[axis + 1 :])))
    if count <= written:
        rows = [lax.slice_in_dim(x, i, i + 1, axis=1) for i in range(count)]
        if reverse:
            rows.reverse()
        for i in range(1, count):
            rows[i] = fn(rows[i - 1], rows[i])
        return lax.reshape(lax.concatenate(rows[::-1] if reverse else rows, 1), shape)
    zero, one = np.int32(0), np.int32(-1 if reverse else 1)
    row = (x.shape[0], 1, x.shape[2])

    def step(index: Any, found: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        index = np.int32(count - 1) - index if reverse else index
        before = lax.dynamic_slice(found, (zero, index - one, zero), row, allow_negative_indices=False)
        here = lax.dynamic_slice(found, (zero, index, zero), row, allow_negative_indices=False)
        return lax.dynamic_update_slice(found, fn(before, here), (zero, index, zero), allow_negative_indices=False)

    return lax.reshape(lax.fori_loop(np.int32(1), np.int32(count), step, x), shape)


def _in_parts(x: Any, *, reverse: bool) -> Any:
    """Returns running sums along a long last axis: in parts, side by side."""
    shape, count = x.shape, x.shape[-1]
    zero = np.zeros((), x.dtype)
    length = -(-count // _PARTS)
    room = _PARTS * length - count
    first = room if reverse else 0
    x = lax.reshape(x, (math.prod(shape[:-1]), count))
    x = lax.pad(x, zero, [(0, 0, 0), (first, room - first, 0)])
    side = lax.transpose(lax.reshape(x, (x.shape[0], _PARTS, length)), (0, 2, 1))
    found = _row_by_row(side, axis=1, reverse=reverse, fn=lax.add)
    totals = lax.cumsum(found[:, 0 if reverse else -1], axis=1, reverse=reverse)
    others = lax.pad(totals, zero, [(0, 0, 0), (-1, 1, 0) if reverse else (1, -1, 0)])
    found = lax.add(found, jnp.broadcast_to(others[:, None], found.shape))
    out = lax.reshape(lax.transpose(found, (0, 2, 1)), x.shape)
    return lax.reshape(lax.slice_in_dim(out, first, first + count, axis=1), shape)


def _log_sums(x: Any, *, axis: int, reverse: bool) -> Any:
    # Written out, XLA computes each row anew for all that follow.
    found = _row_by_row(x, axis=axis, reverse=reverse, fn=jnp.logaddexp, written=0)
    if found is not None or not isinstance(x.shape[axis], int):
        return found
    return lax.associative_scan(jnp.logaddexp, x, reverse, axis)


twin(lax.cumsum_p, functools.partial(_row_by_row, fn=lax.add))
twin(lax.cumprod_p, functools.partial(_row_by_row, fn=lax.mul))
twin(lax.cumlogsumexp_p, _log_sums)
