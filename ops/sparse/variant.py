"""Sparse tensors as variants, as loops over their rows use them, and conversions.

A vector of them is `SparseRows`, the entries of one sparse tensor, or a `VariantVector`: a list of `Sparse`, as a loop
builds it (`tf.map_fn`). Rows with a static number of entries have that size. Where indices are traced, or one loop runs
over rows of different numbers of entries, the size is dynamic (docs/sizes.md).

TF: core/kernels/serialize_sparse_op.cc.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.rows import from_lengths, row_of
from tf2jax_lite.ops.common.variant_rows import VariantRow, VariantRows, VariantVector, concatenate, pad_or_truncate
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound, Unconverted
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import as_array, canonical, static_value
from tf2jax_lite.values.tensor_list import TensorList

from .coo import check_indices, shape_of, sizes_of

_DIMENSION = np.dtype(np.int64)


def is_static_size(size: Any) -> bool:
    """Return whether a size is an int or a symbolic dimension, not an array."""
    return not hasattr(size, "dtype")


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Sparse(VariantRow):
    """One sparse tensor.

    Attributes:
      parts: indices (entries, rank) and values (entries,).
      sizes: the dense shape: ints or symbolic dimensions where static, else scalars.
    """

    sizes: tuple[Any, ...] = ()
    kind = "sparse tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return its arrays; static sizes are auxiliary data."""
        traced = tuple(None if is_static_size(size) else size for size in self.sizes)
        return (self.parts, self.counts, traced), tuple(size if is_static_size(size) else None for size in self.sizes)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Sparse:
        """Undo `tree_flatten`."""
        parts, counts, traced = children
        return cls(parts, counts, tuple(t if k is None else k for k, t in zip(aux, traced, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as a vector of three variants: indices, values and dense shape."""
        return (3,)

    def common_spec(self, other: Sparse) -> Sparse:
        """Return the spec that both specs coerce to: sizes that differ are traced."""
        if specs.same_spec(self, other):
            return self
        unknown = jax.ShapeDtypeStruct((), canonical(_DIMENSION))
        pairs = zip(self.sizes, other.sizes, strict=False)
        sizes = tuple(a if is_static_size(a) and is_static_size(b) and a == b else unknown for a, b in pairs)
        mine, theirs = (dataclasses.replace(x, sizes=sizes) for x in (self, other))
        return cast("Sparse", VariantRow.common_spec(mine, theirs))

    def coerce(self, spec: Sparse) -> Sparse:
        """Return it in a spec that `common_spec` returned."""
        pairs = zip(self.sizes, spec.sizes, strict=True)
        sizes = tuple(a if is_static_size(b) else jnp.asarray(a).astype(b.dtype) for a, b in pairs)
        return cast("Sparse", VariantRow.coerce(dataclasses.replace(self, sizes=sizes), spec))


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows(VariantRows):
    """The rows of a sparse tensor: a vector of variants, and the list made of it.

    Attributes:
      indices: (entries, rank), in the order of rows.
      values: (entries,).
      sizes: the dense shape: ints or symbolic dimensions where static, else scalars; the first is static.
      splits: the row splits.
    """

    indices: Any
    values: Any
    sizes: tuple[Any, ...]
    splits: Any
    kind = "sparse tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return its arrays; static sizes are auxiliary data."""
        traced = tuple(None if is_static_size(size) else size for size in self.sizes)
        static_sizes = tuple(size if is_static_size(size) else None for size in self.sizes)
        return (self.indices, self.values, traced, self.splits), static_sizes

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> SparseRows:
        """Undo `tree_flatten`."""
        indices, values, traced, splits = children
        sizes = tuple(t if k is None else k for k, t in zip(aux, traced, strict=True))
        return cls(indices, values, sizes, splits)

    @property
    def count(self) -> Any:
        """Number of rows."""
        return self.sizes[0]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape as a tensor of variants."""
        return (self.count, 3)

    def row(self, index: Any) -> Sparse:
        """Return a row: not padded if its boundaries are static."""
        position, splits = self.static_index(index), static_value(self.splits)
        columns = self.indices[:, 1:]
        if position is not None and splits is not None:
            begin, end = int(splits[position]), int(splits[position + 1])
            return Sparse((columns[begin:end], self.values[begin:end]), None, self.sizes[1:])
        index = jnp.asarray(index)
        begin, end = (take(jnp.asarray(self.splits), index + i, 0) for i in (0, 1))
        max_length = self.values.shape[0] if splits is None else int(np.diff(splits).max(initial=0))
        step = lax.iota(begin.dtype, max_length)
        positions = jnp.where(step < end - begin, begin + step, -1)
        parts = (take(columns, positions, 0), take(self.values, positions, 0))
        return Sparse(parts, ((end - begin).astype(np.int32),) * 2, self.sizes[1:])


_INT64 = np.dtype(np.int64)
_PROBLEM = "how many entries a row of a sparse tensor has depends on data, or on which iteration of a loop it is"


def _check_type(out_type: Any) -> None:
    if str(out_type) != "variant":
        raise UnsupportedAttributeError(f"sparse tensors are put into variants, not into tensors of {out_type}")


def _host_serialize(sparse_indices: Any, sparse_values: Any, sparse_shape: Any, *, out_type: Any = "string") -> Any:
    return serialize_sparse(as_array(sparse_indices), sparse_values, sparse_shape, out_type=out_type)


@op("SerializeSparse", fold=_host_serialize)
def serialize_sparse(sparse_indices, sparse_values, sparse_shape: Unconverted, *, out_type="string"):
    """Make a variant of a sparse tensor."""
    _check_type(out_type)
    check_indices(sparse_indices, sparse_values, sparse_shape)
    return Sparse((sparse_indices, sparse_values), None, tuple(sizes_of(sparse_shape))).bounded()


def _host_serialize_many(
    sparse_indices: Any, sparse_values: Any, sparse_shape: Any, *, out_type: Any = "string"
) -> Any:
    return serialize_many_sparse(as_array(sparse_indices), sparse_values, sparse_shape, out_type=out_type)


@op("SerializeManySparse", fold=_host_serialize_many)
def serialize_many_sparse(sparse_indices, sparse_values, sparse_shape: Unconverted, *, out_type="string"):
    """Make a variant of each row of a sparse tensor.

    Args:
      sparse_indices: [n, rank], in the order of rows.
      sparse_shape: [rank]; the first size must be static.
    """
    _check_type(out_type)
    check_indices(sparse_indices, sparse_values, sparse_shape)
    sizes = tuple(sizes_of(sparse_shape))
    if len(sizes) < 2:
        raise OpError(f"a sparse tensor of rank {len(sizes)} has no rows")
    if not is_static_size(sizes[0]):
        raise OpError(
            "the rows of a sparse tensor are taken one by one, and how many there are depends on data: give the "
            "tf.SparseTensorSpec the size of the first dimension"
        )
    return SparseRows(sparse_indices, sparse_values, sizes, _row_splits(sparse_indices[:, 0], sizes[0]))


def _row_splits(rows: Any, count: Any) -> Any:
    """Return the row splits of ``count`` rows, of the sorted row indices of entries."""
    found = static_value(rows)
    if found is not None and isinstance(count, int):
        if (np.diff(found[found >= 0]) < 0).any():
            raise OpError("the entries of a sparse tensor are out of order; sort them with tf.sparse.reorder")
        return np.searchsorted(np.where(found < 0, count, found), np.arange(count + 1)).astype(np.int32)
    rows = jnp.asarray(rows)
    rows = jnp.where(rows < 0, jnp.asarray(count, rows.dtype), rows)  # padding is in no row
    counts = jnp.zeros(count, np.int32).at[rows].add(1, mode="drop")
    return from_lengths(counts).astype(np.int32)


@op("DeserializeSparse")
def deserialize_sparse(serialized_sparse, *, dtype, Tserialized="string", bound: Bound):
    """Make a sparse tensor of a variant, or of a vector of variants.

    TF: core/kernels/deserialize_sparse_variant_op.cc.

    Returns:
      Indices, values and dense shape; sizes of rows are their maximum.
    """
    del Tserialized  # serialized strings are rejected below
    if isinstance(serialized_sparse, SparseRows):
        rows = serialized_sparse
        indices, values, sizes = rows.indices, rows.values, rows.sizes
    elif isinstance(serialized_sparse, Sparse):
        indices, values = _entries(serialized_sparse.resolved(), bound)
        sizes = serialized_sparse.sizes
    elif isinstance(serialized_sparse, VariantVector) and isinstance(serialized_sparse.element, Sparse | None):
        indices, values, sizes = _joined(serialized_sparse.rows, bound)
    else:
        raise OpError(f"expected a sparse tensor as a variant, got {type(serialized_sparse).__name__}")
    if isinstance(dtype, np.dtype) and canonical(dtype) != canonical(values.dtype):
        raise OpError(f"a sparse tensor of {values.dtype} is read as one of {canonical(dtype)}")
    return indices.astype(canonical(_INT64)), values, shape_of(sizes)


def _entries(value: Sparse, bound: int | DynamicShapes | None) -> tuple[Any, Any]:
    """Return the valid entries of a variant."""
    indices, values = value.parts
    if value.counts is None:
        return indices, values
    count = value.counts[0]
    size = row_capacity(bound, values.shape[0], _PROBLEM)
    indices, values = (pad_or_truncate(jnp.asarray(v), size) for v in (indices, values))
    indices = jnp.where((lax.iota(np.int32, size) < count)[:, None], indices, -1)
    return truncate_rows(bound, lambda: count, indices, values, of=(count,))  # type: ignore[return-value]


def _joined(rows: TensorList, bound: int | DynamicShapes | None) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return the components of the sparse tensor whose rows are a list's elements."""
    rows = rows.resolved()
    if rows.is_traced:
        raise OpError("a sparse tensor is made of a list whose length depends on data; give the TensorArray its size")
    if rows.items is not None:
        if not rows.items or not all(isinstance(item, Sparse) for item in rows.items):
            raise OpError("a sparse tensor is made of no rows, or of a list of which elements were never set")
        items = [item.resolved() for item in rows.items if isinstance(item, Sparse)]
        if len({(len(item.sizes), item.parts[1].dtype) for item in items}) > 1:
            raise OpError("a sparse tensor is made of variants of different ranks or dtypes")
        if all(item.counts is None for item in items):
            return _from_items(items)
        rows = rows.packed()
    return _from_packed(rows, bound)


def _from_items(items: Sequence[VariantRow]) -> tuple[Any, Any, tuple[Any, ...]]:
    parts = [item.parts for item in items]
    lengths = [values.shape[0] for _, values in parts]
    if not all(isinstance(n, int) for n in lengths):
        raise OpError("a sparse tensor is made of variants of symbolic numbers of entries")
    indices, values = (concatenate([part[i] for part in parts]) for i in (0, 1))
    row = np.repeat(np.arange(len(items)), lengths).astype(canonical(_INT64))[:, None]
    indices = concatenate([row, indices.astype(row.dtype)], axis=1)
    sizes = zip(*(item.sizes for item in items if isinstance(item, Sparse)), strict=True)
    return indices, values, (len(items), *(_largest(column) for column in sizes))


def _largest(sizes: Sequence[Any]) -> Any:
    if all(isinstance(size, int) for size in sizes):
        return max(sizes)
    if all(map(is_static_size, sizes)) and len(set(map(str, sizes))) == 1:
        return sizes[0]
    return jnp.max(jnp.stack([jnp.asarray(size).astype(canonical(_INT64)) for size in sizes]))


def _from_packed(rows: TensorList, bound: int | DynamicShapes | None) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return the result of `_joined` for a packed list."""
    stacked = rows.buffer
    if not isinstance(stacked, Sparse):
        raise OpError("a sparse tensor is made of a list of which elements were never set")
    sizes = (rows.length, *(size if is_static_size(size) else jnp.max(jnp.asarray(size)) for size in stacked.sizes))
    indices, values = map(jnp.asarray, stacked.parts)
    count, width, rank = indices.shape
    dtype = canonical(_INT64)
    row = lax.broadcasted_iota(dtype, (count, width, 1), 0)
    indices = lax.concatenate([row, indices.astype(dtype)], 2)
    flat = (jnp.reshape(indices, (count * width, rank + 1)), jnp.reshape(values, (count * width,)))
    if stacked.counts is None:
        return (*flat, sizes)
    counts = stacked.counts[0]
    found = static_value(counts)
    if found is not None:
        positions = np.flatnonzero(np.arange(width) < found[:, None])
        return (*(take(v, positions, 0) for v in flat), sizes)
    size = row_capacity(bound, math.prod((count, width)), _PROBLEM)
    splits = from_lengths(counts)
    own = row_of(splits, size)
    is_valid = own < count
    positions = jnp.where(is_valid, own * width + lax.iota(splits.dtype, size) - take(splits, own, 0), -1)
    indices = jnp.where(is_valid[:, None], take(flat[0], positions, 0), -1)
    return (*truncate_rows(bound, lambda: splits[-1], indices, take(flat[1], positions, 0), of=(counts,)), sizes)  # type: ignore[return-value]
