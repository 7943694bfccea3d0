"""Sparse bincount: counts of values as sparse tensors (tf.math.bincount).

Rows are dense, sparse or ragged.

Each row's counts are in the order of the values. The number of unique values is dynamic.

TF: core/kernels/count_ops.cc.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.rows import nonzero, row_of, starts
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from .coo import check_indices

_INT64 = np.dtype(np.int64)


def _check(values: Any, weights: Any, minlength: int, maxlength: int) -> None:
    if minlength < -1 or maxlength < -1:
        raise OpError(f"minlength {minlength} and maxlength {maxlength} must be -1 or more")
    if 0 not in weights.shape and weights.shape != values.shape:
        raise OpError(f"weights of shape {tuple(weights.shape)} for values of shape {tuple(values.shape)}")
    found = static_value(values)
    if found is not None and (found < 0).any():
        raise OpError("values must not be negative")


def _length(largest: Any, minlength: int, maxlength: int) -> Any:
    """Return the last size of the result: the number of possible values."""
    if maxlength >= 0:
        return maxlength
    return (np if static_value(largest) is not None else jnp).maximum(largest + 1, max(minlength, 0))


def _segment_sums(segments: Any, weights: Any, count: Any, dtype: Any, binary: bool) -> Any:
    """Sum weights (default 1) by segment; segments past ``count`` are dropped."""
    if binary:
        return np.ones(count, dtype) if isinstance(segments, np.ndarray) else jnp.ones((count,), dtype)
    if isinstance(segments, np.ndarray) and (weights is None or static_value(weights) is not None):
        out = np.zeros(count, dtype)
        np.add.at(out, segments, np.ones((), dtype) if weights is None else np.asarray(weights))
        return out
    ones = jnp.ones(segments.shape, dtype) if weights is None else jnp.asarray(weights)
    return jnp.zeros((count,), dtype).at[jnp.asarray(segments)].add(ones, mode="drop")


def _known_counts(rows: Any, values: Any, weights: Any, dtype: Any, maxlength: int, binary: bool) -> tuple[Any, ...]:
    kept = np.flatnonzero((rows >= 0) & (values >= 0) & ((values < maxlength) | (maxlength < 0)))
    found, segment = np.unique(np.column_stack([rows, values])[kept], axis=0, return_inverse=True)
    counts = _segment_sums(segment.reshape(-1), None if weights is None else weights[kept], len(found), dtype, binary)
    return found.astype(canonical(_INT64)), counts, values[kept].max(initial=0)


def _traced_counts(
    rows: Any, values: Any, weights: Any, dtype: Any, maxlength: int, binary: bool, bound: int | DynamicShapes | None
) -> tuple[Any, ...]:
    count = values.shape[0]
    size = row_capacity(bound, count, "the number of different values depends on traced ones")
    rows, values = jnp.asarray(rows).astype(canonical(_INT64)), jnp.asarray(values)
    valid = (rows >= 0) & (values >= 0) & ((values < maxlength) | (maxlength < 0))
    largest = jnp.max(jnp.where(valid, values, 0), initial=0)
    others, rows, values, order = lax.sort(
        ((~valid).astype(np.int32), rows, values, lax.iota(np.int32, count)), num_keys=4
    )
    valid = others == 0
    first = (lax.iota(np.int32, count) == 0) | starts(rows) | starts(values) | starts(others)
    run = jnp.cumsum(first, dtype=np.int32) - 1
    counts = _segment_sums(
        jnp.where(valid, run, count), None if weights is None else take(weights, order, 0), count, dtype, binary
    )
    keep = first & valid
    where = nonzero(keep, size, count)
    (where,) = truncate_rows(bound, lambda: jnp.count_nonzero(keep), where, of=(keep,))
    real = where < jnp.asarray(count, np.int32)
    found = [jnp.where(real, take(v, where, 0).astype(rows.dtype), -1) for v in (rows, values)]
    counts = take(counts, take(run, where, 0), 0)
    return jnp.stack(found, axis=1), jnp.where(real, counts, jnp.zeros((), dtype)), largest


def _counts(
    rows: Any,
    values: Any,
    weights: Any,
    batches: Any,
    *,
    minlength: int,
    maxlength: int,
    binary_output: bool,
    bound: int | DynamicShapes | None,
) -> tuple[Any, Any, Any]:
    """Count values by rows.

    Args:
      rows: [n], each value's row, -1 for padding.
      batches: number of rows; None: one row, which indices of the result omit.
      minlength: lower bound of the last size of the result.
      maxlength: that size; larger values are not counted; -1: one more than the largest value.
      bound: capacity of the result.
    """
    _check(values, weights, minlength, maxlength)
    given, dtype = (None if 0 in weights.shape else weights), weights.dtype
    if static_value(rows) is not None and static_value(values) is not None:
        ours, known_values = np.asarray(rows), np.asarray(values)
        found, counts, largest = _known_counts(ours, known_values, given, dtype, maxlength, binary_output)
    else:
        found, counts, largest = _traced_counts(rows, values, given, dtype, maxlength, binary_output, bound)
    length = _length(largest, minlength, maxlength)
    sizes = [length] if batches is None else [batches, length]
    int64 = canonical(_INT64)
    if all(isinstance(d, int) or static_value(d) is not None for d in sizes):
        shape: Any = np.array([int(d) for d in sizes], int64)
    else:
        shape = jnp.stack([jnp.asarray(d).astype(int64) for d in sizes])
    return (found[:, 1:] if batches is None else found), counts, shape


_ATTRIBUTES = {"minlength": -1, "maxlength": -1, "binary_output": REQUIRED, "bound:Bound": REQUIRED}


@op("DenseCountSparseOutput", inputs="values weights", attributes=_ATTRIBUTES)
def dense_count_sparse_output(*, values, weights, **options):
    """Count the values of a vector, or of each row of a matrix."""
    if values.ndim not in (1, 2):
        raise OpError(f"values must be a vector or a matrix, not of rank {values.ndim}")
    batches = values.shape[0] if values.ndim == 2 else None
    if isinstance(batches, int) and batches == 0:
        raise OpError("a matrix of values must have at least one row")
    _check(values, weights, options["minlength"], options["maxlength"])
    if static_value(values) is not None:
        rows = np.indices(values.shape)[0].reshape(-1) * (values.ndim - 1)
    else:
        rows = lax.broadcasted_iota(np.int32, values.shape, 0).reshape(-1) * (values.ndim - 1)
    return _counts(rows, values.reshape(-1), weights.reshape(-1), batches, **options)


@op("SparseCountSparseOutput", inputs="indices values dense_shape weights", attributes=_ATTRIBUTES)
def sparse_count_sparse_output(*, indices, values, dense_shape, weights, **options):
    """Count the values of each row (first index) of a sparse tensor."""
    check_indices(indices, values, dense_shape)
    rank = indices.shape[1]
    if rank == 0:
        raise OpError("dense_shape must have at least one element")
    sizes = static_value(dense_shape)
    if sizes is not None and rank > 1 and int(sizes[0]) < 1:
        raise OpError(f"a dense_shape of {sizes.tolist()} has no rows")
    rows = indices[:, 0]
    rows, batches = (rows, dense_shape[0]) if rank > 1 else ((rows < 0) * np.int32(-1), None)
    return _counts(rows, values, weights, batches, **options)


@op("RaggedCountSparseOutput", inputs="splits values weights", attributes=_ATTRIBUTES)
def ragged_count_sparse_output(*, splits, values, weights, **options):
    """Count the values of each row of a ragged tensor."""
    if splits.ndim != 1 or values.ndim != 1 or (isinstance(splits.shape[0], int) and splits.shape[0] < 2):
        raise OpError(f"splits of shape {tuple(splits.shape)} and values of shape {tuple(values.shape)} make no rows")
    found, count, batches = static_value(splits), values.shape[0], splits.shape[0] - 1
    if found is not None and isinstance(count, int) and (found[0] != 0 or found[-1] != count):
        raise OpError(f"splits must begin with 0 and end with the number of values {count}, not {found.tolist()}")
    rows = row_of(splits, count)
    past = rows >= (batches if static_value(rows) is not None else jnp.asarray(batches).astype(rows.dtype))
    rows = (np if static_value(rows) is not None else jnp).where(past, -1, rows)
    return _counts(rows, values, weights, batches, **options)
