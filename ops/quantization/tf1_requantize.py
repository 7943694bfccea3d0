"""Ranges of quantized tensors: which floats the whole numbers of a tensor stand for, and giving them another range.

This is how TensorFlow 1 quantized graphs: a tensor of qint8, quint8 or qint32 comes with two floats, the values of its
lowest and its highest number. With JAX's 64-bit mode results are those of TensorFlow's kernels, bit for bit, but where
one falls in the middle of two; without it ranges are computed in float32, and numbers may come out beside TensorFlow's.
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

__all__ = ["from_float", "moved_in_single", "product_range", "scalar", "steps", "to_float", "zero_point"]

_FLOAT = np.dtype(np.float32)


def steps(dtype: Any) -> tuple[int, int]:
    """Returns the lowest number of an integer type, and how many numbers it has."""
    info = np.iinfo(np.dtype(dtype))
    return int(info.min), int(info.max) - int(info.min) + 1


def scalar(name: str, value: Any) -> Any:
    """Returns one end of a range.

    Raises:
      OpError: it is not a single float.
    """
    if np.ndim(value) != 0 and np.shape(value) != (1,):
        raise OpError(f"{name} must be a scalar, got shape {tuple(np.shape(value))}")
    found = static_value(value)
    return np.asarray(found, _FLOAT).reshape(()) if found is not None else jnp.reshape(value, ())


def _wide(*ends: Any) -> tuple[Any, ...]:
    """Returns ends of ranges in float64 where they are known or JAX has it."""
    if all(static_value(end) is not None for end in ends):
        return tuple(np.asarray(end, np.float64) for end in ends)
    return tuple(jnp.asarray(end).astype(canonical(np.float64)) for end in ends)


def _numpy_of(x: Any) -> Any:
    return np if isinstance(x, (np.ndarray, np.generic)) else jnp


def _single(x: Any) -> Any:
    """Rounds to float32. Not by the type alone: XLA leaves out a conversion to a narrower type and back."""
    return x.astype(_FLOAT) if _numpy_of(x) is np else lax.reduce_precision(x, 8, 23).astype(_FLOAT)


def _rounded(x: Any) -> Any:
    """Rounds halves away from zero."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.sign(x) * np.floor(np.abs(x) + 0.5)
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def _scale(low: Any, high: Any, count: int) -> Any:
    """Returns the width of a step, 1 where the range is empty."""
    (span,) = _wide(high - low)
    xp = _numpy_of(span)
    return xp.where(span == 0, 1.0, span * (count / (count - 1.0)) / float(count))


def _per_unit(low: Any, high: Any, count: int) -> Any:
    """Returns how many steps a unit has, 1 where the range is empty."""
    (span,) = _wide(high - low)
    xp = _numpy_of(span)
    return xp.where(span == 0, 1.0, float(count) / xp.where(span == 0, 1.0, span * (count / (count - 1.0))))


def _too_wide(count: int) -> bool:
    """Whether float32 is all there is, and cannot count from the lowest of so many numbers to those near 0."""
    return canonical(np.float64) == _FLOAT and count > 2**24


def _middle(low: Any, high: Any) -> Any:
    return (low + high) / np.float32(2)


def zero_point(low: Any, high: Any, dtype: Any) -> Any:
    """Returns the number that stands for 0, as int32: beyond the type's where the range leaves 0 out."""
    lowest, count = steps(dtype)
    (start,) = _wide(low)
    found = lowest - _rounded(start * _per_unit(low, high, count))
    xp = _numpy_of(found)
    return xp.where(low == high, 0, xp.clip(found, -(2.0**30), 2.0**30)).astype(np.int32)


def to_float(x: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Returns the floats that numbers stand for."""
    lowest, count = steps(dtype)
    scale = _scale(low, high, count)
    if _too_wide(count):
        return jnp.where(
            low == high, low, product(jnp.asarray(x).astype(_FLOAT) + np.float32(0.5), scale) + _middle(low, high)
        )
    narrow = _single(scale)
    start = _single(_rounded(_single(low / narrow)) * narrow).astype(scale.dtype)
    value = start + product(jnp.asarray(x).astype(scale.dtype) - lowest, jnp.asarray(scale))
    return jnp.where(low == high, low, _single(value))


def from_float(x: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Returns the numbers that stand for floats, clamped."""
    lowest, count = steps(dtype)
    scale = jnp.asarray(_per_unit(low, high, count))
    if _too_wide(count):
        found = _rounded(product(x - _middle(low, high), scale.astype(_FLOAT)))
    else:
        (start,) = _wide(low)
        found = _rounded(product(jnp.asarray(x).astype(scale.dtype), scale)) - _rounded(start * scale) + lowest
    # What is just below the highest in float32 is what fits.
    most = np.nextafter(np.asarray(lowest + count, scale.dtype), 0) if count > 2**24 else lowest + count - 1
    return jnp.where(low == high, 0, jnp.clip(found, lowest, most)).astype(np.dtype(dtype))


def moved_in_single(x: Any, low: Any, high: Any, new_low: Any, new_high: Any) -> Any:
    """Gives 8-bit numbers a range of 32 bits as TensorFlow does in float32.

    That begins a few hundred numbers off where float32 has none nearer to the lowest of 32 bits.
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
    """Returns the range that int32 products have."""
    step_a, step_b = (
        quotient(high - low, np.float32(steps(dtype)[1] - 1))
        for low, high, dtype in ((low_a, high_a, type_a), (low_b, high_b, type_b))
    )
    step = step_a * step_b
    return step * np.float32(-(2.0**31)), step * np.float32(2.0**31)


def _check_int32(x: Any) -> Any:
    x = jnp.asarray(x)
    if x.dtype != np.int32:
        raise OpError(f"expected numbers of qint32, got {x.dtype}")
    return x


@op("RequantizationRange")
def requantization_range(input: Any, input_min: Any, input_max: Any) -> tuple[Any, Any]:
    """Returns the range of the numbers that are there, with 0 in it. See tf.raw_ops.RequantizationRange."""
    x = _check_int32(input)
    low, high = scalar("input_min", input_min), scalar("input_max", input_max)
    # TensorFlow has the numbers as float32 here.
    ends = to_float(jnp.stack([x.min(), x.max()]).astype(_FLOAT), low, high, np.int32)
    return jnp.minimum(ends[0], np.float32(0)), ends[1]


def _fixed(value: Any) -> tuple[Any, Any]:
    """Returns a whole number that is not negative as words: the high one as int32, the low one as uint32."""
    high = _numpy_of(value).floor(value / 2.0**32)
    return jnp.asarray(high).astype(np.int32), jnp.asarray(value - high * 2.0**32).astype(np.uint32)


@op("Requantize")
def requantize(
    input: Any,
    input_min: Any,
    input_max: Any,
    requested_output_min: Any,
    requested_output_max: Any,
    *,
    out_type: Any = np.dtype(np.uint8),  # noqa: B008
) -> tuple[Any, Any, Any]:
    """Gives qint32 numbers another range, in 8 bits. See tf.raw_ops.Requantize.

    As TensorFlow does, in fixed point: 16 bits after the point, of a product of 64 bits.
    """
    x = _check_int32(input)
    if np.dtype(out_type) != np.uint8:
        raise OpError(f"out_type {np.dtype(out_type)}; TensorFlow has a kernel for quint8 alone")
    low, high = scalar("input_min", input_min), scalar("input_max", input_max)
    out_low, out_high = (
        scalar("requested_output_min", requested_output_min),
        scalar("requested_output_max", requested_output_max),
    )
    for name, value, wrong in (("min", static_value(out_low), np.greater), ("max", static_value(out_high), np.less)):
        if value is not None and wrong(value, 0):
            raise OpError(f"requested_output_{name} must be {'<=' if name == 'min' else '>='} 0, got {value}")
    span, out_span, start, middle = _wide(high - low, out_high - out_low, out_low, low + high)
    xp = _numpy_of(out_span + span)
    empty = out_span == 0
    safe = xp.where(empty, 1.0, out_span)
    factor = xp.floor(255.0 * 65536 * span / safe)
    inverse = _single(255.0 / safe)
    offset = xp.trunc(_single(_single(middle / 2) * inverse) * np.float32(65536))
    offset = offset - _rounded(start * 255.0 * 65536 / safe) + 32768
    factor, offset = xp.where(empty, 0.0, factor), xp.where(empty, 32768.0, offset)
    upper, lower = _fixed(factor)
    _, carried = word_product(lax.bitcast_convert_type(x, np.uint32), jnp.broadcast_to(lower, x.shape))
    carried = lax.bitcast_convert_type(carried, np.int32)
    whole = x * upper + jnp.where(x < 0, carried - lax.bitcast_convert_type(lower, np.int32), carried)
    # What is far out is told by its size. Of the rest 32 bits are enough, whatever the terms are alone.
    near = x.astype(_FLOAT) * jnp.asarray(factor / 2.0**32).astype(_FLOAT)
    total = near + jnp.asarray(offset).astype(_FLOAT)
    wrapped = lax.bitcast_convert_type(
        jnp.asarray(offset - xp.floor(offset / 2.0**32) * 2.0**32).astype(np.uint32), np.int32
    )
    inside = jnp.abs(total) < 2.0**28
    found = jnp.where(inside, (whole + wrapped) >> 16, jnp.where(total > 0, 255, 0))
    return jnp.clip(found, 0, 255).astype(np.uint8), jnp.asarray(out_low), jnp.asarray(out_high)


@op("QuantizeDownAndShrinkRange")
def quantize_down_and_shrink_range(
    input: Any,
    input_min: Any,
    input_max: Any,
    *,
    out_type: Any = np.dtype(np.uint8),  # noqa: B008
) -> tuple[Any, Any, Any]:
    """Gives qint32 numbers the range that they have, in 8 bits. See tf.raw_ops.QuantizeDownAndShrinkRange."""
    low, high = requantization_range(input, input_min, input_max)
    return requantize(input, input_min, input_max, low, high, out_type=out_type)
