"""Sparse matrices (CSRSparseMatrix) against TensorFlow; against sparse tensors where it has kernels for GPUs alone.

Each is used once, as TensorFlow on CPU cannot add up the gradients of several uses.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops.linalg.sparse import sparse as csr_python
from tensorflow.python.ops.linalg.sparse import sparse_csr_matrix_ops as ops

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tf2jax_lite.ops import csr, math

TESTED_OTHERWISE = {
    "CSRSparseMatrixComponents",
    "CSRSparseMatrixToDense",
    "CSRSparseMatrixToSparseTensor",
    "DenseToCSRSparseMatrix",
    "SparseMatrixAdd",
    "SparseMatrixMatMul",
    "SparseMatrixMul",
    "SparseMatrixNNZ",
    "SparseMatrixSoftmax",
    "SparseMatrixSoftmaxGrad",
    "SparseMatrixSparseCholesky",
    "SparseMatrixSparseMatMul",
    "SparseMatrixTranspose",
    "SparseMatrixZeros",
    "SparseTensorToCSRSparseMatrix",
}
DTYPES = ["float32", "float64", "complex64", "complex128"]
SHAPES = [(3, 4), (2, 3, 4)]
BOOLS = (False, True)


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def pattern(shape, share=0.5, empty_row=True):
    mask = np.random.default_rng(1).random(shape) < share
    mask[..., 1, :] &= not empty_row
    return np.argwhere(mask)


def matrix(indices, values, shape):
    return ops.sparse_tensor_to_csr_sparse_matrix(indices, values, np.array(shape, np.int64))


def entries(sparse, like):
    return list(ops.csr_sparse_matrix_to_sparse_tensor(sparse, type=like.dtype))


def dense(sparse, like):
    return ops.csr_sparse_matrix_to_dense(sparse, type=like.dtype)


def converted(function, *args):
    return tf2jax.convert_functional(
        tf.function(function, autograph=False), *(tf.TensorSpec(a.shape, a.dtype) for a in args)
    )


def close(actual, expected):
    tolerance = 1e-4 if actual.dtype in (np.float32, np.complex64) else 1e-10
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    assert np.shape(actual) == tuple(expected.shape)


def check(function, *args, reference=None, jit=True, differentiable=True):
    """Compares values, and gradients by all arguments that are no integers, with TensorFlow's.

    Args:
      function: what is converted.
      *args: its arguments.
      reference: what TensorFlow runs; the function itself if it can.
      jit: whether it runs under jit, too.
      differentiable: whether TensorFlow has gradients of it.
    """
    with jax.enable_x64(True):
        _check(function, args, reference or function, jit, differentiable)


def _check(function, args, reference, jit, differentiable):
    expected = tf.nest.flatten(tf.function(reference, autograph=False)(*map(tf.constant, args)))
    inexact = [i for i, v in enumerate(expected) if v.dtype.is_floating or v.dtype.is_complex]
    upstream = [random(expected[i].shape, expected[i].dtype.as_numpy_dtype, 3) for i in inexact]
    by = [i for i, a in enumerate(args) if a.dtype.kind in "fc"]

    def gradients(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            results = tf.nest.flatten(reference(*args))
        found = tape.gradient([results[i] for i in inexact], [args[i] for i in by], upstream)
        return [tf.zeros_like(args[i]) if g is None else g for g, i in zip(found, by, strict=True)]

    slopes = tf.function(gradients, autograph=False)(*map(tf.constant, args)) if differentiable and inexact else None
    jax_fn = converted(function, *args)

    def both(*args):
        def chosen(*values):
            given = list(args)
            for i, value in zip(by, values, strict=True):
                given[i] = value
            found = jax.tree.leaves(jax_fn(*given))
            return [found[i] for i in inexact], found

        if slopes is None:
            return jax.tree.leaves(jax_fn(*args)), []
        _, backward, results = jax.vjp(chosen, *(args[i] for i in by), has_aux=True)
        return results, backward([jnp.conj(u) for u in upstream])

    for run in (both, jax.jit(both, compiler_options=fast_options()))[: 1 + jit]:
        results, found = run(*args)
        for e, a in zip(expected, results, strict=True):
            close(a, e)
            assert a.dtype == e.dtype.as_numpy_dtype
        if slopes is not None:
            for e, a in zip(slopes, found, strict=True):
                close(jnp.conj(a), e)


# ---- making them, and taking them apart ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conversions(dtype, shape):
    at = pattern(shape)

    def function(values, whole):
        first, second, third = (matrix(at, values, shape) for _ in range(3))
        turned = ops.sparse_matrix_transpose(first, type=values.dtype, conjugate=True)
        chosen = ops.dense_to_csr_sparse_matrix(whole, at)
        return [*entries(second, values), dense(third, values), dense(chosen, values), *entries(turned, values)]

    check(function, random(len(at), dtype), random(shape, dtype), jit=dtype == "float32")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_indices_that_are_arguments(shape):
    def function(indices, values):
        first, second, third = (matrix(indices, values, shape) for _ in range(3))
        turned = ops.sparse_matrix_transpose(first, type=values.dtype)
        return [*entries(second, values), *entries(turned, values), ops.sparse_matrix_nnz(third)]

    at = pattern(shape)
    check(function, at, random(len(at), "float32"))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elements_that_data_picks(shape):
    def function(whole):
        first, second, third = (ops.dense_to_csr_sparse_matrix(whole**2, tf.where(whole > 0)) for _ in range(3))
        weights = tf.ones([*shape[:-2], 4, 2])
        return [dense(first, whole), ops.sparse_matrix_mat_mul(second, weights), ops.sparse_matrix_nnz(third)]

    check(function, random(shape, "float32"))


@pytest.mark.parametrize(("shape", "index"), [((3, 4), 0), ((2, 3, 4), 1)], ids=str)
@pytest.mark.parametrize("count", [None, 0])
def test_components(shape, index, count):
    at = pattern(shape)[:count]

    def function(values):
        sparse = matrix(at, values, shape)
        return [*ops.csr_sparse_matrix_components(sparse, index, type=values.dtype), ops.sparse_matrix_nnz(sparse)]

    check(function, random(len(at), "float32"), differentiable=False)


def test_components_of_a_batch_that_data_decides():
    def function(indices, values):
        sparse = matrix(indices, values, (2, 3, 4))
        pointers, columns, own = ops.csr_sparse_matrix_components(sparse, 1, type=values.dtype)
        return pointers, tf.reduce_sum(own * tf.cast(columns, own.dtype))

    at = pattern((2, 3, 4))
    check(function, at, random(len(at), "float32"), differentiable=False)


def test_conjugate_and_zeros():
    at = pattern((3, 4))
    check(lambda v: dense(tf.math.conj(matrix(at, v, (3, 4))), v), random(len(at), "complex64"), differentiable=False)
    check(
        lambda v: [*entries(ops.sparse_matrix_zeros([2, 3, 4], v.dtype), v)],
        random(1, "float32"),
        reference=lambda v: [tf.zeros([0, 3], tf.int64), v[:0], tf.constant([2, 3, 4], tf.int64)],
        differentiable=False,
    )


# ---- products ----

SIDES = list(itertools.product(["", "transpose", "adjoint"], repeat=2))


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


@pytest.mark.parametrize(("a", "b"), SIDES, ids=str)
def test_products_with_sparse_matrices(a, b):
    """TensorFlow's gradients fail, or have a wrong shape, where an entry meets none: here all do."""
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


def test_products_of_what_data_picks():
    def sparse(v, w):
        first, second = (ops.dense_to_csr_sparse_matrix(x, tf.where(x > 0)) for x in (v, w))
        return dense(ops.sparse_matrix_sparse_mat_mul(first, second, type=v.dtype, transpose_a=True), v)

    def plain(v, w):
        return tf.matmul(tf.nn.relu(v), tf.nn.relu(w), transpose_a=True)

    check(sparse, random((2, 4, 3), "float64"), random((2, 4, 5), "float64", 2), reference=plain)


def test_missing_entries_are_not_multiplied():
    check(
        lambda w: ops.sparse_matrix_mat_mul(matrix([[0, 1]], tf.ones([1]), (2, 2)), w),
        np.float32([[np.nan], [1]]),
        differentiable=False,
    )


# ---- what TensorFlow has for GPUs alone ----


def sparse_tensor(at, values, shape):
    return tf.SparseTensor(at, values, np.array(shape, np.int64))


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
    """What the gradient has no entry for is 0; what it has more is left out."""
    at, by = [[0, 0], [0, 1], [2, 3]], [[0, 1], [0, 2], [2, 3]]

    def function(p, g):
        found = ops.sparse_matrix_softmax_grad(matrix(at, p, (3, 4)), matrix(by, g, (3, 4)), type=p.dtype)
        return entries(found, p)[1]

    p, g = np.float64([0.4, 0.6, 1]), np.float64([2, 3, 4])
    with jax.enable_x64(True):
        np.testing.assert_allclose(converted(function, p, g)(p, g), [0.4 * (0 - 1.2), 0.6 * (2 - 1.2), 0], atol=1e-12)


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


def test_factors_of_a_sum_have_no_gradient():
    at = pattern((3, 4))

    def function(v, alpha):
        sparse = matrix(at, v, (3, 4))
        return dense(ops.sparse_matrix_add(sparse, sparse, alpha, alpha), v)

    jax_fn = converted(function, np.ones(len(at), np.float32), np.float32(2))
    slopes = jax.grad(lambda *args: jnp.sum(jax_fn(*args)), (0, 1))(np.ones(len(at), np.float32), np.float32(2))
    np.testing.assert_array_equal(slopes[0], 4)
    np.testing.assert_array_equal(slopes[1], 0)


def test_multiples():
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


# ---- factors ----


def positive(dtype, size=6):
    x = random((size, size), dtype)
    x = np.where(np.abs(x) > 1, x, 0)
    found = x @ x.conj().T + 3 * np.eye(size)
    return found.astype(dtype), np.argwhere(np.abs(found) > 1e-9)


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


def test_cholesky_reads_the_lower_half_and_fills_in():
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


# ---- whole programs ----


def test_gradients_that_the_graph_takes():
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


def test_in_loops():
    at = pattern((4, 4))

    def function(v, x):
        sparse = matrix(at, v, (4, 4))
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, ops.sparse_matrix_mat_mul(sparse, x)), (0, x))[1]

    args = random(len(at), "float32"), random((4, 2), "float32", 2)
    check(function, *args, differentiable=False)


def test_the_class_of_python():
    at = pattern((3, 4))

    def function(v, w):
        sparse = csr_python.CSRSparseMatrix(tf.SparseTensor(at, v, (3, 4)))
        return [csr_python.matmul(sparse, w), sparse.to_dense(), sparse.hermitian_transpose().to_dense()]

    check(function, random(len(at), "float32"), random((4, 2), "float32", 2), differentiable=False)


def matrix_of(at, values):
    return csr.SparseMatrix(at, values, (3, 4))


def test_sums_of_gradients():
    """TensorFlow adds sparse matrices on GPUs alone."""
    at = pattern((3, 4))
    first, second = matrix_of(at, np.float32(at[:, 0])), matrix_of(at[1:], np.ones(len(at) - 1, np.float32))
    total = math.add_n([first, second])
    np.testing.assert_array_equal(total.dense(), first.dense() + second.dense())
    np.testing.assert_array_equal(math.zeros_like(first).dense(), np.zeros((3, 4)))
    with pytest.raises(ValueError, match="cannot be added"):
        first.added(csr.SparseMatrix(at, first.values, (4, 4)))


def test_sizes_that_do_not_fit():
    at = pattern((3, 4))
    specs = tf.TensorSpec([len(at)]), tf.TensorSpec([None, None])
    function = tf.function(lambda v, w: ops.sparse_matrix_mat_mul(matrix(at, v, (3, 4)), w), autograph=False)
    with pytest.raises(ValueError, match="inner dimensions differ"):
        tf2jax.convert_functional(function, *specs)(random(len(at), "float32"), random((3, 2), "float32"))


def made(at, shape=(3, 4), dtype=tf.float32):
    return matrix(np.array(at, np.int64), tf.ones([len(at)], dtype), shape)


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
        (lambda: ops.sparse_matrix_mat_mul(made([[0, 1]]), tf.ones([4, 1]), True, adjoint_a=True), "only one of"),
        (lambda: ops.sparse_matrix_mul(made([[0, 1]]), tf.ones([3, 4])), "is multiplied by"),
        (lambda: ops.sparse_matrix_add(made([[0, 1]]), made([[0, 1]], (4, 4)), 1.0, 1.0), "cannot be added"),
        (
            lambda: ops.sparse_matrix_sparse_cholesky(
                matrix([[0, 0], [1, 1]], [-1.0, 1.0], (2, 2)), [0, 1], type=tf.float32
            ),
            "positive definite",
        ),
        (
            lambda: ops.sparse_matrix_sparse_cholesky(made([[0, 0], [1, 1]], (2, 2)), [0, 0], type=tf.float32),
            "not a permutation",
        ),
        (lambda: ops.sparse_matrix_nnz(tf.raw_ops.OptionalNone()), "expected a sparse matrix"),
        (lambda: ops.sparse_matrix_ordering_amd(made([[0, 0]], (1, 1))), "a permutation of your own"),
    ],
    ids=range(14),
)
def test_refusals(function, message):
    def result():
        found = function()
        return ops.sparse_matrix_nnz(found) if found.dtype == tf.variant else found

    with jax.enable_x64(True), pytest.raises(ValueError) as caught:
        converted(result)()
    assert message in str(caught.value) or "could not trace" in str(caught.value), str(caught.value)
