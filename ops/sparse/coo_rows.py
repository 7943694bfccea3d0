"""Row-wise ops on COO sparse tensors: filling empty rows, slices and splits.

TF: core/kernels/sparse_fill_empty_rows_op.cc.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.dynamic_shapes.provenance import entries
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError, row_capacity, truncate_rows
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, normalize_axis, static_value

from .coo import check_indices, pick, same_rows, select_entries, shape_of, sizes_of, static_integers

_INT64 = np.dtype(np.int64)
_PROBLEM = "which entries are chosen depends on traced indices"


@op("SparseFillEmptyRows")
def sparse_fill_empty_rows(indices, values, dense_shape, default_value, *, bound: Bound):
    """Add an entry at column 0 to each row that has none.

    Args:
      dense_shape: [rank]; only the first size must be static or a dynamic dimension.
    """
    check_indices(indices, values, dense_shape)
    if default_value.ndim:
        raise OpError("default_value must be a scalar")
    rank = dense_shape.shape[0]
    if not rank:
        raise OpError("dense_shape must not be empty")
    rows = _row_count(dense_shape, bound)
    row_ids, values_out, empty, reverse, sources = _fill_rows(indices[:, 0], values, rows, default_value, bound)
    rest = pick(indices[:, 1:], sources)  # zeros in the new entries
    if static_value(row_ids) is not None and static_value(rest) is not None:
        return np.concatenate([row_ids[:, None], rest.reshape(-1, rank - 1)], 1), values_out, empty, reverse
    rest = jnp.where((row_ids >= 0)[:, None], rest, -1)
    return jnp.concatenate([row_ids[:, None], rest], 1), values_out, empty, reverse


def _row_count(shape: Any, bound: int | DynamicShapes | None) -> Any:
    """Return the first size of a shape whose others may be traced: int or dynamic."""
    first = entries(shape, shape.shape[0])[0]
    if first.is_known and isinstance(first.offset, int):
        return first.offset
    if isinstance(bound, DynamicShapes):
        return bound.as_dims(shape[:1])[0]
    raise UnboundedError("how many rows there are depends on a traced dense shape")


def _fill_rows(
    row_ids: Any, values: Any, rows: Any, default: Any, bound: int | DynamicShapes | None
) -> tuple[Any, ...]:
    """Return row ids, values, empty rows, new positions, and old ones (-1: new)."""
    found, dtype = static_value(row_ids), canonical(_INT64)
    if found is not None:
        if found.size and not 0 <= found.min() <= found.max() < rows:
            raise OpError(f"row {found.min() if found.min() < 0 else found.max()} is out of range [0, {rows})")
        empty = np.bincount(found, minlength=rows) == 0
        ids = np.concatenate([found, np.nonzero(empty)[0].astype(found.dtype)])
        order = np.argsort(ids, kind="stable")
        reverse = np.empty(len(order), np.int64)
        reverse[order] = np.arange(len(order))
        sources = np.where(order < len(found), order, -1)
        reverse = reverse[: len(found)].astype(dtype)
        return ids[order].astype(dtype), _filled(values, sources, default, len(found)), empty, reverse, sources
    count = row_ids.shape[0]
    size = row_capacity(bound, count + rows, "which rows are empty depends on traced indices")
    inside = (row_ids >= 0) & (row_ids < rows)
    counts = jnp.zeros(rows, np.int32).at[jnp.where(inside, row_ids, rows)].add(1, mode="drop")
    empty = counts == 0
    ids = jnp.concatenate([jnp.where(inside, row_ids, rows), jnp.where(empty, jnp.arange(rows), rows)])
    order = jnp.argsort(ids, stable=True)
    reverse = jnp.zeros(count + rows, dtype).at[order].set(jnp.arange(count + rows, dtype=dtype))[:count]
    ids, all_rows = take(ids, order, 0), count + rows
    if size != all_rows:
        missing = max_dim(size - all_rows, 0)
        order, ids = jnp.pad(order, (0, missing))[:size], jnp.pad(ids, (0, missing), constant_values=rows)[:size]
    order, ids = truncate_rows(bound, lambda: jnp.count_nonzero(ids < rows), order, ids, of=(row_ids, rows))
    valid = ids < rows
    sources = jnp.where(valid & (order < count), order, -1)
    new = _filled(values, sources, default, count)
    zero = jnp.zeros((), new.dtype)
    ids = jnp.where(valid, ids, -1).astype(dtype)
    if isinstance(bound, DynamicShapes):
        bound.record_row_ids(ids, rows)
    return ids, jnp.where(valid, new, zero), empty, reverse, sources


def _filled(values: Any, sources: Any, default: Any, count: int) -> Any:
    if isinstance(sources, np.ndarray) and isinstance(values, np.ndarray) and isinstance(default, np.ndarray):
        out = values[sources] if count else np.empty(len(sources), values.dtype)
        out = np.array(out)
        out[sources < 0] = default
        return out
    return jnp.where(
        sources >= 0, pick(values, sources) if count else jnp.zeros(sources.shape[0], values.dtype), default
    )


@op("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad")
def sparse_fill_empty_rows_grad(reverse_index_map, grad_values):
    """Split gradients into those of entries and of the default value.

    TF: tf.raw_ops.SparseFillEmptyRowsGrad, RaggedFillEmptyRowsGrad (core/kernels/sparse_fill_empty_rows_op.cc).
    """
    if reverse_index_map.ndim != 1 or grad_values.ndim != 1:
        raise OpError("reverse_index_map and grad_values must be vectors")
    own = take(grad_values, reverse_index_map, 0)
    kept = jnp.ones(grad_values.shape, bool).at[jnp.asarray(reverse_index_map)].set(False, mode="drop")
    rest = jnp.where(kept, grad_values, jnp.zeros((), grad_values.dtype))
    return own, total(rest)


@op("RaggedFillEmptyRows")
def ragged_fill_empty_rows(value_rowids, values, nrows, default_value, *, bound: Bound):
    """Add the default value to each row that has no value.

    TF: core/kernels/ragged_fill_empty_rows_op.cc.
    """
    if value_rowids.ndim != 1 or values.ndim != 1 or value_rowids.shape != values.shape:
        raise OpError(f"row ids of shape {value_rowids.shape} and values of shape {values.shape}")
    rows = int(static_integers(nrows, "the number of rows"))
    return _fill_rows(value_rowids, values, rows, default_value, bound)[:4]


@op("SparseSlice")
def sparse_slice(indices, values, shape, start, size, *, bound: Bound):
    """Return the entries inside a box.

    TF: core/kernels/sparse_slice_op.cc.

    Args:
      size: [rank]; clipped to the shape.
    """
    check_indices(indices, values, shape)
    if not shape.shape == start.shape == size.shape:
        raise OpError(f"start and size must have the shape's length {shape.shape[0]}")
    sizes = static_value(size)
    if sizes is not None and (sizes < 0).any():
        raise OpError(f"a size must not be negative, got {sizes.tolist()}")
    xp: Any = np if all(static_value(v) is not None for v in (indices, start, size)) else jnp
    inside = xp.all((indices >= start) & (indices < start + size), axis=1)
    sizes_out = [
        max(min(length, total - first), 0)
        if all(isinstance(v, int) for v in (total, first, length))
        else jnp.maximum(jnp.minimum(length, total - first), 0)
        for total, first, length in zip(*map(sizes_of, (shape, start, size)), strict=True)
    ]
    return (*select_entries(inside, indices, values, start, bound, _PROBLEM), shape_of(sizes_out))


@op("SparseSliceGrad")
def sparse_slice_grad(backprop_val_grad, input_indices, input_start, output_indices):
    """Route gradients of a slice's entries to the entries of its input.

    TF: core/kernels/sparse_slice_grad_op.cc.
    """
    moved = output_indices + input_start
    if static_value(output_indices) is None:
        moved = jnp.where(output_indices < 0, -1, moved)
    return pick(backprop_val_grad, same_rows(input_indices, moved))


@op("SparseSplit")
def sparse_split(split_dim, indices, values, shape, *, num_split, bound: Bound):
    """Split along a dimension; earlier parts take the remainder.

    TF: core/kernels/sparse_split_op.cc.

    Returns:
      Lists of indices, values and shapes, one of each per part.
    """
    check_indices(indices, values, shape)
    size = static_integers(shape, "the shape")
    axis = normalize_axis(static_integers(split_dim, "split_dim"), len(size))
    if not 1 <= num_split <= size[axis]:
        raise OpError(f"num_split must be between 1 and the size of the dimension ({size[axis]}), got {num_split}")
    base, rest = divmod(int(size[axis]), num_split)
    first = 0
    parts: list[tuple[Any, Any]] = []
    shapes: list[Any] = []
    for i in range(num_split):
        length = base + (i < rest)
        column = indices[:, axis]
        start = np.where(np.arange(len(size)) == axis, first, 0)
        inside = (column >= first) & (column < first + length)
        parts.append(select_entries(inside, indices, values, start, bound, _PROBLEM))
        shapes.append(np.where(np.arange(len(size)) == axis, length, size).astype(canonical(_INT64)))
        first += length
    return [p[0] for p in parts], [p[1] for p in parts], shapes
