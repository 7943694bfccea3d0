"""Concatenation and splitting, along an axis or a new one.

Kernels: concat_op.cc, pack_op.cc, unpack_op.cc, split_op.cc, split_v_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import as_size, is_data_dependent, is_size
from tf2jax_lite.dynamic_shapes.primitives import truncate_p
from tf2jax_lite.dynamic_shapes.provenance import Entry, entries, name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.ops.common.broadcasting import compatible, is_int
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, normalize_axis
from tf2jax_lite.values.variant import Variant

from .gather import take
from .slice import object_or_array


def dynamic_split(value: Any, size_splits: Any, sizes: list[Entry], axis: int, tracker: DynamicShapes) -> list[Any]:
    """Split into parts of traced sizes; NaN if they do not add up (TensorFlow raises)."""
    whole = value.shape[axis]
    total = jnp.asarray(whole).astype(np.int32)
    counts = jnp.asarray(size_splits).astype(np.int32)
    counts = jnp.where(counts == -1, total - jnp.sum(jnp.where(counts == -1, 0, counts)), counts)
    fits = (jnp.sum(counts) == total) & jnp.all(counts >= 0)
    starts = jnp.cumsum(counts) - counts
    out = []
    for i, size in enumerate(sizes):
        if (dim := tracker.dim_of(size)) is not None and is_size(dim):
            indices = lax.iota(np.int32, dim)
        else:
            key = ("split", str(whole), name_of(size_splits), i)  # one dimension for all arrays that are split so
            # A count above the capacity invalidates the part.
            count = jnp.where(fits, counts[i], total + 1)
            indices = tracker.prefix(lax.iota(np.int32, whole), count, key, size_splits, is_sure=False)
        out.append(take(value, indices + starts[i], axis))
    tracker.record_split([part.shape[axis] for part in out], whole)
    return out


def split_with_remainder(value: Any, sizes: list[Any], axis: int, tracker: DynamicShapes) -> list[Any]:
    """Split into parts of symbolic sizes, such as n - 1 and 1."""
    start, out = jnp.zeros((), np.int32), []
    for dim in sizes:
        count = jnp.asarray(dim).astype(np.int32)
        indices = lax.iota(np.int32, size := as_size(dim))
        if not is_size(dim):
            indices = truncate_p.bind(indices, count, dim=size, name="", is_sure=True)
        out.append(take(value, indices + start, axis))
        start = start + count
    tracker.record_split([part.shape[axis] for part in out], value.shape[axis])
    return out


def _axis(axis: Any, rank: int) -> int:
    """Return a static axis, a scalar or one-element vector, as an int in [0, rank)."""
    if np.size(axis) != 1:
        raise OpError(f"the axis must be one number, got shape {np.shape(axis)}")
    return normalize_axis(np.reshape(axis, ()), rank)


def _join(parts: list[Any], axis: int) -> Any:
    arrays = [np.asarray(p) for p in parts]
    if any(a.dtype == object for a in arrays):
        arrays = [a.astype(object) for a in arrays]
    return np.concatenate(arrays, axis)


def _concat_axis(values: list[Any], axis: Any) -> int:
    rank = np.ndim(values[0])
    if rank == 0:
        raise OpError("scalars cannot be concatenated")
    axis = _axis(axis, rank)
    first = np.shape(values[0])
    for value in values[1:]:
        other = np.shape(value)
        if not compatible(first, other, skip=axis):
            raise OpError(f"shapes {list(first)} and {list(other)} do not match in all dimensions but {axis}")
    return axis


@op(
    "ConcatV2",
    int64="per_word",
    fold=lambda values, axis: _join(values, _concat_axis(values, axis)),
    pattern=Pattern.INJECTIVE,
)
def concat_v2(values, axis: Static):
    """Concatenate along an axis."""
    where = _concat_axis(values, axis)
    return lax.concatenate(values, where) if len(values) > 1 else jnp.asarray(values[0])


@op(
    "Concat", fold=lambda concat_dim, values: _join(values, _concat_axis(values, concat_dim)), pattern=Pattern.INJECTIVE
)
def concat(concat_dim: Static, values):
    """Concatenate along an axis."""
    return concat_v2(values, concat_dim)


@op("ParallelConcat")
def parallel_concat(values, *, shape=None):
    """Concatenate along the first dimension."""
    return concat_v2(values, np.int32(0))


def _pack_axis(values: Sequence[Any], axis: int) -> int:
    shapes = [np.shape(v) for v in values]
    for other in shapes[1:]:
        if not compatible(shapes[0], other):
            raise OpError(f"values of shapes {list(shapes[0])} and {list(other)} cannot be packed")
    return normalize_axis(axis, len(shapes[0]) + 1)


def _fold_pack(values: list[Any], *, axis: int) -> Any:
    axis = _pack_axis(values, axis)
    return _join([np.expand_dims(np.asarray(v), axis) for v in values], axis)


def _expanded(value: Any, axis: int) -> Any:
    # Constants are expanded outside of the trace, so that a slice by this vector finds its constant entries.
    return np.expand_dims(value, axis) if isinstance(value, np.ndarray) else lax.expand_dims(value, (axis,))


@op("Pack", int64="per_word", fold=_fold_pack, pattern=Pattern.INJECTIVE)
def pack(values, *, axis=0):
    """Stack along a new axis."""
    if isinstance(values[0], Variant):
        return values[0].stack(values[1:])
    axis = _pack_axis(values, axis)
    parts = [_expanded(v, axis) for v in values]
    return lax.concatenate(parts, axis) if len(parts) > 1 else jnp.asarray(parts[0])


def _unpack_axis(value: Any, num: int, axis: int) -> int:
    axis = normalize_axis(axis, np.ndim(value))
    size = np.shape(value)[axis]
    if is_int(size) and size != num:
        raise OpError(f"dimension {axis} of size {size} cannot be unpacked into {num}")
    return axis


def _fold_unpack(value: Any, *, num: int, axis: int) -> Any:
    value = np.asarray(value)
    axis = _unpack_axis(value, num, axis)
    return [object_or_array(value[(slice(None),) * axis + (i,)]) for i in range(num)]


@op("Unpack", int64="per_word", fold=_fold_unpack, pattern=Pattern.INJECTIVE)
def unpack(value, *, num, axis=0):
    """Split along an axis, which the results lack."""
    if isinstance(value, Variant):
        return value.unstack()
    value = jnp.asarray(value)
    axis = _unpack_axis(value, num, axis)
    if num == 0:
        return []
    return [lax.squeeze(part, (axis,)) for part in _split(value, [1] * num, axis)]


def _split(value: Any, sizes: list[Any], axis: int) -> list[Any]:
    """Split by sizes: static ones in one equation, whose gradient is one concat."""
    if len(sizes) == 1:
        return [value]
    if all(map(is_int, (*sizes, value.shape[axis]))):
        return list(lax.split(value, sizes, axis))
    start: Any = 0
    out = []
    for size in sizes:
        out.append(lax.slice_in_dim(value, start, start + size, axis=axis))
        start = start + size
    return out


def _equal_sizes(shape: tuple[Any, ...], axis: int, num_split: int) -> list[Any]:
    total = shape[axis]
    if num_split < 1:
        raise OpError(f"num_split must be positive, got {num_split}")
    if is_int(total) and total % num_split:
        raise OpError(f"dimension {axis} of size {total} does not split into {num_split} equal parts")
    return [total // num_split] * num_split


def _fold_split(axis: Any, value: Any, *, num_split: int) -> Any:
    axis = _axis(axis, np.ndim(value))
    return _fold_parts(value, _equal_sizes(np.shape(value), axis, num_split), axis)


def _fold_parts(value: Any, sizes: list[Any], axis: int) -> list[Any]:
    ends = np.cumsum([0, *sizes])
    return [np.asarray(value)[(slice(None),) * axis + (slice(a, b),)] for a, b in itertools.pairwise(ends)]


@op("Split", int64="per_word", fold=_fold_split, pattern=Pattern.INJECTIVE)
def split(axis: Static, value, *, num_split):
    """Split into equal parts."""
    value = jnp.asarray(value)
    axis = _axis(axis, value.ndim)
    return _split(value, _equal_sizes(value.shape, axis, num_split), axis)


@op("_GatherPieces", int64="per_word", pattern=Pattern.INJECTIVE)
def gather_pieces(value, *, pieces, count, axis):
    """Split into ``count`` equal parts and concatenate some of them.

    TF: no op; see `passes.optimize.idioms`.
    """
    value = jnp.asarray(value)
    axis = normalize_axis(axis, value.ndim)
    before, size, after = value.shape[:axis], value.shape[axis], value.shape[axis + 1 :]
    if not is_int(size):
        parts = _split(value, _equal_sizes(value.shape, axis, count), axis)
        return lax.concatenate([parts[piece] for piece in pieces], axis)
    width, times = _equal_sizes(value.shape, axis, count)[0], len(pieces) // count
    if np.array_equal(pieces, np.arange(count)):
        return value
    parts = jnp.reshape(value, (*before, count, width, *after))
    if np.array_equal(pieces, np.repeat(np.arange(count), times)):
        axes = [i for i in range(value.ndim + 2) if i != axis + 1]
        parts = lax.broadcast_in_dim(parts, (*before, count, times, width, *after), axes)
    else:
        parts = take(parts, pieces, axis)
    return jnp.reshape(parts, (*before, len(pieces) * width, *after))


def _split_sizes(size_splits: Any, shape: tuple[Any, ...], axis: int, num_split: int) -> list[Any]:
    """Return the sizes of the parts, with -1 resolved."""
    total = shape[axis]
    sizes: list[Any] = list(dims(size_splits))
    if len(sizes) != num_split:
        raise OpError(f"{len(sizes)} sizes for {num_split} parts")
    unknown = [i for i, s in enumerate(sizes) if is_int(s) and s == -1]
    if len(unknown) > 1 or any(is_int(s) and s < -1 for s in sizes):
        raise OpError(f"sizes must be non-negative, with at most one -1, got {sizes}")
    if unknown:
        sizes[unknown[0]] = total - sum(s for i, s in enumerate(sizes) if i != unknown[0])
    if any(is_int(s) and s < 0 for s in sizes) or (all(map(is_int, (*sizes, total))) and sum(sizes) != total):
        raise OpError(f"sizes {list(dims(size_splits))} do not add up to dimension {axis} of size {total}")
    return sizes


def _fold_split_v(value: Any, size_splits: Any, axis: Any, *, num_split: int) -> Any:
    axis = _axis(axis, np.ndim(value))
    return _fold_parts(value, _split_sizes(size_splits, np.shape(value), axis, num_split), axis)


@op("SplitV", int64="per_word", fold=_fold_split_v, pattern=Pattern.INJECTIVE)
def split_v(value, size_splits, axis: Static, *, num_split, tracker: DynamicShapes | None = None):
    """Split into parts by their sizes.

    Args:
      size_splits: ``[num_split]``, ints, of which one may be -1. If traced, parts have data-dependent sizes; results
        are NaN if the sizes do not add up, where TensorFlow raises.
    """
    value = jnp.asarray(value)
    axis = _axis(axis, value.ndim)
    sizes = entries(size_splits, num_split)
    if all(size.is_known for size in sizes):
        static = np.array([size.offset for size in sizes], None if all(is_int(s.offset) for s in sizes) else object)
        parts = _split_sizes(static, value.shape, axis, num_split)
        if tracker is None or not is_data_dependent(value.shape[axis]) or all(map(is_size, parts)):
            return _split(value, parts, axis)
        return split_with_remainder(value, parts, axis, tracker)
    if tracker is None:
        raise UnboundedError("the sizes of the parts depend on values")
    return dynamic_split(value, size_splits, sizes, axis, tracker)
