"""Fake quantization and QuantizeAndDequantize, to the last bit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

X = np.random.default_rng(0).uniform(-7, 7, (40, 3)).astype(np.float32)
HARD = np.float32([np.nan, np.inf, -np.inf, -0.0, 1e9, -1e9, 0.3, -0.3])
F = np.float32
LOW, HIGH = F([-1, 0, -3]), F([2, 0, 1.5])
EXACT = {"rtol": 1e-6, "atol": 0.0}
QD2, QD3, QD4 = (f"QuantizeAndDequantizeV{i}" for i in (2, 3, 4))

CASES = [
    case("FakeQuantWithMinMaxArgs", X),
    case("FakeQuantWithMinMaxArgs", X, min=-0.1, max=5.3, num_bits=16),
    case("FakeQuantWithMinMaxArgs", X, min=1.0, max=2.0, num_bits=3, narrow_range=True),
    case("FakeQuantWithMinMaxArgs", HARD).using(name="hard values"),
    case("FakeQuantWithMinMaxArgs", X, min=2.0, max=1.0).using(error="smaller than max"),
    case("FakeQuantWithMinMaxArgs", X, num_bits=17).using(error="num_bits"),
    case("FakeQuantWithMinMaxArgsGradient", X, X[::-1], min=-2.0, max=3.0, num_bits=4),
    case("FakeQuantWithMinMaxVars", X, F(-1.3), F(3.1)),
    case("FakeQuantWithMinMaxVars", X, F(-1.3), F(3.1), num_bits=2, narrow_range=True),
    case("FakeQuantWithMinMaxVars", X, F(0), F(0)).using(name="no range"),
    case("FakeQuantWithMinMaxVars", HARD, F(-3), F(-2)).using(name="hard values"),
    case("FakeQuantWithMinMaxVars", np.zeros((0, 2), F), F(-1), F(1)),
    case("FakeQuantWithMinMaxVars", F(0.7), F(-1), F(1), num_bits=16),
    case("FakeQuantWithMinMaxVars", X, LOW, HIGH).using(error="min and max"),
    case("FakeQuantWithMinMaxVarsGradient", X, X[::-1], F(-1.3), F(3.1)),
    case("FakeQuantWithMinMaxVarsGradient", X, X[::-1], F(0), F(0)).using(name="no range"),
    case("FakeQuantWithMinMaxVarsPerChannel", X, LOW, HIGH),
    case("FakeQuantWithMinMaxVarsPerChannel", X.reshape(2, 4, 5, 3), LOW, HIGH, num_bits=5, narrow_range=True),
    case("FakeQuantWithMinMaxVarsPerChannel", X[0], LOW, HIGH),
    case("FakeQuantWithMinMaxVarsPerChannelGradient", X, X[::-1], LOW, HIGH),
    case("FakeQuantWithMinMaxVarsPerChannelGradient", X.reshape(8, 5, 3), X[::-1].reshape(8, 5, 3), LOW, HIGH),
    *(
        case(name, X.astype(d), np.asarray(-2.5, d), np.asarray(4.1, d), range_given=given, **attrs)
        for name, given, d, attrs in (
            (QD2, True, F, {}),
            (QD2, False, np.float64, {"signed_input": False}),
            (QD2, True, F, {"signed_input": False, "num_bits": 5}),
            (QD2, True, np.float64, {"num_bits": 40}),
            (QD2, False, F, {"round_mode": "HALF_UP", "narrow_range": True, "num_bits": 4}),
            (QD4, True, F, {"round_mode": "HALF_UP"}),
            (QD4, False, F, {"narrow_range": True}),
            (QD4, True, np.float64, {"signed_input": False, "num_bits": 62}),
        )
    ),
    # TensorFlow 2.21's kernels of V2 and V4 do not support a range together with an axis; V3's does.
    case(QD3, X, LOW, F([2, 0.5, 1.5]), np.int32(8), axis=1),
    case(QD3, X.reshape(4, 3, 10), LOW, F([2, 0.5, 1.5]), np.int32(8), axis=1, signed_input=False),
    case(QD2, X.reshape(3, 10, 4), LOW, HIGH, axis=0).using(name="axis without range"),
    case(QD4, X.reshape(4, 3, 10), LOW, HIGH, axis=1, round_mode="HALF_UP"),
    case(QD2, F([0.5, 1.5, 2.5, -0.5, -1.5]), F(-4), F(3), range_given=True, num_bits=3).using(name="ties to even"),
    case(QD2, F([0.5, 1.5, 2.5, -0.5, -1.5]), F(-4), F(3), range_given=True, num_bits=3, round_mode="HALF_UP").using(
        name="ties up"
    ),
    case(QD2, HARD, F(-1), F(2), range_given=True).using(name="hard values"),
    case(QD2, np.zeros(3, F), F(0), F(0)).using(name="zeros"),
    case(QD2, np.zeros((0, 3), F), F(0), F(0)),
    case(QD2, X, F(3), F(2), range_given=True).using(baked=("input_min", "input_max"), error="Invalid range"),
    case(QD2, X, LOW, HIGH, range_given=True).using(error="input_min"),
    case(QD2, X, F(3), F(2), num_bits=0).using(error="num_bits"),
    case(QD2, X, F(3), F(2), axis=2).using(error="axis 2"),
    case(QD3, X, F(-2.5), F(4.1), np.int32(6)),
    case(QD3, X, F(-2.5), F(4.1), np.int32(31), signed_input=False),
    case(QD3, X, F(-2.5), F(4.1), np.int32(6), narrow_range=True).using(baked=("num_bits",), name="baked"),
    case(QD3, X, LOW, F([2, 0.5, 1.5]), np.int32(7), axis=1, range_given=False),
    case("QuantizeAndDequantizeV4Grad", X, X[::-1], F(-2.5), F(4.1)),
    case("QuantizeAndDequantizeV4Grad", X, X[::-1], LOW, HIGH, axis=1),
]

CASES = [case if case.error else case.using(**EXACT, grad_rtol=1e-5) for case in CASES]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def _fake_quant(x, end):
    return tf.quantization.fake_quant_with_min_max_vars(x, -end, end)


def _per_channel(x, end):
    return tf.quantization.fake_quant_with_min_max_vars_per_channel(x, [-end] * 3, [end] * 3)


def _quantize_and_dequantize(x, end):
    return tf.quantization.quantize_and_dequantize_v2(x, -end, end, range_given=True)


def _dequantized(x, end):
    quantized = tf.quantization.quantize(x, -end, end, tf.qint8, mode="SCALED")[0]
    return tf.quantization.dequantize(quantized, -end, end, mode="SCALED")


def _uniform(x, end):
    limits = {"quantization_min_val": -127, "quantization_max_val": 127}
    quantized = tf.raw_ops.UniformQuantize(input=x, scales=end / 127, zero_points=0, Tout=tf.qint8, **limits)
    return tf.raw_ops.UniformDequantize(input=quantized, scales=end / 127, zero_points=0, Tout=tf.float32, **limits)


@pytest.mark.default_cases("_dequantized")
@pytest.mark.parametrize("quantized", [_fake_quant, _per_channel, _quantize_and_dequantize, _dequantized, _uniform])
def test_quantized_sums_under_jit_match_tensorflow(quantized):
    """Sums are often halfway between levels, where fused multiply-adds differ."""

    def fn(x, y):
        return quantized(quantized(x, 1.0) + quantized(y, 1.0), 2.0)

    x, y = (np.random.default_rng(i).uniform(-1, 1, (200, 3)).astype(F) for i in (0, 1))
    jax_fn = tf2jax.convert_functional(tf.function(fn), *[tf.TensorSpec([None, 3])] * 2)
    np.testing.assert_allclose(jax.jit(jax_fn)(x, y), fn(x, y), rtol=1e-6)
