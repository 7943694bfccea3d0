"""CSRSparseMatrix: conversions and components against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops.linalg.sparse import sparse as csr_python

from tf2jax_lite.ops.math import binary, unary
from tf2jax_lite.ops.sparse import csr

from .csr_matrices import DTYPES, SHAPES, check, dense, entries, made, matrix, ops, pattern, random, refused

TESTED_OTHERWISE = {
    "CSRSparseMatrixComponents",
    "CSRSparseMatrixToDense",
    "CSRSparseMatrixToSparseTensor",
    "DenseToCSRSparseMatrix",
    "SparseMatrixNNZ",
    "SparseMatrixTranspose",
    "SparseMatrixZeros",
    "SparseTensorToCSRSparseMatrix",
}


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conversions(dtype, shape):
    at = pattern(shape)

    def function(values, whole):
        first, second, third = (matrix(at, values, shape) for _ in range(3))
        transposed = ops.sparse_matrix_transpose(first, type=values.dtype, conjugate=True)
        chosen = ops.dense_to_csr_sparse_matrix(whole, at)
        return [*entries(second, values), dense(third, values), dense(chosen, values), *entries(transposed, values)]

    check(function, random(len(at), dtype), random(shape, dtype), jit=dtype == "float32")


@pytest.mark.default_cases("(3, 4)")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_traced_indices(shape):
    def function(indices, values):
        first, second, third = (matrix(indices, values, shape) for _ in range(3))
        transposed = ops.sparse_matrix_transpose(first, type=values.dtype)
        return [*entries(second, values), *entries(transposed, values), ops.sparse_matrix_nnz(third)]

    at = pattern(shape)
    check(function, at, random(len(at), "float32"))


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_traced_elements_of_a_dense_matrix(shape):
    def function(whole):
        first, second, third = (ops.dense_to_csr_sparse_matrix(whole**2, tf.where(whole > 0)) for _ in range(3))
        weights = tf.ones([*shape[:-2], 4, 2])
        return [dense(first, whole), ops.sparse_matrix_mat_mul(second, weights), ops.sparse_matrix_nnz(third)]

    check(function, random(shape, "float32"))


@pytest.mark.default_cases("None-(3, 4)-0", "0-(3, 4)-0")
@pytest.mark.parametrize(("shape", "index"), [((3, 4), 0), ((2, 3, 4), 1)], ids=str)
@pytest.mark.parametrize("count", [None, 0])
def test_components(shape, index, count):
    at = pattern(shape)[:count]

    def function(values):
        sparse = matrix(at, values, shape)
        return [*ops.csr_sparse_matrix_components(sparse, index, type=values.dtype), ops.sparse_matrix_nnz(sparse)]

    check(function, random(len(at), "float32"), differentiable=False)


def test_components_of_a_batch_with_traced_indices():
    def function(indices, values):
        sparse = matrix(indices, values, (2, 3, 4))
        pointers, columns, own = ops.csr_sparse_matrix_components(sparse, 1, type=values.dtype)
        return pointers, tf.reduce_sum(own * tf.cast(columns, own.dtype))

    at = pattern((2, 3, 4))
    check(function, at, random(len(at), "float32"), differentiable=False)


@pytest.mark.full
def test_conjugate_and_zeros():
    at = pattern((3, 4))
    check(lambda v: dense(tf.math.conj(matrix(at, v, (3, 4))), v), random(len(at), "complex64"), differentiable=False)
    check(
        lambda v: [*entries(ops.sparse_matrix_zeros([2, 3, 4], v.dtype), v)],
        random(1, "float32"),
        reference=lambda v: [tf.zeros([0, 3], tf.int64), v[:0], tf.constant([2, 3, 4], tf.int64)],
        differentiable=False,
    )


@pytest.mark.full
def test_csr_sparse_matrix_class():
    at = pattern((3, 4))

    def function(v, w):
        sparse = csr_python.CSRSparseMatrix(tf.SparseTensor(at, v, (3, 4)))
        return [csr_python.matmul(sparse, w), sparse.to_dense(), sparse.hermitian_transpose().to_dense()]

    check(function, random(len(at), "float32"), random((4, 2), "float32", 2), differentiable=False)


def matrix_of(at, values):
    return csr.SparseMatrix(at, values, (3, 4))


def test_sums_of_gradients():
    """TensorFlow adds sparse matrices on GPUs only."""
    at = pattern((3, 4))
    first, second = matrix_of(at, np.float32(at[:, 0])), matrix_of(at[1:], np.ones(len(at) - 1, np.float32))
    total = binary.add_n([first, second])
    np.testing.assert_array_equal(total.dense(), first.dense() + second.dense())
    np.testing.assert_array_equal(unary.zeros_like(first).dense(), np.zeros((3, 4)))
    with pytest.raises(ValueError, match="cannot be added"):
        first.add(csr.SparseMatrix(at, first.values, (4, 4)))


@pytest.mark.full_cases(
    "<lambda>-out of range", "<lambda>-expected a sparse matrix", "<lambda>-a permutation of your own"
)
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: made([[2, 0], [0, 1]]), "order of its rows"),
        (lambda: made([[0, 2, 0], [0, 1, 1]], (1, 3, 4)), "order of its rows"),
        (lambda: made([[1, 0, 0], [0, 1, 1]], (2, 3, 4)), "order of its rows"),
        (lambda: made([[0, 7]]), "out of bounds"),
        (lambda: ops.dense_to_csr_sparse_matrix(tf.ones([2, 2]), [[0, 5]]), "out of bounds"),
        (lambda: ops.csr_sparse_matrix_components(made([[0, 1]]), 1, type=tf.float32)[0], "out of range"),
        (lambda: ops.csr_sparse_matrix_to_dense(made([[0, 1]]), type=tf.float64), "read as one of float64"),
        (lambda: ops.sparse_matrix_nnz(tf.raw_ops.OptionalNone()), "expected a sparse matrix"),
        (lambda: ops.sparse_matrix_ordering_amd(made([[0, 0]], (1, 1))), "a permutation of your own"),
    ],
)
def test_invalid_input_raises(function, message):
    refused(function, message)
