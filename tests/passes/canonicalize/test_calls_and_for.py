"""Calls and loops by ops that are neither calls nor While."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import functional_ops

import tf2jax_lite as tf2jax

X = np.array([1.0, 2.0, -3.0], np.float32)


@pytest.mark.full
def test_batched_for_a_server():
    """With a captured variable, and one result of another type."""
    weight = tf.Variable([2.0, 0.5, 3.0])

    @tf.nondifferentiable_batch_function(1, 10, 1000)
    def batched(x, y):
        return x * weight, tf.cast(y, tf.int32)

    @tf.function(autograph=False)
    def fn(x, y):
        product, whole = batched(x, y)
        return tf.reduce_sum(product), whole + 1

    inputs = X[None], np.float32([[4.5]])
    call, params = tf2jax.convert(fn, *inputs)
    for found in (call(params, *inputs)[0], jax.jit(call)(params, *inputs)[0]):
        for a, e in zip(found, fn(*inputs), strict=True):
            np.testing.assert_allclose(a, e.numpy())
    gradient = jax.grad(lambda p: call(p, *inputs)[0][0])(params)
    np.testing.assert_allclose(next(iter(gradient.values())), X)


@function.Defun(tf.int32, tf.float32, tf.int32)
def body(i, value, count):
    return value * 1.5 + tf.cast(i, tf.float32), count + i


@pytest.mark.default_cases("2-9-3")
@pytest.mark.parametrize("start, limit, delta", [(0, 5, 1), (2, 9, 3), (9, 2, -2), (3, 3, 1)], ids=str)
def test_for(start, limit, delta):
    def fn(x, limit):
        first = functional_ops.For(start, limit, delta, [x, tf.constant(0)], body)
        second = functional_ops.For(start, limit, delta, [first[0], first[1]], body)
        return second[1], second[0]

    limit = np.int32(limit)
    expected = [v.numpy() for v in tf.function(fn, autograph=False)(X, limit)]
    call = tf2jax.convert_functional(tf.function(fn, autograph=False), X, limit)
    for found in (call(X, limit), jax.jit(call)(X, limit)):
        for a, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6)
    known = tf2jax.convert_functional(tf.function(lambda x: fn(x, int(limit)), autograph=False), X)
    np.testing.assert_allclose(jax.jit(known)(X)[1], expected[1], rtol=1e-6)
    gradient = jax.grad(lambda x: known(x)[1].sum())(X)
    np.testing.assert_allclose(gradient, np.full(3, 1.5) ** (2 * len(range(start, limit, delta))), rtol=1e-6)
