"""Requantization of TF1's tensors, equal bit for bit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

from .harness import check_quantized

TESTED_OTHERWISE = {"QuantizeDownAndShrinkRange", "RequantizationRange", "Requantize"}
F = np.float32
RNG = np.random.default_rng(0)
RANGES = [(-1000.0, 1000.0), (-2e4, 3e4), (0.0, 5.0), (-1e-3, 1e-3), (-1e5, 2.0), (-70.0, 0.0)]
EXTREME = np.array([-(2**31), 2**31 - 1, 0, 1, -1, 2**24 + 1, -(2**24) - 1], np.int32)


def random_int32(scale):
    values = (RNG.normal(size=300) * scale).clip(-(2**31), 2**31 - 1).astype(np.int32)
    return np.concatenate([values, EXTREME if scale > 1e6 else EXTREME[2:5]])


@pytest.mark.full
@pytest.mark.parametrize("ends", RANGES, ids=str)
@pytest.mark.parametrize("size", [50, 1e5, 1e9])
def test_requantization_range(size, ends):
    x = {"input": random_int32(size), "input_min": F(ends[0]), "input_max": F(ends[1])}
    check_quantized("RequantizationRange", {"input": tf.qint32}, **x)
    check_quantized("QuantizeDownAndShrinkRange", {"input": tf.qint32}, **x, out_type=tf.quint8)


@pytest.mark.full
@pytest.mark.parametrize("ends", RANGES, ids=str)
@pytest.mark.parametrize("size", [50, 1e5, 1e9])
def test_requantize(size, ends):
    span = (ends[1] - ends[0]) * size / 2**32
    for low, high in ((-span, span), (0, 2 * span), (-3 * span, 0), (-span / 100, span / 50), (0, 0)):
        check_quantized(
            "Requantize",
            {"input": tf.qint32},
            input=random_int32(size),
            input_min=F(ends[0]),
            input_max=F(ends[1]),
            requested_output_min=F(low),
            requested_output_max=F(high),
            out_type=tf.quint8,
        )


def test_static_ranges_without_64_bits():
    """With constant ranges, arithmetic is exact without JAX's 64-bit mode, too."""
    x = random_int32(1e8)

    def requantize(x):
        out = tf.raw_ops.Requantize(
            input=tf.bitcast(x, tf.qint32),
            input_min=-300.0,
            input_max=300.0,
            requested_output_min=-20.0,
            requested_output_max=14.0,
            out_type=tf.quint8,
        )
        return tf.bitcast(out[0], tf.uint8)

    call = tf2jax.convert_functional(tf.function(requantize), x)
    np.testing.assert_array_equal(jax.jit(call)(x), requantize(x).numpy())


@pytest.mark.full
def test_invalid_arguments_raise():
    def requantize(x):
        out = tf.raw_ops.Requantize(
            input=tf.bitcast(x, tf.qint32),
            input_min=-1.0,
            input_max=1.0,
            requested_output_min=0.5,
            requested_output_max=1.0,
            out_type=tf.quint8,
        )
        return tf.bitcast(out[0], tf.uint8)

    x = random_int32(50)
    with pytest.raises(tf2jax.errors.Tf2JaxError, match="requested_output_min must be <= 0"):
        tf2jax.convert_functional(tf.function(requantize), x)(x)
