"""The CSRSparseMatrix variant, one matrix or a batch: conversions and arithmetic.

The value is stored as COO: indices in the order of rows, values, and the shape. Row pointers are computed only where a
graph reads them. Static indices stay static; the number of traced ones is static, or dynamic with a bound
(docs/sizes.md). As in coo.py, rows of -1 are padding.

TF: core/kernels/sparse.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take, take_nd
from tf2jax_lite.ops.common.rows import nonzero, numbered
from tf2jax_lite.ops.math.segment import segment_reduce
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound, Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, dims_array, static_value
from tf2jax_lite.values.variant import Variant

from .coo import check_indices, check_range, order_of, pick, same_rows, scatter_entries, union
from .coo_arithmetic import sparse_softmax

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
    """Return a value that is a sparse matrix of a dtype, or of any."""
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


def _check_shapes(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    """Raise OpError if shapes cannot be multiplied."""
    if len(a) != len(b):
        raise OpError(f"matrices of ranks {len(a)} and {len(b)} cannot be multiplied")
    for one, other, what in ((a[-1], b[-2], "inner dimensions"), (a[0], b[0], "batch sizes")):
        if what == "batch sizes" and len(a) < 3:
            continue
        if isinstance(one, int) and isinstance(other, int) and one != other:
            raise OpError(f"cannot multiply matrices of shapes {list(a)} and {list(b)}: the {what} differ")


def _check_flags(transpose: bool, adjoint: bool, which: str) -> None:
    if transpose and adjoint:
        raise OpError(f"only one of adjoint_{which} and transpose_{which} may be true")


def _dense_operand(b: Any, transpose: bool, adjoint: bool) -> Any:
    b = jnp.asarray(b)
    if b.ndim > 1 and (transpose or adjoint):
        b = jnp.swapaxes(b, -1, -2)
    return lax.conj(b) if adjoint and jnp.iscomplexobj(b) else b


@op("SparseMatrixMatMul", pattern=Pattern.CONTRACTION)
def sparse_matrix_mat_mul(
    a,
    b,
    *,
    transpose_a=False,
    transpose_b=False,
    adjoint_a=False,
    adjoint_b=False,
    transpose_output=False,
    conjugate_output=False,
):
    """Multiply a sparse matrix by a dense one.

    TF: core/kernels/sparse/mat_mul_op.cc.
    """
    _check_flags(transpose_a, adjoint_a, "a")
    _check_flags(transpose_b, adjoint_b, "b")
    matrix, b = as_matrix(a, b.dtype), _dense_operand(b, transpose_b, adjoint_b)
    rows, columns = matrix.flat()
    height, width = matrix.matrix
    if transpose_a or adjoint_a:
        rows, columns, height, width = columns, rows, width, height
    values = matrix.conj().values if adjoint_a else matrix.values
    _check_shapes((*matrix.dims[:-2], height, width), b.shape)
    flat = jnp.reshape(b, (matrix.batches * width, b.shape[-1]))
    # Only entries are multiplied: rows of b without an entry may be NaN.
    parts = jnp.asarray(values)[:, None] * take(flat, jnp.asarray(columns), 0)
    start = jnp.zeros((matrix.batches * height, b.shape[-1]), parts.dtype)
    out = scatter_entries(start, jnp.asarray(rows)[:, None], parts, "add")
    out = jnp.reshape(out, (*matrix.dims[:-2], height, b.shape[-1]))
    if transpose_output:
        out = jnp.swapaxes(out, -1, -2)
    return lax.conj(out) if conjugate_output and jnp.iscomplexobj(out) else out


def _operand(matrix: Any, dtype: Any, transpose: bool, adjoint: bool) -> SparseMatrix:
    matrix = as_matrix(matrix, dtype)
    if transpose or adjoint:
        matrix = matrix.transposed()
    return matrix.conj() if adjoint else matrix


@op("SparseMatrixSparseMatMul")
def sparse_matrix_sparse_mat_mul(
    a, b, *, type, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False, bound: Bound
):
    """Multiply sparse matrices.

    TF: core/kernels/sparse/sparse_mat_mul_op.cc.

    There is an entry wherever entries of both are multiplied, even if their sum is 0. With traced indices the product
    is computed as one of dense matrices.
    """
    _check_flags(transpose_a, adjoint_a, "a")
    _check_flags(transpose_b, adjoint_b, "b")
    a, b = _operand(a, type, transpose_a, adjoint_a), _operand(b, type, transpose_b, adjoint_b)
    _check_shapes(a.dims, b.dims)
    shape = (*a.dims[:-2], a.dims[-2], b.dims[-1])
    if static_value(a.indices) is None or static_value(b.indices) is None:
        return _traced_product(a, b, shape, bound)
    ours, theirs, indices, to = _terms(a, b)
    terms = take(a.values, ours, 0) * take(b.values, theirs, 0)
    start = jnp.zeros((len(indices),), terms.dtype)
    return SparseMatrix(indices, scatter_entries(start, to[:, None], terms, "add"), shape)


def _terms(a: SparseMatrix, b: SparseMatrix) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return both factors' positions for each term, product indices, and sum ids."""
    first, second = np.asarray(a.indices), np.asarray(b.indices)
    first_valid, second_valid = (np.flatnonzero(x[:, 0] >= 0) for x in (first, second))
    inner = np.asarray(a.flat()[1])[first_valid]
    rows = np.asarray(b.flat()[0])[second_valid]  # in order, as all matrices are
    begin, end = (np.searchsorted(rows, inner, side) for side in ("left", "right"))
    counts = end - begin
    ours = np.repeat(np.arange(len(inner)), counts)
    theirs = np.arange(counts.sum()) + np.repeat(begin - np.cumsum(counts) + counts, counts)
    ours, theirs = first_valid[ours], second_valid[theirs]
    found = np.concatenate([first[ours][:, :-1], second[theirs][:, -1:]], axis=1)
    indices, to = np.unique(found, axis=0, return_inverse=True)
    return ours, theirs, indices.astype(canonical(np.int64)), to.reshape(-1)


def _traced_product(
    a: SparseMatrix, b: SparseMatrix, shape: tuple[Any, ...], bound: int | DynamicShapes | None
) -> SparseMatrix:
    product = jnp.matmul(a.dense(), b.dense(), precision=lax.Precision.HIGHEST)
    ones = (m.with_values(jnp.ones(m.values.shape, np.float32)).dense() for m in (a, b))
    is_entry = jnp.reshape(jnp.matmul(*ones) > 0, (-1,))
    count = is_entry.shape[0]
    size = row_capacity(bound, count, "which entries a product has depends on traced indices")
    where = nonzero(is_entry, size, count)
    of = (a.indices, b.indices)
    (where,) = truncate_rows(bound, lambda: jnp.count_nonzero(is_entry), where, of=of)
    columns, rest = [], where
    for d in reversed(shape):
        columns.insert(0, rest % d)
        rest = rest // d
    int64 = canonical(np.int64)
    indices = jnp.where((where < count)[:, None], jnp.stack(columns, 1), -1).astype(int64)
    return SparseMatrix(indices, take_nd(product, indices), shape)


@op("SparseMatrixAdd")
def sparse_matrix_add(a, b, alpha, beta, *, bound: Bound):
    """Return ``alpha * a + beta * b``, with an entry wherever one has one.

    TF: core/kernels/sparse/add_op.cc.

    As in TensorFlow, ``alpha`` and ``beta`` have no gradients.
    """
    a, b = as_matrix(a, alpha.dtype), as_matrix(b, beta.dtype)
    if a.dims != b.dims:
        raise OpError(f"sparse matrices of shapes {list(a.dims)} and {list(b.dims)} cannot be added")
    if alpha.ndim or beta.ndim:
        raise OpError("alpha and beta must be scalars")
    indices, at_a, at_b = union(a.indices, b.indices, bound)
    alpha, beta = (lax.stop_gradient(jnp.asarray(v)) for v in (alpha, beta))
    return SparseMatrix(indices, alpha * pick(a.values, at_a) + beta * pick(b.values, at_b), a.dims)


@op("SparseMatrixMul")
def sparse_matrix_mul(a, b):
    """Multiply by a scalar, or each matrix of a batch by one.

    TF: core/kernels/sparse/mul_op.cc.
    """
    matrix, b = as_matrix(a, b.dtype), jnp.asarray(b)
    if not b.ndim:
        return matrix.with_values(matrix.values * b)
    if len(matrix.dims) != 3 or b.shape != (matrix.dims[0], 1, 1):
        shapes = f"{list(matrix.dims)} is multiplied by a tensor of shape {list(b.shape)}"
        raise OpError(f"a sparse matrix of shape {shapes}, not by one number, or by one for each of a batch")
    return matrix.with_values(matrix.values * take(jnp.reshape(b, (-1,)), matrix.indices[:, 0], 0))


@op("SparseMatrixSoftmax")
def sparse_matrix_softmax(logits, *, type):
    """Softmax over the entries of each row."""
    matrix = as_matrix(logits, type)
    if not matrix.values.shape[0]:
        return matrix
    return matrix.with_values(sparse_softmax(matrix.indices, matrix.values, dims_array(matrix.dims, np.int64)))


@op("SparseMatrixSoftmaxGrad")
def sparse_matrix_softmax_grad(softmax, grad_softmax, *, type):
    """Return the gradient of SparseMatrixSoftmax."""
    matrix, gradient = as_matrix(softmax, type), as_matrix(grad_softmax, type)
    if matrix.dims != gradient.dims:
        raise OpError(f"gradients of shape {list(gradient.dims)} for a softmax of shape {list(matrix.dims)}")
    count = matrix.values.shape[0]
    upstream = pick(gradient.values, same_rows(matrix.indices, gradient.indices))
    found = static_value(matrix.indices)
    rows = numbered((jnp.asarray(matrix.indices) if found is None else found)[:, :-1])
    sums = take(segment_reduce("Sum", matrix.values * upstream, rows, count), rows, 0)
    return matrix.with_values((upstream - sums) * matrix.values)


@op("SparseMatrixSparseCholesky", pattern=Pattern.CONTRACTION)
def sparse_matrix_sparse_cholesky(input, permutation: Static, *, type):
    """Factor matrices, of which the lower triangle is read.

    TF: core/kernels/sparse/sparse_cholesky_op.cc.

    Values are computed in a dense matrix. A traced matrix that is not positive definite gives NaN (an error in
    TensorFlow).

    Args:
      input: matrices [..., n, n] with static indices.
      permutation: [..., n], static: the elimination order.
    """
    matrix = as_matrix(input, type)
    height, width = matrix.matrix
    orders = np.asarray(permutation)
    if height != width or orders.shape != (*matrix.dims[:-2], height):
        raise OpError(f"a matrix of shape {list(matrix.dims)} and a permutation of shape {list(orders.shape)}")
    if (np.sort(orders, axis=-1) != np.arange(height)).any():
        raise OpError("Cholesky factorization: not a permutation")
    found = static_value(matrix.indices)
    if found is None:
        raise OpError("which entries a Cholesky factor has depends on traced indices; they must be known while tracing")
    batched = len(matrix.dims) == 3
    orders = orders.reshape(-1, height)
    indices = []
    for number, order in enumerate(orders):
        own = found[found[:, 0] == number][:, 1:] if batched else found
        rows = _with_fill_in(own, order)
        indices.append(np.concatenate([np.full((len(rows), 1), number), rows], 1) if batched else rows)
    where = np.concatenate(indices).astype(canonical(np.int64)) if indices else found
    factor = _factor(matrix.dense(), orders.reshape(*matrix.dims[:-2], height))
    values = take_nd(factor, jnp.asarray(where))
    result = static_value(values)
    if result is not None and np.isnan(result).any():
        raise OpError("Cholesky factorization failed: a matrix may not be positive definite")
    return SparseMatrix(where, values, matrix.dims)


def _factor(dense: Any, order: np.ndarray) -> Any:
    """Return the lower factor of a permuted Hermitian matrix's lower triangle."""
    lower, strict = jnp.tril(dense), jnp.tril(dense, -1)
    full = lower + jnp.swapaxes(strict.conj(), -1, -2)
    rows = jnp.take_along_axis(full, order[..., :, None], axis=-2)
    return jnp.linalg.cholesky(jnp.take_along_axis(rows, order[..., None, :], axis=-1), symmetrize_input=False)


def _with_fill_in(indices: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return indices of a factor's entries: the matrix's, and its fill-in."""
    inverse = np.argsort(order)
    below = indices[indices[:, 0] >= indices[:, 1]]
    rows, columns = inverse[below[:, 0]], inverse[below[:, 1]]
    nonzero = np.eye(len(order), dtype=bool)
    nonzero[np.maximum(rows, columns), np.minimum(rows, columns)] = True
    for column in range(len(order)):
        # A column's entries below the diagonal propagate to its parent in the elimination tree.
        under = np.flatnonzero(nonzero[column + 1 :, column]) + column + 1
        if under.size:
            nonzero[under, under[0]] = True
    return np.argwhere(nonzero)
