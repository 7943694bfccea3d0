"""Ops that put sparse tensors into variants and take them out again, as `tf.map_fn` over sparse tensors does.

Where it is known how many entries a row has, there are so many. Where indices depend on data, and where one loop goes
over rows of different numbers of entries, that is a size that data decides (docs/sizes.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import Extents, cut, room
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.row_splits import row_of
from tf2jax_lite.ops.common.variant_rows import VariantRow, VariantVector, resize
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.static import as_array, canonical, known
from tf2jax_lite.values.tensor_list import TensorList

from .coo import check_indices, shape_of, sizes_of
from .variant import Sparse, SparseRows

__all__: list[str] = []

_INT64 = np.dtype(np.int64)
_PROBLEM = "how many entries a row of a sparse tensor has depends on data, or on which iteration of a loop it is"


def _check_type(out_type: Any) -> None:
    if str(out_type) != "variant":
        raise UnsupportedAttributeError(f"sparse tensors are put into variants, not into tensors of {out_type}")


def _is_known(size: Any) -> bool:
    return not hasattr(size, "dtype")


def _host_serialize(sparse_indices: Any, sparse_values: Any, sparse_shape: Any, *, out_type: Any = "string") -> Any:
    return serialize_sparse(as_array(sparse_indices), sparse_values, sparse_shape, out_type=out_type)


@op("SerializeSparse", host=_host_serialize, partial=("sparse_shape",))
def serialize_sparse(sparse_indices: Any, sparse_values: Any, sparse_shape: Any, *, out_type: Any = "string") -> Any:
    """Makes a variant of a sparse tensor. See tf.raw_ops.SerializeSparse."""
    _check_type(out_type)
    check_indices(sparse_indices, sparse_values, sparse_shape)
    return Sparse((sparse_indices, sparse_values), None, tuple(sizes_of(sparse_shape))).bounded()


def _host_serialize_many(
    sparse_indices: Any, sparse_values: Any, sparse_shape: Any, *, out_type: Any = "string"
) -> Any:
    return serialize_many_sparse(as_array(sparse_indices), sparse_values, sparse_shape, out_type=out_type)


@op("SerializeManySparse", host=_host_serialize_many, partial=("sparse_shape",))
def serialize_many_sparse(
    sparse_indices: Any, sparse_values: Any, sparse_shape: Any, *, out_type: Any = "string"
) -> Any:
    """Makes a variant of each row of a sparse tensor, whose entries are in order. See tf.raw_ops.SerializeManySparse.

    How many rows there are has to be known.
    """
    _check_type(out_type)
    check_indices(sparse_indices, sparse_values, sparse_shape)
    sizes = tuple(sizes_of(sparse_shape))
    if len(sizes) < 2:
        raise OpError(f"a sparse tensor of rank {len(sizes)} has no rows")
    if not _is_known(sizes[0]):
        raise OpError(
            "the rows of a sparse tensor are taken one by one, and how many there are depends on data: give the "
            "tf.SparseTensorSpec the size of the first dimension"
        )
    return SparseRows(sparse_indices, sparse_values, sizes, _row_splits(sparse_indices[:, 0], sizes[0]))


def _row_splits(rows: Any, count: Any) -> Any:
    """Returns where each of ``count`` rows begins, and where the last one ends, of the rows of entries in order."""
    found = known(rows)
    if found is not None and isinstance(count, int):
        if (np.diff(found[found >= 0]) < 0).any():
            raise OpError("the entries of a sparse tensor are out of order; sort them with tf.sparse.reorder")
        return np.searchsorted(np.where(found < 0, count, found), np.arange(count + 1)).astype(np.int32)
    rows = jnp.asarray(rows)
    rows = jnp.where(rows < 0, jnp.asarray(count, rows.dtype), rows)  # padding is in none
    counts = jnp.zeros(count, np.int32).at[rows].add(1, mode="drop")
    return lax.concatenate([jnp.zeros(1, np.int32), jnp.cumsum(counts, dtype=np.int32)], 0)


@op("DeserializeSparse", dynamic_shape="prefix")
def deserialize_sparse(
    serialized_sparse: Any, *, dtype: Any, Tserialized: Any = "string", bound: int | Extents | None
) -> tuple[Any, Any, Any]:
    """Makes a sparse tensor of a variant, or of a vector of them: its rows. See tf.raw_ops.DeserializeSparse.

    Rows are as large as the largest of them.
    """
    del Tserialized  # strings are none of what follows
    if isinstance(serialized_sparse, SparseRows):
        rows = serialized_sparse
        indices, values, sizes = rows.indices, rows.values, rows.sizes
    elif isinstance(serialized_sparse, Sparse):
        indices, values = _entries(serialized_sparse.settled(), bound)
        sizes = serialized_sparse.sizes
    elif isinstance(serialized_sparse, VariantVector) and isinstance(serialized_sparse.element, Sparse | None):
        indices, values, sizes = _joined(serialized_sparse.rows, bound)
    else:
        raise OpError(f"expected a sparse tensor as a variant, got {type(serialized_sparse).__name__}")
    if isinstance(dtype, np.dtype) and canonical(dtype) != canonical(values.dtype):
        raise OpError(f"a sparse tensor of {values.dtype} is read as one of {canonical(dtype)}")
    return indices.astype(canonical(_INT64)), values, shape_of(sizes)


def _entries(value: Sparse, bound: int | Extents | None) -> tuple[Any, Any]:
    """Returns the entries of a variant, as many as it has."""
    indices, values = value.parts
    if value.counts is None:
        return indices, values
    count = value.counts[0]
    size = room(bound, values.shape[0], _PROBLEM)
    indices, values = (resize(jnp.asarray(v), size) for v in (indices, values))
    indices = jnp.where((lax.iota(np.int32, size) < count)[:, None], indices, -1)
    return cut(bound, lambda: count, indices, values, of=(count,))  # type: ignore[return-value]


# ---- one sparse tensor of many ----


def _joined(rows: TensorList, bound: int | Extents | None) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns indices, values and sizes of a sparse tensor whose rows the elements of a list are."""
    rows = rows.settled()
    if rows.is_traced:
        raise OpError("a sparse tensor is made of a list whose length depends on data; give the TensorArray its size")
    if rows.items is not None:
        if not rows.items or not all(isinstance(item, Sparse) for item in rows.items):
            raise OpError("a sparse tensor is made of no rows, or of a list of which elements were never set")
        items = [item.settled() for item in rows.items if isinstance(item, Sparse)]
        if len({(len(item.sizes), item.parts[1].dtype) for item in items}) > 1:
            raise OpError("a sparse tensor is made of variants of different ranks or dtypes")
        if all(item.counts is None for item in items):
            return _of_items(items)
        rows = rows.packed()
    return _of_packed(rows, bound)


def _of_items(items: Sequence[VariantRow]) -> tuple[Any, Any, tuple[Any, ...]]:
    parts = [item.parts for item in items]
    lengths = [values.shape[0] for _, values in parts]
    if not all(isinstance(n, int) for n in lengths):
        raise OpError("a sparse tensor is made of variants of symbolic numbers of entries")
    indices, values = (_concatenated([part[i] for part in parts]) for i in (0, 1))
    row = np.repeat(np.arange(len(items)), lengths).astype(canonical(_INT64))[:, None]
    indices = _concatenated([row, indices.astype(row.dtype)], axis=1)
    sizes = zip(*(item.sizes for item in items if isinstance(item, Sparse)), strict=True)
    return indices, values, (len(items), *(_largest(column) for column in sizes))


def _concatenated(arrays: list[Any], axis: int = 0) -> Any:
    if all(known(v) is not None for v in arrays):
        return np.concatenate([np.asarray(v) for v in arrays], axis)
    return lax.concatenate([jnp.asarray(v) for v in arrays], axis)


def _largest(sizes: Sequence[Any]) -> Any:
    if all(isinstance(size, int) for size in sizes):
        return max(sizes)
    if all(map(_is_known, sizes)) and len(set(map(str, sizes))) == 1:
        return sizes[0]
    return jnp.max(jnp.stack([jnp.asarray(size).astype(canonical(_INT64)) for size in sizes]))


def _of_packed(rows: TensorList, bound: int | Extents | None) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns what `_joined` does, of rows that are stacked."""
    stacked = rows.buffer
    if not isinstance(stacked, Sparse):
        raise OpError("a sparse tensor is made of a list of which elements were never set")
    sizes = (rows.length, *(size if _is_known(size) else jnp.max(jnp.asarray(size)) for size in stacked.sizes))
    indices, values = map(jnp.asarray, stacked.parts)
    count, width, rank = indices.shape
    dtype = canonical(_INT64)
    row = lax.broadcasted_iota(dtype, (count, width, 1), 0)
    indices = lax.concatenate([row, indices.astype(dtype)], 2)
    flat = (jnp.reshape(indices, (count * width, rank + 1)), jnp.reshape(values, (count * width,)))
    if stacked.counts is None:
        return (*flat, sizes)
    counts = stacked.counts[0]
    found = known(counts)
    if found is not None:
        places = np.flatnonzero(np.arange(width) < found[:, None])
        return (*(take(v, places, 0) for v in flat), sizes)
    size = room(bound, math.prod((count, width)), _PROBLEM)
    splits = lax.concatenate([jnp.zeros(1, counts.dtype), jnp.cumsum(counts, dtype=counts.dtype)], 0)
    own = row_of(splits, size)
    is_there = own < count
    places = jnp.where(is_there, own * width + lax.iota(splits.dtype, size) - take(splits, own, 0), -1)
    indices = jnp.where(is_there[:, None], take(flat[0], places, 0), -1)
    return (*cut(bound, lambda: splits[-1], indices, take(flat[1], places, 0), of=(counts,)), sizes)  # type: ignore[return-value]
