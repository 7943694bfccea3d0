"""Quantized ops for oneDNN equal its recorded results bit for bit.

See testdata/make_onednn.py: one process cannot run these kernels and those of other tests.
"""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tf2jax_lite.errors import OpError, UnsupportedAttributeError

from .harness import PLAIN, implementation

DATA = np.load(Path(__file__).parent.parents[2] / "testdata" / "onednn.npz")
RECORDED = json.loads(str(DATA["cases"]))
CONCATENATIONS = [number for number, case in enumerate(RECORDED) if "parts" in case]
OPTIMIZED = [number for number, case in enumerate(RECORDED) if "optimized" in case]
TESTED_OTHERWISE = {case["op"] for case in RECORDED}
F = np.float32
RNG = np.random.default_rng(0)


def named(case):
    return f"{case['op']}-{RECORDED.index(case)}"


@pytest.mark.default_cases("62", "65")
@pytest.mark.parametrize("number", CONCATENATIONS)
def test_recorded_concatenation(number):
    case = RECORDED[number]
    op, ends = case["op"], {key: [F(v) for v in values] for key, values in case["attrs"].items()}
    call = jax.jit(
        lambda *values: implementation(op)(list(values), np.int32(1), **ends), compiler_options=fast_options()
    )
    found = call(*[DATA[f"{number}/{i}"] for i in range(case["parts"])])
    for i, actual in enumerate(found):
        expected = DATA[f"{number}/out_{i}"]
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        # oneDNN rounds the zero point of qint8 in an unknown way.
        np.testing.assert_allclose(np.asarray(actual, F), expected.astype(F), rtol=0, atol=expected.dtype == np.int8)


KERNELS = [number for number in range(len(RECORDED)) if number not in CONCATENATIONS + OPTIMIZED]


@pytest.mark.parametrize("number", OPTIMIZED, ids=[named(RECORDED[number]) for number in OPTIMIZED])
def test_recorded_optimized_graph(number):
    case = RECORDED[number]
    values = [DATA[f"{number}/{name}"] for name in case["optimized"]]
    fn = functools.partial(implementation(case["op"]), **case["attrs"])

    def call(*values):
        return fn(*values[:2], list(values[2:])) if "num_args" in case["attrs"] else fn(*values)

    expected = DATA[f"{number}/out_0"]
    found = jax.jit(call, compiler_options=fast_options())(*values)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.default_cases(
    "QuantizedDepthwiseConv2D-3_1", "QuantizedConv2DAndRequantize-40", "QuantizedMatMulWithBias-47"
)
@pytest.mark.parametrize("number", KERNELS, ids=[named(RECORDED[number]) for number in KERNELS])
def test_recorded(number):
    case = RECORDED[number]
    op, attrs, types, names = case["op"], case["attrs"], case["types"], case["inputs"]

    def call(*values):
        inputs = dict(zip(names, values, strict=True))
        inputs = {k: tf.bitcast(v, getattr(tf, types[k])) if k in types else v for k, v in inputs.items()}
        results = tf.nest.flatten(getattr(tf.raw_ops, op)(**inputs, **attrs))
        return [tf.bitcast(r, PLAIN[r.dtype]) if r.dtype in PLAIN else r for r in results]

    values = [DATA[f"{number}/{name}"] for name in names]
    converted = tf2jax.convert_functional(tf.function(call, autograph=False), *values)
    stacked = [np.stack([values[0], values[0][::-1]]), *(np.stack([v, v]) for v in values[1:])]
    program = jax.jit(lambda one, two: (converted(*one), jax.vmap(converted)(*two)), compiler_options=fast_options())
    both = program(values, stacked)
    for found in (both[0], [np.asarray(v)[0] for v in both[1]]):
        assert len(found) == case["outputs"]
        for i, actual in enumerate(found):
            expected = DATA[f"{number}/out_{i}"]
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
            rtol = 1e-6 if op.endswith("Dequantize") else 0
            np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol, atol=rtol)


@pytest.mark.default_cases("transposed0-MIN_FIRST")
@pytest.mark.parametrize("mode", ["MIN_FIRST", "SCALED"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_product_of_any_range(mode, transposed):
    """Against the represented floats' product; TensorFlow's is far off."""
    a, b = RNG.integers(0, 256, (5, 7)).astype(np.uint8), RNG.integers(-127, 128, (7, 4)).astype(np.int8)
    bias, low, high = RNG.normal(size=4).astype(F), F(-1.1), F(2.3)
    left = low + a * ((high - low) / 255) if mode == "MIN_FIRST" else a * (high / 255)
    expected = left @ (b * (F(1.2) / 127)) + bias
    a, b = (np.ascontiguousarray(v.T) if t else v for v, t in zip((a, b), transposed, strict=True))
    attrs = {"input_quant_mode": mode, "transpose_a": transposed[0], "transpose_b": transposed[1]}
    ends = (low, high, F(-0.9), F(1.2))
    call = implementation("QuantizedMatMulWithBiasAndDequantize")
    compiled = jax.jit(functools.partial(call, Toutput=F, **attrs), compiler_options=fast_options())
    found = compiled(a, b, bias, *ends, F(-8), F(9))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    requantizing = implementation("QuantizedMatMulWithBiasAndReluAndRequantize")
    compiled = jax.jit(functools.partial(requantizing, **attrs), compiler_options=fast_options())
    found = compiled(a, b, bias, *ends, F(-8), F(9))[0]
    np.testing.assert_allclose(np.asarray(found) * (9 / 255), expected.clip(0, 9), atol=4.6 / 255)


@pytest.mark.full
def test_invalid_arguments_raise():
    call = implementation("QuantizedConv2DWithBias")
    x, kernel, bias = np.zeros((1, 4, 4, 3), np.uint8), np.zeros((2, 2, 3, 5), np.int8), np.zeros(5, F)
    ends, attrs = (F(0), F(1), F(-1), F(1)), {"strides": [1, 1, 1, 1], "padding": "SAME"}
    for arguments, changes, error, said in (
        ((x.astype(np.int16), kernel, bias, *ends), {}, OpError, "int16"),
        ((x, kernel[:, :, :2], bias, *ends), {}, OpError, "images and a filter"),
        ((x, kernel, bias[:2], *ends), {}, OpError, "does not fit 5 channels"),
        ((x, kernel, bias, F(0), F(1), -np.ones(3, F), np.ones(3, F)), {}, OpError, "3 ranges do not fit 5"),
        ((x, kernel, bias, *ends), {"strides": [2, 1, 1, 1]}, UnsupportedAttributeError, "strides"),
        ((x, kernel, bias, *ends), {"out_type": np.uint8}, OpError, "qint32"),
    ):
        with pytest.raises(error, match=said):
            call(*arguments, **attrs | changes)
    multiply = implementation("QuantizedMatMulWithBias")
    with pytest.raises(OpError, match="two matrices"):
        multiply(x[0, :, :, 0], kernel[0, 0], bias, *ends)
    with pytest.raises(UnsupportedAttributeError, match="neither"):
        multiply(x[0, 0], kernel[0, 0], bias, *ends, input_quant_mode="OTHER")
