"""Ragged tensors: values with row splits or row ids.

The number of values has to be known while tracing. Results padded to the config option ``dynamic_shape_bound`` have
splits that say where their values end; what is past that is 0.
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
from tf2jax_lite.ops.common.row_splits import array_module, row_of, search
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.sparse.coo import pick, scatter_entries
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, known

_INT64 = np.dtype(np.int64)


# ---- ranges ----


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
    # TensorFlow adds the step again and again; so the rounding is that of a running sum.
    steps = np.empty(mask.shape, starts.dtype)
    steps[:] = deltas[:, None]
    steps[:, :1] = starts[:, None]
    return np.add.accumulate(steps, axis=1, dtype=starts.dtype)[mask]


@op("RaggedRange", dynamic_shape="prefix")
def ragged_range(
    starts: Any, limits: Any, deltas: Any, *, Tsplits: Any = _INT64, bound: int | DynamicShapes | None
) -> tuple[Any, Any]:
    """Returns a row of numbers for each start, limit and step. See tf.raw_ops.RaggedRange."""
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
    most, steps, begin = None, known(deltas), known(starts)
    starts, limits, deltas = (jnp.broadcast_to(v, (rows,)) for v in of)
    if jnp.issubdtype(starts.dtype, jnp.integer):
        if begin is not None and not begin.any() and steps is not None and (steps > 0).all():
            most = total_length_bound(limits)
        elif steps is not None and (steps > 0).all():
            most = range_length_bound(starts, limits)
        elif steps is not None and (steps < 0).all():
            most = range_length_bound(limits, starts)
        counts = -((starts - limits) // deltas)
    else:
        counts = jnp.ceil((limits - starts) / deltas)
    size = row_capacity(bound, most, "the number of values depends on traced starts, limits or deltas")
    counts = jnp.maximum(counts, 0).astype(canonical(Tsplits))
    splits = _no_further(jnp.concatenate([jnp.zeros(1, counts.dtype), jnp.cumsum(counts)]), most, bound)
    row = row_of(splits, size)
    step = jnp.arange(size, dtype=splits.dtype) - take(splits, row, 0)
    values = take(starts, row, 0) + step.astype(starts.dtype) * take(deltas, row, 0)
    values = jnp.where(row < rows, values, jnp.zeros((), values.dtype))
    return splits, *truncate_rows(bound, lambda: splits[-1], values, of=of)


# ---- repeating ----


@op("_Repeat", dynamic_shape="prefix")
def repeat(
    data: Any,
    repeats: Any,
    likes: list[Any],
    pairs: list[Any],
    *,
    Tparams: Any = None,
    bound: int | DynamicShapes | None,
) -> Any:
    """Repeats each entry of ``data`` as often as ``repeats`` says: `tf.repeat`, all axes up to the last of counts flat.

    Traced, the result is as long as what it meets (``likes``; the first of each of ``pairs`` whose ranks are equal), or
    as the bound. Past the end, whole numbers are -1, which is in no segment and gathers as zeros; others 0.
    """
    rank = repeats.ndim
    if data.shape[:rank] != repeats.shape:
        raise OpError(f"counts of shape {repeats.shape} do not fit data of shape {data.shape}")
    rest = data.shape[rank:]
    if isinstance(repeats, np.ndarray):
        places = np.repeat(np.arange(repeats.size), np.maximum(repeats, 0).reshape(-1))
        flat = array_module(data).reshape(data, (repeats.size, *rest))
        return flat[places] if isinstance(flat, np.ndarray) else take(flat, places, 0)
    lengths = [like.shape[0] for like in likes if like.ndim]
    lengths += [a.shape[0] for a, b in _pairs(pairs) if rank == 1 and a.ndim == b.ndim > 0 and a.shape[0] != 1]
    problem = "how many values come out depends on traced counts"
    size = lengths[0] if lengths else row_capacity(bound, _at_most(repeats), problem)
    counts = jnp.maximum(jnp.reshape(jnp.asarray(repeats), (-1,)), 0)
    data = jnp.reshape(jnp.asarray(data), (counts.shape[0], *rest))
    fill = -1 if jnp.issubdtype(data.dtype, jnp.signedinteger) else 0
    data = jnp.concatenate([data, jnp.full((1, *rest), fill, data.dtype)])
    ends = jnp.cumsum(counts)
    places = search(ends, lax.iota(counts.dtype, size), "right")
    if not lengths:
        (places,) = truncate_rows(bound, lambda: jnp.sum(counts), places, of=(repeats,))
    return take(data, places, 0)


def _at_most(counts: Any) -> Any:
    """Returns the most that counts can be together, None if nothing tells."""
    if counts.ndim == 1:
        return total_length_bound(counts)
    greatest = inferred_bound(counts)
    return None if greatest is None else greatest * math.prod(counts.shape)


def _no_further(splits: Any, most: Any, bound: int | DynamicShapes | None) -> Any:
    """Returns row splits, which are known to end where values do at most, so that what comes after them sees that."""
    sees = isinstance(bound, DynamicShapes) and most is not None
    return jnp.minimum(splits, jnp.asarray(most, splits.dtype)) if sees else splits


def _most_gathered(splits: Any, places: Any) -> Any:
    """Returns how many elements rows at some places can have together, None if nothing tells."""
    whole, found = inferred_bound(splits), known(places)
    if whole is None:
        return None
    times = places.shape[0] if found is None else int(np.unique(found, return_counts=True)[1].max(initial=0))
    return whole * times


def _pairs(flat: list[Any]) -> Any:
    return zip(flat[::2], flat[1::2], strict=True)


# ---- gathering ----


def _expand(splits: Any, places: Any, bound: int | DynamicShapes | None) -> tuple[Any, Any]:
    """Returns the splits of the rows at ``places``, and the places of what is in them (-1: padding)."""
    if array_module(splits, places) is np:
        lengths = np.where(places >= 0, (splits[1:] - splits[:-1])[places], 0)
        begin = splits[:-1][places]
        out = np.concatenate([[0], np.cumsum(lengths)]).astype(splits.dtype)
        inner = np.arange(int(out[-1])) + np.repeat(begin - out[:-1], lengths)
        return out, inner.astype(splits.dtype)
    splits = jnp.asarray(splits)
    most = _most_gathered(splits, places)
    size = row_capacity(bound, most, "how much is gathered depends on traced indices or splits")
    of = (splits, places)
    lengths = pick(splits[1:] - splits[:-1], places)
    out = jnp.concatenate([jnp.zeros(1, splits.dtype), jnp.cumsum(lengths, dtype=splits.dtype)])
    out = _no_further(out, most, bound)
    row = row_of(out, size)
    begin = take(pick(splits[:-1], places), row, 0)
    inner = begin + jnp.arange(size, dtype=splits.dtype) - take(out, row, 0)
    return out, *truncate_rows(bound, lambda: out[-1], jnp.where(row < out.shape[0] - 1, inner, -1), of=of)


@op("RaggedGather", dynamic_shape="prefix")
def ragged_gather(
    params_nested_splits: list[Any],
    params_dense_values: Any,
    indices: Any,
    *,
    OUTPUT_RAGGED_RANK: int,
    bound: int | DynamicShapes | None,
) -> tuple[list[Any], Any]:
    """Gathers rows. See tf.raw_ops.RaggedGather. Traced indices out of range give empty rows (an error there)."""
    if len(params_nested_splits) + indices.ndim - 1 != OUTPUT_RAGGED_RANK:
        raise OpError(f"the ragged rank of the result cannot be {OUTPUT_RAGGED_RANK}")
    first = params_nested_splits[0]
    if first.shape[0] == 0:
        raise OpError("splits must not be empty")
    rows = first.shape[0] - 1
    found = known(indices)
    if found is not None and found.size and not 0 <= found.min() <= found.max() < rows:
        raise OpError(f"index {found.min() if found.min() < 0 else found.max()} is out of range [0, {rows})")
    out: list[Any] = []
    # Dimensions of the indices are uniform ones; of theirs but the last, splits are needed.
    for i in range(indices.ndim - 1):
        count = int(np.prod(indices.shape[: i + 1]))
        out.append(np.arange(count + 1, dtype=canonical(first.dtype)) * indices.shape[i + 1])
    places = indices.reshape(-1)
    if found is None:
        places = jnp.where((places >= 0) & (places < rows), places, -1)
    for splits in params_nested_splits:
        inner_splits, places = _expand(splits, places, bound)
        out.append(inner_splits)
    if not indices.ndim:
        out = out[1:]  # one row alone is no dimension
    return out, pick(params_dense_values, places)


# ---- to other kinds of tensors ----


def _known_or_self(value: Any) -> Any:
    found = known(value)
    return jnp.asarray(value) if found is None else found


def check_splits(nested: list[Any], count: Any) -> None:
    """Refuses known splits that do not fit each other or the number of values."""
    for i, splits in enumerate(nested):
        if splits.ndim != 1 or splits.shape[0] == 0:
            raise OpError("splits must be vectors that are not empty")
        found = known(splits)
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
    nested = [_known_or_self(s) for s in rt_nested_splits]
    xp = array_module(*nested) if isinstance(values.shape[0], int) else jnp
    place: Any = xp.arange(values.shape[0])
    columns: list[Any] = []
    sizes: list[Any] = []
    for splits in reversed(nested):
        sizes.insert(0, xp.max(splits[1:] - splits[:-1], initial=0))
        row = search(splits[1:], place, "right")
        columns.insert(0, (place - splits[row]).astype(dtype))
        place = row
    indices = xp.stack([place.astype(dtype), *columns], axis=1)
    if xp is jnp:
        indices = jnp.where((place >= nested[0].shape[0] - 1)[:, None], -1, indices)
    inner = values.shape[1:]
    if inner:
        size = math.prod(inner)
        grid = np.stack(np.unravel_index(np.arange(size), inner), axis=1).astype(dtype)
        indices = xp.concatenate([xp.repeat(indices, size, axis=0), xp.tile(grid, (values.shape[0], 1))], axis=1)
        values = values.reshape(-1)
    shape = [nested[0].shape[0] - 1, *sizes, *inner]
    return indices, values, xp.stack([xp.asarray(s, dtype) for s in shape])


@op("RaggedTensorToSparse", host=_ragged_tensor_to_sparse)
def ragged_tensor_to_sparse(rt_nested_splits: list[Any], rt_dense_values: Any) -> tuple[Any, Any, Any]:
    """Gives each value its index vector. See tf.raw_ops.RaggedTensorToSparse.

    Traced splits may end before the values do; what is past them is padding, with indices of -1.
    """
    return _ragged_tensor_to_sparse(rt_nested_splits, rt_dense_values)


def _partitions(tensors: list[Any], kinds: list[str], count: Any) -> tuple[Any, list[tuple[str, Any, Any]]]:
    """Returns the number of rows, and for each ragged dimension its kind, its tensor and how many rows it makes."""
    kinds, tensors = list(kinds), list(tensors)
    if not kinds or len(kinds) != len(tensors):
        raise OpError(f"{len(tensors)} row partitions for the types {kinds}")
    rows: Any
    if kinds[0] == "FIRST_DIM_SIZE":
        found = known(tensors[0])
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
                found = known(tensor)
                if found is None:
                    raise OpError("row splits above row ids must be known while tracing")
                made = int(found[-1])
        levels.append((kind, tensor, made))
    return rows, levels


def _rows_and_places(kind: str, tensor: Any, made: Any) -> tuple[Any, Any]:
    """Returns for each row made its parent, and which child of it it is."""
    tensor = _known_or_self(tensor)
    if kind == "ROW_SPLITS":
        row = row_of(tensor, made)
        begin = pick(tensor, row)
        return row, (np if array_module(row, begin) is np else jnp).arange(made, dtype=tensor.dtype) - begin
    if known(tensor) is not None and isinstance(made, int):
        if tensor.size and ((tensor < 0).any() or (tensor[1:] < tensor[:-1]).any()):
            raise OpError("row ids must not be negative or decrease")
        return tensor, np.arange(made) - search(tensor, tensor, "left")
    return tensor, jnp.arange(made) - search(tensor, tensor, "left")


@op("RaggedTensorToTensor", dynamic_shape="prefix")
def ragged_tensor_to_tensor(
    shape: Any,
    values: Any,
    default_value: Any,
    row_partition_tensors: list[Any],
    *,
    row_partition_types: list[str],
    bound: int | DynamicShapes | None,
) -> Any:
    """Makes a dense tensor. See tf.raw_ops.RaggedTensorToTensor.

    With traced row partitions, dimensions that ``shape`` leaves open get the bound as their size; with `DynamicShapes`,
    their capacity is the number of all values.
    """
    rows, levels = _partitions(row_partition_tensors, row_partition_types, values.shape[0])
    inner = values.shape[1:]
    rank = len(levels) + 1 + len(inner)
    found = known(shape)
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
    places: list[Any] = []  # of each dimension, of what the last one parts; -1 where there is none
    sizes = [size]
    for (kind, tensor, made), want in zip(levels, wanted[1:], strict=False):
        parent, child = _rows_and_places(kind, tensor, made)
        if _is_open(want):
            if isinstance(child, np.ndarray):
                want = int(child[parent < rows].max(initial=-1)) + 1
            else:
                want = _longest(parent, child, rows, made, bound)
        inside = (parent >= 0) & (parent < rows)
        if not places:  # rows of the first dimension stand where they are
            inside = inside & (parent < size)
            places = [(np if array_module(parent) is np and isinstance(size, int) else jnp).where(inside, parent, -1)]
        else:
            places = [_pick_or_none(place, parent, inside) for place in places]
        places.append(_limited(child, want))
        sizes.append(want)
        rows = made
    return _dense(values, default_value, places, tuple(sizes), inner)


def _longest(parent: Any, child: Any, rows: Any, made: Any, bound: int | DynamicShapes | None) -> Any:
    """Returns the length of the longest row, where data decides it."""
    if not isinstance(bound, DynamicShapes):
        return row_capacity(bound, made, "the length of the longest row depends on traced row partitions")
    inside = jnp.where((parent >= 0) & (parent < rows), child, -1)
    longest = jnp.max(inside, initial=-1).astype(np.int32) + 1
    return bound.as_dim(jnp.minimum(longest, jnp.asarray(made, np.int32)))


def _is_open(size: Any) -> bool:
    return isinstance(size, int) and size == -1


def _limited(place: Any, size: Any) -> Any:
    """Marks what is past the end of its dimension with -1."""
    return (np if isinstance(place, np.ndarray) and isinstance(size, int) else jnp).where(place < size, place, -1)


def _pick_or_none(place: Any, parent: Any, inside: Any) -> Any:
    """Returns the places of parents; -1 for parents that are none."""
    if array_module(place, parent, inside) is np:
        return np.append(place, -1)[np.where(inside, parent, -1)]
    return jnp.where(inside, pick(place, jnp.where(inside, parent, -1)), -1)


def _dense(values: Any, default: Any, places: list[Any], sizes: tuple[Any, ...], inner: tuple[Any, ...]) -> Any:
    if all(isinstance(v, np.ndarray) for v in (values, default, *places)):
        out = np.empty((*sizes, *inner), values.dtype)
        out[...] = default
        there = np.logical_and.reduce([place >= 0 for place in places])
        out[tuple(place[there] for place in places)] = values[there]
        return out
    start = jnp.broadcast_to(default, (*sizes, *inner))
    dtype = np.result_type(*(place.dtype for place in places))
    return scatter_entries(start, jnp.stack([jnp.asarray(p, canonical(dtype)) for p in places], 1), values, "set")
