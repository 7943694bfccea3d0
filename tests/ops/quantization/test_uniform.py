"""Uniform quantization against TensorFlow: results equal, bit for bit."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util.quantization import uniform_quant_ops_attr_pb2

from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.quantization import uniform

from .harness import PLAIN, check_quantized

TESTED_OTHERWISE = (
    "UniformQuantize",
    "UniformDequantize",
    "UniformRequantize",
    "UniformQuantizedAdd",
    "UniformQuantizedClipByValue",
    "UniformQuantizedDot",
    "UniformQuantizedDotHybrid",
    "UniformQuantizedConvolution",
    "UniformQuantizedConvolutionHybrid",
)
F, I32 = np.float32, np.int32
RNG = np.random.default_rng(0)
Q8, Q32 = tf.qint8, tf.qint32


def _limits(qtype, *names):
    info = np.iinfo(PLAIN[qtype].as_numpy_dtype)
    out = {}
    for name in names:
        out |= {f"{name}quantization_min_val": int(info.min), f"{name}quantization_max_val": int(info.max)}
    return out


def _integers(qtype, shape, size=None):
    info = np.iinfo(PLAIN[qtype].as_numpy_dtype)
    low, high = (info.min, info.max) if size is None else (-size, size)
    return RNG.integers(low, high, shape, endpoint=True).astype(info.dtype)


def _quantization(name, axis, count):
    """Return scales, zero points and the axis of one operand."""
    shape = () if axis < 0 else (count,)
    scales = np.asarray(RNG.uniform(0.01, 0.4, shape), F)
    zeros = np.asarray(RNG.integers(-9, 9, shape), I32)
    return {f"{name}scales": scales, f"{name}zero_points": zeros, f"{name}quantization_axis": axis}


@pytest.mark.default_cases("qtype2-0")
@pytest.mark.parametrize(("qtype", "axis"), [(tf.qint8, -1), (tf.quint8, 1), (tf.qint32, 0)])
def test_quantize_and_back(qtype, axis):
    shape = (5, 3, 4)
    arguments = {**_quantization("", axis, shape[axis]), **_limits(qtype, "")}
    values = RNG.uniform(-9, 9, shape).astype(F)
    values[0, 0] = 1e9, -1e9, np.nan, np.inf
    check_quantized("UniformQuantize", {}, input=values, Tout=qtype, **arguments)
    # TensorFlow converts qint32 to float32 first, and loses the last bits beyond 2**24.
    integers = _integers(qtype, shape, 2**24 - 20 if qtype is tf.qint32 else None)
    check_quantized("UniformDequantize", {"input": qtype}, input=integers, Tout=tf.float32, **arguments)


@pytest.mark.full
def test_halves_round_up_and_bounds_clamp():
    values = F([0.5, 1.5, -0.5, -1.5, 2.5, 9, -9])
    bounds = {"quantization_min_val": -3, "quantization_max_val": 2}
    check_quantized("UniformQuantize", {}, input=values, scales=F(1), zero_points=I32(0), Tout=Q8, **bounds)


@pytest.mark.default_cases("source2-target2-axes2")
@pytest.mark.parametrize(
    ("source", "target", "axes"),
    # TensorFlow's CPU kernels do not return qint32.
    [(Q8, Q8, (-1, -1)), (Q32, Q8, (1, -1)), (Q8, Q8, (-1, 1)), (Q32, Q8, (0, 0))],
)
def test_requantize(source, target, axes):
    shape = (6, 4)
    check_quantized(
        "UniformRequantize",
        {"input": source},
        input=_integers(source, shape, None if source is Q8 else 2000),
        Tout=target,
        **_quantization("input_", axes[0], shape[axes[0]]),
        **_quantization("output_", axes[1], shape[axes[1]]),
        **_limits(source, "input_"),
        **_limits(target, "output_"),
    )


@pytest.mark.default_cases("shapes1-axes1")
@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        (((3, 4), (3, 4)), (-1, -1, -1)),
        (((3, 4), (4,)), (1, 0, 1)),
        (((2, 3, 1), (3, 4)), (-1, -1, -1)),
        (((2, 3), ()), (0, -1, -1)),
    ],
)
def test_add(shapes, axes):
    lhs, rhs = (_integers(Q32, shape, 100000) for shape in shapes)
    out = np.broadcast_shapes(*shapes)
    check_quantized(
        "UniformQuantizedAdd",
        {"lhs": Q32, "rhs": Q32},
        lhs=lhs,
        rhs=rhs,
        **_quantization("lhs_", axes[0], lhs.shape[axes[0]]),
        **_quantization("rhs_", axes[1], rhs.shape[axes[1]] if rhs.ndim else 0),
        **_quantization("output_", axes[2], out[axes[2]]),
        **_limits(Q32, "lhs_", "rhs_"),
        output_quantization_min_val=-90000,
        output_quantization_max_val=80000,
    )


@pytest.mark.parametrize("axis", [-1, 1])
def test_clip_by_value(axis):
    shape = () if axis < 0 else (3,)
    check_quantized(
        "UniformQuantizedClipByValue",
        {"operand": Q32, "min": Q32, "max": Q32},
        operand=_integers(Q32, (4, 3), 100),
        min=np.full(shape, -20, I32),
        max=np.full(shape, 30, I32),
        **_quantization("", axis, 3),
        **_limits(Q32, ""),
    )


@pytest.mark.default_cases("-1--1-0")
@pytest.mark.parametrize(("rhs_axis", "out_axis", "inner"), [(-1, -1, 5), (1, -1, 5), (1, 1, 5), (-1, -1, 0)])
def test_dot(rhs_axis, out_axis, inner):
    rhs = {"rhs": _integers(Q8, (inner, 3)), **_quantization("rhs_", rhs_axis, 3), **_limits(Q8, "rhs_")}
    check_quantized(
        "UniformQuantizedDot",
        {"lhs": Q8, "rhs": Q8},
        lhs=_integers(Q8, (4, inner)),
        **rhs,
        Tout=Q32,
        **_quantization("lhs_", -1, 1),
        **_quantization("output_", out_axis, 3),
        **_limits(Q8, "lhs_"),
        **_limits(Q32, "output_"),
    )
    if inner:
        lhs = RNG.normal(size=(4, inner)).astype(F)
        lhs[1], lhs[2] = 0, np.abs(lhs[2])
        check_quantized("UniformQuantizedDotHybrid", {"rhs": Q8}, lhs=lhs, **rhs, Tout=tf.float32)


def _numbers(batch, feature, spatial, kernel_in, kernel_out, kernel_spatial):
    return uniform_quant_ops_attr_pb2.UniformQuantizedConvolutionDimensionNumbersAttr(
        input_batch_dimension=batch,
        input_feature_dimension=feature,
        input_spatial_dimensions=spatial,
        kernel_input_feature_dimension=kernel_in,
        kernel_output_feature_dimension=kernel_out,
        kernel_spatial_dimensions=kernel_spatial,
        output_batch_dimension=batch,
        output_feature_dimension=feature,
        output_spatial_dimensions=spatial,
    ).SerializeToString()


@pytest.mark.default_cases("lhs2-rhs2-axes2-attrs2")
@pytest.mark.parametrize(
    ("lhs", "rhs", "axes", "attrs"),
    [
        ((2, 3, 6, 5), (4, 3, 2, 3), (-1, -1), {"padding": "VALID"}),
        ((2, 4, 6, 5), (6, 2, 3, 2), (0, 1), {"padding": "SAME", "feature_group_count": 2, "window_strides": [2, 1]}),
        ((4, 3, 6), (6, 3, 2), (0, -1), {"padding": "SAME", "batch_group_count": 2, "lhs_dilation": [2]}),
        (
            (2, 6, 5, 3),
            (2, 3, 3, 4),
            (3, 3),
            {
                "padding": "EXPLICIT",
                "explicit_padding": [1, 0, 2, 1],
                "rhs_dilation": [1, 2],
                "dimension_numbers": _numbers(0, 3, [1, 2], 2, 3, [0, 1]),
            },
        ),
    ],
)
def test_convolution(lhs, rhs, axes, attrs):
    kernel = {
        "rhs": _integers(Q8, rhs),
        **_quantization("rhs_", axes[0], rhs[axes[0]]),
        **_limits(Q8, "rhs_"),
        **attrs,
    }
    outputs = rhs[axes[0] if axes[0] >= 0 else 0]
    check_quantized(
        "UniformQuantizedConvolution",
        {"lhs": Q8, "rhs": Q8},
        lhs=_integers(Q8, lhs),
        **kernel,
        Tout=Q32,
        **_quantization("lhs_", -1, 1),
        **_quantization("output_", axes[1], outputs),
        **_limits(Q8, "lhs_"),
        **_limits(Q32, "output_"),
    )
    values = RNG.normal(size=lhs).astype(F)
    check_quantized("UniformQuantizedConvolutionHybrid", {"rhs": Q8}, lhs=values, **kernel, Tout=tf.float32)


@pytest.mark.parametrize("x64", [True, False])
def test_rescaling_is_exact(x64):
    with jax.enable_x64(x64):
        x = np.concatenate([I32([-(2**31), 2**31 - 1, -1, 0, 1]), RNG.integers(-(2**31), 2**31, 300).astype(I32)])
        factor = RNG.integers(2**30, 2**31, x.shape).astype(I32)
        factor[10], factor[11] = 0, 2**31 - 1
        for shift in (-31, -8, -2, -1, 0, 1, 5, 30):
            exact = [(int(a) * int(m) + (1 << (30 - shift))) >> (31 - shift) for a, m in zip(x, factor, strict=True)]
            actual = jax.jit(uniform.rescaled)(x, factor, I32(shift))
            np.testing.assert_array_equal(actual, np.clip(exact, -(2**31), 2**31 - 1))


def test_invalid_parameters_raise():
    quantize = registry.lookup("UniformQuantize").fn
    limits = {"Tout": np.dtype("int8"), **_limits(Q8, "")}
    with pytest.raises(OpError, match="scales has shape"):
        quantize(np.zeros(3, F), F([1, 2]), I32([0, 0]), **limits)
    with pytest.raises(OpError, match="axis 1"):
        quantize(np.zeros(3, F), F([1, 2]), I32([0, 0]), quantization_axis=1, **limits)
    with pytest.raises(OpError, match="positive"):
        uniform.multiplier(F(0), over=F(1))
