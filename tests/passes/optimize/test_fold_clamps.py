"""Clamps with one value left are static, though their operand is not."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError

VALUES = np.array([3, 0, 3, 7, 2, 9, 40], np.int32)


def bins(limit):
    return lambda x: tf.math.bincount(x, minlength=limit, maxlength=limit)


@pytest.mark.full
@pytest.mark.parametrize(
    "function",
    [
        bins(8),
        lambda x: tf.math.bincount(x, minlength=12, maxlength=8),  # the larger least length gives way
        lambda x: tf.math.bincount(tf.reshape(x[:6], [2, 3]), minlength=8, maxlength=8, axis=-1, binary_output=True),
        lambda x: tf.range(tf.maximum(5, tf.minimum(tf.reduce_max(x), 5))),
        lambda x: tf.zeros(tf.minimum(tf.maximum(tf.reduce_max(x), tf.constant(4)), 3)),
        lambda x: tf.math.bincount(tf.clip_by_value(x, 0, 7), minlength=8),
        lambda x: tf.zeros(
            tf.maximum(6, tf.reduce_max(tf.clip_by_value(x[::2], -2, 2) * 3 - tf.clip_by_value(x[:4], 0, 5)))
        ),
        lambda x: tf.range(tf.minimum(3, tf.where(x > 4, 5, 3)[0])),
        lambda x: tf.range(tf.maximum(2, tf.cast(x[0] > 2, tf.int32) + tf.cast(x[1] > 2, tf.int32))),
        lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: bins(8)(x), lambda: bins(8)(x[1:])),
    ],
    ids=[
        *("bincount", "longer", "rows", "range", "other way", "clipped before", "arithmetic", "chosen", "of booleans"),
        "in a branch",
    ],
)
def test_sizes_are_known(function):
    graph = tf.function(function, autograph=False)
    expected = graph(VALUES).numpy()
    converted = tf2jax.convert_functional(graph, tf.TensorSpec(VALUES.shape, VALUES.dtype))
    for call in (converted, jax.jit(converted), lambda x: jax.vmap(converted)(x[None])[0]):
        actual = np.asarray(call(VALUES))
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.full
def test_keras_category_encoding():
    layer = tf.keras.layers.CategoryEncoding(num_tokens=10, output_mode="multi_hot")
    tokens = np.array([[1, 2, 2], [9, 0, 3]], np.int32)
    converted = tf2jax.convert_functional(tf.function(layer, autograph=False), tf.TensorSpec((2, 3), tf.int32))
    np.testing.assert_array_equal(jax.jit(converted)(tokens), layer(tokens).numpy())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.range(tf.maximum(8, tf.reduce_max(tf.clip_by_value(x, 0, 9)))),
        lambda x: tf.range(tf.minimum(8, tf.reduce_max(tf.clip_by_value(x, 8, 9)))),  # of nothing it would be less
        lambda x: tf.range(tf.maximum(8, tf.cast(tf.cast(x[0], tf.float32), tf.int32))),
        lambda x: tf.range(tf.maximum(8, tf.clip_by_value(x[0], 0, 2**30) * 4)),  # which overflows
    ],
    ids=["too large", "of nothing", "of floats", "overflow"],
)
def test_unbounded_clamps_stay_unchanged(function):
    converted = tf2jax.convert_functional(tf.function(function, autograph=False), tf.TensorSpec([None], tf.int32))
    with pytest.raises(Tf2JaxError):
        jax.jit(converted)(VALUES)


@pytest.mark.full
def test_keras_equalization():
    layer = tf.keras.layers.Equalization()
    images = np.random.default_rng(3).integers(0, 256, (2, 8, 8, 3)).astype(np.float32)
    converted = tf2jax.convert_functional(tf.function(layer, autograph=False), tf.TensorSpec((2, 8, 8, 3), tf.float32))
    # Without 64 bits the table's quotients are float32's: what lies at a half may be rounded the other way.
    assert np.max(np.abs(jax.jit(converted)(images) - layer(images).numpy())) <= 1


def test_folded_clamps_keep_the_shape():
    graph = tf.function(lambda x: tf.minimum(4, tf.maximum(x, 4)), autograph=False)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec((None,), tf.int32))
    np.testing.assert_array_equal(jax.jit(converted)(VALUES), graph(VALUES).numpy())


@pytest.mark.full
def test_float_clamps_stay_unchanged():
    graph = tf.function(lambda x: tf.minimum(4.0, tf.maximum(x, 4.0)), autograph=False)
    x = np.array([1, np.nan, 7], np.float32)
    np.testing.assert_array_equal(jax.jit(tf2jax.convert_functional(graph, x))(x), graph(x).numpy())


@pytest.mark.full
def test_clamp_without_integer_range_stays_unchanged():
    graph = tf.function(lambda x: tf.math.bincount(x, minlength=4, maxlength=8), autograph=False)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec(VALUES.shape, VALUES.dtype))
    with pytest.raises(Tf2JaxError, match="dynamic_shape_bound"):
        jax.jit(converted)(VALUES)
