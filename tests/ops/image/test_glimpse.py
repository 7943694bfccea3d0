"""Glimpses: equal without noise, in the image's range with noise."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import f32

TESTED_OTHERWISE = {"ExtractGlimpse", "ExtractGlimpseV2"}
IMAGES = np.random.default_rng(0).uniform(size=(2, 5, 6, 3)).astype(np.float32)


def glimpses(name, window, **attrs):
    @tf.function(autograph=False)
    def function(images, offsets):
        op = getattr(tf.raw_ops, name)
        return op(input=images, size=window, offsets=offsets, uniform_noise=False, **attrs)

    offsets = f32([[0.4, -0.6], [-3.2, 0.9]])
    converted = tf2jax.convert_functional(function, IMAGES, offsets)
    return np.asarray(function(IMAGES, offsets)), np.asarray(converted(IMAGES, offsets, rng=jax.random.PRNGKey(0)))


@pytest.mark.default_cases("True-True-window1-ExtractGlimpseV2")
@pytest.mark.parametrize("name", sorted(TESTED_OTHERWISE))
@pytest.mark.parametrize("window", [(3, 2), (7, 3), (9, 9)])
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_glimpse(name, window, centered, normalized):
    expected, actual = glimpses(name, window, centered=centered, normalized=normalized, noise="zero")
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.full
@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_noise_is_within_the_range_of_the_image(noise):
    @tf.function(autograph=False)
    def function(images, offsets):
        return tf.raw_ops.ExtractGlimpseV2(
            input=images, size=(7, 9), offsets=offsets, uniform_noise=noise == "uniform", noise=noise
        )

    converted = tf2jax.convert_functional(function, IMAGES, f32([[0, 0], [0, 0]]))
    actual = np.asarray(converted(IMAGES, f32([[0, 0], [0, 0]]), rng=jax.random.PRNGKey(0)))
    np.testing.assert_array_equal(actual[:, 1:6, 1:7], IMAGES)
    assert actual.min() >= IMAGES.min() and actual.max() <= IMAGES.max()
    assert actual[:, 0].std() > 0.1
