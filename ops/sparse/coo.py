"""COO sparse tensors: reorder, reshape, concat, slices, splits, empty rows.

They consist of indices of shape (entries, rank), values, and a dense shape.

The number of entries must be static, or bounded. So most ops that select entries need static indices (values may be
traced), or the config option ``dynamic_shape_bound``; ops that merge entries do not if only values computed from the
result are returned. Results padded to the bound have indices of -1 and values of 0 past the last entry; ops that
scatter or gather skip such entries.

TF: core/kernels/sparse_fill_empty_rows_op.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.provenance import entries
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError, row_capacity, truncate_rows
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.precision import total
from tf2jax_lite.ops.common.rows import MAX_COMPARED_PAIRS, nonzero, starts
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound, Unconverted
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, dims_array, normalize_axis, static_value

_INT64 = np.dtype(np.int64)


def pick(values: Any, positions: Any) -> Any:
    """Gather along the first axis; zeros where the position is negative."""
    if isinstance(positions, np.ndarray):
        if isinstance(values, np.ndarray):
            out = np.zeros((*positions.shape, *values.shape[1:]), values.dtype)
            out[positions >= 0] = values[positions[positions >= 0]]
            return out
        if not (positions < 0).any():
            return take(values, positions, 0)
    return take(values, jnp.asarray(positions), 0)


def check_indices(indices: Any, values: Any, shape: Any) -> None:
    """Raise OpError if a sparse tensor's static components do not fit together."""
    if indices.ndim != 2:
        raise OpError(f"indices must be a matrix, not of rank {indices.ndim}")
    if values is not None and values.ndim != 1:
        raise OpError(f"values must be a vector, not of rank {values.ndim}")
    if values is not None and values.shape[0] != indices.shape[0]:
        raise OpError(f"{indices.shape[0]} indices for {values.shape[0]} values")
    if shape is None:
        return
    limits = dims(shape) if static_value(shape) is not None else None
    if shape.shape[0] != indices.shape[1]:
        raise OpError(f"indices of rank {indices.shape[1]} in a shape of rank {shape.shape[0]}")
    check_range(indices, limits)


def check_range(indices: Any, limits: Any) -> None:
    """Raise OpError if static indices, padding (-1) apart, are outside the shape."""
    found = static_value(indices)
    if found is None or limits is None or not found.size or not all(isinstance(d, int) for d in limits):
        return
    bad = np.any((found < 0) | (found >= np.asarray(limits)), axis=1) & ~np.all(found == -1, axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise OpError(f"indices[{row}] = {found[row].tolist()} is out of bounds: shape is {list(limits)}")


def _is_entry(indices: Any) -> Any:
    """Return a mask of the entries that are not padding."""
    return indices[:, 0] >= 0 if indices.shape[1] else jnp.ones(indices.shape[0], bool)


def order_of(indices: Any) -> Any:
    """Return the permutation that sorts indices in lexicographic order, padding last."""
    found = static_value(indices)
    if found is not None:
        if found.shape[1] == 0:
            return np.arange(found.shape[0])
        padding = found[:, 0] < 0
        return np.lexsort((*found.T[::-1], padding))
    count, rank = indices.shape
    largest = jnp.iinfo(indices.dtype).max
    first = jnp.where(_is_entry(indices), indices[:, 0], largest)
    keys = [first, *(indices[:, i] for i in range(1, rank))]
    return lax.sort((*keys, lax.iota(np.int32, count)), num_keys=rank, is_stable=True)[-1]


def scatter_entries(start: Any, indices: Any, updates: Any, kind: str) -> Any:
    """Scatter by "set", "add" or "max"; drop indices that are out of range."""
    start, updates = jnp.asarray(start), jnp.asarray(updates)
    depth = indices.shape[1]
    if depth == 0 or any(isinstance(d, int) and d == 0 for d in (*start.shape, *updates.shape)):
        if depth == 0 and updates.shape[0] != 0:
            return {"set": lambda: updates[-1], "add": lambda: start + updates.sum(0)}[kind]()
        return start
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, updates.ndim)),
        inserted_window_dims=tuple(range(depth)),
        scatter_dims_to_operand_dims=tuple(range(depth)),
    )
    fold: Any = {"set": lax.scatter, "add": lax.scatter_add, "max": lax.scatter_max}[kind]
    return fold(start, jnp.asarray(indices), updates, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


def _host_sparse_reorder(input_indices: Any, input_values: Any, input_shape: Any) -> Any:
    check_indices(input_indices, input_values, input_shape)
    order = order_of(input_indices)
    return input_indices[order], input_values[order]


@op("SparseReorder", fold=_host_sparse_reorder)
def sparse_reorder(input_indices, input_values, input_shape):
    """Sort entries by index in lexicographic order, padding last.

    TF: core/kernels/sparse_reorder_op.cc.
    """
    check_indices(input_indices, input_values, input_shape)
    order = order_of(input_indices)
    if isinstance(order, np.ndarray):
        return np.asarray(input_indices)[order], take(input_values, order, 0)
    return take(input_indices, order, 0), take(input_values, order, 0)


def _strides(shape: Any) -> list[Any]:
    """Return the row-major strides of a shape, ints where static."""
    strides: list[Any] = [1]
    for d in reversed(shape[1:]):
        strides.insert(0, strides[0] * d)
    return strides[: len(shape)]


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """Return a shape's sizes: ints or symbolic dimensions, else traced scalars."""
    found = static_value(shape)
    if found is not None:
        return dims(found)
    parts = enumerate(entries(shape, shape.shape[0]))
    return tuple(part.offset if part.is_known else shape[i] for i, part in parts)


def shape_of(sizes: Sequence[Any]) -> Any:
    """Return sizes as a shape vector, static if all sizes are."""
    dtype = canonical(_INT64)
    if any(isinstance(size, jax.Array) for size in sizes):
        return jnp.stack([jnp.asarray(size, dtype) for size in sizes])
    return dims_array(sizes, dtype)


def _reshaped(input_shape: Any, new_shape: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if input_shape.ndim != 1 or new_shape.ndim != 1:
        raise OpError("shapes must be vectors")
    old, new = sizes_of(input_shape), list(sizes_of(new_shape))
    unknown = [i for i, d in enumerate(new) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise OpError(f"only one dimension of the new shape may be -1, got {new}")
    total = math.prod(old)
    if unknown:
        others = math.prod(d for i, d in enumerate(new) if i != unknown[0])
        if isinstance(others, int) and others == 0:
            raise OpError(f"cannot infer the -1 in {new}: the other dimensions hold no element")
        if isinstance(others, int) and isinstance(total, int) and total % others:
            raise OpError(f"cannot reshape {list(old)} to {new}")
        new[unknown[0]] = total // others
    elif isinstance(total, int) and all(isinstance(d, int) for d in new) and math.prod(new) != total:
        raise OpError(f"cannot reshape {list(old)} ({total} elements) to {new}")
    elif static_value(new_shape) is None:
        sizes = jnp.asarray(new_shape)
        others = jnp.prod(jnp.where(sizes == -1, 1, sizes), dtype=sizes.dtype)
        sizes = jnp.where(sizes == -1, jnp.asarray(total, sizes.dtype) // jnp.maximum(others, 1), sizes)
        new = [d if isinstance(d, int) else sizes[i] for i, d in enumerate(new)]
    return old, tuple(new)


def _host_sparse_reshape(input_indices: Any, input_shape: Any, new_shape: Any) -> Any:
    old, new = _reshaped(input_shape, new_shape)
    if not all(isinstance(d, int) for d in (*old, *new)):
        return sparse_reshape(as_array(input_indices), input_shape, new_shape)
    check_indices(input_indices, None, input_shape)
    flat = input_indices @ np.array(_strides(old), np.int64) if old else np.zeros(len(input_indices), np.int64)
    columns = [flat // s % d for s, d in zip(_strides(new), new, strict=True)] if flat.size else []
    indices = np.stack(columns, 1) if columns else np.zeros((flat.size, len(new)), np.int64)
    indices[input_indices[:, :1].min(1, initial=0) < 0] = -1
    return indices.astype(input_indices.dtype), np.array(new, np.int64)


@op("SparseReshape", fold=_host_sparse_reshape)
def sparse_reshape(input_indices, input_shape: Unconverted, new_shape: Unconverted):
    """Convert indices to those of another dense shape.

    TF: core/kernels/sparse_reshape_op.cc.

    Without ``jax_enable_x64`` the tensor may not have more than 2**31 elements.

    Args:
      new_shape: [new rank]; one entry may be -1.

    Returns:
      Indices [n, new rank], and the new shape: static if its entries are.
    """
    input_shape, new_shape = (v if static_value(v) is not None else as_array(v) for v in (input_shape, new_shape))
    old, new = _reshaped(input_shape, new_shape)
    check_indices(input_indices, None, input_shape)
    indices = jnp.asarray(input_indices)
    dtype = indices.dtype
    flat = jnp.zeros(indices.shape[0], dtype)
    for i, s in enumerate(_strides(old)):
        flat = flat + indices[:, i] * jnp.asarray(s, dtype)
    columns = []
    for s, d in zip(_strides(new), new, strict=True):
        # A shape without elements has no entries; only a division by zero must be avoided.
        stride, size = (jnp.maximum(jnp.asarray(v, dtype), 1) for v in (s, d))
        columns.append(lax.rem(lax.div(flat, jnp.broadcast_to(stride, flat.shape)), jnp.broadcast_to(size, flat.shape)))
    out = jnp.stack(columns, 1) if columns else jnp.zeros((indices.shape[0], 0), dtype)
    out = jnp.where(_is_entry(indices)[:, None], out, -1)
    return out, shape_of(new)


def _concat_parts(indices: list[Any], values: list[Any], shapes: list[Any], axis: int) -> tuple[int, list[Any], Any]:
    """Return axis, offsets of the parts along it, and shape; raise if parts differ."""
    for i, v, s in zip(indices, values, shapes, strict=True):
        check_indices(i, v, s)
    sizes = [sizes_of(s) for s in shapes]
    axis = normalize_axis(axis, len(sizes[0]))
    for other in sizes[1:]:
        if len(other) != len(sizes[0]):
            raise OpError(f"shapes of ranks {len(sizes[0])} and {len(other)}")
        for i, (a, b) in enumerate(zip(sizes[0], other, strict=True)):
            if i != axis and isinstance(a, int) and isinstance(b, int) and a != b:
                raise OpError(f"shapes {list(sizes[0])} and {list(other)} differ outside of dimension {axis}")
    starts: list[Any] = []
    total: Any = 0
    for size in sizes:
        starts.append(total)
        total = total + size[axis]
    return axis, starts, tuple(total if i == axis else d for i, d in enumerate(sizes[0]))


def _host_sparse_concat(indices: list[Any], values: list[Any], shapes: list[Any], *, concat_dim: int) -> Any:
    axis, starts, shape = _concat_parts(indices, values, shapes, concat_dim)
    if not all(isinstance(d, int) for d in (*starts, *shape)):
        return sparse_concat([as_array(i) for i in indices], [as_array(v) for v in values], shapes, concat_dim=axis)
    moved = [i + np.where(np.arange(len(shape)) == axis, s, 0) for i, s in zip(indices, starts, strict=True)]
    joined, flat = np.concatenate(moved).astype(indices[0].dtype), np.concatenate(values)
    order = order_of(joined) if axis else np.arange(len(joined))
    return joined[order], flat[order], np.array(shape, np.int64)


@op("SparseConcat", fold=_host_sparse_concat)
def sparse_concat(indices, values, shapes: Unconverted, *, concat_dim):
    """Concatenate sparse tensors along a dimension.

    TF: core/kernels/sparse_concat_op.cc.

    Args:
      shapes: [rank] each; static entries must agree outside ``concat_dim``.

    Returns:
      Indices, values and shape of the result, in order unless inputs are static and ``concat_dim`` is 0.
    """
    shapes = [s if static_value(s) is not None else as_array(s) for s in shapes]
    axis, starts, shape = _concat_parts(indices, values, shapes, concat_dim)
    moved = []
    for i, start in zip(indices, starts, strict=True):
        i = jnp.asarray(i)
        own = jnp.arange(i.shape[1]) == axis
        moved.append(i + jnp.where(own & _is_entry(i)[:, None], jnp.asarray(start, i.dtype), 0).astype(i.dtype))
    joined, flat = jnp.concatenate(moved), jnp.concatenate([jnp.asarray(v) for v in values])
    order = order_of(joined)
    if axis or any(static_value(i) is None for i in indices):
        joined, flat = take(joined, order, 0), take(flat, order, 0)
    return joined, flat, shape_of(shape)


def static_integers(value: Any, what: str) -> np.ndarray:
    """Return a static value as int64; raise OpError if it is traced or symbolic."""
    found = static_value(value)
    if found is None or found.dtype == np.dtype(object):
        raise OpError(f"{what} must be known while tracing")
    return found.astype(np.int64)


def union(a: Any, b: Any, bound: int | DynamicShapes | None) -> tuple[Any, Any, Any]:
    """Return the sorted union of indices, with positions in both (-1: none)."""
    ours, theirs = static_value(a), static_value(b)
    split = a.shape[0]
    if ours is not None and theirs is not None:
        rows, inverse = np.unique(np.concatenate([ours, theirs]), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        at_a, at_b = np.full(len(rows), -1), np.full(len(rows), -1)
        at_a[inverse[:split]] = np.arange(split)
        at_b[inverse[split:]] = np.arange(len(theirs))
        return rows.astype(ours.dtype), at_a, at_b
    size = row_capacity(bound, split + b.shape[0], "the entries of a sum depend on traced indices")
    rows = lax.concatenate([jnp.asarray(a), jnp.asarray(b)], 0)
    order = order_of(rows)
    rows = take(rows, order, 0)
    fresh = (starts(rows) | (lax.iota(np.int32, rows.shape[0]) == 0)) & (rows[:, 0] >= 0)
    to = jnp.where(rows[:, 0] < 0, size, jnp.cumsum(fresh, dtype=np.int32) - 1)
    blank = jnp.full(size, -1, np.int32)
    at_a = blank.at[jnp.where(order < split, to, size)].set(order, mode="drop")
    at_b = blank.at[jnp.where(order < split, size, to)].set(order - split, mode="drop")
    out = jnp.full((size, rows.shape[1]), -1, rows.dtype).at[to].set(rows, mode="drop")
    return truncate_rows(bound, lambda: jnp.count_nonzero(fresh), out, at_a, at_b, of=(a, b))  # type: ignore[return-value]


def same_rows(a: Any, b: Any) -> Any:
    """Return, for each row of ``a``, the position of an equal row of ``b``, or -1."""
    ours, theirs = static_value(a), static_value(b)
    if ours is not None and theirs is not None:
        _, inverse = np.unique(np.concatenate([ours, theirs]), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        out = np.full(inverse.max(initial=-1) + 1, -1)
        out[inverse[len(ours) :]] = np.arange(len(theirs))
        return out[inverse[: len(ours)]]
    if b.shape[0] == 0:
        return np.full(a.shape[0], -1)
    pairs = a.shape[0] * b.shape[0]
    if not isinstance(pairs, int) or pairs > MAX_COMPARED_PAIRS:
        return _same_sorted(jnp.asarray(a), jnp.asarray(b))
    equal = jnp.all(jnp.asarray(a)[:, None] == jnp.asarray(b)[None], axis=2) & (jnp.asarray(a)[:, :1] >= 0)
    return jnp.where(equal.any(1), jnp.argmax(equal, 1), -1)


def _same_sorted(a: Any, b: Any) -> Any:
    """Return `same_rows` by sorting: equal rows are adjacent, a row of ``b`` first."""
    count, rows = b.shape[0], lax.concatenate([b, a.astype(b.dtype)], 0)
    own = lax.iota(np.int32, rows.shape[0])
    *columns, order = lax.sort((*(rows[:, i] for i in range(rows.shape[1])), own), num_keys=rows.shape[1] + 1)
    first = lax.cummax(jnp.where(starts(jnp.stack(columns, 1)), own, 0))
    theirs = lax.cummax(jnp.where(order < count, own, -1))
    position = jnp.where(theirs >= first, take(order, jnp.maximum(theirs, 0), 0), -1)
    to = jnp.where(order < count, a.shape[0], order - count)
    found = jnp.full(a.shape[0], -1, np.int32).at[to].set(position, mode="drop")
    return jnp.where(a[:, 0] >= 0, found, -1)


def select_entries(
    keep: Any, indices: Any, values: Any, start: Any, bound: int | DynamicShapes | None, problem: str
) -> tuple[Any, Any]:
    """Return up to ``bound`` entries where ``keep`` holds, relative to ``start``."""
    if isinstance(keep, np.ndarray):
        kept: Any = np.nonzero(keep)[0]
        return np.asarray(indices)[kept] - start, pick(values, kept)
    size = row_capacity(bound, keep.shape[0], problem)
    (kept,) = truncate_rows(bound, lambda: jnp.count_nonzero(keep), nonzero(keep, size, -1), of=(keep,))
    rows = pick(indices, kept)
    return jnp.where((kept >= 0)[:, None], rows - start, -1).astype(rows.dtype), pick(values, kept)


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
