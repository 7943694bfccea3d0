"""DynamicStitch and DynamicPartition: rows distributed by an index, and put back.

Kernels: dynamic_stitch_op.cc, dynamic_partition_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.provenance import name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.rows import nonzero
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, static_value

from .gather import take
from .scatter import overwrite_rows


def _flat_data(indices: list[Any], data: list[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the shape of a row, and the data as lists of rows."""
    rows = []
    element: tuple[Any, ...] | None = None
    for index, value in zip(indices, data, strict=True):
        if tuple(value.shape[: index.ndim]) != tuple(index.shape):
            raise OpError(f"data of shape {value.shape} does not start with the shape {index.shape} of its indices")
        inner = tuple(value.shape[index.ndim :])
        if element is not None and inner != element:
            raise OpError(f"data has rows of shapes {element} and {inner}")
        element = inner
        rows.append(value if index.ndim == 1 else value.reshape((math.prod(index.shape), *inner)))
    return element or (), rows


def _fold_stitch(indices: Any, data: Any) -> np.ndarray:
    indices = [np.asarray(i) for i in indices]
    element, rows = _flat_data(indices, [np.asarray(d) for d in data])
    where = np.concatenate([i.reshape(-1) for i in indices])
    if where.size and where.min() < 0:
        raise OpError(f"index {where.min()} is out of range")
    dtype = object if any(r.dtype == object for r in rows) else rows[0].dtype
    is_string = any(isinstance(v, bytes) for r in rows if r.dtype == object for v in r.flat)
    out = np.full((int(where.max(initial=-1)) + 1, *element), b"" if is_string else 0, dtype)
    for index, row in zip(indices, rows, strict=True):
        out[index.reshape(-1)] = row  # numpy assigns in order: the last one stays
    return out


@op("DynamicStitch", "ParallelDynamicStitch", fold=_fold_stitch, result_size=result_size.stitched)
def dynamic_stitch(indices, data, *, bound: Bound):
    """Interleave rows by their indices.

    Args:
      data: for each of them an array ``indices[i].shape + row_shape``.

    Returns:
      ``[n, *row_shape]``, zeros where no index points; n is the largest index + 1. If indices are traced, those beyond
      the bound and negative ones (the padding of `dynamic_partition`) are dropped.
    """
    data = [jnp.asarray(as_array(d)) for d in data]
    element, rows = _flat_data(indices, data)
    values = lax.concatenate(rows, 0) if len(rows) > 1 else rows[0]
    static, is_dynamic = [static_value(i) for i in indices], False
    if all(i is not None for i in static):
        where = np.concatenate([np.asarray(i).reshape(-1) for i in static])
        if where.size and where.min() < 0:
            raise OpError(f"index {where.min()} is out of range")
        size = int(where.max(initial=-1)) + 1
        if where.size == 0:
            return jnp.zeros((0, *element), values.dtype)
        if where.size == size and np.unique(where).size == size:  # a permutation: gather with its inverse
            return take(values, np.argsort(where), 0)
    else:
        where = lax.concatenate([jnp.ravel(i) for i in indices], 0)
        rows_given = [math.prod(i.shape) for i in indices]
        size = bound.split_total(rows_given) if isinstance(bound, DynamicShapes) else None
        if is_dynamic := size is None:
            size = row_capacity(bound, sum(rows_given), "the number of rows depends on traced indices")
    zeros = jnp.zeros((size, *element), values.dtype)
    out = overwrite_rows(zeros, jnp.asarray(where)[:, None], values, lax.GatherScatterMode.FILL_OR_DROP)
    if isinstance(bound, DynamicShapes) and is_dynamic:
        rows = jnp.max(where, initial=-1) + 1
        return bound.prefix(out, rows, ("stitch", *map(name_of, indices)), indices, is_sure=False)
    if isinstance(bound, DynamicShapes) and jnp.issubdtype(out.dtype, jnp.inexact):
        # Fewer rows than the largest index: undefined in TensorFlow, NaN here.
        out = jnp.where(jnp.max(where, initial=-1) < size, out, jnp.asarray(jnp.nan, out.dtype))
    return out


@op("DynamicPartition")
def dynamic_partition(data, partitions, *, num_partitions, bound: Bound):
    """Split rows by a partition number.

    Args:
      partitions: ints in ``[0, num_partitions)``; traced ones out of range drop the row.

    Returns:
      The rows of each partition, in order. Up to an int bound they are padded with zeros, signed integers with -1, so
      that row numbers that are partitioned alongside drop out of a `dynamic_stitch`.
    """
    rank = partitions.ndim
    if tuple(data.shape[:rank]) != tuple(partitions.shape):
        raise OpError(f"data of shape {data.shape} does not start with the shape {partitions.shape} of partitions")
    static = static_value(partitions)
    data = jnp.asarray(as_array(data))
    element = data.shape[rank:]
    count = int(static.size) if static is not None else -1
    rows = data if rank == 1 else data.reshape((count if 0 in data.shape else -1, *element))
    if static is not None:
        flat = static.reshape(-1)
        if flat.size and not 0 <= flat.min() <= flat.max() < num_partitions:
            raise OpError(f"partitions must be in [0, {num_partitions}), got {flat.min()} to {flat.max()}")
        return [take(rows, np.flatnonzero(flat == p).astype(np.int32), 0) for p in range(num_partitions)]
    flat = jnp.ravel(partitions)
    sizes: list[Any] = []
    size = row_capacity(bound, flat.shape[0], "the sizes of the partitions depend on traced values")
    out = []
    for p in range(num_partitions):
        where = nonzero(flat == p, size, flat.shape[0])
        (where,) = truncate_rows(bound, functools.partial(jnp.count_nonzero, flat == p), where, of=(partitions, p))
        sizes.append(where.shape[0])
        part = take(rows, where, 0)
        if jnp.issubdtype(part.dtype, jnp.signedinteger):
            pad = (where >= flat.shape[0]).reshape((-1,) + (1,) * len(element))
            part = jnp.where(pad, jnp.asarray(-1, part.dtype), part)
        out.append(part)
    if isinstance(bound, DynamicShapes) and size is flat.shape[0]:
        bound.record_split(sizes, flat.shape[0])
    return out
