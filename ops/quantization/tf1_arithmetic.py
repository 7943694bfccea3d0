"""TF1's arithmetic on (tensor, min, max).

Products, sums, activations, pooling, concatenation and reshape.

TF: core/kernels/quantized_pooling_ops.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.concat_split import concat_v2
from tf2jax_lite.ops.arrays.shape import reshape
from tf2jax_lite.ops.common.broadcasting import matched
from tf2jax_lite.ops.common.integer_convolution import integer_convolution
from tf2jax_lite.ops.common.rounding import product, quotient
from tf2jax_lite.ops.nn.pooling import max_pool
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.types import Array

from .tf1_requantize import (
    float_to_quantized,
    product_range,
    quantized_to_float,
    requantize_in_float32,
    scalar,
    steps,
    zero_point,
)
from .tf1_requantize_per_channel import round_and_saturate

__all__: list[str] = []

_INT32, _UINT8 = np.dtype(np.int32), np.dtype(np.uint8)


def _ends(**ends: Any) -> list[Any]:
    return [scalar(name, value) for name, value in ends.items()]


def _with_range(values: Array, **ends: Any) -> tuple[Array, Array, Array]:
    low, high = map(jnp.asarray, _ends(**ends))
    return values, low, high


def _centered(x: Any, low: Any, high: Any) -> Any:
    """Return integers minus their zero point, as int32."""
    x = jnp.asarray(x)
    return x.astype(_INT32) - zero_point(low, high, x.dtype)


def _check_type(dtype: Any) -> None:
    if np.dtype(dtype) != _INT32:
        raise OpError(f"output dtype {np.dtype(dtype)}; TensorFlow has a kernel for qint32 only")


@op("QuantizedMatMul", pattern=Pattern.CONTRACTION)
def quantized_mat_mul(
    a, b, min_a, max_a, min_b, max_b, *, Toutput=_INT32, transpose_a=False, transpose_b=False, Tactivation=_UINT8
):
    """Multiply quantized matrices.

    TF: core/kernels/quantized_matmul_op.cc.
    """
    del Tactivation
    _check_type(Toutput)
    min_a, max_a, min_b, max_b = _ends(min_a=min_a, max_a=max_a, min_b=min_b, max_b=max_b)
    left, right = _centered(a, min_a, max_a), _centered(b, min_b, max_b)
    inner = (0 if transpose_a else 1), (1 if transpose_b else 0)
    if left.ndim != 2 or right.ndim != 2 or left.shape[inner[0]] != right.shape[inner[1]]:
        raise OpError(f"shapes {left.shape} and {right.shape} are not those of two matrices to multiply")
    out = lax.dot_general(left, right, (((inner[0],), (inner[1],)), ((), ())), preferred_element_type=_INT32)
    return out, *product_range(min_a, max_a, a.dtype, min_b, max_b, b.dtype)


@op("QuantizedConv2D", pattern=Pattern.CONTRACTION)
def quantized_conv2d(
    input,
    filter,
    min_input,
    max_input,
    min_filter,
    max_filter,
    *,
    strides,
    padding,
    out_type=_INT32,
    dilations=(1, 1, 1, 1),
):
    """Convolve quantized images.

    TF: core/kernels/quantized_conv_ops.cc.

    The padding represents 0; TensorFlow's does not if the range of the input is below 0.
    """
    _check_type(out_type)
    min_input, max_input, min_filter, max_filter = _ends(
        min_input=min_input, max_input=max_input, min_filter=min_filter, max_filter=max_filter
    )
    if padding not in ("SAME", "VALID"):
        raise OpError(f"padding must be SAME or VALID, got {padding}")
    if len(strides) != 4 or strides[0] != 1 or strides[3] != 1 or list(dilations) != [1, 1, 1, 1]:
        raise OpError(f"strides {list(strides)} and dilations {list(dilations)} are not supported by the kernel")
    images, kernel = _centered(input, min_input, max_input), _centered(filter, min_filter, max_filter)
    if images.ndim != 4 or kernel.ndim != 4 or images.shape[3] != kernel.shape[2]:
        raise OpError(f"shapes {images.shape} and {kernel.shape} are not those of images and a filter")
    out = integer_convolution(
        images,
        kernel,
        tuple(strides[1:3]),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=_INT32,
    )
    return out, *product_range(min_input, max_input, input.dtype, min_filter, max_filter, filter.dtype)


@op("QuantizedMul")
def quantized_mul(x, y, min_x, max_x, min_y, max_y, *, Toutput=_INT32):
    """Multiply quantized tensors with broadcasting.

    TF: core/kernels/quantized_mul_op.cc.
    """
    _check_type(Toutput)
    min_x, max_x, min_y, max_y = _ends(min_x=min_x, max_x=max_x, min_y=min_y, max_y=max_y)
    out = lax.mul(*matched(_centered(x, min_x, max_x), _centered(y, min_y, max_y)))
    return out, *product_range(min_x, max_x, x.dtype, min_y, max_y, y.dtype)


def _sum_range(log2_margin: int, low_a: Any, high_a: Any, low_b: Any, high_b: Any) -> tuple[Any, Any]:
    """Return a symmetric range that contains all sums (QuantizationRangeForAddition)."""
    high = jnp.maximum(jnp.maximum(high_a, -low_a), jnp.maximum(high_b, -low_b)) * np.float32(1 << log2_margin)
    return -high, high


@op("QuantizedAdd")
def quantized_add(x, y, min_x, max_x, min_y, max_y, *, Toutput=_INT32):
    """Add quantized tensors with broadcasting.

    TF: core/kernels/quantized_add_op.cc.
    """
    _check_type(Toutput)
    min_x, max_x, min_y, max_y = _ends(min_x=min_x, max_x=max_x, min_y=min_y, max_y=max_y)
    low, high = _sum_range(14, min_x, max_x, min_y, max_y)

    def term(v: Any, v_low: Any, v_high: Any) -> Any:
        # TensorFlow requantizes the integers 0 and 1, whose difference is the factor of all.
        v = jnp.asarray(v)
        floats = quantized_to_float(np.arange(2, dtype=v.dtype), v_low, v_high, v.dtype)
        first, second = float_to_quantized(floats, low, high, _INT32)
        return first + v.astype(_INT32) * (second - first)

    return lax.add(*matched(term(x, min_x, max_x), term(y, min_y, max_y))), low, high


@op("QuantizedBiasAdd")
def quantized_bias_add(input, bias, min_input, max_input, min_bias, max_bias, *, out_type):
    """Add a bias along the last dimension.

    TF: core/kernels/quantized_bias_add_op.cc.

    All elements are rounded to the nearest; TensorFlow rounds some down, depending on their position in its SIMD
    vectors.
    """
    _check_type(out_type)
    min_input, max_input, min_bias, max_bias = _ends(
        min_input=min_input, max_input=max_input, min_bias=min_bias, max_bias=max_bias
    )
    input, bias = jnp.asarray(input), jnp.asarray(bias)
    if bias.ndim != 1 or input.ndim < 1 or input.shape[-1] != bias.shape[0]:
        raise OpError(f"a bias of shape {bias.shape} does not fit an input of shape {input.shape}")
    low, high = _sum_range(17, min_input, max_input, min_bias, max_bias)
    terms = [
        requantize_in_float32(v, v_low, v_high, low, high)
        for v, v_low, v_high in ((input, min_input, max_input), (bias, min_bias, max_bias))
    ]
    return lax.add(*matched(*terms)), low, high


def _clipped(features: Any, low: Any, high: Any, limit: Any) -> tuple[Any, Any, Any]:
    features = jnp.asarray(features)
    out = jnp.maximum(features, float_to_quantized(np.float32(0), low, high, features.dtype))
    if limit is not None:
        out = jnp.minimum(out, float_to_quantized(limit, low, high, features.dtype))
    return out, jnp.asarray(low), jnp.asarray(high)


def _register_relu(name: str, limit: Any) -> None:
    @op(name)
    def call(features, min_features, max_features, *, out_type=_UINT8):
        """Compute max(x, 0), and the minimum of that and ``limit``.

        TF: core/kernels/quantized_activation_ops.cc.
        """
        del out_type
        return _clipped(features, scalar("min_features", min_features), scalar("max_features", max_features), limit)


_register_relu("QuantizedRelu", None)
_register_relu("QuantizedRelu6", np.float32(6))


@op("QuantizedReluX")
def quantized_relu_x(features, max_value, min_features, max_features, *, out_type=_UINT8):
    """Compute min(max(x, 0), max_value).

    TensorFlow 2 has no kernel.
    """
    del out_type
    low, high = scalar("min_features", min_features), scalar("max_features", max_features)
    return _clipped(features, low, high, scalar("max_value", max_value))


def _check_window(x: Any, ksize: Sequence[int], strides: Sequence[int], padding: str) -> None:
    if x.ndim != 4 or len(ksize) != 4 or len(strides) != 4:
        raise OpError(f"images of shape {x.shape}, windows {list(ksize)} and strides {list(strides)} must be of rank 4")
    if padding not in ("SAME", "VALID") or ksize[0] != 1 or ksize[3] != 1 or strides[0] != 1 or strides[3] != 1:
        raise OpError(
            f"windows {list(ksize)}, strides {list(strides)}, padding {padding} are not supported by the kernel"
        )


@op("QuantizedMaxPool")
def quantized_max_pool(input, min_input, max_input, *, ksize, strides, padding):
    """Compute the maximum of each window."""
    input = jnp.asarray(input)
    _check_window(input, ksize, strides, padding)
    out = max_pool(input.astype(_INT32), ksize=ksize, strides=strides, padding=padding).astype(input.dtype)
    return _with_range(out, min_input=min_input, max_input=max_input)


@op("QuantizedAvgPool")
def quantized_avg_pool(input, min_input, max_input, *, ksize, strides, padding):
    """Compute the mean of each window, rounded down."""
    input = jnp.asarray(input)
    _check_window(input, ksize, strides, padding)

    def total(x: Any) -> Any:
        return lax.reduce_window(x, np.int32(0), lax.add, tuple(ksize), tuple(strides), padding)

    lowest, _ = steps(input.dtype)
    # Shifted to nonnegative integers, so that the division rounds down.
    out = total(input.astype(_INT32) - lowest) // total(jnp.ones((1, *input.shape[1:3], 1), _INT32)) + lowest
    return _with_range(out.astype(input.dtype), min_input=min_input, max_input=max_input)


@op("QuantizedConcat")
def quantized_concat(concat_dim: Static, values, input_mins, input_maxes):
    """Concatenate in a range that contains all ranges and 0.

    TF: core/kernels/quantized_concat_op.cc.
    """
    lows = [scalar("input_mins", v) for v in input_mins]
    highs = [scalar("input_maxes", v) for v in input_maxes]
    low, high = jnp.minimum(jnp.stack(lows).min(), 0), jnp.stack(highs).max()
    parts = []
    for value, v_low, v_high in zip(values, lows, highs, strict=True):
        value = jnp.asarray(value)
        requantized = float_to_quantized(quantized_to_float(value, v_low, v_high, value.dtype), low, high, value.dtype)
        parts.append(jnp.where((v_low == low) & (v_high == high), value, requantized))
    return concat_v2(parts, concat_dim), low, high


@op("QuantizedConcatV2")
def quantized_concat_v2(values, axis: Static, input_mins, input_maxes):
    """Concatenate in a range from 0 (quint8) or symmetric about 0 (qint8).

    TF: core/kernels/mkl/mkl_concat_op.cc.

    Only oneDNN has a kernel. The zero point of quint8 is an integer; the rounding of that of qint8 is unknown, so that
    results differ from the kernel's by up to one, as those of quint8 at ties.
    """
    lows = [scalar("input_mins", v) for v in input_mins]
    highs = [scalar("input_maxes", v) for v in input_maxes]
    dtype = np.dtype(values[0].dtype)
    if dtype not in (_UINT8, np.dtype(np.int8)):
        raise OpError(f"values are of {dtype}; oneDNN has kernels for quint8 and qint8")
    limit = jnp.stack(highs).max()
    if dtype != _UINT8:
        limit = jnp.maximum(limit, -jnp.stack(lows).min())
    parts = []
    for value, low, high in zip(values, lows, highs, strict=True):
        if dtype == _UINT8:
            step = quotient(high - low, np.float32(255))
            shift = product(lax.round(quotient(-low, step), lax.RoundingMethod.TO_NEAREST_EVEN), step)
        else:
            step, shift = quotient(high - low, np.float32(254)), -(low + high) / 2
        real = product(jnp.asarray(value).astype(np.float32), step) - shift
        parts.append(round_and_saturate(product(real, quotient(np.float32(np.iinfo(dtype).max), limit)), dtype))
    return concat_v2(parts, axis), jnp.zeros_like(limit) if dtype == _UINT8 else -limit, limit


@op("QuantizedReshape")
def quantized_reshape(tensor, shape: Static, input_min, input_max):
    """Reshape a quantized tensor.

    TF: core/kernels/quantized_reshape_op.cc.
    """
    return _with_range(reshape(tensor, shape), input_min=input_min, input_max=input_max)
