"""Resizing of quantized images against TensorFlow: equal, bit for bit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import OpError

from .harness import check_quantized, implementation

TESTED_OTHERWISE = {"QuantizedResizeBilinear"}
F = np.float32
RNG = np.random.default_rng(0)
SIZES = [[5, 9], [14, 13], [3, 3], [1, 1], [7, 6]]


@pytest.mark.full
@pytest.mark.parametrize("attrs", [{}, {"align_corners": True}, {"half_pixel_centers": True}], ids=str)
@pytest.mark.parametrize("limit", [256, 1000, 2**31], ids=["quint8", "small", "large"])
def test_integers(limit, attrs):
    if limit == 256:
        images, dtype = RNG.integers(0, 256, (2, 7, 6, 3)).astype(np.uint8), tf.quint8
    else:
        images, dtype = RNG.integers(-limit, limit, (2, 7, 6, 3)).astype(np.int32), tf.qint32
    for size in SIZES[: 2 if attrs else 5]:
        check_quantized(
            "QuantizedResizeBilinear", {"images": dtype}, images=images, size=size, min=F(-1), max=F(3), **attrs
        )


@pytest.mark.full
def test_floats():
    images = RNG.normal(size=(2, 7, 6, 3)).astype(F)
    check_quantized("QuantizedResizeBilinear", {}, rtol=1e-5, images=images, size=[5, 9], min=F(-1), max=F(3))


@pytest.mark.default_cases("1000")
@pytest.mark.parametrize("limit", [1000, 2**31])
def test_without_64_bits(limit):
    images = RNG.integers(-limit, limit, (2, 7, 6, 3)).astype(np.int32)

    def resize(x):
        out = tf.raw_ops.QuantizedResizeBilinear(
            images=tf.bitcast(x, tf.qint32), size=[14, 13], min=-1.0, max=3.0, half_pixel_centers=True
        )
        return tf.bitcast(out[0], tf.int32)

    found = np.asarray(jax.jit(tf2jax.convert_functional(tf.function(resize), images))(images)).astype(np.float64)
    np.testing.assert_allclose(found, resize(images).numpy(), rtol=0, atol=max(1, limit * 2.0**-22))


@pytest.mark.full
def test_invalid_arguments_raise():
    call = implementation("QuantizedResizeBilinear")
    with pytest.raises(OpError, match="int16"):
        call(np.zeros((1, 2, 2, 1), np.int16), np.array([3, 3]), F(0), F(1))
