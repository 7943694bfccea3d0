"""Cholesky factors of sparse matrices against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

from .csr_matrices import DTYPES, check, converted, dense, entries, made, matrix, ops, random, refused

TESTED_OTHERWISE = {
    "SparseMatrixSparseCholesky",
}


def positive(dtype, size=6):
    x = random((size, size), dtype)
    x = np.where(np.abs(x) > 1, x, 0)
    found = x @ x.conj().T + 3 * np.eye(size)
    return found.astype(dtype), np.argwhere(np.abs(found) > 1e-9)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky(dtype):
    whole, at = positive(dtype)
    order = np.random.default_rng(4).permutation(6).astype(np.int32)
    batched = np.concatenate([np.insert(at, 0, i, axis=1) for i in range(2)])
    orders = np.stack([order, np.arange(6, dtype=np.int32)])
    values = whole[tuple(at.T)]

    def function(v):
        one = ops.sparse_matrix_sparse_cholesky(matrix(at, v, (6, 6)), order, type=v.dtype)
        two = matrix(batched, tf.concat([v, 2 * v], 0), (2, 6, 6))
        return [*entries(one, v), *entries(ops.sparse_matrix_sparse_cholesky(two, orders, type=v.dtype), v)]

    check(function, values, differentiable=False)


@pytest.mark.full
def test_cholesky_reads_lower_triangle_and_fills_in():
    at = np.array([[0, 0], [0, 3], [1, 0], [1, 1], [2, 0], [2, 2], [3, 0], [3, 3]])
    values = np.float64([4, 9, 1, 3, 1, 3, 1, 3])
    for order in ([0, 1, 2, 3], [1, 2, 3, 0]):
        check(
            lambda v, order=order: entries(
                ops.sparse_matrix_sparse_cholesky(matrix(at, v, (4, 4)), np.int32(order), type=v.dtype), v
            ),
            values,
            differentiable=False,
        )


NEGATIVE = np.array([[0, 0], [1, 1]])


@pytest.mark.default_cases("<lambda>-positive")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda: ops.sparse_matrix_sparse_cholesky(matrix(NEGATIVE, [-1.0, 1.0], (2, 2)), [0, 1], type=tf.float32),
            "positive",
        ),
        (
            lambda: ops.sparse_matrix_sparse_cholesky(made(NEGATIVE, (2, 2)), [0, 0], type=tf.float32),
            "not a permutation",
        ),
        (
            lambda: ops.sparse_matrix_sparse_cholesky(made(NEGATIVE, (2, 3)), [0, 1], type=tf.float32),
            "and a permutation",
        ),
    ],
)
def test_invalid_input_raises(function, message):
    refused(function, message)


@pytest.mark.full
def test_traced_indices_raise():
    def function(whole):
        sparse = ops.dense_to_csr_sparse_matrix(whole, tf.where(whole > 0))
        return dense(ops.sparse_matrix_sparse_cholesky(sparse, [0, 1], type=whole.dtype), whole)

    jax_fn, whole = converted(function, np.eye(2, dtype=np.float32)), np.eye(2, dtype=np.float32)
    np.testing.assert_array_equal(jax_fn(whole), whole)
    with pytest.raises(ValueError, match=r"SparseMatrixSparseCholesky.*traced indices"):
        jax.jit(jax_fn)(whole)
