"""TF1's ops on quantized tensors: (tensor, min, max).

A tensor of qint8, quint8 or qint32 comes with two floats, the values that its lowest and its highest integer represent.
With JAX's 64-bit mode results are those of TensorFlow's kernels (quantization_utils.h) bit for bit, except for ties.
Without it ranges are computed in float32, and integers may differ from TensorFlow's by one. Ranges for each channel
(oneDNN) are symmetric about 0: the end of larger magnitude is used, and 0 represents 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.concat_split import concat_v2
from tf2jax_lite.ops.arrays.shape import reshape
from tf2jax_lite.ops.common.broadcasting import matched
from tf2jax_lite.ops.common.integer_convolution import integer_convolution
from tf2jax_lite.ops.common.precision import product, quotient
from tf2jax_lite.ops.image.resize import check_alignment, images_and_size, neighbors, resize_bilinear
from tf2jax_lite.ops.nn.pooling import max_pool
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import product as word_product
from tf2jax_lite.values.static import Array, canonical, static_value

_FLOAT, _INT32, _UINT8, _F32 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint8), np.float32


def steps(dtype: Any) -> tuple[int, int]:
    """Return the lowest value of an integer dtype, and its number of values."""
    info = np.iinfo(np.dtype(dtype))
    return int(info.min), int(info.max) - int(info.min) + 1


def scalar(name: str, value: Any) -> Any:
    """Return one end of a range as a scalar, static if it is."""
    if np.ndim(value) != 0 and np.shape(value) != (1,):
        raise OpError(f"{name} must be a scalar, got shape {tuple(np.shape(value))}")
    static = static_value(value)
    return np.asarray(static, _FLOAT).reshape(()) if static is not None else jnp.reshape(value, ())


def _doubles(*ends: Any) -> tuple[Any, ...]:
    """Return ends of ranges in float64 if static or in 64-bit mode, else in float32."""
    if all(static_value(end) is not None for end in ends):
        return tuple(np.asarray(end, np.float64) for end in ends)
    return tuple(jnp.asarray(end).astype(canonical(np.float64)) for end in ends)


def _numpy_of(x: Any) -> Any:
    return np if isinstance(x, (np.ndarray, np.generic)) else jnp


def _single(x: Any) -> Any:
    """Round to float32."""
    # Not by a conversion alone: XLA removes a conversion to a narrower dtype and back.
    return x.astype(_FLOAT) if _numpy_of(x) is np else lax.reduce_precision(x, 8, 23).astype(_FLOAT)


def _rounded(x: Any) -> Any:
    """Round halves away from zero."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.sign(x) * np.floor(np.abs(x) + 0.5)
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def _scale(low: Any, high: Any, count: int) -> Any:
    """Return the width of a quantization step, 1 where the range is empty."""
    (span,) = _doubles(high - low)
    xp = _numpy_of(span)
    return xp.where(span == 0, 1.0, span * (count / (count - 1.0)) / float(count))


def _per_unit(low: Any, high: Any, count: int) -> Any:
    """Return the number of steps per unit, 1 where the range is empty."""
    (span,) = _doubles(high - low)
    xp = _numpy_of(span)
    return xp.where(span == 0, 1.0, float(count) / xp.where(span == 0, 1.0, span * (count / (count - 1.0))))


def _exceeds_float32(count: int) -> bool:
    """Return whether float32 is used and cannot represent this number of steps."""
    return canonical(np.float64) == _FLOAT and count > 2**24


def _middle(low: Any, high: Any) -> Any:
    return (low + high) / np.float32(2)


def zero_point(low: Any, high: Any, dtype: Any) -> Any:
    """Return the int32 that represents 0, beyond the dtype if the range lacks 0."""
    lowest, count = steps(dtype)
    (start,) = _doubles(low)
    zero = lowest - _rounded(start * _per_unit(low, high, count))
    xp = _numpy_of(zero)
    return xp.where(low == high, 0, xp.clip(zero, -(2.0**30), 2.0**30)).astype(np.int32)


def quantized_to_float(x: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Return the floats that integers of ``dtype`` represent (QuantizedToFloat)."""
    lowest, count = steps(dtype)
    scale = _scale(low, high, count)
    if _exceeds_float32(count):
        return jnp.where(
            low == high, low, product(jnp.asarray(x).astype(_FLOAT) + np.float32(0.5), scale) + _middle(low, high)
        )
    scale32 = _single(scale)
    start = _single(_rounded(_single(low / scale32)) * scale32).astype(scale.dtype)
    value = start + product(jnp.asarray(x).astype(scale.dtype) - lowest, jnp.asarray(scale))
    return jnp.where(low == high, low, _single(value))


def float_to_quantized(x: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Return the integers that represent floats, clamped (FloatToQuantized)."""
    lowest, count = steps(dtype)
    scale = jnp.asarray(_per_unit(low, high, count))
    if _exceeds_float32(count):
        level = _rounded(product(x - _middle(low, high), scale.astype(_FLOAT)))
    else:
        (start,) = _doubles(low)
        level = _rounded(product(jnp.asarray(x).astype(scale.dtype), scale)) - _rounded(start * scale) + lowest
    # The largest float below the first value that overflows.
    highest = np.nextafter(np.asarray(lowest + count, scale.dtype), 0) if count > 2**24 else lowest + count - 1
    return jnp.where(low == high, 0, jnp.clip(level, lowest, highest)).astype(np.dtype(dtype))


def requantize_in_float32(x: Any, low: Any, high: Any, new_low: Any, new_high: Any) -> Any:
    """Convert 8-bit integers to int32 of another range in float32, as TensorFlow."""
    # The result is a few hundred steps off where float32 has no value nearer to the lowest int32.
    x = jnp.asarray(x)
    lowest, count = steps(x.dtype)
    scale = _single(_scale(low, high, count))
    start = _single(_rounded(_single(low / scale)) * scale) - np.float32(lowest) * scale
    value = jnp.where(low == high, low, product(x.astype(_FLOAT), jnp.asarray(scale)) + start)
    new = _single(_per_unit(new_low, new_high, 2**32))
    first = _rounded(_single(new_low * new)) + np.float32(2.0**31)
    return (_rounded(_single(product(value, jnp.asarray(new)))) - first).astype(np.int32)


def product_range(low_a: Any, high_a: Any, type_a: Any, low_b: Any, high_b: Any, type_b: Any) -> tuple[Any, Any]:
    """Return the range of int32 products (QuantizationRangeForMultiplication)."""
    step_a, step_b = (
        quotient(high - low, np.float32(steps(dtype)[1] - 1))
        for low, high, dtype in ((low_a, high_a, type_a), (low_b, high_b, type_b))
    )
    step = step_a * step_b
    return step * np.float32(-(2.0**31)), step * np.float32(2.0**31)


def _check_int32(attrs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> None:
    if dtypes.get("input", _INT32) != _INT32:
        raise OpError(f"expected a qint32 tensor, got {dtypes['input']}")


def _check_output(attrs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> None:
    for name in ("Toutput", "out_type"):
        if name in attrs and np.dtype(attrs[name]) != _INT32:
            raise OpError(f"{name} {np.dtype(attrs[name])}; TensorFlow has a kernel for qint32 only")


@op("RequantizationRange", check=_check_int32)
def requantization_range(input, input_min, input_max):
    """Return the range of the values in a qint32 tensor, including 0.

    TF: core/kernels/requantization_range_op.cc.
    """
    x = jnp.asarray(input)
    low, high = scalar("input_min", input_min), scalar("input_max", input_max)
    # TensorFlow converts the integers to float32 here.
    ends = quantized_to_float(jnp.stack([x.min(), x.max()]).astype(_FLOAT), low, high, np.int32)
    return jnp.minimum(ends[0], np.float32(0)), ends[1]


def _fixed(value: Any) -> tuple[Any, Any]:
    """Return a nonnegative integer, given as a float, as words (int32, uint32)."""
    high = _numpy_of(value).floor(value / 2.0**32)
    return jnp.asarray(high).astype(np.int32), jnp.asarray(value - high * 2.0**32).astype(np.uint32)


@op("Requantize", check=_check_int32)
def requantize(input, input_min, input_max, requested_output_min, requested_output_max, *, out_type=np.uint8):
    """Convert qint32 to quint8 of another range.

    TF: core/kernels/requantize.cc.

    As TensorFlow, in fixed point with 16 fractional bits of a 64-bit product.
    """
    x = jnp.asarray(input)
    if np.dtype(out_type) != np.uint8:
        raise OpError(f"out_type {np.dtype(out_type)}; TensorFlow has a kernel for quint8 only")
    low, high = scalar("input_min", input_min), scalar("input_max", input_max)
    out_low, out_high = (
        scalar("requested_output_min", requested_output_min),
        scalar("requested_output_max", requested_output_max),
    )
    for name, value, wrong in (("min", static_value(out_low), np.greater), ("max", static_value(out_high), np.less)):
        if value is not None and wrong(value, 0):
            raise OpError(f"requested_output_{name} must be {'<=' if name == 'min' else '>='} 0, got {value}")
    span, out_span, start, middle = _doubles(high - low, out_high - out_low, out_low, low + high)
    xp = _numpy_of(out_span + span)
    empty = out_span == 0
    safe = xp.where(empty, 1.0, out_span)
    factor = xp.floor(255.0 * 65536 * span / safe)
    inverse = _single(255.0 / safe)
    offset = xp.trunc(_single(_single(middle / 2) * inverse) * np.float32(65536))
    offset = offset - _rounded(start * 255.0 * 65536 / safe) + 32768
    factor, offset = xp.where(empty, 0.0, factor), xp.where(empty, 32768.0, offset)
    upper, lower = _fixed(factor)
    _, carry = word_product(lax.bitcast_convert_type(x, np.uint32), jnp.broadcast_to(lower, x.shape))
    carry = lax.bitcast_convert_type(carry, np.int32)
    high_word = x * upper + jnp.where(x < 0, carry - lax.bitcast_convert_type(lower, np.int32), carry)
    # A float estimate tells which sums are far out of range. The others fit 32 bits, even if a term alone overflows.
    estimate = x.astype(_FLOAT) * jnp.asarray(factor / 2.0**32).astype(_FLOAT)
    estimate = estimate + jnp.asarray(offset).astype(_FLOAT)
    wrapped = lax.bitcast_convert_type(
        jnp.asarray(offset - xp.floor(offset / 2.0**32) * 2.0**32).astype(np.uint32), np.int32
    )
    inside = jnp.abs(estimate) < 2.0**28
    level = jnp.where(inside, (high_word + wrapped) >> 16, jnp.where(estimate > 0, 255, 0))
    return jnp.clip(level, 0, 255).astype(np.uint8), jnp.asarray(out_low), jnp.asarray(out_high)


@op("QuantizeDownAndShrinkRange", check=_check_int32)
def quantize_down_and_shrink_range(input, input_min, input_max, *, out_type=np.uint8):
    """Convert qint32 to quint8 of the range of its values.

    TF: core/kernels/quantize_down_and_shrink_range.cc.
    """
    low, high = requantization_range(input, input_min, input_max)
    return requantize(input, input_min, input_max, low, high, out_type=out_type)


_INT8 = np.dtype(np.int8)
_STEPS = _F32(2.0**31)


def max_abs(low: Any, high: Any) -> Any:
    """Return the larger magnitude of both ends of ranges."""
    return jnp.maximum(jnp.abs(jnp.asarray(low)), jnp.abs(jnp.asarray(high)))


def round_and_saturate(values: Any, dtype: Any) -> Any:
    """Round floats, halves to even, to an 8-bit integer dtype, saturating."""
    info = np.iinfo(np.dtype(dtype))
    return jnp.clip(lax.round(values, lax.RoundingMethod.TO_NEAREST_EVEN), info.min, info.max).astype(info.dtype)


def _channels(input: Any, input_min: Any, input_max: Any) -> tuple[Any, Any]:
    x = jnp.asarray(input)
    if x.ndim != 4:
        raise OpError(f"the input must have 4 dimensions, not {x.ndim}")
    shapes = {np.shape(input_min), np.shape(input_max)}
    if shapes != {(x.shape[3],)}:
        raise OpError(f"ranges of shapes {sorted(shapes)} do not fit {x.shape[3]} channels")
    return x, max_abs(input_min, input_max)


@op("RequantizationRangePerChannel", check=_check_int32)
def requantization_range_per_channel(input, input_min, input_max, *, clip_value_max):
    """Return the range of the values in a qint32 tensor, up to a limit.

    TF: core/kernels/mkl/mkl_requantization_range_per_channel_op.cc.

    Integers within 64 of the ends of int32 overflow in TensorFlow, which uses 0 for them.
    """
    x, ends = _channels(input, input_min, input_max)
    lowest, highest = x.min((0, 1, 2)), x.max((0, 1, 2))
    magnitudes = jnp.maximum(jnp.abs(lowest.astype(_F32)), jnp.abs(highest.astype(_F32)))
    high = jnp.maximum((ends * magnitudes / _STEPS).max(), np.finfo(_F32).tiny)
    high = jnp.minimum(high, _F32(clip_value_max))
    return jnp.where((lowest >= 0).all(), _F32(0), -high), high


@op("RequantizePerChannel", check=_check_int32)
def requantize_per_channel(
    input, input_min, input_max, requested_output_min, requested_output_max, *, out_type=np.uint8
):
    """Convert qint32 with a range for each channel to 8 bits of one range.

    TF: core/kernels/mkl/mkl_requantize_per_channel_op.cc.
    """
    x, ends = _channels(input, input_min, input_max)
    low, high = (
        scalar("requested_output_min", requested_output_min),
        scalar("requested_output_max", requested_output_max),
    )
    factor = _F32(127) if np.dtype(out_type) == _INT8 else _F32(255)
    scales = product(factor, ends / max_abs(low, high) / _STEPS)
    return round_and_saturate(x.astype(_F32) * scales, out_type), jnp.asarray(low), jnp.asarray(high)


def _ends(**ends: Any) -> list[Any]:
    return [scalar(name, value) for name, value in ends.items()]


def _with_range(values: Array, **ends: Any) -> tuple[Array, Array, Array]:
    low, high = map(jnp.asarray, _ends(**ends))
    return values, low, high


def _centered(x: Any, low: Any, high: Any) -> Any:
    """Return integers minus their zero point, as int32."""
    x = jnp.asarray(x)
    return x.astype(_INT32) - zero_point(low, high, x.dtype)


@op("QuantizedMatMul", check=_check_output, pattern=Pattern.CONTRACTION)
def quantized_mat_mul(
    a, b, min_a, max_a, min_b, max_b, *, Toutput=_INT32, transpose_a=False, transpose_b=False, Tactivation=_UINT8
):
    """Multiply quantized matrices.

    TF: core/kernels/quantized_matmul_op.cc.
    """
    del Tactivation
    min_a, max_a, min_b, max_b = _ends(min_a=min_a, max_a=max_a, min_b=min_b, max_b=max_b)
    left, right = _centered(a, min_a, max_a), _centered(b, min_b, max_b)
    inner = (0 if transpose_a else 1), (1 if transpose_b else 0)
    if left.ndim != 2 or right.ndim != 2 or left.shape[inner[0]] != right.shape[inner[1]]:
        raise OpError(f"shapes {left.shape} and {right.shape} are not those of two matrices to multiply")
    out = lax.dot_general(left, right, (((inner[0],), (inner[1],)), ((), ())), preferred_element_type=_INT32)
    return out, *product_range(min_a, max_a, a.dtype, min_b, max_b, b.dtype)


@op("QuantizedConv2D", check=_check_output, pattern=Pattern.CONTRACTION)
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


@op("QuantizedMul", check=_check_output)
def quantized_mul(x, y, min_x, max_x, min_y, max_y, *, Toutput=_INT32):
    """Multiply quantized tensors with broadcasting.

    TF: core/kernels/quantized_mul_op.cc.
    """
    min_x, max_x, min_y, max_y = _ends(min_x=min_x, max_x=max_x, min_y=min_y, max_y=max_y)
    out = lax.mul(*matched(_centered(x, min_x, max_x), _centered(y, min_y, max_y)))
    return out, *product_range(min_x, max_x, x.dtype, min_y, max_y, y.dtype)


def _sum_range(log2_margin: int, low_a: Any, high_a: Any, low_b: Any, high_b: Any) -> tuple[Any, Any]:
    """Return a symmetric range that contains all sums (QuantizationRangeForAddition)."""
    high = jnp.maximum(jnp.maximum(high_a, -low_a), jnp.maximum(high_b, -low_b)) * np.float32(1 << log2_margin)
    return -high, high


@op("QuantizedAdd", check=_check_output)
def quantized_add(x, y, min_x, max_x, min_y, max_y, *, Toutput=_INT32):
    """Add quantized tensors with broadcasting.

    TF: core/kernels/quantized_add_op.cc.
    """
    min_x, max_x, min_y, max_y = _ends(min_x=min_x, max_x=max_x, min_y=min_y, max_y=max_y)
    low, high = _sum_range(14, min_x, max_x, min_y, max_y)

    def term(v: Any, v_low: Any, v_high: Any) -> Any:
        # TensorFlow requantizes the integers 0 and 1, whose difference is the factor of all.
        v = jnp.asarray(v)
        floats = quantized_to_float(np.arange(2, dtype=v.dtype), v_low, v_high, v.dtype)
        first, second = float_to_quantized(floats, low, high, _INT32)
        return first + v.astype(_INT32) * (second - first)

    return lax.add(*matched(term(x, min_x, max_x), term(y, min_y, max_y))), low, high


@op("QuantizedBiasAdd", check=_check_output)
def quantized_bias_add(input, bias, min_input, max_input, min_bias, max_bias, *, out_type):
    """Add a bias along the last dimension.

    TF: core/kernels/quantized_bias_add_op.cc.

    All elements are rounded to the nearest; TensorFlow rounds some down, depending on their position in its SIMD
    vectors.
    """
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


@op("QuantizedInstanceNorm")
def quantized_instance_norm(
    x,
    x_min,
    x_max,
    *,
    output_range_given=False,
    given_y_min=0.0,
    given_y_max=0.0,
    variance_epsilon=1e-05,
    min_separation=0.001,
):
    """Normalize each channel of each image by its own mean and variance.

    TF: core/kernels/quantized_instance_norm.cc.

    The order of summation is not TensorFlow's: a range may differ in its last bits, and integers by one.
    """
    x, low, high = jnp.asarray(x), scalar("x_min", x_min), scalar("x_max", x_max)
    if x.ndim != 4:
        raise OpError(f"images have rank 4, not {x.ndim}")
    if output_range_given and not given_y_min < given_y_max:
        raise OpError(f"given_y_min must be less than given_y_max, got {given_y_min} and {given_y_max}")
    values = quantized_to_float(x, low, high, x.dtype)
    centered = values - jnp.mean(values, axis=(1, 2), keepdims=True)
    variance = jnp.mean(lax.square(centered), axis=(1, 2), keepdims=True)
    normed = centered * lax.rsqrt(variance + _F32(variance_epsilon))
    if output_range_given:
        y_min, y_max = jnp.asarray(given_y_min, _F32), jnp.asarray(given_y_max, _F32)
    else:
        y_min = normed.min()
        y_max = jnp.maximum(normed.max(), y_min + _F32(min_separation))
    return float_to_quantized(normed, y_min, y_max, x.dtype), y_min, y_max


@op("QuantizedBatchNormWithGlobalNormalization", check=_check_output)
def quantized_batch_norm_with_global_normalization(
    t,
    t_min,
    t_max,
    m,
    m_min,
    m_max,
    v,
    v_min,
    v_max,
    beta,
    beta_min,
    beta_max,
    gamma,
    gamma_min,
    gamma_max,
    *,
    out_type,
    variance_epsilon,
    scale_after_normalization,
):
    """Normalize by given means and variances of channels, in fixed point.

    TF: core/kernels/quantized_batch_norm_op.cc.

    Fixed-point numbers have 11 fractional bits.
    """
    t = jnp.asarray(t)
    if t.ndim != 4 or any(np.shape(vector) != (t.shape[3],) for vector in (m, v, beta, gamma)):
        raise OpError("t must have 4 dimensions, and m, v, beta and gamma one value for each of the last")

    def floats(name: str, value: Any, low: Any, high: Any) -> Any:
        value = jnp.asarray(value)
        return quantized_to_float(value, scalar(f"{name}_min", low), scalar(f"{name}_max", high), value.dtype)

    mean, variance = floats("m", m, m_min, m_max), floats("v", v, v_min, v_max)
    shift, factor = floats("beta", beta, beta_min, beta_max), floats("gamma", gamma, gamma_min, gamma_max)
    low, high = _F32(-(2.0**20)), _F32(2.0**20)
    scale = 1 / lax.sqrt(variance + _F32(variance_epsilon))
    if scale_after_normalization:
        scale = scale * factor
    offset = product(-mean, scale) + shift
    scales, offsets, one = (
        float_to_quantized(value, low, high, _INT32) for value in (scale, offset, np.ones((), _F32))
    )
    images = float_to_quantized(floats("t", t, t_min, t_max), low, high, _INT32)
    return lax.div(images * scales, jnp.broadcast_to(one, images.shape)) + offsets, jnp.asarray(low), jnp.asarray(high)


_BITS = {np.dtype(np.uint8): 7, np.dtype(np.int32): 30}
"""Fractional bits of the weights, for each image dtype."""


def _interpolate(first: Any, second: Any, weights: Any, one: Any) -> Any:
    return first * one + (second - first) * weights


@op("QuantizedResizeBilinear", check=check_alignment)
def quantized_resize_bilinear(images, size: Static, min, max, *, align_corners=False, half_pixel_centers=False):
    """Resize quantized images by bilinear interpolation in fixed point.

    TF: core/kernels/quantized_resize_bilinear_op.cc.

    Without JAX's 64-bit mode, qint32 is interpolated in float32.
    """
    ends = jnp.asarray(scalar("min", min)), jnp.asarray(scalar("max", max))
    alignment: dict[str, Any] = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    images, size = images_and_size(images, size)
    if images.dtype == _F32:
        return resize_bilinear(images, size, **alignment), *ends
    if images.dtype not in _BITS:
        raise OpError(f"images of {images.dtype}; TensorFlow has kernels for quint8, qint32 and float32")
    if tuple(images.shape[1:3]) == size:
        return images, *ends
    is_uint8 = images.dtype == np.uint8
    work = np.dtype(np.int32) if is_uint8 else canonical(np.int64)
    floating = not is_uint8 and work == np.int32
    # TensorFlow converts qint32 to float32 first.
    x = images.astype(work) if is_uint8 else images.astype(_F32)
    x = x if floating or is_uint8 else x.astype(work)
    one = _F32(1) if floating else work.type(1 << _BITS[images.dtype])

    def weight(part: Any) -> Any:
        return part if floating else (part * _F32(one)).astype(work)

    (top, bottom, down), (left, right, across) = (
        neighbors(images.shape[axis], size[axis - 1], **alignment) for axis in (1, 2)
    )
    x = _interpolate(x[:, :, left], x[:, :, right], weight(across)[:, None], one)
    above, below = x[:, top], x[:, bottom]
    # The difference is truncated to integer steps before it is weighted.
    difference = jnp.trunc(below - above) if floating else lax.div(below - above, jnp.full_like(above, one))
    out = above + difference * weight(down)[:, None, None]
    half = _F32(0.5) if floating else one // 2
    rounded = jnp.trunc(out + half) if floating else lax.div(out + half, jnp.full_like(out, one))
    if floating:
        rounded = jnp.clip(rounded, _F32(-(2.0**31)), np.nextafter(_F32(2.0**31), _F32(0)))
    return rounded.astype(images.dtype), *ends
