"""Softmax over an axis that TensorFlow transposes: it works in place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError

X = np.random.default_rng(0).normal(size=(3, 4, 5, 2)).astype(np.float32)


def around(fn, first, last):
    return lambda x: tf.transpose(fn(tf.transpose(x, first)), last)


def both_read(x):
    transposed = tf.transpose(x, [0, 3, 2, 1])
    soft = tf.nn.softmax(transposed)
    return tf.transpose(soft, [0, 3, 2, 1]), soft, transposed


def twice(x):
    return tf.nn.softmax(tf.nn.log_softmax(x, axis=1), axis=2)


def between(x):
    """Return a value whose middle transpose ends one triple and starts another."""
    soft = tf.nn.softmax(tf.transpose(x, [2, 0, 1, 3]))
    return tf.transpose(tf.nn.softmax(tf.transpose(soft, [3, 1, 0, 2])), [1, 2, 3, 0])


def in_a_loop(x):
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.nn.softmax(x, axis=1)), [0, x])[1]


# What stays of transpositions in the jaxpr.
CASES = {
    "softmax": (lambda x: tf.nn.softmax(x, axis=1), 0),
    "log_softmax": (lambda x: tf.nn.log_softmax(x, axis=0), 0),
    "last axis": (tf.nn.softmax, 0),
    "few behind": (lambda x: tf.nn.softmax(x, axis=2), 2),
    "layer": (lambda x: tf.keras.layers.Softmax(axis=1)(x), 0),
    "elsewhere": (around(tf.nn.softmax, [2, 3, 1, 0], [1, 0, 2, 3]), 1),
    "negative": (around(tf.nn.softmax, [-4, -1, -2, -3], [0, 3, 2, 1]), 0),
    "last axis stays": (around(tf.nn.softmax, [1, 0, 2, 3], [1, 0, 2, 3]), 0),
    "another op": (around(tf.nn.relu, [1, 0, 2, 3], [1, 0, 2, 3]), 2),
    "both read": (both_read, 2),
    "twice": (twice, 2),
    "between": (between, 2),
    "a loop": (in_a_loop, 0),
}


@pytest.mark.full
@pytest.mark.parametrize("function, left", CASES.values(), ids=CASES)
def test_results(function, left):
    graph = tf.function(function, autograph=False)
    converted = tf2jax.convert_functional(graph, tf.constant(X))
    expected = tf.nest.flatten(graph(X))
    for call in (
        converted,
        jax.jit(converted),
        lambda x: jax.tree.map(lambda v: v[1], jax.vmap(converted)(np.stack([-x, x]))),
    ):
        for actual, wanted in zip(jax.tree.leaves(call(X)), expected, strict=True):
            np.testing.assert_allclose(actual, wanted.numpy(), rtol=2e-6, atol=1e-7)
    assert str(jax.make_jaxpr(converted)(X)).count(" transpose[") == left


# TensorFlow has no gradient of a transposition by negative numbers.
@pytest.mark.default_cases("another op")
@pytest.mark.parametrize("name", [name for name in CASES if name != "negative"])
def test_gradients(name):
    function, _ = CASES[name]

    def squares(results):
        return sum(tf.reduce_sum(v**3) for v in tf.nest.flatten(results))

    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total: Any = squares(function(x))
    expected = tape.gradient(total, x)
    converted = tf2jax.convert_functional(tf.function(function, autograph=False), x)
    actual = jax.jit(jax.grad(lambda x: sum(jnp.sum(v**3) for v in jax.tree.leaves(converted(x)))))(X)
    np.testing.assert_allclose(actual, expected.numpy(), rtol=2e-5, atol=1e-5)


@pytest.mark.full
def test_a_gradient_in_the_graph():
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.nn.softmax(x, axis=1) ** 3)
        return tape.gradient(total, x)

    graph = tf.function(function, autograph=False)
    converted = tf2jax.convert_functional(graph, tf.constant(X))
    np.testing.assert_allclose(jax.jit(converted)(X), graph(X).numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64], ids=lambda d: d.name)
def test_dtypes(dtype):
    graph = tf.function(lambda x: tf.nn.softmax(x, axis=1), autograph=False)
    x = tf.cast(X, dtype)
    with jax.enable_x64(True):
        converted = tf2jax.convert_functional(graph, x)
        actual = jax.jit(converted)(x.numpy())
    assert actual.dtype == dtype.as_numpy_dtype
    tolerance = 4 * float(jnp.finfo(dtype.as_numpy_dtype).eps)
    np.testing.assert_allclose(np.float64(actual), np.float64(graph(x).numpy()), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 1, 3), (1, 2, 1)], ids=str)
def test_edges(shape):
    graph = tf.function(lambda x: tf.nn.softmax(x, axis=1), autograph=False)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec((None, None, None)))
    np.testing.assert_allclose(jax.jit(converted)(x), graph(x).numpy(), rtol=1e-6)


@pytest.mark.full
def test_symbolic_sizes():
    converted = tf2jax.convert_functional(
        tf.function(lambda x: tf.nn.softmax(x, axis=1), autograph=False), tf.TensorSpec((None, None, None, None))
    )
    sizes = jax.export.symbolic_shape("a, b, c, d")
    exported = jax.export.export(jax.jit(converted))(jax.ShapeDtypeStruct(sizes, np.float32))
    np.testing.assert_allclose(exported.call(X), tf.nn.softmax(X, axis=1).numpy(), rtol=1e-6)


@pytest.mark.full
def test_an_override_is_called():
    seen = []

    def softmax(logits):
        seen.append(logits.shape)
        return jax.nn.softmax(logits, axis=-1)

    graph = tf.function(lambda x: tf.nn.softmax(x, axis=1), autograph=False)
    with tf2jax.override_op("Softmax", softmax):
        converted = tf2jax.convert_functional(graph, tf.constant(X))
    np.testing.assert_allclose(jax.jit(converted)(X), graph(X).numpy(), rtol=1e-6)
    assert seen == [(3, 2, 5, 4)]


@pytest.mark.full
def test_permutations_that_are_data():
    graph = tf.function(
        lambda x, p, q: tf.transpose(tf.nn.softmax(tf.transpose(x, p)), q),
        autograph=False,
    )
    first, last = np.array([0, 3, 2, 1], np.int32), np.array([1, 0, 3, 2], np.int32)
    converted = tf2jax.convert_functional(graph, X, first, last)
    np.testing.assert_allclose(converted(X, first, last), graph(X, first, last).numpy(), rtol=1e-6)
    with pytest.raises(Tf2JaxError, match="known while tracing"):
        jax.jit(converted)(X, first, last)
    with pytest.raises(Tf2JaxError, match="known while tracing"):
        jax.jit(lambda x, q: converted(x, first, q))(X, last)
    with pytest.raises(Tf2JaxError, match="permutation"):
        converted(X, first, np.array([1, 1, 3, 2], np.int32))
    with pytest.raises(Tf2JaxError, match="permutation"):
        converted(X, np.array([1, 1, 3, 2], np.int32), last)
