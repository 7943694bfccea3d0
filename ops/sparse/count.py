"""Counts of values, as sparse tensors: tf.math.bincount of rows that are dense, sparse or ragged.

Each row's counts are in the order of the values. How many different values there are, data decides.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import Extents, cut, room
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.nonzero import nonzero
from tf2jax_lite.ops.common.row_boundaries import starts
from tf2jax_lite.ops.common.row_splits import row_of
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, known

from .coo import check_indices

__all__: list[str] = []

_INT64 = np.dtype(np.int64)


def _check(values: Any, weights: Any, minlength: int, maxlength: int) -> None:
    if minlength < -1 or maxlength < -1:
        raise OpError(f"minlength {minlength} and maxlength {maxlength} must be -1 or more")
    if 0 not in weights.shape and weights.shape != values.shape:
        raise OpError(f"weights of shape {tuple(weights.shape)} for values of shape {tuple(values.shape)}")
    found = known(values)
    if found is not None and (found < 0).any():
        raise OpError("values must not be negative")


def _length(largest: Any, minlength: int, maxlength: int) -> Any:
    """Returns how many values there could be, as counts have it for a shape."""
    if maxlength >= 0:
        return maxlength
    return (np if known(largest) is not None else jnp).maximum(largest + 1, max(minlength, 0))


def _added(parts: Any, weights: Any, count: Any, dtype: Any, binary: bool) -> Any:
    """Sums weights (1 each if there are none) by the part that each belongs to; those past the last are dropped."""
    if binary:
        return np.ones(count, dtype) if isinstance(parts, np.ndarray) else jnp.ones((count,), dtype)
    if isinstance(parts, np.ndarray) and (weights is None or known(weights) is not None):
        out = np.zeros(count, dtype)
        np.add.at(out, parts, np.ones((), dtype) if weights is None else np.asarray(weights))
        return out
    ones = jnp.ones(parts.shape, dtype) if weights is None else jnp.asarray(weights)
    return jnp.zeros((count,), dtype).at[jnp.asarray(parts)].add(ones, mode="drop")


def _known_counts(rows: Any, values: Any, weights: Any, dtype: Any, maxlength: int, binary: bool) -> tuple[Any, ...]:
    places = np.flatnonzero((rows >= 0) & (values >= 0) & ((values < maxlength) | (maxlength < 0)))
    found, part = np.unique(np.column_stack([rows, values])[places], axis=0, return_inverse=True)
    counts = _added(part.reshape(-1), None if weights is None else weights[places], len(found), dtype, binary)
    return found.astype(canonical(_INT64)), counts, values[places].max(initial=0)


def _traced_counts(
    rows: Any, values: Any, weights: Any, dtype: Any, maxlength: int, binary: bool, bound: int | Extents | None
) -> tuple[Any, ...]:
    count = values.shape[0]
    size = room(bound, count, "the number of different values depends on traced ones")
    rows, values = jnp.asarray(rows).astype(canonical(_INT64)), jnp.asarray(values)
    valid = (rows >= 0) & (values >= 0) & ((values < maxlength) | (maxlength < 0))
    largest = jnp.max(jnp.where(valid, values, 0), initial=0)
    others, rows, values, order = lax.sort(
        ((~valid).astype(np.int32), rows, values, lax.iota(np.int32, count)), num_keys=4
    )
    valid = others == 0
    first = (lax.iota(np.int32, count) == 0) | starts(rows) | starts(values) | starts(others)
    run = jnp.cumsum(first, dtype=np.int32) - 1
    counts = _added(
        jnp.where(valid, run, count), None if weights is None else take(weights, order, 0), count, dtype, binary
    )
    keep = first & valid
    where = nonzero(keep, size, count)
    (where,) = cut(bound, lambda: jnp.count_nonzero(keep), where, of=(keep,))
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
    bound: int | Extents | None,
) -> tuple[Any, Any, Any]:
    """Counts values by rows.

    Args:
      rows: each value's row, -1 for padding.
      values: a vector.
      weights: a vector, or an empty array.
      batches: how many rows there are; None: one, which results do not name.
      minlength: the least size of the result's last dimension.
      maxlength: that size, from which on values do not count; -1: as large as values are.
      binary_output: whether 1 stands for any count.
      bound: how many counts there is room for.
    """
    _check(values, weights, minlength, maxlength)
    given, dtype = (None if 0 in weights.shape else weights), weights.dtype
    if known(rows) is not None and known(values) is not None:
        ours, known_values = np.asarray(rows), np.asarray(values)
        found, counts, largest = _known_counts(ours, known_values, given, dtype, maxlength, binary_output)
    else:
        found, counts, largest = _traced_counts(rows, values, given, dtype, maxlength, binary_output, bound)
    length = _length(largest, minlength, maxlength)
    sizes = [length] if batches is None else [batches, length]
    int64 = canonical(_INT64)
    if all(isinstance(d, int) or known(d) is not None for d in sizes):
        shape: Any = np.array([int(d) for d in sizes], int64)
    else:
        shape = jnp.stack([jnp.asarray(d).astype(int64) for d in sizes])
    return (found[:, 1:] if batches is None else found), counts, shape


@op("DenseCountSparseOutput", dynamic_shape="prefix")
def dense_count_sparse_output(
    values: Any,
    weights: Any,
    *,
    minlength: int = -1,
    maxlength: int = -1,
    binary_output: bool,
    bound: int | Extents | None,
) -> tuple[Any, Any, Any]:
    """Counts the values of a vector, or of each row of a matrix. See tf.raw_ops.DenseCountSparseOutput."""
    if values.ndim not in (1, 2):
        raise OpError(f"values must be a vector or a matrix, not of rank {values.ndim}")
    batches = values.shape[0] if values.ndim == 2 else None
    if isinstance(batches, int) and batches == 0:
        raise OpError("a matrix of values must have at least one row")
    _check(values, weights, minlength, maxlength)
    if known(values) is not None:
        rows = np.indices(values.shape)[0].reshape(-1) * (values.ndim - 1)
    else:
        rows = lax.broadcasted_iota(np.int32, values.shape, 0).reshape(-1) * (values.ndim - 1)
    return _counts(
        rows,
        values.reshape(-1),
        weights.reshape(-1),
        batches,
        minlength=minlength,
        maxlength=maxlength,
        binary_output=binary_output,
        bound=bound,
    )


@op("SparseCountSparseOutput", dynamic_shape="prefix")
def sparse_count_sparse_output(
    indices: Any,
    values: Any,
    dense_shape: Any,
    weights: Any,
    *,
    minlength: int = -1,
    maxlength: int = -1,
    binary_output: bool,
    bound: int | Extents | None,
) -> tuple[Any, Any, Any]:
    """Counts the values of each first index. See tf.raw_ops.SparseCountSparseOutput."""
    check_indices(indices, values, dense_shape)
    rank = indices.shape[1]
    if rank == 0:
        raise OpError("dense_shape must have at least one element")
    sizes = known(dense_shape)
    if sizes is not None and rank > 1 and int(sizes[0]) < 1:
        raise OpError(f"a dense_shape of {sizes.tolist()} has no rows")
    rows = indices[:, 0]
    return _counts(
        rows if rank > 1 else (rows < 0) * np.int32(-1),
        values,
        weights,
        dense_shape[0] if rank > 1 else None,
        minlength=minlength,
        maxlength=maxlength,
        binary_output=binary_output,
        bound=bound,
    )


@op("RaggedCountSparseOutput", dynamic_shape="prefix")
def ragged_count_sparse_output(
    splits: Any,
    values: Any,
    weights: Any,
    *,
    minlength: int = -1,
    maxlength: int = -1,
    binary_output: bool,
    bound: int | Extents | None,
) -> tuple[Any, Any, Any]:
    """Counts the values of each row. See tf.raw_ops.RaggedCountSparseOutput."""
    if splits.ndim != 1 or values.ndim != 1 or (isinstance(splits.shape[0], int) and splits.shape[0] < 2):
        raise OpError(f"splits of shape {tuple(splits.shape)} and values of shape {tuple(values.shape)} make no rows")
    found, count, batches = known(splits), values.shape[0], splits.shape[0] - 1
    if found is not None and isinstance(count, int) and (found[0] != 0 or found[-1] != count):
        raise OpError(f"splits must begin with 0 and end with the number of values {count}, not {found.tolist()}")
    rows = row_of(splits, count)
    past = rows >= (batches if known(rows) is not None else jnp.asarray(batches).astype(rows.dtype))
    return _counts(
        (np if known(rows) is not None else jnp).where(past, -1, rows),
        values,
        weights,
        batches,
        minlength=minlength,
        maxlength=maxlength,
        binary_output=binary_output,
        bound=bound,
    )
