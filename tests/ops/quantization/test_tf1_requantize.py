"""Ranges of quantized tensors against TensorFlow: numbers and ranges equal, bit for bit."""

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


def numbers(size):
    found = (RNG.normal(size=300) * size).clip(-(2**31), 2**31 - 1).astype(np.int32)
    return np.concatenate([found, EXTREME if size > 1e6 else EXTREME[2:5]])


@pytest.mark.full
@pytest.mark.parametrize("ends", RANGES, ids=str)
@pytest.mark.parametrize("size", [50, 1e5, 1e9])
def test_own_range(size, ends):
    x = {"input": numbers(size), "input_min": F(ends[0]), "input_max": F(ends[1])}
    check_quantized("RequantizationRange", {"input": tf.qint32}, **x)
    check_quantized("QuantizeDownAndShrinkRange", {"input": tf.qint32}, **x, out_type=tf.quint8)


@pytest.mark.full
@pytest.mark.parametrize("ends", RANGES, ids=str)
@pytest.mark.parametrize("size", [50, 1e5, 1e9])
def test_requantize(size, ends):
    whole = (ends[1] - ends[0]) * size / 2**32
    for low, high in ((-whole, whole), (0, 2 * whole), (-3 * whole, 0), (-whole / 100, whole / 50), (0, 0)):
        check_quantized(
            "Requantize",
            {"input": tf.qint32},
            input=numbers(size),
            input_min=F(ends[0]),
            input_max=F(ends[1]),
            requested_output_min=F(low),
            requested_output_max=F(high),
            out_type=tf.quint8,
        )


def test_known_ranges_without_64_bits():
    """Where ranges are constants of the graph, the arithmetic is exact without JAX's 64-bit mode, too."""
    x = numbers(1e8)

    def narrow(x):
        out = tf.raw_ops.Requantize(
            input=tf.bitcast(x, tf.qint32),
            input_min=-300.0,
            input_max=300.0,
            requested_output_min=-20.0,
            requested_output_max=14.0,
            out_type=tf.quint8,
        )
        return tf.bitcast(out[0], tf.uint8)

    call = tf2jax.convert_functional(tf.function(narrow), x)
    np.testing.assert_array_equal(jax.jit(call)(x), narrow(x).numpy())


@pytest.mark.full
def test_refused():
    def narrow(x):
        out = tf.raw_ops.Requantize(
            input=tf.bitcast(x, tf.qint32),
            input_min=-1.0,
            input_max=1.0,
            requested_output_min=0.5,
            requested_output_max=1.0,
            out_type=tf.quint8,
        )
        return tf.bitcast(out[0], tf.uint8)

    x = numbers(50)
    with pytest.raises(tf2jax.errors.Tf2JaxError, match="requested_output_min must be <= 0"):
        tf2jax.convert_functional(tf.function(narrow), x)(x)
