"""Clamps that leave one value: known while tracing, although what is clamped is data."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError

VALUES = np.array([3, 0, 3, 7, 2, 9, 40], np.int32)


def bins(limit):
    return lambda x: tf.math.bincount(x, minlength=limit, maxlength=limit)


@pytest.mark.parametrize(
    "function",
    [
        bins(8),
        lambda x: tf.math.bincount(x, minlength=12, maxlength=8),  # the larger least length gives way
        lambda x: tf.math.bincount(tf.reshape(x[:6], [2, 3]), minlength=8, maxlength=8, axis=-1, binary_output=True),
        lambda x: tf.range(tf.maximum(5, tf.minimum(tf.reduce_max(x), 5))),
        lambda x: tf.zeros(tf.minimum(tf.maximum(tf.reduce_max(x), tf.constant(4)), 3)),
        lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: bins(8)(x), lambda: bins(8)(x[1:])),
    ],
    ids=["bincount", "longer", "rows", "range", "other way", "in a branch"],
)
def test_sizes_are_known(function):
    graph = tf.function(function, autograph=False)
    expected = graph(VALUES).numpy()
    converted = tf2jax.convert_functional(graph, tf.TensorSpec(VALUES.shape, VALUES.dtype))
    for call in (converted, jax.jit(converted), lambda x: jax.vmap(converted)(x[None])[0]):
        actual = np.asarray(call(VALUES))
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


def test_keras_category_encoding():
    layer = tf.keras.layers.CategoryEncoding(num_tokens=10, output_mode="multi_hot")
    tokens = np.array([[1, 2, 2], [9, 0, 3]], np.int32)
    converted = tf2jax.convert_functional(tf.function(layer, autograph=False), tf.TensorSpec((2, 3), tf.int32))
    np.testing.assert_array_equal(jax.jit(converted)(tokens), layer(tokens).numpy())


def test_what_is_clamped_keeps_its_shape():
    graph = tf.function(lambda x: tf.minimum(4, tf.maximum(x, 4)), autograph=False)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec((None,), tf.int32))
    np.testing.assert_array_equal(jax.jit(converted)(VALUES), graph(VALUES).numpy())


def test_floating_numbers_may_be_nan():
    graph = tf.function(lambda x: tf.minimum(4.0, tf.maximum(x, 4.0)), autograph=False)
    x = np.array([1, np.nan, 7], np.float32)
    np.testing.assert_array_equal(jax.jit(tf2jax.convert_functional(graph, x))(x), graph(x).numpy())


def test_an_open_clamp_stays_open():
    graph = tf.function(lambda x: tf.math.bincount(x, minlength=4, maxlength=8), autograph=False)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec(VALUES.shape, VALUES.dtype))
    with pytest.raises(Tf2JaxError, match="dynamic_shape_bound"):
        jax.jit(converted)(VALUES)
