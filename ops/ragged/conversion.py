"""Ranges, repetition, gathering and conversions of ragged tensors.

Ragged values come with row splits. Their number must be static or bounded. Results padded to the config option
``dynamic_shape_bound`` have row splits that end where their values end; padding is 0.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.row_bounds import range_length_bound, total_length_bound
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, inferred_bound, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.rows import array_module, row_of, search
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.sparse.coo import pick, scatter_entries
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, static_value

_INT64 = np.dtype(np.int64)


def _static_or_array(value: Any) -> Any:
    found = static_value(value)
    return jnp.asarray(value) if found is None else found


def check_splits(nested: list[Any], count: Any) -> None:
    """Raise OpError if static splits do not fit each other or the number of values."""
    for i, splits in enumerate(nested):
        if splits.ndim != 1 or splits.shape[0] == 0:
            raise OpError("splits must be vectors that are not empty")
        found = static_value(splits)
        if found is None:
            continue
        if found[0] != 0 or (found[1:] < found[:-1]).any():
            raise OpError(f"splits must start with 0 and not decrease, got {found.tolist()}")
        total = nested[i + 1].shape[0] - 1 if i + 1 < len(nested) else count
        if isinstance(total, int) and found[-1] != total:
            raise OpError(f"the splits end at {found[-1]}, but there are {total} rows or values")


def _ragged_tensor_to_sparse(rt_nested_splits: list[Any], rt_dense_values: Any) -> tuple[Any, Any, Any]:
    dtype = canonical(_INT64)
    values = rt_dense_values
    check_splits(rt_nested_splits, values.shape[0])
    nested = [_static_or_array(s) for s in rt_nested_splits]
    xp = array_module(*nested) if isinstance(values.shape[0], int) else jnp
    position: Any = xp.arange(values.shape[0])
    columns: list[Any] = []
    sizes: list[Any] = []
    for splits in reversed(nested):
        sizes.insert(0, xp.max(splits[1:] - splits[:-1], initial=0))
        row = search(splits[1:], position, "right")
        columns.insert(0, (position - splits[row]).astype(dtype))
        position = row
    indices = xp.stack([position.astype(dtype), *columns], axis=1)
    if xp is jnp:
        indices = jnp.where((position >= nested[0].shape[0] - 1)[:, None], -1, indices)
    inner = values.shape[1:]
    if inner:
        size = math.prod(inner)
        grid = np.stack(np.unravel_index(np.arange(size), inner), axis=1).astype(dtype)
        indices = xp.concatenate([xp.repeat(indices, size, axis=0), xp.tile(grid, (values.shape[0], 1))], axis=1)
        values = values.reshape(-1)
    shape = [nested[0].shape[0] - 1, *sizes, *inner]
    return indices, values, xp.stack([xp.asarray(s, dtype) for s in shape])


@op("RaggedTensorToSparse", fold=_ragged_tensor_to_sparse)
def ragged_tensor_to_sparse(rt_nested_splits, rt_dense_values):
    """Return the index of each value, the values and the dense shape.

    TF: core/kernels/ragged_tensor_to_sparse_kernel.cc.

    Traced splits may end before the values do; the rest is padding, with indices of -1.
    """
    return _ragged_tensor_to_sparse(rt_nested_splits, rt_dense_values)


def _partitions(tensors: list[Any], kinds: list[str], count: Any) -> tuple[Any, list[tuple[str, Any, Any]]]:
    """Return the row count, and each ragged dimension's type, tensor and size."""
    kinds, tensors = list(kinds), list(tensors)
    if not kinds or len(kinds) != len(tensors):
        raise OpError(f"{len(tensors)} row partitions for the types {kinds}")
    rows: Any
    if kinds[0] == "FIRST_DIM_SIZE":
        found = static_value(tensors[0])
        if found is None:
            raise OpError("the number of rows (FIRST_DIM_SIZE) must be known while tracing")
        (rows,) = dims(found)
        kinds, tensors = kinds[1:], tensors[1:]
    elif kinds[0] == "ROW_SPLITS":
        rows = tensors[0].shape[0] - 1
    else:
        raise OpError(f"cannot handle {kinds[0]} as the first row partition")
    levels = []
    for i, (kind, tensor) in enumerate(zip(kinds, tensors, strict=True)):
        if kind not in ("ROW_SPLITS", "VALUE_ROWIDS"):
            raise OpError(f"unknown row partition type {kind!r}")
        if i + 1 == len(kinds):
            made = count
        else:
            below = tensors[i + 1]
            made = tensor.shape[0] if kind == "VALUE_ROWIDS" else below.shape[0] - 1
            if kinds[i + 1] == "VALUE_ROWIDS" and kind == "ROW_SPLITS":
                found = static_value(tensor)
                if found is None:
                    raise OpError("row splits above row ids must be known while tracing")
                made = int(found[-1])
        levels.append((kind, tensor, made))
    return rows, levels


def _parents_and_ranks(kind: str, tensor: Any, made: Any) -> tuple[Any, Any]:
    """Return the parent of each child, and its index among that parent's children."""
    tensor = _static_or_array(tensor)
    if kind == "ROW_SPLITS":
        row = row_of(tensor, made)
        begin = pick(tensor, row)
        return row, (np if array_module(row, begin) is np else jnp).arange(made, dtype=tensor.dtype) - begin
    if static_value(tensor) is not None and isinstance(made, int):
        if tensor.size and ((tensor < 0).any() or (tensor[1:] < tensor[:-1]).any()):
            raise OpError("row ids must not be negative or decrease")
        return tensor, np.arange(made) - search(tensor, tensor, "left")
    return tensor, jnp.arange(made) - search(tensor, tensor, "left")


@op("RaggedTensorToTensor")
def ragged_tensor_to_tensor(shape, values, default_value, row_partition_tensors, *, row_partition_types, bound: Bound):
    """Convert a ragged tensor to a dense one.

    TF: core/kernels/ragged_tensor_to_tensor_op.cc.

    With traced row partitions, dimensions that ``shape`` leaves open have the bound as their size. With a tracker of
    dynamic shapes they are dynamic dimensions, whose capacity is the number of values.

    Args:
      shape: [rank] or -1, static; -1 leaves a dimension open.

    Returns:
      A dense tensor; longer rows are truncated.
    """
    rows, levels = _partitions(row_partition_tensors, row_partition_types, values.shape[0])
    inner = values.shape[1:]
    rank = len(levels) + 1 + len(inner)
    found = static_value(shape)
    if found is None:
        raise OpError("the shape must be known while tracing")
    wanted = list(dims(found)) if found.ndim else [-1] * rank
    if not found.ndim and int(found) != -1:
        raise OpError(f"a scalar shape can only be -1, got {int(found)}")
    if len(wanted) != rank:
        raise OpError(f"a shape of rank {len(wanted)} for a tensor of rank {rank}")
    if default_value.ndim >= values.ndim and default_value.ndim > 0:
        raise OpError(f"default_value of rank {default_value.ndim} for values of rank {values.ndim}")
    for want, have in zip(wanted[len(levels) + 1 :], inner, strict=True):
        if isinstance(want, int) and isinstance(have, int) and want not in (-1, have):
            raise OpError(f"the inner dimension is {have}, not {want}")
    size: Any = rows if _is_open(wanted[0]) else wanted[0]
    coordinates: list[Any] = []  # per dimension, of the children of the current level; -1: none
    sizes = [size]
    for (kind, tensor, made), want in zip(levels, wanted[1:], strict=False):
        parent, child = _parents_and_ranks(kind, tensor, made)
        if _is_open(want):
            if isinstance(child, np.ndarray):
                want = int(child[parent < rows].max(initial=-1)) + 1
            else:
                want = _longest(parent, child, rows, made, bound)
        inside = (parent >= 0) & (parent < rows)
        if not coordinates:
            inside = inside & (parent < size)
            xp = np if array_module(parent) is np and isinstance(size, int) else jnp
            coordinates = [xp.where(inside, parent, -1)]
        else:
            coordinates = [_pick_or_none(c, parent, inside) for c in coordinates]
        coordinates.append(_limited(child, want))
        sizes.append(want)
        rows = made
    return _dense(values, default_value, coordinates, tuple(sizes), inner)


def _longest(parent: Any, child: Any, rows: Any, made: Any, bound: int | DynamicShapes | None) -> Any:
    """Return the dynamic length of the longest row."""
    if not isinstance(bound, DynamicShapes):
        return row_capacity(bound, made, "the length of the longest row depends on traced row partitions")
    inside = jnp.where((parent >= 0) & (parent < rows), child, -1)
    longest = jnp.max(inside, initial=-1).astype(np.int32) + 1
    return bound.as_dim(jnp.minimum(longest, jnp.asarray(made, np.int32)))


def _is_open(size: Any) -> bool:
    return isinstance(size, int) and size == -1


def _limited(coordinate: Any, size: Any) -> Any:
    """Replace coordinates past the end of their dimension by -1."""
    xp = np if isinstance(coordinate, np.ndarray) and isinstance(size, int) else jnp
    return xp.where(coordinate < size, coordinate, -1)


def _pick_or_none(coordinate: Any, parent: Any, inside: Any) -> Any:
    """Return the coordinates of parents; -1 for missing parents."""
    if array_module(coordinate, parent, inside) is np:
        return np.append(coordinate, -1)[np.where(inside, parent, -1)]
    return jnp.where(inside, pick(coordinate, jnp.where(inside, parent, -1)), -1)


def _dense(values: Any, default: Any, coordinates: list[Any], sizes: tuple[Any, ...], inner: tuple[Any, ...]) -> Any:
    if all(isinstance(v, np.ndarray) for v in (values, default, *coordinates)):
        out = np.empty((*sizes, *inner), values.dtype)
        out[...] = default
        valid = np.logical_and.reduce([c >= 0 for c in coordinates])
        out[tuple(c[valid] for c in coordinates)] = values[valid]
        return out
    start = jnp.broadcast_to(default, (*sizes, *inner))
    dtype = np.result_type(*(c.dtype for c in coordinates))
    return scatter_entries(start, jnp.stack([jnp.asarray(c, canonical(dtype)) for c in coordinates], 1), values, "set")


def _host_counts(starts: Any, limits: Any, deltas: Any) -> np.ndarray:
    if (deltas == 0).any():
        raise OpError("a step must not be 0")
    if np.issubdtype(starts.dtype, np.integer):
        gap = np.where(deltas > 0, limits - starts, starts - limits).astype(np.int64)
        return np.maximum(-(-gap // np.abs(deltas).astype(np.int64)), 0)
    with np.errstate(invalid="ignore"):
        counts = np.ceil(np.abs((limits - starts) / deltas).astype(np.float64))
    empty = np.where(deltas > 0, starts >= limits, starts <= limits)
    if not np.isfinite(counts[~empty]).all():
        raise OpError("a range without end")
    return np.where(empty, 0, counts).astype(np.int64)


def _host_values(starts: Any, deltas: Any, counts: np.ndarray) -> np.ndarray:
    mask = np.arange(int(counts.max(initial=0))) < counts[:, None]
    # TensorFlow adds the step repeatedly; so the rounding is that of a cumulative sum.
    steps = np.empty(mask.shape, starts.dtype)
    steps[:] = deltas[:, None]
    steps[:, :1] = starts[:, None]
    return np.add.accumulate(steps, axis=1, dtype=starts.dtype)[mask]


@op("RaggedRange")
def ragged_range(starts, limits, deltas, *, Tsplits=_INT64, bound: Bound):
    """Return a row of numbers for each start, limit and step.

    TF: core/kernels/ragged_range_op.cc.

    Args:
      deltas: scalar or [rows], not 0.

    Returns:
      Row splits [rows + 1] and values.
    """
    sizes = {v.shape[0] for v in (starts, limits, deltas) if v.ndim == 1}
    if any(v.ndim > 1 for v in (starts, limits, deltas)) or len(sizes) > 1:
        raise OpError("starts, limits and deltas must be scalars or vectors of one length")
    rows = sizes.pop() if sizes else 1
    if array_module(starts, limits, deltas) is np:
        starts, limits, deltas = (np.broadcast_to(v, rows) for v in (starts, limits, deltas))
        counts = _host_counts(starts, limits, deltas)
        splits = np.concatenate([[0], np.cumsum(counts)]).astype(Tsplits)
        return splits, _host_values(starts, deltas, counts)
    of = (starts, limits, deltas)
    limit, steps, begin = None, static_value(deltas), static_value(starts)
    starts, limits, deltas = (jnp.broadcast_to(v, (rows,)) for v in of)
    if jnp.issubdtype(starts.dtype, jnp.integer):
        if begin is not None and not begin.any() and steps is not None and (steps > 0).all():
            limit = total_length_bound(limits)
        elif steps is not None and (steps > 0).all():
            limit = range_length_bound(starts, limits)
        elif steps is not None and (steps < 0).all():
            limit = range_length_bound(limits, starts)
        counts = -((starts - limits) // deltas)
    else:
        counts = jnp.ceil((limits - starts) / deltas)
    size = row_capacity(bound, limit, "the number of values depends on traced starts, limits or deltas")
    counts = jnp.maximum(counts, 0).astype(canonical(Tsplits))
    splits = _clamp_splits(jnp.concatenate([jnp.zeros(1, counts.dtype), jnp.cumsum(counts)]), limit, bound)
    row = row_of(splits, size)
    step = jnp.arange(size, dtype=splits.dtype) - take(splits, row, 0)
    values = take(starts, row, 0) + step.astype(starts.dtype) * take(deltas, row, 0)
    values = jnp.where(row < rows, values, jnp.zeros((), values.dtype))
    return splits, *truncate_rows(bound, lambda: splits[-1], values, of=of)


@op("_Repeat")
def repeat(data, repeats, likes, pairs, *, Tparams=None, bound: Bound):
    """Repeat each entry of ``data`` as often as ``repeats`` says.

    TF: `tf.repeat`; `passes.optimize.repeat_idiom` makes the node.

    Axes up to the last one of ``repeats`` are flattened. Padding is -1 for signed integers, which is in no segment and
    gathers zeros; else 0.
    """
    rank = repeats.ndim
    if data.shape[:rank] != repeats.shape:
        raise OpError(f"counts of shape {repeats.shape} do not fit data of shape {data.shape}")
    rest = data.shape[rank:]
    if isinstance(repeats, np.ndarray):
        indices = np.repeat(np.arange(repeats.size), np.maximum(repeats, 0).reshape(-1))
        flat = array_module(data).reshape(data, (repeats.size, *rest))
        return flat[indices] if isinstance(flat, np.ndarray) else take(flat, indices, 0)
    lengths = [like.shape[0] for like in likes if like.ndim]
    lengths += [a.shape[0] for a, b in _pairs(pairs) if rank == 1 and a.ndim == b.ndim > 0 and a.shape[0] != 1]
    problem = "how many values come out depends on traced counts"
    size = lengths[0] if lengths else row_capacity(bound, _sum_bound(repeats), problem)
    counts = jnp.maximum(jnp.reshape(jnp.asarray(repeats), (-1,)), 0)
    data = jnp.reshape(jnp.asarray(data), (counts.shape[0], *rest))
    fill = -1 if jnp.issubdtype(data.dtype, jnp.signedinteger) else 0
    data = jnp.concatenate([data, jnp.full((1, *rest), fill, data.dtype)])
    ends = jnp.cumsum(counts)
    indices = search(ends, lax.iota(counts.dtype, size), "right")
    if not lengths:
        (indices,) = truncate_rows(bound, lambda: jnp.sum(counts), indices, of=(repeats,))
    return take(data, indices, 0)


def _sum_bound(counts: Any) -> Any:
    """Return an upper bound of the sum of counts, None if there is none."""
    if counts.ndim == 1:
        return total_length_bound(counts)
    largest = inferred_bound(counts)
    return None if largest is None else largest * math.prod(counts.shape)


def _clamp_splits(splits: Any, limit: Any, bound: int | DynamicShapes | None) -> Any:
    """Return row splits clamped to a bound, so that interval analysis infers it."""
    is_tracked = isinstance(bound, DynamicShapes) and limit is not None
    return jnp.minimum(splits, jnp.asarray(limit, splits.dtype)) if is_tracked else splits


def _gathered_bound(splits: Any, rows: Any) -> Any:
    """Return an upper bound of the number of gathered values, or None."""
    total, found = inferred_bound(splits), static_value(rows)
    if total is None:
        return None
    times = rows.shape[0] if found is None else int(np.unique(found, return_counts=True)[1].max(initial=0))
    return total * times


def _pairs(flat: list[Any]) -> Any:
    return zip(flat[::2], flat[1::2], strict=True)


def _expand(splits: Any, rows: Any, bound: int | DynamicShapes | None) -> tuple[Any, Any]:
    """Return splits of gathered rows, and indices of their values (-1: padding)."""
    if array_module(splits, rows) is np:
        lengths = np.where(rows >= 0, (splits[1:] - splits[:-1])[rows], 0)
        begin = splits[:-1][rows]
        out = np.concatenate([[0], np.cumsum(lengths)]).astype(splits.dtype)
        inner = np.arange(int(out[-1])) + np.repeat(begin - out[:-1], lengths)
        return out, inner.astype(splits.dtype)
    splits = jnp.asarray(splits)
    limit = _gathered_bound(splits, rows)
    size = row_capacity(bound, limit, "how much is gathered depends on traced indices or splits")
    of = (splits, rows)
    lengths = pick(splits[1:] - splits[:-1], rows)
    out = jnp.concatenate([jnp.zeros(1, splits.dtype), jnp.cumsum(lengths, dtype=splits.dtype)])
    out = _clamp_splits(out, limit, bound)
    row = row_of(out, size)
    begin = take(pick(splits[:-1], rows), row, 0)
    inner = begin + jnp.arange(size, dtype=splits.dtype) - take(out, row, 0)
    return out, *truncate_rows(bound, lambda: out[-1], jnp.where(row < out.shape[0] - 1, inner, -1), of=of)


@op("RaggedGather")
def ragged_gather(params_nested_splits, params_dense_values, indices, *, OUTPUT_RAGGED_RANK, bound: Bound):
    """Gather rows of a ragged tensor.

    TF: core/kernels/ragged_gather_op.cc.

    Traced indices out of range give empty rows (an error in TensorFlow).
    """
    if len(params_nested_splits) + indices.ndim - 1 != OUTPUT_RAGGED_RANK:
        raise OpError(f"the ragged rank of the result cannot be {OUTPUT_RAGGED_RANK}")
    first = params_nested_splits[0]
    if first.shape[0] == 0:
        raise OpError("splits must not be empty")
    count = first.shape[0] - 1
    found = static_value(indices)
    if found is not None and found.size and not 0 <= found.min() <= found.max() < count:
        raise OpError(f"index {found.min() if found.min() < 0 else found.max()} is out of range [0, {count})")
    out: list[Any] = []
    # Dimensions of the indices are uniform; all but the last need splits.
    for i in range(indices.ndim - 1):
        size = int(np.prod(indices.shape[: i + 1]))
        out.append(np.arange(size + 1, dtype=canonical(first.dtype)) * indices.shape[i + 1])
    rows = indices.reshape(-1)
    if found is None:
        rows = jnp.where((rows >= 0) & (rows < count), rows, -1)
    for splits in params_nested_splits:
        inner_splits, rows = _expand(splits, rows, bound)
        out.append(inner_splits)
    if not indices.ndim:
        out = out[1:]  # a scalar index removes the dimension
    return out, pick(params_dense_values, rows)
