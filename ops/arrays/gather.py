"""Gather.

TensorFlow raises on CPU for an index out of range; its GPU kernels return zeros. Static indices out of range raise
here, traced ones give zeros. Kernels: gather_op.cc, gather_nd_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import is_int
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern, Read
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, is_static, normalize_axis

_FILL = lax.GatherScatterMode.FILL_OR_DROP
_SAFE = lax.GatherScatterMode.PROMISE_IN_BOUNDS


def _batch_axis(params: Any, indices: Any, axis: Any, batch_dims: int) -> tuple[int, int]:
    """Check attributes as TensorFlow does; return non-negative axis and batch_dims."""
    if np.ndim(axis) != 0:
        raise OpError("axis must be a scalar")
    if params.ndim == 0:
        raise OpError("params must have at least one dimension")
    axis = normalize_axis(axis, params.ndim)
    batch = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    if not 0 <= batch <= indices.ndim:
        raise OpError(f"batch_dims {batch_dims} is out of range for indices of rank {indices.ndim}")
    if batch >= params.ndim:
        raise OpError(f"batch_dims ({batch}) must be less than the rank of params ({params.ndim})")
    if axis < batch:
        raise OpError(f"batch_dims ({batch}) must be less than or equal to axis ({axis})")
    for i in range(batch):
        if params.shape[i] != indices.shape[i]:
            raise OpError(f"batch dimension {i} is {params.shape[i]} in params and {indices.shape[i]} in indices")
    return axis, batch


def _in_range(indices: Any, limit: Any) -> bool:
    """Return whether indices are static and in range."""
    if not is_static(indices) or indices.dtype == object:
        return False
    if indices.size == 0:
        return True
    low, high = int(indices.min()), int(indices.max())
    if low < 0:
        raise OpError(f"index {low} is out of range [0, {limit})")
    if is_int(limit):
        if high >= limit:
            raise OpError(f"index {high} is out of range [0, {limit})")
        return True
    return False


def take(params: Any, indices: Any, axis: int, batch: int = 0) -> Any:
    """Gather slices along an axis.

    Args:
      axis: the axis of ``params`` that is indexed, ``batch <= axis < rank``.
      batch: number of leading dimensions that ``params`` and ``indices`` share.

    Returns:
      Shape ``params.shape[:axis] + indices.shape[batch:] + params.shape[axis + 1:]``. Traced indices out of range give
      0.
    """
    params = as_array(params)
    safe = _in_range(indices, params.shape[axis])
    if safe and indices.ndim == 0:
        return lax.index_in_dim(jnp.asarray(params), int(indices), axis, keepdims=False)
    indices = jnp.asarray(as_array(indices))
    extra = indices.ndim - batch
    offsets = (*range(batch, axis), *range(axis + extra, params.ndim - 1 + extra))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=offsets,
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
    )
    shared = indices.shape[:batch]
    for i in range(batch):
        indices = ensure_length(indices, i, 1)
    for i in (*range(batch), axis):
        params = ensure_length(params, i, 1)
    sizes = tuple(1 if i == axis or i < batch else d for i, d in enumerate(params.shape))
    if params.shape[axis] == 0:  # an empty axis: no index is in range
        shape = (*params.shape[:axis], *indices.shape[batch:], *params.shape[axis + 1 :])
        return jnp.zeros(shape, params.dtype)
    mode = _SAFE if safe else _FILL
    out = lax.gather(params, indices[..., None], numbers, sizes, mode=mode, fill_value=None if safe else 0)
    for i, size in enumerate(shared):
        out = out if out.shape[i] is size or out.shape[i] == size else lax.slice_in_dim(out, 0, size, axis=i)
    return out


def _fold_gather_v2(params: Any, indices: Any, axis: Any, *, batch_dims: int) -> Any:
    params, indices = np.asarray(params), np.asarray(indices)
    axis, batch = _batch_axis(params, indices, axis, batch_dims)
    _in_range(indices, params.shape[axis])
    if indices.dtype == object:
        indices = indices.astype(np.int64)  # raises for symbolic ones
    if batch == 0:
        out = np.empty((*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]), params.dtype)
        out[...] = np.take(params, indices, axis=axis)
        return out
    extra = indices.ndim - batch
    # Batch dimensions index themselves; the other dimensions of the indices replace the axis.
    own = np.ix_(*(range(d) for d in indices.shape[:batch]))
    own = tuple(g.reshape(g.shape + (1,) * extra) for g in own)
    moved = np.moveaxis(params, axis, batch)
    out = moved[(*own, indices)]
    return np.moveaxis(out, range(batch, batch + extra), range(axis, axis + extra))


@op("GatherV2", int64="per_word", fold=_fold_gather_v2, result_size=result_size.gathered, pattern=Pattern.INJECTIVE)
def gather_v2(params, indices, axis: Static, *, batch_dims=0):
    """Gather slices along an axis."""
    axis, batch = _batch_axis(params, indices, axis, batch_dims)
    return take(params, indices, axis, batch)


@op(
    "Gather",
    fold=lambda params, indices: _fold_gather_v2(params, indices, np.int32(0), batch_dims=0),
    result_size=result_size.gathered,
    pattern=Pattern.INJECTIVE,
)
def gather(params, indices):
    """Gather slices along the first axis.

    Indices out of range: see `take`.
    """
    axis, batch = _batch_axis(params, indices, 0, 0)
    return take(params, indices, axis, batch)


@op("ResourceGather")
def resource_gather(resource: Read, indices, *, batch_dims=0):
    """Gather rows of a variable."""
    axis, batch = _batch_axis(resource, indices, batch_dims, batch_dims)
    return take(resource, indices, axis, batch)


def _check_policy(policy: str) -> bool:
    """Return whether bad indices are ignored instead of an error."""
    if policy not in ("", "DEFAULT", "ERROR", "IGNORE"):
        raise OpError(f"unknown bad_indices_policy {policy!r}")
    return policy == "IGNORE"


def nd_in_range(indices: Any, shape: Any, ignore: bool) -> bool:
    """Return whether index vectors are static and inside of ``shape``."""
    depth = indices.shape[-1]
    limits = shape[:depth]
    if not is_static(indices) or not all(map(is_int, limits)):
        return False
    bad = np.any((indices < 0) | (indices >= np.asarray(limits, np.int64)), axis=-1)
    if not bad.any():
        return True
    if ignore:
        return False
    first = np.argwhere(bad)[0]
    raise OpError(f"indices{list(map(int, first))} = {indices[tuple(first)].tolist()} does not index into {shape}")


def take_nd(params: Any, indices: Any, ignore: bool = False) -> Any:
    """Gather slices by index vectors.

    Args:
      indices: ``[..., depth]``, integers, ``depth <= rank``.
      ignore: whether static indices out of range give zeros, as traced ones do, instead of an error.

    Returns:
      Shape ``indices.shape[:-1] + params.shape[depth:]``.
    """
    params = as_array(params)
    if params.ndim == 0 or indices.ndim == 0:
        raise OpError("params and indices must have at least one dimension")
    depth = indices.shape[-1]
    if not is_int(depth):
        raise OpError("the last dimension of indices must be static")
    if depth > params.ndim:
        raise OpError(f"index vectors of length {depth} for params of rank {params.ndim}")
    batch = indices.shape[:-1]
    if depth == 0:
        return jnp.broadcast_to(jnp.asarray(params), (*batch, *params.shape))
    if any(d == 0 for d in params.shape):
        if is_static(indices) and indices.size and not ignore:
            raise OpError(f"indices into empty params of shape {params.shape}")
        return jnp.zeros((*batch, *params.shape[depth:]), params.dtype)
    safe = nd_in_range(indices, params.shape, ignore)
    for i in range(depth):
        params = ensure_length(params, i, 1)
    rank = len(batch)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(rank, rank + params.ndim - depth)),
        collapsed_slice_dims=tuple(range(depth)),
        start_index_map=tuple(range(depth)),
    )
    sizes = (*(1,) * depth, *params.shape[depth:])
    mode = _SAFE if safe else _FILL
    return lax.gather(params, jnp.asarray(indices), numbers, sizes, mode=mode, fill_value=None if safe else 0)


def _fold_gather_nd(params: Any, indices: Any, *, bad_indices_policy: str) -> Any:
    params, indices = np.asarray(params), np.asarray(indices)
    if params.ndim == 0 or indices.ndim == 0:
        raise OpError("params and indices must have at least one dimension")
    depth = indices.shape[-1]
    if depth > params.ndim:
        raise OpError(f"index vectors of length {depth} for params of rank {params.ndim}")
    good = nd_in_range(indices, params.shape, _check_policy(bad_indices_policy))
    if depth and not good:
        inside = np.all((indices >= 0) & (indices < np.asarray(params.shape[:depth], np.int64)), axis=-1)
        out = params[tuple(np.moveaxis(np.where(inside[..., None], indices, 0), -1, 0))]
        inside = inside.reshape(inside.shape + (1,) * (out.ndim - inside.ndim))
        return np.where(inside, out, np.zeros((), params.dtype)).astype(params.dtype)
    out = np.empty((*indices.shape[:-1], *params.shape[depth:]), params.dtype)
    out[...] = params[tuple(np.moveaxis(indices, -1, 0))] if depth else params
    return out


@op("GatherNd", fold=_fold_gather_nd, result_size=result_size.gathered_nd, pattern=Pattern.INJECTIVE)
def gather_nd(params, indices, *, bad_indices_policy=""):
    """Gather slices by index vectors.

    Args:
      indices: ``[..., depth]``, integers, ``depth <= rank``.
    """
    return take_nd(params, indices, _check_policy(bad_indices_policy))


@op("ResourceGatherNd")
def resource_gather_nd(resource: Read, indices):
    """Gather from a variable by index vectors."""
    return take_nd(resource, indices)
