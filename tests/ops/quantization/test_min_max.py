"""Dequantize and QuantizeV2 against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry

from .harness import PLAIN, check_quantized

TESTED_OTHERWISE = ("Dequantize", "QuantizeV2")
F = np.float32
RNG = np.random.default_rng(0)
RANGE = F(-1.3), F(2.7)
RANGES = F([-1.3, -5, -1]), F([2.7, 1, 1])


def _values(qtype):
    info = np.iinfo(PLAIN[qtype].as_numpy_dtype)
    values = RNG.integers(info.min, info.max, (7, 3), endpoint=True)
    values[0] = info.min, info.max, info.max // 2
    return values.astype(info.dtype)


@pytest.mark.default_cases("<dtype: 'qint32'>-{'mode': 'MIN_COMBINED'}")
@pytest.mark.parametrize(
    ("qtype", "attrs"),
    [
        *((q, {"mode": "MIN_COMBINED"}) for q in PLAIN),
        *((q, {"mode": "MIN_FIRST"}) for q in PLAIN),
        *((q, {"mode": "SCALED", "axis": 1}) for q in PLAIN),
        (tf.qint8, {"mode": "SCALED", "narrow_range": True}),
        (tf.quint8, {"mode": "MIN_COMBINED", "axis": 1, "dtype": tf.bfloat16}),
    ],
    ids=str,
)
def test_dequantize(qtype, attrs):
    low, high = RANGES if "axis" in attrs else RANGE
    check_quantized("Dequantize", {"input": qtype}, input=_values(qtype), min_range=low, max_range=high, **attrs)


@pytest.mark.default_cases("size0")
@pytest.mark.parametrize("size", [(0, 2), ()])
def test_dequantize_scalar_and_empty(size):
    values = np.full(size, 7, np.int8)
    check_quantized("Dequantize", {"input": tf.qint8}, input=values, min_range=F(2), max_range=F(2), mode="MIN_FIRST")


@pytest.mark.default_cases("<dtype: 'quint8'>-{'mode': 'MIN_FIRST'}")
@pytest.mark.parametrize(
    ("qtype", "attrs"),
    [
        *((q, {"mode": "MIN_COMBINED"}) for q in PLAIN),
        *((q, {"mode": "MIN_FIRST"}) for q in PLAIN),
        *((q, {"mode": "SCALED", "axis": 1}) for q in (tf.qint8, tf.quint8, tf.qint16, tf.quint16)),
        (tf.qint8, {"mode": "SCALED", "round_mode": "HALF_TO_EVEN", "narrow_range": True}),
        (tf.qint8, {"mode": "MIN_COMBINED", "axis": 1, "ensure_minimum_range": 3.0}),
    ],
    ids=str,
)
def test_quantize(qtype, attrs):
    values = RNG.uniform(-4, 2.6, (20, 3)).astype(F)
    # TensorFlow's 32-bit result overflows at the ends of the range.
    values[0] = 0, 0 if qtype is tf.qint32 else 1e9, -1e9
    low, high = RANGES if "axis" in attrs else RANGE
    check_quantized("QuantizeV2", {}, input=values, min_range=low, max_range=high, T=qtype, **attrs)


@pytest.mark.default_cases("0-0")
@pytest.mark.parametrize(("low", "high"), [(1, 2), (-3, -2), (0, 0)])
def test_quantize_extends_the_range_to_zero(low, high):
    values = RNG.uniform(-4, 4, 9).astype(F)
    check_quantized("QuantizeV2", {}, input=values, min_range=F(low), max_range=F(high), T=tf.qint16)


def test_invalid_ranges_raise():
    quantize, dequantize = (registry.lookup(name).fn for name in TESTED_OTHERWISE[::-1])
    with pytest.raises(OpError, match="larger"):
        quantize(np.zeros(3, F), F(2), F(1), T=np.dtype("int8"))
    with pytest.raises(OpError, match="needs 3"):
        dequantize(np.zeros((2, 3), np.int8), F(1), F(2), axis=1)
    with pytest.raises(OpError, match="MIN_FIRST"):
        dequantize(np.zeros((2, 3), np.int8), *RANGES, axis=1, mode="MIN_FIRST")
