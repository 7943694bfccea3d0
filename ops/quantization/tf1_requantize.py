"""Ranges of TF1's quantized tensors: conversion to floats, and requantization.

A tensor of qint8, quint8 or qint32 comes with two floats, the values that its lowest and its highest integer represent.
With JAX's 64-bit mode results are those of TensorFlow's kernels (quantization_utils.h) bit for bit, except for ties.
Without it ranges are computed in float32, and integers may differ from TensorFlow's by one.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product, quotient
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value
from tf2jax_lite.values.uint64 import product as word_product

_FLOAT = np.dtype(np.float32)


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
    """Return ends of ranges in float64 if they are static or JAX is in 64-bit mode.

    Else they are float32.
    """
    if all(static_value(end) is not None for end in ends):
        return tuple(np.asarray(end, np.float64) for end in ends)
    return tuple(jnp.asarray(end).astype(canonical(np.float64)) for end in ends)


def _numpy_of(x: Any) -> Any:
    return np if isinstance(x, (np.ndarray, np.generic)) else jnp


def _single(x: Any) -> Any:
    """Round to float32.

    Not by a conversion alone: XLA removes a conversion to a narrower dtype and back.
    """
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
    """Return the integer that represents 0, as int32.

    It is outside of the dtype's range if the range does not contain 0.
    """
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
    """Convert 8-bit integers to int32 of another range in float32, as TensorFlow.

    The result is a few hundred steps off where float32 has no value nearer to the lowest int32.
    """
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


def _check_int32(x: Any) -> Any:
    x = jnp.asarray(x)
    if x.dtype != np.int32:
        raise OpError(f"expected a qint32 tensor, got {x.dtype}")
    return x


@op("RequantizationRange")
def requantization_range(input, input_min, input_max):
    """Return the range of the values in a qint32 tensor, including 0.

    TF: core/kernels/requantization_range_op.cc.
    """
    x = _check_int32(input)
    low, high = scalar("input_min", input_min), scalar("input_max", input_max)
    # TensorFlow converts the integers to float32 here.
    ends = quantized_to_float(jnp.stack([x.min(), x.max()]).astype(_FLOAT), low, high, np.int32)
    return jnp.minimum(ends[0], np.float32(0)), ends[1]


def _fixed(value: Any) -> tuple[Any, Any]:
    """Return a nonnegative integer, given as a float, as words.

    The high word is int32, the low one uint32.
    """
    high = _numpy_of(value).floor(value / 2.0**32)
    return jnp.asarray(high).astype(np.int32), jnp.asarray(value - high * 2.0**32).astype(np.uint32)


@op("Requantize")
def requantize(input, input_min, input_max, requested_output_min, requested_output_max, *, out_type=np.uint8):
    """Convert qint32 to quint8 of another range.

    TF: core/kernels/requantize.cc.

    As TensorFlow, in fixed point with 16 fractional bits of a 64-bit product.
    """
    x = _check_int32(input)
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


@op("QuantizeDownAndShrinkRange")
def quantize_down_and_shrink_range(input, input_min, input_max, *, out_type=np.uint8):
    """Convert qint32 to quint8 of the range of its values.

    TF: core/kernels/quantize_down_and_shrink_range.cc.
    """
    low, high = requantization_range(input, input_min, input_max)
    return requantize(input, input_min, input_max, low, high, out_type=out_type)
