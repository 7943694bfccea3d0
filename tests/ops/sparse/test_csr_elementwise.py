"""Sums, scaling and softmax of CSR matrices, against sparse tensors.

TensorFlow's kernels are for GPUs only.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

from .csr_matrices import SHAPES, check, converted, dense, entries, made, matrix, ops, pattern, random, refused

TESTED_OTHERWISE = {
    "SparseMatrixAdd",
    "SparseMatrixMul",
    "SparseMatrixSoftmax",
    "SparseMatrixSoftmaxGrad",
}


def sparse_tensor(at, values, shape):
    return tf.SparseTensor(at, values, np.array(shape, np.int64))


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax(shape):
    at = pattern(shape)
    check(
        lambda v: entries(ops.sparse_matrix_softmax(matrix(at, v, shape), type=v.dtype), v)[1],
        random(len(at), "float64"),
        reference=lambda v: tf.sparse.softmax(sparse_tensor(at, v, shape)).values,
    )
    check(
        lambda v: entries(ops.sparse_matrix_softmax(matrix(at[:0], v, shape), type=v.dtype), v)[1],
        random(0, "float32"),
        reference=lambda v: v,
        differentiable=False,
    )


def test_gradient_of_softmax():
    """Missing entries of the gradient are 0; additional ones are ignored."""
    at, by = [[0, 0], [0, 1], [2, 3]], [[0, 1], [0, 2], [2, 3]]

    def function(p, g):
        found = ops.sparse_matrix_softmax_grad(matrix(at, p, (3, 4)), matrix(by, g, (3, 4)), type=p.dtype)
        return entries(found, p)[1]

    p, g = np.float64([0.4, 0.6, 1]), np.float64([2, 3, 4])
    with jax.enable_x64(True):
        np.testing.assert_allclose(converted(function, p, g)(p, g), [0.4 * (0 - 1.2), 0.6 * (2 - 1.2), 0], atol=1e-12)


@pytest.mark.default_cases("0.0-(2, 3, 4)")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("beta", [1.0, 0.0])
def test_sums(shape, beta):
    at = pattern(shape)
    to = at[::2] + np.eye(len(shape), dtype=int)[-1] * (at[::2][:, -1:] < 3)
    to = np.unique(to, axis=0)

    def function(v, w):
        return entries(ops.sparse_matrix_add(matrix(at, v, shape), matrix(to, w, shape), 2.0, beta), v)[:2]

    def reference(v, w):
        total = tf.sparse.add(sparse_tensor(at, 2 * v, shape), sparse_tensor(to, beta * w, shape))
        return [total.indices, total.values]

    check(function, random(len(at), "float32"), random(len(to), "float32", 2), reference=reference)


@pytest.mark.full
def test_sum_has_no_gradient_of_alpha_and_beta():
    at = pattern((3, 4))

    def function(v, alpha):
        sparse = matrix(at, v, (3, 4))
        return dense(ops.sparse_matrix_add(sparse, sparse, alpha, alpha), v)

    jax_fn = converted(function, np.ones(len(at), np.float32), np.float32(2))
    grads = jax.grad(lambda *args: jnp.sum(jax_fn(*args)), (0, 1))(np.ones(len(at), np.float32), np.float32(2))
    np.testing.assert_array_equal(grads[0], 4)
    np.testing.assert_array_equal(grads[1], 0)


@pytest.mark.full
def test_scaling():
    shape = (2, 3, 4)
    at = pattern(shape)
    values, factors = random(len(at), "complex64"), random((2, 1, 1), "complex64", 2)
    check(
        lambda v, w: entries(ops.sparse_matrix_mul(matrix(at, v, shape), w), v)[1],
        values,
        factors,
        reference=lambda v, w: v * tf.gather(tf.reshape(w, [-1]), at[:, 0]),
    )
    check(
        lambda v, w: entries(ops.sparse_matrix_mul(matrix(at, v, shape), w), v)[1],
        values,
        factors[0, 0, 0],
        reference=lambda v, w: v * w,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: ops.sparse_matrix_mul(made([[0, 1]]), tf.ones([3, 4])), "is multiplied by"),
        (lambda: ops.sparse_matrix_add(made([[0, 1]]), made([[0, 1]], (4, 4)), 1.0, 1.0), "cannot be added"),
    ],
)
def test_invalid_input_raises(function, message):
    refused(function, message)
