"""Sparse tensors: ops that choose, merge and reduce entries. See coo.py for traced indices and bounds."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import core, lax

from tf2jax_lite.dynamic_shapes.provenance import entries
from tf2jax_lite.dynamic_shapes.tracker import Extents, UnboundedError, cut, room
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.common.row_boundaries import MAX_COMPARED_PAIRS, numbered, starts
from tf2jax_lite.ops.math.segment import segment_reduce
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, known, normalize_axes, normalize_axis

from .coo import check_indices, order_of, pick, shape_of, sizes_of

_INT64 = np.dtype(np.int64)


def _shape_result(value: Any) -> Any:
    return np.asarray(value).astype(canonical(_INT64))


def _whole_shape(value: Any, what: str) -> np.ndarray:
    found = known(value)
    if found is None or found.dtype == np.dtype(object):
        raise OpError(f"{what} must be known while tracing")
    return found.astype(np.int64)


def _places(keep: Any, bound: int) -> Any:
    """Returns where kept entries stand when the others are left out: ``bound`` places, -1 where nothing is left."""
    to = jnp.where(keep, jnp.cumsum(keep) - 1, bound)
    count = keep.shape[0]
    return jnp.full(bound, -1, np.int32).at[to].set(lax.iota(np.int32, count), mode="drop")


def _chosen(places: Any, indices: Any, values: Any) -> tuple[Any, Any]:
    """Returns indices and values at ``places``; padding holds -1 and 0."""
    if isinstance(places, np.ndarray) and known(indices) is not None:
        return np.asarray(indices)[places], pick(values, places)
    return jnp.where((places >= 0)[:, None], pick(indices, places), -1), pick(values, places)


# ---- merging ----


def union(a: Any, b: Any, bound: int | Extents | None) -> tuple[Any, Any, Any]:
    """Merges index vectors in order; returns them, and for each its place in ``a`` and in ``b`` (-1: none)."""
    ours, theirs = known(a), known(b)
    split = a.shape[0]
    if ours is not None and theirs is not None:
        rows, inverse = np.unique(np.concatenate([ours, theirs]), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        place_a, place_b = np.full(len(rows), -1), np.full(len(rows), -1)
        place_a[inverse[:split]] = np.arange(split)
        place_b[inverse[split:]] = np.arange(len(theirs))
        return rows.astype(ours.dtype), place_a, place_b
    size = room(bound, split + b.shape[0], "the entries of a sum depend on traced indices")
    rows = lax.concatenate([jnp.asarray(a), jnp.asarray(b)], 0)
    order = order_of(rows)
    rows = take(rows, order, 0)
    fresh = (starts(rows) | (lax.iota(np.int32, rows.shape[0]) == 0)) & (rows[:, 0] >= 0)
    to = jnp.where(rows[:, 0] < 0, size, jnp.cumsum(fresh, dtype=np.int32) - 1)
    blank = jnp.full(size, -1, np.int32)
    place_a = blank.at[jnp.where(order < split, to, size)].set(order, mode="drop")
    place_b = blank.at[jnp.where(order < split, size, to)].set(order - split, mode="drop")
    out = jnp.full((size, rows.shape[1]), -1, rows.dtype).at[to].set(rows, mode="drop")
    return cut(bound, lambda: jnp.count_nonzero(fresh), out, place_a, place_b, of=(a, b))  # type: ignore[return-value]


def _check_pair(a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]) -> None:
    for part in (a, b):
        check_indices(*part)
    mine, other = known(a[2]), known(b[2])
    if a[2].shape != b[2].shape or (mine is not None and other is not None and not np.array_equal(mine, other)):
        raise OpError(f"the shapes {mine} and {other} differ")


@op("SparseAdd", dynamic_shape="prefix")
def sparse_add(
    a_indices: Any,
    a_values: Any,
    a_shape: Any,
    b_indices: Any,
    b_values: Any,
    b_shape: Any,
    thresh: Any,
    *,
    bound: int | Extents | None,
) -> tuple[Any, Any, Any]:
    """Adds sparse tensors and drops sums smaller than ``thresh``. See tf.raw_ops.SparseAdd.

    As in TensorFlow, only what both tensors have an entry for is dropped. Both are taken to be in order, without
    repeated indices. A traced NaN is kept if ``thresh`` is 0 (TensorFlow drops it).
    """
    _check_pair((a_indices, a_values, a_shape), (b_indices, b_values, b_shape))
    indices, place_a, place_b = union(a_indices, b_indices, bound)
    total = pick(a_values, place_a) + pick(b_values, place_b)
    shape = a_shape if known(a_shape) is None else _shape_result(known(a_shape))
    limit, sums = known(thresh), known(total)
    if sums is not None and limit is not None and known(indices) is not None:
        keep = (place_a < 0) | (place_b < 0) | (limit <= np.abs(sums))
        return np.asarray(indices)[keep], sums[keep], shape
    if limit is not None and not limit > 0:
        return indices, total, shape
    size = room(bound, total.shape[0], "which sums reach the threshold depends on traced values")
    keep = (place_a < 0) | (place_b < 0) | (jnp.asarray(thresh) <= jnp.abs(total))
    keep = (jnp.asarray(indices)[:, 0] >= 0) & keep
    (where,) = cut(bound, lambda: jnp.count_nonzero(keep), _places(keep, size), of=(keep,))
    return (*_chosen(where, jnp.asarray(indices), total), shape)


def same_rows(a: Any, b: Any) -> Any:
    """Returns, for each row of ``a``, the place of an equal row of ``b``, or -1."""
    ours, theirs = known(a), known(b)
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
    """`same_rows` by sorting: what is equal stands side by side then, a row of ``b`` first."""
    count, rows = b.shape[0], lax.concatenate([b, a.astype(b.dtype)], 0)
    own = lax.iota(np.int32, rows.shape[0])
    *columns, order = lax.sort((*(rows[:, i] for i in range(rows.shape[1])), own), num_keys=rows.shape[1] + 1)
    first = lax.cummax(jnp.where(starts(jnp.stack(columns, 1)), own, 0))
    theirs = lax.cummax(jnp.where(order < count, own, -1))
    place = jnp.where(theirs >= first, take(order, jnp.maximum(theirs, 0), 0), -1)
    to = jnp.where(order < count, a.shape[0], order - count)
    found = jnp.full(a.shape[0], -1, np.int32).at[to].set(place, mode="drop")
    return jnp.where(a[:, 0] >= 0, found, -1)


@op("SparseAddGrad")
def sparse_add_grad(backprop_val_grad: Any, a_indices: Any, b_indices: Any, sum_indices: Any) -> tuple[Any, Any]:
    """Hands the gradients of a sum's entries to those of its operands. See tf.raw_ops.SparseAddGrad."""
    return (
        pick(backprop_val_grad, same_rows(a_indices, sum_indices)),
        pick(backprop_val_grad, same_rows(b_indices, sum_indices)),
    )


def _sparse_sparse(
    fn: Any, a: tuple[Any, Any, Any], b: tuple[Any, Any, Any], bound: int | Extents | None
) -> tuple[Any, Any]:
    _check_pair(a, b)
    indices, place_a, place_b = union(a[0], b[0], bound)
    return indices, fn(jnp.asarray(pick(a[1], place_a)), jnp.asarray(pick(b[1], place_b)))


@op("SparseSparseMaximum", dynamic_shape="prefix")
def sparse_sparse_maximum(
    a_indices: Any,
    a_values: Any,
    a_shape: Any,
    b_indices: Any,
    b_values: Any,
    b_shape: Any,
    *,
    bound: int | Extents | None,
) -> tuple[Any, Any]:
    """The larger of two sparse tensors, where either has an entry. See tf.raw_ops.SparseSparseMaximum."""
    return _sparse_sparse(lax.max, (a_indices, a_values, a_shape), (b_indices, b_values, b_shape), bound)


@op("SparseSparseMinimum", dynamic_shape="prefix")
def sparse_sparse_minimum(
    a_indices: Any,
    a_values: Any,
    a_shape: Any,
    b_indices: Any,
    b_values: Any,
    b_shape: Any,
    *,
    bound: int | Extents | None,
) -> tuple[Any, Any]:
    """The smaller of two sparse tensors, where either has an entry. See tf.raw_ops.SparseSparseMinimum."""
    return _sparse_sparse(lax.min, (a_indices, a_values, a_shape), (b_indices, b_values, b_shape), bound)


# ---- choosing ----


@op("SparseFillEmptyRows", dynamic_shape="prefix")
def sparse_fill_empty_rows(
    indices: Any, values: Any, dense_shape: Any, default_value: Any, *, bound: int | Extents | None
) -> tuple[Any, Any, Any, Any]:
    """Gives each row without an entry one at column 0. See tf.raw_ops.SparseFillEmptyRows.

    Padded results have as many entries as the bound says; those past it are lost.
    """
    check_indices(indices, values, dense_shape)
    if default_value.ndim:
        raise OpError("default_value must be a scalar")
    rank = dense_shape.shape[0]
    if not rank:
        raise OpError("dense_shape must not be empty")
    rows = _first_of(dense_shape, bound)
    row_ids, values_out, empty, reverse, places = _fill_rows(indices[:, 0], values, rows, default_value, bound)
    rest = pick(indices[:, 1:], places)  # zeros in the new entries
    if known(row_ids) is not None and known(rest) is not None:
        return np.concatenate([row_ids[:, None], rest.reshape(-1, rank - 1)], 1), values_out, empty, reverse
    rest = jnp.where((row_ids >= 0)[:, None], rest, -1)
    return jnp.concatenate([row_ids[:, None], rest], 1), values_out, empty, reverse


def _first_of(shape: Any, bound: int | Extents | None) -> Any:
    """Returns the first size of a shape of which the others may be data: a number, or a dimension that data decides.

    Raises:
      UnboundedError: it is data, too, and sizes that data decides have no names here.
    """
    first = entries(shape, shape.shape[0])[0]
    if first.is_known and isinstance(first.offset, int):
        return first.offset
    if isinstance(bound, Extents):
        return bound.sizes(shape[:1])[0]
    raise UnboundedError("how many rows there are depends on a traced dense shape")


def _fill_rows(row_ids: Any, values: Any, rows: Any, default: Any, bound: int | Extents | None) -> tuple[Any, ...]:
    """Returns row ids, values, empty rows, where entries went, and where entries came from (-1: new)."""
    found, dtype = known(row_ids), canonical(_INT64)
    if found is not None:
        if found.size and not 0 <= found.min() <= found.max() < rows:
            raise OpError(f"row {found.min() if found.min() < 0 else found.max()} is out of range [0, {rows})")
        empty = np.bincount(found, minlength=rows) == 0
        ids = np.concatenate([found, np.nonzero(empty)[0].astype(found.dtype)])
        order = np.argsort(ids, kind="stable")
        reverse = np.empty(len(order), np.int64)
        reverse[order] = np.arange(len(order))
        places = np.where(order < len(found), order, -1)
        reverse = reverse[: len(found)].astype(dtype)
        return ids[order].astype(dtype), _filled(values, places, default, len(found)), empty, reverse, places
    count = row_ids.shape[0]
    size = room(bound, count + rows, "which rows are empty depends on traced indices")
    inside = (row_ids >= 0) & (row_ids < rows)
    counts = jnp.zeros(rows, np.int32).at[jnp.where(inside, row_ids, rows)].add(1, mode="drop")
    empty = counts == 0
    ids = jnp.concatenate([jnp.where(inside, row_ids, rows), jnp.where(empty, jnp.arange(rows), rows)])
    order = jnp.argsort(ids, stable=True)
    reverse = jnp.zeros(count + rows, dtype).at[order].set(jnp.arange(count + rows, dtype=dtype))[:count]
    ids, all_rows = take(ids, order, 0), count + rows
    if size != all_rows:
        missing = core.max_dim(size - all_rows, 0)
        order, ids = jnp.pad(order, (0, missing))[:size], jnp.pad(ids, (0, missing), constant_values=rows)[:size]
    order, ids = cut(bound, lambda: jnp.count_nonzero(ids < rows), order, ids, of=(row_ids, rows))
    valid = ids < rows
    places = jnp.where(valid & (order < count), order, -1)
    new = _filled(values, places, default, count)
    zero = jnp.zeros((), new.dtype)
    ids = jnp.where(valid, ids, -1).astype(dtype)
    if isinstance(bound, Extents):
        bound.cover(ids, rows)
    return ids, jnp.where(valid, new, zero), empty, reverse, places


def _filled(values: Any, places: Any, default: Any, count: int) -> Any:
    if isinstance(places, np.ndarray) and isinstance(values, np.ndarray) and isinstance(default, np.ndarray):
        out = values[places] if count else np.empty(len(places), values.dtype)
        out = np.array(out)
        out[places < 0] = default
        return out
    return jnp.where(places >= 0, pick(values, places) if count else jnp.zeros(places.shape[0], values.dtype), default)


@op("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad")
def sparse_fill_empty_rows_grad(reverse_index_map: Any, grad_values: Any) -> tuple[Any, Any]:
    """Splits gradients into those of entries and of the default. See tf.raw_ops.SparseFillEmptyRowsGrad."""
    if reverse_index_map.ndim != 1 or grad_values.ndim != 1:
        raise OpError("reverse_index_map and grad_values must be vectors")
    own = take(grad_values, reverse_index_map, 0)
    kept = jnp.ones(grad_values.shape, bool).at[jnp.asarray(reverse_index_map)].set(False, mode="drop")
    rest = jnp.where(kept, grad_values, jnp.zeros((), grad_values.dtype))
    return own, total(rest)


@op("RaggedFillEmptyRows", dynamic_shape="prefix")
def ragged_fill_empty_rows(
    value_rowids: Any, values: Any, nrows: Any, default_value: Any, *, bound: int | Extents | None
) -> tuple[Any, Any, Any, Any]:
    """Gives each row without a value the default. See tf.raw_ops.RaggedFillEmptyRows."""
    if value_rowids.ndim != 1 or values.ndim != 1 or value_rowids.shape != values.shape:
        raise OpError(f"row ids of shape {value_rowids.shape} and values of shape {values.shape}")
    rows = int(_whole_shape(nrows, "the number of rows"))
    return _fill_rows(value_rowids, values, rows, default_value, bound)[:4]


@op("SparseSlice", dynamic_shape="prefix")
def sparse_slice(
    indices: Any, values: Any, shape: Any, start: Any, size: Any, *, bound: int | Extents | None
) -> tuple[Any, Any, Any]:
    """Returns the entries inside a box. See tf.raw_ops.SparseSlice."""
    check_indices(indices, values, shape)
    if not shape.shape == start.shape == size.shape:
        raise OpError(f"start and size must have the shape's length {shape.shape[0]}")
    sizes = known(size)
    if sizes is not None and (sizes < 0).any():
        raise OpError(f"a size must not be negative, got {sizes.tolist()}")
    xp: Any = np if all(known(v) is not None for v in (indices, start, size)) else jnp
    inside = xp.all((indices >= start) & (indices < start + size), axis=1)
    sizes_out = [
        max(min(most, whole - first), 0)
        if all(isinstance(v, int) for v in (whole, first, most))
        else jnp.maximum(jnp.minimum(most, whole - first), 0)
        for whole, first, most in zip(*map(sizes_of, (shape, start, size)), strict=True)
    ]
    return (*_select(inside, indices, values, start, bound), shape_of(sizes_out))


def _select(keep: Any, indices: Any, values: Any, start: Any, bound: int | Extents | None) -> tuple[Any, Any]:
    """Keeps some entries and moves them by ``-start``."""
    if isinstance(keep, np.ndarray):
        places: Any = np.nonzero(keep)[0]
        return np.asarray(indices)[places] - start, pick(values, places)
    size = room(bound, keep.shape[0], "which entries are chosen depends on traced indices")
    (places,) = cut(bound, lambda: jnp.count_nonzero(keep), _places(keep, size), of=(keep,))
    rows = pick(indices, places)
    return jnp.where((places >= 0)[:, None], rows - start, -1).astype(rows.dtype), pick(values, places)


@op("SparseSliceGrad")
def sparse_slice_grad(backprop_val_grad: Any, input_indices: Any, input_start: Any, output_indices: Any) -> Any:
    """Hands the gradients of a slice's entries to those of its input. See tf.raw_ops.SparseSliceGrad."""
    moved = output_indices + input_start
    if known(output_indices) is None:
        moved = jnp.where(output_indices < 0, -1, moved)
    return pick(backprop_val_grad, same_rows(input_indices, moved))


@op("SparseSplit", dynamic_shape="prefix")
def sparse_split(
    split_dim: Any, indices: Any, values: Any, shape: Any, *, num_split: int, bound: int | Extents | None
) -> tuple[Any, Any, Any]:
    """Splits along a dimension; first parts are larger if it does not divide. See tf.raw_ops.SparseSplit."""
    check_indices(indices, values, shape)
    size = _whole_shape(shape, "the shape")
    axis = normalize_axis(_whole_shape(split_dim, "split_dim"), len(size))
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
        parts.append(_select((column >= first) & (column < first + length), indices, values, start, bound))
        shapes.append(_shape_result(np.where(np.arange(len(size)) == axis, length, size)))
        first += length
    return [p[0] for p in parts], [p[1] for p in parts], shapes


# ---- within groups ----


@op("SparseSoftmax")
def sparse_softmax(sp_indices: Any, sp_values: Any, sp_shape: Any) -> Any:
    """Softmax over the entries of each row (runs of entries of one row). See tf.raw_ops.SparseSoftmax."""
    check_indices(sp_indices, sp_values, sp_shape)
    if sp_indices.shape[1] < 2:
        raise OpError("a sparse tensor of rank 2 or more is expected")
    count = sp_values.shape[0]
    rows = jnp.asarray(sp_indices)[:, :-1]
    ids = numbered(rows)
    values = jnp.asarray(sp_values)
    top = lax.stop_gradient(segment_reduce("Max", lax.stop_gradient(values), ids, count, -np.inf))
    parts = lax.exp(values - take(top, ids, 0))
    return parts / take(segment_reduce("Sum", parts, ids, count), ids, 0)


def _reduction(input_shape: Any, reduction_axes: Any, keep_dims: bool) -> tuple[list[int], tuple[Any, ...]]:
    """Returns the dimensions that remain, and the result's shape."""
    shape = sizes_of(input_shape)
    axes = set(normalize_axes(reduction_axes, len(shape)))
    kept = [i for i in range(len(shape)) if i not in axes]
    if keep_dims:
        return kept, tuple(1 if i in axes else d for i, d in enumerate(shape))
    return kept, tuple(shape[i] for i in kept)


def _reduce(kind: str, indices: Any, values: Any, shape: Any, axes: Any, keep_dims: bool) -> Any:
    check_indices(indices, values, shape)
    kept, out_shape = _reduction(shape, axes, keep_dims)
    sizes = tuple(dims(shape)[i] for i in kept)
    values = jnp.asarray(values)
    if any(isinstance(d, int) and d == 0 for d in (*sizes, values.shape[0])):
        return jnp.zeros(out_shape, values.dtype)
    flat = jnp.zeros(values.shape[0], indices.dtype)
    stride: Any = 1
    for i, d in zip(reversed(kept), reversed(sizes), strict=True):
        flat = flat + indices[:, i] * jnp.asarray(stride, indices.dtype)
        stride = stride * d
    flat = jnp.where(indices[:, 0] < 0, -1, flat)
    out = segment_reduce(kind, values, flat, stride)
    if kind == "Max":  # TensorFlow reduces explicit entries alone, and leaves 0 where there is none
        filled = segment_reduce("Sum", jnp.ones(flat.shape, np.int32), flat, stride) > 0
        out = jnp.where(filled, out, jnp.zeros((), out.dtype))
    return out.reshape(out_shape)


@op("SparseReduceSum")
def sparse_reduce_sum(
    input_indices: Any, input_values: Any, input_shape: Static, reduction_axes: Static, *, keep_dims: bool = False
) -> Any:
    """Sums entries into a dense tensor. See tf.raw_ops.SparseReduceSum."""
    return _reduce("Sum", input_indices, input_values, input_shape, reduction_axes, keep_dims)


@op("SparseReduceMax")
def sparse_reduce_max(
    input_indices: Any, input_values: Any, input_shape: Static, reduction_axes: Static, *, keep_dims: bool = False
) -> Any:
    """Largest entries as a dense tensor, 0 where there is none. See tf.raw_ops.SparseReduceMax.

    Any NaN wins (in TensorFlow, on CPU, whether it does depends on its place).
    """
    return _reduce("Max", input_indices, input_values, input_shape, reduction_axes, keep_dims)


def _reduce_sparse(
    kind: str, indices: Any, values: Any, shape: Any, axes: Any, keep_dims: bool, bound: int | Extents | None
) -> tuple[Any, Any, Any]:
    check_indices(indices, values, shape)
    kept, out_shape = _reduction(shape, _whole_shape(axes, "the axes"), keep_dims)
    found = known(indices)
    positions = np.array(kept, int)
    if found is not None:
        if kept:
            rows, ids = np.unique(found[:, positions], axis=0, return_inverse=True)
        else:
            rows, ids = np.zeros((min(len(found), 1), 0), found.dtype), np.zeros(len(found), int)
        count: Any = len(rows)
        out = segment_reduce(kind, values, ids.reshape(-1), count)
        full = np.zeros((count, len(found.T)), found.dtype)
    else:
        count = room(bound, indices.shape[0], "the entries of a reduction depend on traced indices")
        own = jnp.asarray(indices)[:, positions]
        own = jnp.where(jnp.asarray(indices)[:, :1] < 0, -1, own)
        order = order_of(own) if kept else jnp.argsort(indices[:, 0] < 0, stable=True)
        own = take(own, order, 0)
        ids = numbered(own)
        valid = take(jnp.asarray(indices), order, 0)[:, 0] >= 0
        ids = jnp.where(valid, ids, count)
        out = segment_reduce(kind, take(values, order, 0), ids, count)
        rows = jnp.full((count, len(kept)), -1, own.dtype).at[ids].set(own, mode="drop")
        used = jnp.zeros(count, bool).at[ids].set(True, mode="drop")
        out = jnp.where(used, out, jnp.zeros((), out.dtype))
        full = jnp.where(used[:, None], 0, jnp.full((count, indices.shape[1]), -1, own.dtype))
        rows, out, full = cut(bound, lambda: jnp.count_nonzero(used), rows, out, full, of=(used,))
    if keep_dims:
        rows = jnp.asarray(full).at[:, positions].set(rows) if kept else full
    return rows, out, shape_of(out_shape)


@op("SparseReduceSumSparse", dynamic_shape="prefix")
def sparse_reduce_sum_sparse(
    input_indices: Any,
    input_values: Any,
    input_shape: Any,
    reduction_axes: Any,
    *,
    keep_dims: bool = False,
    bound: int | Extents | None,
) -> tuple[Any, Any, Any]:
    """Sums entries into a sparse tensor. See tf.raw_ops.SparseReduceSumSparse."""
    return _reduce_sparse("Sum", input_indices, input_values, input_shape, reduction_axes, keep_dims, bound)


@op("SparseReduceMaxSparse", dynamic_shape="prefix")
def sparse_reduce_max_sparse(
    input_indices: Any,
    input_values: Any,
    input_shape: Any,
    reduction_axes: Any,
    *,
    keep_dims: bool = False,
    bound: int | Extents | None,
) -> tuple[Any, Any, Any]:
    """Largest entries as a sparse tensor. See tf.raw_ops.SparseReduceMaxSparse."""
    return _reduce_sparse("Max", input_indices, input_values, input_shape, reduction_axes, keep_dims, bound)
