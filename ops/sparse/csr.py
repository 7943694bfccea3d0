"""The CSRSparseMatrix variant: one matrix or a batch; its conversions.

The value is stored as COO: indices in the order of rows, values, and the shape. Row pointers are computed only where a
graph reads them. Static indices stay static; the number of traced ones is static, or dynamic with a bound
(docs/sizes.md). As in coo.py, rows of -1 are padding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take, take_nd
from tf2jax_lite.ops.common.nonzero import nonzero
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, dims_array, static_value
from tf2jax_lite.values.variant import Variant

from .coo import check_indices, check_range, order_of, pick, scatter_entries, union

_INT64 = np.dtype(np.int64)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class SparseMatrix(Variant):
    """A sparse matrix, or a batch of them.

    Attributes:
      indices: [n, rank], in the order of batches and rows.
      values: [n].
      dims: the shape, of rank 2 or 3.
    """

    indices: Any
    values: Any
    dims: tuple[Any, ...]
    shape = ()
    """Its shape as a tensor: a variant is a scalar."""

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
        """Return its arrays, and its shape."""
        return (self.indices, self.values), self.dims

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> SparseMatrix:
        """Undo `tree_flatten`."""
        indices, values = children
        return cls(indices, values, aux)

    @property
    def matrix(self) -> tuple[Any, Any]:
        """The shape of one matrix."""
        return self.dims[-2], self.dims[-1]

    @property
    def batches(self) -> Any:
        """Number of matrices."""
        return self.dims[0] if len(self.dims) == 3 else 1

    def with_values(self, values: Any) -> SparseMatrix:
        """Return the matrix with other values at the same indices."""
        return dataclasses.replace(self, values=values)

    def zeros_like(self) -> SparseMatrix:
        """Return zeros at the same indices."""
        return self.with_values(jnp.zeros_like(self.values))

    def add(self, other: SparseMatrix) -> SparseMatrix:
        """Return the sum, with an entry wherever either operand has one."""
        if self.dims != other.dims:
            raise OpError(f"sparse matrices of shapes {list(self.dims)} and {list(other.dims)} cannot be added")
        indices, first, second = union(self.indices, other.indices, None)
        return SparseMatrix(indices, pick(self.values, first) + pick(other.values, second), self.dims)

    def conj(self) -> SparseMatrix:
        """Return the conjugate."""
        return self.with_values(lax.conj(self.values)) if jnp.iscomplexobj(self.values) else self

    def transposed(self) -> SparseMatrix:
        """Return the transposed matrix, of each of a batch."""
        indices = self.indices[:, (*range(len(self.dims) - 2), -1, -2)]
        order = order_of(indices)
        new = (*self.dims[:-2], self.dims[-1], self.dims[-2])
        ordered = np.asarray(indices)[order] if isinstance(order, np.ndarray) else take(indices, order, 0)
        return SparseMatrix(ordered, take(self.values, order, 0), new)

    def flat(self) -> tuple[Any, Any]:
        """Return rows and columns of entries in the batch's block-diagonal matrix."""
        rows, columns = self.indices[:, -2], self.indices[:, -1]
        if len(self.dims) == 2:
            return rows, columns
        batch = self.indices[:, 0]
        height, width = self.matrix
        return batch * height + rows, batch * width + columns

    def dense(self) -> Any:
        """Return the dense matrix."""
        return scatter_entries(jnp.zeros(self.dims, self.values.dtype), self.indices, self.values, "add")


def as_matrix(value: Any, dtype: Any = None) -> SparseMatrix:
    """Return a value that is a sparse matrix.

    Args:
      dtype: the expected dtype, None for any.
    """
    if not isinstance(value, SparseMatrix):
        raise OpError(f"expected a sparse matrix, got {type(value).__name__}")
    if dtype is not None and canonical(dtype) != value.values.dtype:
        raise OpError(f"a sparse matrix of {value.values.dtype} is read as one of {canonical(dtype)}")
    return value


def _matrix(indices: Any, values: Any, shape: tuple[Any, ...]) -> SparseMatrix:
    """Return a matrix of its components."""
    if len(shape) not in (2, 3):
        raise OpError(f"a sparse matrix has rank 2 or 3, not {len(shape)}")
    check_indices(indices, values, dims_array(shape, _INT64))
    found = static_value(indices)
    if found is None:
        return SparseMatrix(indices, values, shape)
    there = found[found[:, 0] >= 0]
    if (there[1:, 0] < there[:-1, 0]).any() or _is_unsorted(there[:, :-1]):
        raise OpError("indices of a sparse matrix must be in the order of its rows; use tf.sparse.reorder")
    return SparseMatrix(found, values, shape)


def _is_unsorted(rows: np.ndarray) -> bool:
    """Return whether the rows of indices are out of order."""
    if rows.shape[1] == 1:
        return bool((rows[1:, 0] < rows[:-1, 0]).any())
    same = rows[1:, 0] == rows[:-1, 0]
    return bool((same & (rows[1:, 1] < rows[:-1, 1])).any())


@op("SparseTensorToCSRSparseMatrix")
def sparse_tensor_to_csr_sparse_matrix(indices, values, dense_shape: Static):
    """Convert a sparse tensor to a matrix.

    TF: core/kernels/sparse/sparse_tensor_to_csr_sparse_matrix_op.cc.

    Static indices that are not in the order of rows raise an error (TensorFlow mixes up their rows).

    Args:
      indices: [n, 2], or [n, 3] for a batch.
    """
    return _matrix(indices, values, dims(dense_shape))


@op("CSRSparseMatrixToSparseTensor")
def csr_sparse_matrix_to_sparse_tensor(sparse_matrix, *, type):
    """Return indices, values and dense shape of a matrix.

    TF: core/kernels/sparse/csr_sparse_matrix_to_sparse_tensor_op.cc.
    """
    matrix = as_matrix(sparse_matrix, type)
    int64 = canonical(_INT64)
    return matrix.indices.astype(int64), matrix.values, dims_array(matrix.dims, int64)


@op("DenseToCSRSparseMatrix")
def dense_to_csr_sparse_matrix(dense_input, indices):
    """Make a matrix of the elements of a dense one at given indices.

    TF: core/kernels/sparse/dense_to_csr_sparse_matrix_op.cc.
    """
    shape, found = tuple(dense_input.shape), static_value(indices)
    if indices.ndim != 2 or indices.shape[1] != len(shape):
        raise OpError(f"indices of shape {list(indices.shape)} for elements of a tensor of rank {len(shape)}")
    check_range(indices, shape)
    return _matrix(indices, take_nd(dense_input, jnp.asarray(indices if found is None else found)), shape)


@op("CSRSparseMatrixToDense")
def csr_sparse_matrix_to_dense(sparse_input, *, type):
    """Convert a matrix to a dense one.

    TF: core/kernels/sparse/csr_sparse_matrix_to_dense_op.cc.
    """
    return as_matrix(sparse_input, type).dense()


def _counts(matrix: SparseMatrix, groups: Any, count: Any) -> Any:
    """Count the entries of each group, int32."""
    if isinstance(groups, np.ndarray) and isinstance(count, int):
        return np.bincount(groups[groups >= 0], minlength=count).astype(np.int32)
    there = jnp.asarray(matrix.indices)[:, 0] >= 0
    return jnp.zeros((count,), np.int32).at[jnp.where(there, groups, count)].add(1, mode="drop")


@op("SparseMatrixNNZ")
def sparse_matrix_nnz(sparse_matrix):
    """Count the entries of each matrix, int32.

    TF: core/kernels/sparse/nnz_op.cc.
    """
    matrix = as_matrix(sparse_matrix)
    found = static_value(matrix.indices)
    if len(matrix.dims) == 3:
        return _counts(matrix, matrix.indices[:, 0] if found is None else found[:, 0], matrix.dims[0])
    if found is not None:
        return np.asarray((found[:, 0] >= 0).sum(), np.int32)
    return jnp.sum(matrix.indices[:, 0] >= 0, dtype=np.int32)


@op("CSRSparseMatrixComponents")
def csr_sparse_matrix_components(csr_sparse_matrix, index, *, type, bound: Bound):
    """Return row pointers, columns and values of one matrix.

    TF: core/kernels/sparse/sparse_matrix_components_op.cc.

    Args:
      index: scalar: which matrix of the batch.
    """
    matrix, position = as_matrix(csr_sparse_matrix, type), static_value(index)
    if position is not None and isinstance(matrix.batches, int) and not 0 <= int(position) < matrix.batches:
        raise OpError(f"index {int(position)} is out of range [0, {matrix.batches})")
    indices, values = matrix.indices, matrix.values
    if len(matrix.dims) == 3:
        own = indices[:, 0] == index
        if isinstance(own, np.ndarray) or static_value(own) is not None:
            where = np.flatnonzero(own)
            indices, values = indices[where], take(values, where, 0)
        else:
            count = values.shape[0]
            size = row_capacity(bound, count, "how many entries a matrix of a batch has depends on traced indices")
            (where,) = truncate_rows(bound, lambda: jnp.count_nonzero(own), nonzero(own, size, -1), of=(own,))
            indices = jnp.where((where >= 0)[:, None], pick(indices, where), -1)
            values = pick(values, where)
    height = matrix.dims[-2]
    rows = indices[:, -2]
    counts = _counts(dataclasses.replace(matrix, indices=indices), rows, height)
    xp = np if isinstance(counts, np.ndarray) else jnp
    pointers = xp.concatenate([xp.zeros(1, np.int32), xp.cumsum(counts, dtype=np.int32)])
    return pointers, indices[:, -1].astype(np.int32), values


@op("SparseMatrixTranspose")
def sparse_matrix_transpose(input, *, conjugate=False, type):
    """Transpose each matrix.

    TF: core/kernels/sparse/transpose_op.cc.
    """
    matrix = as_matrix(input, type).transposed()
    return matrix.conj() if conjugate else matrix


@op("SparseMatrixZeros")
def sparse_matrix_zeros(dense_shape: Static, *, type):
    """Make a matrix without entries.

    TF: core/kernels/sparse/zeros_op.cc.
    """
    shape = dims(dense_shape)
    return _matrix(np.zeros((0, len(shape)), canonical(_INT64)), jnp.zeros(0, canonical(type)), shape)
