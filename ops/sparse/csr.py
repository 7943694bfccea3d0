"""Sparse matrices (CSRSparseMatrix): variants that hold a matrix, or a batch of them, by its entries.

Here they hold what a sparse tensor does: index vectors in the order of rows, values, and the shape. Row pointers are
made where a graph asks for them. Indices that are known while tracing stay so; of others the number is known, or data
decides it (docs/sizes.md). As in coo.py, rows of -1 are padding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import Extents, cut, room
from tf2jax_lite.ops.arrays.gather import take, take_nd
from tf2jax_lite.ops.common.nonzero import nonzero
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, dims_array, known
from tf2jax_lite.values.variant import Variant

from .coo import check_indices, check_range, order_of, pick, scatter_entries
from .coo_elementwise import union

__all__ = ["SparseMatrix", "as_matrix"]

_INT64 = np.dtype(np.int64)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class SparseMatrix(Variant):
    """A sparse matrix, or a batch of them.

    Attributes:
      indices: index vectors (batch, row, column), in the order of batches and rows.
      values: the entries.
      dims: the shape, of rank 2 or 3.
    """

    indices: Any
    values: Any
    dims: tuple[Any, ...]
    is_pytree_handle = True
    shape = ()
    """Its shape as a tensor: a variant is a scalar."""

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
        """Returns its arrays, and its shape."""
        return (self.indices, self.values), self.dims

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> SparseMatrix:
        """Undoes `tree_flatten`."""
        indices, values = children
        return cls(indices, values, aux)

    @property
    def matrix(self) -> tuple[Any, Any]:
        """The shape of one matrix."""
        return self.dims[-2], self.dims[-1]

    @property
    def batches(self) -> Any:
        """How many matrices there are."""
        return self.dims[0] if len(self.dims) == 3 else 1

    def with_values(self, values: Any) -> SparseMatrix:
        """Returns the matrix with other values in the same places."""
        return dataclasses.replace(self, values=values)

    def zeros_like(self) -> SparseMatrix:
        """Returns zeros in the same places."""
        return self.with_values(jnp.zeros_like(self.values))

    def added(self, other: SparseMatrix) -> SparseMatrix:
        """Returns the sum, with an entry wherever one of both has one."""
        if self.dims != other.dims:
            raise OpError(f"sparse matrices of shapes {list(self.dims)} and {list(other.dims)} cannot be added")
        indices, first, second = union(self.indices, other.indices, None)
        return SparseMatrix(indices, pick(self.values, first) + pick(other.values, second), self.dims)

    def conj(self) -> SparseMatrix:
        """Returns the conjugate."""
        return self.with_values(lax.conj(self.values)) if jnp.iscomplexobj(self.values) else self

    def transposed(self) -> SparseMatrix:
        """Returns the transposed matrix, of each of a batch."""
        indices = self.indices[:, (*range(len(self.dims) - 2), -1, -2)]
        order = order_of(indices)
        new = (*self.dims[:-2], self.dims[-1], self.dims[-2])
        ordered = np.asarray(indices)[order] if isinstance(order, np.ndarray) else take(indices, order, 0)
        return SparseMatrix(ordered, take(self.values, order, 0), new)

    def flat(self) -> tuple[Any, Any]:
        """Returns rows and columns of the entries, counted through all matrices of a batch."""
        rows, columns = self.indices[:, -2], self.indices[:, -1]
        if len(self.dims) == 2:
            return rows, columns
        batch = self.indices[:, 0]
        height, width = self.matrix
        return batch * height + rows, batch * width + columns

    def dense(self) -> Any:
        """Returns the dense matrix."""
        return scatter_entries(jnp.zeros(self.dims, self.values.dtype), self.indices, self.values, "add")


def as_matrix(value: Any, dtype: Any = None) -> SparseMatrix:
    """Returns a sparse matrix.

    Args:
      value: what should be one.
      dtype: what it should hold, None for anything.

    Raises:
      OpError: it is none, or of another dtype.
    """
    if not isinstance(value, SparseMatrix):
        raise OpError(f"expected a sparse matrix, got {type(value).__name__}")
    if dtype is not None and canonical(dtype) != value.values.dtype:
        raise OpError(f"a sparse matrix of {value.values.dtype} is read as one of {canonical(dtype)}")
    return value


def _made(indices: Any, values: Any, shape: tuple[Any, ...]) -> SparseMatrix:
    """Returns a matrix of its parts.

    Raises:
      OpError: they do not fit each other, as far as is known.
    """
    if len(shape) not in (2, 3):
        raise OpError(f"a sparse matrix has rank 2 or 3, not {len(shape)}")
    check_indices(indices, values, dims_array(shape, _INT64))
    found = known(indices)
    if found is None:
        return SparseMatrix(indices, values, shape)
    there = found[found[:, 0] >= 0]
    if (there[1:, 0] < there[:-1, 0]).any() or _falls(there[:, :-1]):
        raise OpError("indices of a sparse matrix must be in the order of its rows; use tf.sparse.reorder")
    return SparseMatrix(found, values, shape)


def _falls(rows: np.ndarray) -> bool:
    """Whether any row of index vectors comes before the one above it."""
    if rows.shape[1] == 1:
        return bool((rows[1:, 0] < rows[:-1, 0]).any())
    same = rows[1:, 0] == rows[:-1, 0]
    return bool((same & (rows[1:, 1] < rows[:-1, 1])).any())


@op("SparseTensorToCSRSparseMatrix")
def sparse_tensor_to_csr_sparse_matrix(indices: Any, values: Any, dense_shape: Static) -> SparseMatrix:
    """Makes a matrix of a sparse tensor. See tf.raw_ops.SparseTensorToCSRSparseMatrix.

    Indices that are not in the order of rows are refused if they are known (TensorFlow mixes up their rows).
    """
    return _made(indices, values, dims(dense_shape))


@op("CSRSparseMatrixToSparseTensor")
def csr_sparse_matrix_to_sparse_tensor(sparse_matrix: Any, *, type: Any) -> tuple[Any, Any, Any]:
    """Returns the parts of a sparse tensor. See tf.raw_ops.CSRSparseMatrixToSparseTensor."""
    matrix = as_matrix(sparse_matrix, type)
    int64 = canonical(_INT64)
    return matrix.indices.astype(int64), matrix.values, dims_array(matrix.dims, int64)


@op("DenseToCSRSparseMatrix")
def dense_to_csr_sparse_matrix(dense_input: Any, indices: Any) -> SparseMatrix:
    """Makes a matrix of some elements of a dense one. See tf.raw_ops.DenseToCSRSparseMatrix."""
    shape, found = tuple(dense_input.shape), known(indices)
    if indices.ndim != 2 or indices.shape[1] != len(shape):
        raise OpError(f"indices of shape {list(indices.shape)} for elements of a tensor of rank {len(shape)}")
    check_range(indices, shape)
    return _made(indices, take_nd(dense_input, jnp.asarray(indices if found is None else found)), shape)


@op("CSRSparseMatrixToDense")
def csr_sparse_matrix_to_dense(sparse_input: Any, *, type: Any) -> Any:
    """Makes a dense matrix. See tf.raw_ops.CSRSparseMatrixToDense."""
    return as_matrix(sparse_input, type).dense()


def _counts(matrix: SparseMatrix, groups: Any, count: Any) -> Any:
    """Returns how many entries there are of each of some groups, int32."""
    if isinstance(groups, np.ndarray) and isinstance(count, int):
        return np.bincount(groups[groups >= 0], minlength=count).astype(np.int32)
    there = jnp.asarray(matrix.indices)[:, 0] >= 0
    return jnp.zeros((count,), np.int32).at[jnp.where(there, groups, count)].add(1, mode="drop")


@op("SparseMatrixNNZ")
def sparse_matrix_nnz(sparse_matrix: Any) -> Any:
    """Counts the entries of each matrix. See tf.raw_ops.SparseMatrixNNZ."""
    matrix = as_matrix(sparse_matrix)
    found = known(matrix.indices)
    if len(matrix.dims) == 3:
        return _counts(matrix, matrix.indices[:, 0] if found is None else found[:, 0], matrix.dims[0])
    if found is not None:
        return np.asarray((found[:, 0] >= 0).sum(), np.int32)
    return jnp.sum(matrix.indices[:, 0] >= 0, dtype=np.int32)


@op("CSRSparseMatrixComponents", dynamic_shape="prefix")
def csr_sparse_matrix_components(
    csr_sparse_matrix: Any, index: Any, *, type: Any, bound: int | Extents | None
) -> tuple[Any, Any, Any]:
    """Returns row pointers, columns and values of one matrix. See tf.raw_ops.CSRSparseMatrixComponents."""
    matrix, place = as_matrix(csr_sparse_matrix, type), known(index)
    if place is not None and isinstance(matrix.batches, int) and not 0 <= int(place) < matrix.batches:
        raise OpError(f"index {int(place)} is out of range [0, {matrix.batches})")
    indices, values = matrix.indices, matrix.values
    if len(matrix.dims) == 3:
        own = indices[:, 0] == index
        if isinstance(own, np.ndarray) or known(own) is not None:
            where = np.flatnonzero(own)
            indices, values = indices[where], take(values, where, 0)
        else:
            count = values.shape[0]
            size = room(bound, count, "how many entries a matrix of a batch has depends on traced indices")
            where = jnp.where(nonzero(own, size, count) < count, nonzero(own, size, count), -1)
            (where,) = cut(bound, lambda: jnp.count_nonzero(own), where, of=(own,))
            indices = jnp.where((where >= 0)[:, None], pick(indices, where), -1)
            values = pick(values, where)
    height = matrix.dims[-2]
    rows = indices[:, -2]
    counts = _counts(dataclasses.replace(matrix, indices=indices), rows, height)
    xp = np if isinstance(counts, np.ndarray) else jnp
    pointers = xp.concatenate([xp.zeros(1, np.int32), xp.cumsum(counts, dtype=np.int32)])
    return pointers, indices[:, -1].astype(np.int32), values


@op("SparseMatrixTranspose")
def sparse_matrix_transpose(input: Any, *, conjugate: bool = False, type: Any) -> SparseMatrix:
    """Transposes each matrix. See tf.raw_ops.SparseMatrixTranspose."""
    matrix = as_matrix(input, type).transposed()
    return matrix.conj() if conjugate else matrix


@op("SparseMatrixZeros")
def sparse_matrix_zeros(dense_shape: Static, *, type: Any) -> SparseMatrix:
    """Makes a matrix without entries. See tf.raw_ops.SparseMatrixZeros."""
    shape = dims(dense_shape)
    return _made(np.zeros((0, len(shape)), canonical(_INT64)), jnp.zeros(0, canonical(type)), shape)
