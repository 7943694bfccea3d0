"""Loops over a dimension of unknown size are scans with derivatives."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.export.codegen.test_source import imported, nested, written
from tests.models import builders

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
ROWS = tf.TensorSpec([None, 3])


def mapped(x):
    return tf.map_fn(lambda row: tf.tanh(row) * row, x)


def scanned(x):
    return tf.scan(lambda total, row: tf.sin(total) + row, x, initializer=tf.zeros([3]))


def scanned_from_the_first(x):
    return tf.scan(lambda total, row: tf.sin(total) + row, x)


def counted(x):
    total = tf.zeros([3])
    for i in tf.range(tf.shape(x)[0]):
        total = tf.sin(total) + x[i] * tf.cast(i, tf.float32)
    return total


def backwards(x):
    count = tf.shape(x)[0]
    rows = tf.TensorArray(tf.float32, count, element_shape=[3])

    def body(i, total, rows):
        total = tf.sin(total) + x[i]
        return i - 1, total, rows.write(i, total)

    return tf.while_loop(lambda i, *_: i >= 0, body, (count - 1, tf.zeros([3]), rows))[2].stack()


def steps_of_two(x):
    count, total = tf.shape(x)[0], tf.zeros([3])
    _, total = tf.while_loop(
        lambda i, total: i < count, lambda i, total: (i + 2, tf.sin(total) + x[i]), (tf.constant(0), total)
    )
    return total


def fewer_rows(x):
    def body(i, total):
        return i + 1, tf.sin(total) + x[i]

    return tf.while_loop(lambda i, total: i < tf.shape(x)[0] - 1, body, (tf.constant(0), tf.ones([3])))


def in_a_loop(x):
    def inner(row):
        return tf.scan(lambda total, value: tf.sin(total) + value, x[:, 0] * row[0], initializer=tf.zeros([]))[-1]

    return tf.map_fn(inner, x)


FUNCTIONS = (mapped, scanned, scanned_from_the_first, counted, backwards, steps_of_two, fewer_rows, in_a_loop)


def compared(converted, arrays, folder):
    """Check source against the converted function, with gradients; return its text."""
    fn, params = converted
    text, constants = written(fn, params)
    model = imported(text, folder / "model.py").model
    inexact = {k: jnp.asarray(v) for k, v in params.items() if jnp.issubdtype(v.dtype, jnp.inexact)}

    def loss(call, weights, x):
        leaves = jax.tree.leaves(call({**params, **constants, **weights}, x))
        return sum(jnp.sum(jnp.sin(v)) for v in leaves if jnp.issubdtype(v.dtype, jnp.inexact))

    def ours(weights, x):
        return model(tf2jax.nest_params(weights), x)[0]

    for x in arrays:
        expected, found = fn(params, x)[0], jax.jit(model)(nested(params, constants), x)[0]
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=2e-5, atol=2e-5), expected, found)
        argnums = (0, 1) if jnp.issubdtype(x.dtype, jnp.inexact) else 0
        grads = [
            jax.jit(jax.grad(lambda w, x, call=call: loss(call, w, x), argnums))(inexact, x)
            for call in (lambda w, x: fn(w, x)[0], ours)
        ]
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4), *grads)
    return text


@pytest.mark.default_cases("counted", "scanned")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_loop_over_a_dimension_is_a_scan(function, tmp_path):
    converted = tf2jax.convert(tf.function(function, autograph=True), ROWS)
    text = compared(converted, (X, X[:1]) if function is not fewer_rows else (X, X[:2]), tmp_path)
    assert "lax.scan(" in text and "while_loop" not in text and "Gradients:" not in text


@pytest.mark.full
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_are_scans(kind, tmp_path):
    model, x = builders.recurrent(keras, kind, bidirectional=True, stacked=True)
    function = tf.function(lambda inputs: model(inputs, training=False))
    text = compared(tf2jax.convert(function, tf.TensorSpec([None, None], tf.int32)), (x, x[:, :4]), tmp_path)
    assert text.count("lax.scan(") == 2 and "reverse=reverse)" in text and "while_loop" not in text


def test_data_dependent_loop_says_so(tmp_path):
    def function(x):
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 100.0, lambda x: (2.0 * x,), (x,))

    text, _ = written(*tf2jax.convert(tf.function(function), ROWS))
    assert "lax.while_loop(" in text and "Gradients: forward mode only" in text
