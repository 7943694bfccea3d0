"""Products of sparse matrices against TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

from .csr_matrices import DTYPES, SHAPES, check, dense, entries, made, matrix, ops, pattern, random, refused

TESTED_OTHERWISE = {
    "SparseMatrixMatMul",
    "SparseMatrixSparseMatMul",
}

BOOLS = (False, True)
SIDES = list(itertools.product(["", "transpose", "adjoint"], repeat=2))


@pytest.mark.default_cases("adjoint-adjoint")
@pytest.mark.parametrize(("a", "b"), SIDES, ids=str)
def test_products_with_dense_matrices(a, b):
    flags = {f"{kind}_{which}": True for which, kind in (("a", a), ("b", b)) if kind}
    for number, (turn, conjugate) in enumerate(itertools.product(BOOLS, repeat=2)):
        shape, dtype = SHAPES[number % 2], DTYPES[3 - (number == 1)]
        at, inner = pattern(shape), shape[-2] if a else shape[-1]
        check(
            lambda v, w, at=at, shape=shape, turn=turn, conjugate=conjugate: ops.sparse_matrix_mat_mul(
                matrix(at, v, shape), w, transpose_output=turn, conjugate_output=conjugate, **flags
            ),
            random(len(at), dtype),
            random((*shape[:-2], *((5, inner) if b else (inner, 5))), dtype, 2),
            jit=not number and not a,
        )


@pytest.mark.default_cases("transpose-adjoint")
@pytest.mark.parametrize(("a", "b"), SIDES, ids=str)
def test_products_with_sparse_matrices(a, b):
    """TensorFlow's gradients fail for unmatched factors: here all match."""
    flags = {f"{kind}_{which}": True for which, kind in (("a", a), ("b", b)) if kind}
    batch = (2,) if a == b else ()
    first, second = (*batch, *((4, 3) if a else (3, 4))), (*batch, *((5, 4) if b else (4, 5)))
    at, to = pattern(first, 0.9, empty_row=False), pattern(second, 2, empty_row=False)
    check(
        lambda v, w: entries(
            ops.sparse_matrix_sparse_mat_mul(matrix(at, v, first), matrix(to, w, second), type=v.dtype, **flags), v
        ),
        random(len(at), "complex128"),
        random(len(to), "complex128", 2),
        jit=not a,
    )


@pytest.mark.full
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_products_with_few_entries(share):
    at, to = pattern((2, 3, 4), share), pattern((2, 4, 5), share)

    def function(v, w):
        first, second = matrix(at, v, (2, 3, 4)), matrix(to, w, (2, 4, 5))
        product = ops.sparse_matrix_sparse_mat_mul(first, second, type=v.dtype)
        return [*entries(product, v), ops.sparse_matrix_mat_mul(first, tf.ones([2, 4, 2], v.dtype))]

    def values(v, w):
        return function(tf.stop_gradient(v), tf.stop_gradient(w))

    check(values, random(len(at), "float64"), random(len(to), "float64", 2), differentiable=False)


@pytest.mark.full
def test_products_with_traced_indices():
    def sparse(v, w):
        first, second = (ops.dense_to_csr_sparse_matrix(x, tf.where(x > 0)) for x in (v, w))
        return dense(ops.sparse_matrix_sparse_mat_mul(first, second, type=v.dtype, transpose_a=True), v)

    def plain(v, w):
        return tf.matmul(tf.nn.relu(v), tf.nn.relu(w), transpose_a=True)

    check(sparse, random((2, 4, 3), "float64"), random((2, 4, 5), "float64", 2), reference=plain)


@pytest.mark.full
def test_missing_entries_are_not_multiplied():
    check(
        lambda w: ops.sparse_matrix_mat_mul(matrix([[0, 1]], tf.ones([1]), (2, 2)), w),
        np.float32([[np.nan], [1]]),
        differentiable=False,
    )


@pytest.mark.full
def test_in_graph_gradients():
    at = pattern((3, 4), 0.9, empty_row=False)

    def function(v, w):
        with tf.GradientTape() as tape:
            tape.watch([v, w])
            sparse = matrix(at, v, (3, 4))
            product = ops.sparse_matrix_sparse_mat_mul(
                sparse, ops.dense_to_csr_sparse_matrix(w, tf.where(tf.ones([4, 2]) > 0)), type=v.dtype
            )
            total = tf.reduce_sum(dense(product, v) ** 2)
        first = tape.gradient(total, [v, w])
        with tf.GradientTape() as tape:
            tape.watch([v, w])
            total = tf.reduce_sum(ops.sparse_matrix_mat_mul(matrix(at, v, (3, 4)), w) ** 3)
        return [*first, *tape.gradient(total, [v, w])]

    check(function, random(len(at), "float64"), random((4, 2), "float64", 2), differentiable=False)


@pytest.mark.full
def test_product_in_a_loop():
    at = pattern((4, 4))

    def function(v, x):
        sparse = matrix(at, v, (4, 4))
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, ops.sparse_matrix_mat_mul(sparse, x)), (0, x))[1]

    args = random(len(at), "float32"), random((4, 2), "float32", 2)
    check(function, *args, differentiable=False)


@pytest.mark.full
def test_incompatible_shapes_raise():
    at = pattern((3, 4))
    specs = tf.TensorSpec([len(at)]), tf.TensorSpec([None, None])
    function = tf.function(lambda v, w: ops.sparse_matrix_mat_mul(matrix(at, v, (3, 4)), w), autograph=False)
    with pytest.raises(ValueError, match="inner dimensions differ"):
        tf2jax.convert_functional(function, *specs)(random(len(at), "float32"), random((3, 2), "float32"))


@pytest.mark.full
def test_transpose_and_adjoint_raise():
    refused(lambda: ops.sparse_matrix_mat_mul(made([[0, 1]]), tf.ones([4, 1]), True, adjoint_a=True), "only one of")
