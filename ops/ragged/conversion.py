"""Conversions of ragged tensors to dense and to sparse tensors."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity
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
