"""Isotonic regression along the last axis by pooling of adjacent violators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical


def _pooled(rows: Any) -> Any:
    """Return the segment of each element after pooling adjacent violators."""
    # A violator has a mean above that of the segment before. Each row has a stack of segments. A step pushes the row's
    # last segment, the only one that changes, and either merges it with the previous segment or begins the next one, so
    # that twice as many steps as columns are sufficient.
    count, size = rows.shape
    row = lax.iota(np.int32, count)

    def step(_: Any, state: Any) -> Any:
        sums, lengths, top, column, total, length = state
        sums, lengths = (
            stack.at[row, top].set(own, mode="promise_in_bounds", unique_indices=True)
            for stack, own in ((sums, total), (lengths, length))
        )
        below = (row, jnp.maximum(top - 1, 0))
        previous_sum, previous_length = (stack.at[below].get(mode="promise_in_bounds") for stack in (sums, lengths))
        merge = (top > 0) & (total / length > previous_sum / previous_length)
        begin = ~merge & (column < size)
        value = rows.at[row, jnp.minimum(column, size - 1)].get(mode="promise_in_bounds")
        total = jnp.where(merge, previous_sum + total, jnp.where(begin, value, total))
        length = jnp.where(merge, previous_length + length, jnp.where(begin, 1, length))
        move = begin.astype(np.int32)
        return sums, lengths, top + move - merge.astype(np.int32), column + move, total, length

    zeros, ones = jnp.zeros((count,), np.int32), jnp.ones((count,), np.int32)
    start = (jnp.zeros_like(rows), jnp.ones_like(rows), zeros, ones, rows[:, 0], ones.astype(rows.dtype))
    _, lengths, top, *_ = fori_loop(0, 2 * size - 1, step, start)
    lengths = jnp.where(lax.iota(np.int32, size) <= top[:, None], lengths, 0).astype(np.int32)
    ends = jnp.cumsum(lengths, 1, dtype=np.int32)
    starts = jnp.zeros(rows.shape, np.int32).at[row[:, None], ends].add(1, mode="drop")
    return jnp.cumsum(starts, 1, dtype=np.int32)


@op("IsotonicRegression")
def isotonic_regression(input, *, output_dtype=np.float32):
    """Fit non-increasing sequences along the last axis by least squares.

    TF: core/kernels/isotonic_regression_op.cc.
    """
    values = jnp.asarray(input)
    if values.ndim < 1:
        raise OpError("the input must have at least one dimension")
    dtype = canonical(output_dtype)
    work = values.astype(np.promote_types(dtype, np.float32) if jnp.issubdtype(dtype, jnp.floating) else dtype)
    rows = work.reshape(-1, work.shape[-1]) if work.size else work
    if not work.size:
        return values.astype(dtype), jnp.zeros(values.shape, np.int32)
    segments = _pooled(lax.stop_gradient(rows))

    def means(row: Any, segment: Any) -> Any:
        zeros = jnp.zeros_like(row)
        return (zeros.at[segment].add(row) / jnp.maximum(zeros.at[segment].add(1), 1))[segment]

    result = jax.vmap(means)(rows, segments)
    return result.reshape(values.shape).astype(dtype), segments.reshape(values.shape)
