"""Sparse matrices of TensorFlow, and comparison of functions of them.

Each matrix is used once, as TensorFlow on CPU cannot add up the gradients of several uses.
"""

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from tensorflow.python.ops.linalg.sparse import sparse_csr_matrix_ops as ops

from tests._support import converted
from tests.compiling import fast_options

__all__ = [
    "DTYPES",
    "SHAPES",
    "check",
    "converted",
    "dense",
    "entries",
    "made",
    "matrix",
    "ops",
    "pattern",
    "random",
    "refused",
]

DTYPES = ["float32", "float64", "complex64", "complex128"]
SHAPES = [(3, 4), (2, 3, 4)]


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


def close(actual, expected):
    tolerance = 1e-4 if actual.dtype in (np.float32, np.complex64) else 1e-10
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    assert np.shape(actual) == tuple(expected.shape)


def check(function, *args, reference=None, jit=True, differentiable=True):
    """Compare values and all floating arguments' gradients."""
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

    grads = tf.function(gradients, autograph=False)(*map(tf.constant, args)) if differentiable and inexact else None
    jax_fn = converted(function, *args)

    def both(*args):
        def chosen(*values):
            given = list(args)
            for i, value in zip(by, values, strict=True):
                given[i] = value
            found = jax.tree.leaves(jax_fn(*given))
            return [found[i] for i in inexact], found

        if grads is None:
            return jax.tree.leaves(jax_fn(*args)), []
        _, backward, results = jax.vjp(chosen, *(args[i] for i in by), has_aux=True)
        return results, backward([jnp.conj(u) for u in upstream])

    for run in (both, jax.jit(both, compiler_options=fast_options()))[: 1 + jit]:
        results, found = run(*args)
        for e, a in zip(expected, results, strict=True):
            close(a, e)
            assert a.dtype == e.dtype.as_numpy_dtype
        if grads is not None:
            for e, a in zip(grads, found, strict=True):
                close(jnp.conj(a), e)


def made(at, shape=(3, 4), dtype=tf.float32):
    return matrix(np.array(at, np.int64), tf.ones([len(at)], dtype), shape)


def refused(function, message):
    """Check that a function of no arguments raises an error with a message."""

    def result():
        found = function()
        return ops.sparse_matrix_nnz(found) if found.dtype == tf.variant else found

    with jax.enable_x64(True):
        try:
            converted(result)()
        except ValueError as error:
            assert message in str(error) or "could not trace" in str(error), str(error)
            return
    raise AssertionError(f"no error, though one with {message!r} is expected")
