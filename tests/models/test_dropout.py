"""Keras layers that draw: seeds are variables, so numbers are TensorFlow's."""

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

LAYERS = {
    "Dropout": lambda: keras.layers.Dropout(0.4, seed=1),
    "GaussianNoise": lambda: keras.layers.GaussianNoise(0.5, seed=2),
    "GaussianDropout": lambda: keras.layers.GaussianDropout(0.3, seed=3),
    "AlphaDropout": lambda: keras.layers.AlphaDropout(0.3, seed=4),
    "SpatialDropout1D": lambda: keras.layers.SpatialDropout1D(0.5, seed=5),
}


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
def test_layers(x64):
    """Each of three training steps in one model draws new numbers, as TensorFlow."""
    layers = [make() for make in LAYERS.values()]
    x = np.linspace(1, 2, 2 * 5 * 3).astype(np.float32).reshape(2, 5, 3)

    @tf.function
    def fn(x):
        return [layer(x, training=True) for layer in layers]

    with jax.enable_x64(x64):
        jax_fn, params = tf2jax.convert(fn, tf.TensorSpec(x.shape))
        step, before = jax.jit(jax_fn), None
        for _ in range(3):
            actual, params = step(params, x)
            for name, a, e in zip(LAYERS, actual, fn(x), strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6, err_msg=name)
            assert before is None or not np.array_equal(before, actual[0])
            before = np.asarray(actual[0])
