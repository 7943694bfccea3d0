"""Floats rounded to quantized levels: QuantizeV2, Dequantize, fake quantization.

Quantized dtypes are integer dtypes here. Gradients of fake quantization and QuantizeAndDequantize are straight-through.

TF: core/kernels/fake_quant_ops.cc, core/kernels/quantize_and_dequantize_op.cc.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.precision import product, quotient, rounded
from tf2jax_lite.ops.math.cast import cast
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import is_static, static_value


def along(value: Any, axis: int, rank: int) -> Any:
    """Reshape a vector to broadcast along an axis, to a scalar if that is negative."""
    value = value if is_static(value) else jnp.asarray(value)
    return value.reshape(tuple(-1 if i == axis else 1 for i in range(rank))) if axis >= 0 else value.reshape(())


def _limits(dtype: Any) -> tuple[np.float32, np.float32]:
    """Return the lowest and the highest value of an integer type, as floats."""
    info = np.iinfo(np.dtype(dtype))
    return np.float32(info.min), np.float32(info.max)


def _slices(shape: tuple[Any, ...], low: Any, high: Any, axis: int) -> tuple[Any, Any]:
    """Return the range's ends in a shape that broadcasts against the values."""
    rank = len(shape)
    if axis >= rank:
        raise OpError(f"axis {axis} is out of range for a tensor of rank {rank}")
    count = shape[axis] if axis > -1 else 1
    low, high = jnp.asarray(low), jnp.asarray(high)
    if low.size != count or high.size != count:
        raise OpError(f"the range has {low.size} and {high.size} ends; axis {axis} of {shape} needs {count}")
    sizes = tuple(count if i == axis else 1 for i in range(rank)) if axis > -1 else ()
    return low.reshape(sizes), high.reshape(sizes)


@op("Dequantize")
def dequantize(input, min_range, max_range, *, mode="MIN_COMBINED", narrow_range=False, axis=-1, dtype=np.float32):
    """Convert quantized integers to floats.

    TF: core/kernels/dequantize_op.cc.

    Args:
      min_range: float32, scalar or one for each slice along ``axis``.
      axis: the axis along which ranges differ; -1: none.
    """
    x = jnp.asarray(input)
    lowest, highest = _limits(x.dtype)
    low, high = _slices(x.shape, min_range, max_range, axis)
    value = x.astype(np.float32)
    if mode == "MIN_COMBINED":
        half = (highest - lowest + 1) / np.float32(2) if lowest < 0 else np.float32(0)
        out = product(value + half, quotient(high - low, highest - lowest)) + low
    elif mode == "SCALED":
        scale = quotient(high, highest)
        if lowest < 0:
            scale = lax.max(quotient(low, lowest + np.float32(narrow_range)), scale)
        out = product(value, scale)
    elif axis > -1 and low.size != 1:
        raise OpError("MIN_FIRST mode is not implemented for Dequantize with axis != -1")
    else:
        scale = quotient(high - low, highest - lowest)
        same = high == low
        safe = jnp.where(same, jnp.ones_like(scale), scale)
        nearest = lax.round(quotient(low, safe), lax.RoundingMethod.AWAY_FROM_ZERO) * safe
        start = jnp.where(same, low, rounded(nearest)) - product(lowest, scale)
        out = start + product(value, scale)
    return out.astype(np.dtype(dtype))


@op("QuantizeV2")
def quantize_v2(
    input,
    min_range,
    max_range,
    *,
    T,
    mode="MIN_COMBINED",
    round_mode="HALF_AWAY_FROM_ZERO",
    narrow_range=False,
    axis=-1,
    ensure_minimum_range=0.01,
):
    """Convert floats to quantized integers.

    TF: core/kernels/quantize_op.cc.

    Args:
      min_range: float32, scalar or one for each slice along ``axis``.
      axis: the axis along which ranges differ; -1: none.
    """
    x, dtype = jnp.asarray(input), np.dtype(T)
    lowest, highest = _limits(dtype)
    low, high = static_value(min_range), static_value(max_range)
    if low is not None and high is not None and (high < low).any():
        raise OpError(f"input_max_range must be larger than input_min_range, got {high} and {low}")
    low, high = _slices(x.shape, min_range, max_range, axis)
    widest = lax.max(jnp.ones_like(low), lax.max(jnp.abs(low), jnp.abs(high)))
    start = jnp.minimum(low, 0)
    end = jnp.maximum(jnp.maximum(high, start + product(widest, np.float32(ensure_minimum_range))), 0)
    away = lax.RoundingMethod.AWAY_FROM_ZERO
    if mode == "MIN_FIRST":
        if axis > -1 and start.size != 1:
            raise OpError("MIN_FIRST mode is not implemented for QuantizeV2 with axis != -1")
        scale = quotient(highest - lowest, end - start)
        shifted = lax.round(x * scale, away) - (lax.round(start * scale, away) - lowest)
        # The largest float32 below 2**31.
        out = lax.clamp(lowest, shifted, np.float32(min(highest, 2147483520.0)))
    elif mode == "SCALED":
        unlimited = jnp.full_like(start, np.finfo(np.float32).max)
        first = lowest + np.float32(narrow_range)
        end_scale = jnp.where(highest * end > 0, quotient(highest, end), unlimited)
        scale = lax.min(jnp.where(first * start > 0, quotient(first, start), unlimited), end_scale)
        start, end = quotient(first, scale), quotient(highest, scale)
        even = round_mode == "HALF_TO_EVEN"
        clipped = lax.max(lax.min(x, jnp.broadcast_to(end, x.shape)), jnp.broadcast_to(start, x.shape))
        out = lax.round(clipped * scale, lax.RoundingMethod.TO_NEAREST_EVEN if even else away)
    else:
        scale = quotient(highest - lowest, end - start)
        clipped = lax.max(lax.min(x, jnp.broadcast_to(end, x.shape)), jnp.broadcast_to(start, x.shape))
        steps = product(clipped - start, scale)
        if lowest < 0:
            out = lax.round(steps - (highest - lowest + 1) / np.float32(2), away)
        else:
            out = jnp.trunc(steps + np.float32(0.5))
    shape = () if start.size == 1 else jnp.shape(min_range)
    return cast(out, DstT=dtype), start.reshape(shape), end.reshape(shape)


def _levels(num_bits: int, narrow_range: bool) -> tuple[np.float32, np.float32]:
    if not 2 <= num_bits <= 16:
        raise OpError(f"num_bits is {num_bits}; it must be between 2 and 16")
    return np.float32(narrow_range), np.float32((1 << num_bits) - 1)


def _nudged(low: Any, high: Any, levels: tuple[np.float32, np.float32]) -> tuple[Any, Any, Any, Any]:
    """Return ends of a range in which 0 is a level, the step, and its inverse."""
    first, last = levels
    scale = quotient(high - low, last - first)
    inverse = quotient(last - first, high - low)
    zero = first - quotient(low, scale)
    zero = lax.clamp(first, lax.round(zero, lax.RoundingMethod.AWAY_FROM_ZERO), last)
    return product(first - zero, scale), product(last - zero, scale), scale, inverse


def _quantize(x: Any, low: Any, high: Any, levels: tuple[np.float32, np.float32], divide: bool) -> Any:
    unset = (low == 0) & (high == 0)
    low, high, scale, inverse = _nudged(low, jnp.where(unset, jnp.ones_like(high), high), levels)
    zero = jnp.floor(product(-low, inverse) + np.float32(0.5))
    shifted = lax.max(lax.min(x, jnp.broadcast_to(high, x.shape)), jnp.broadcast_to(low, x.shape)) - low
    # Some of TensorFlow's kernels divide, others multiply: results differ in the last bit.
    steps = quotient(shifted, scale) if divide else product(shifted, inverse)
    return jnp.where(unset, jnp.zeros_like(x), product(jnp.floor(rounded(steps - zero) + np.float32(0.5)), scale))


def _masks(x: Any, low: Any, high: Any, levels: tuple[np.float32, np.float32]) -> tuple[Any, Any, Any]:
    """Return masks of elements whose gradients are those of values, low and high end."""
    unset = (low == 0) & (high == 0)
    low, high, _, _ = _nudged(low, jnp.where(unset, jnp.ones_like(high), high), levels)
    inside = unset | ((x >= low) & (x <= high))
    return tuple(m.astype(x.dtype) for m in (inside, ~unset & (x < low), ~unset & (x > high)))  # pyright: ignore


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _fake_quant(x: Any, low: Any, high: Any, levels: tuple[np.float32, np.float32], divide: bool) -> Any:
    return _quantize(x, low, high, levels, divide)


@_fake_quant.defjvp
def _fake_quant_jvp(levels: tuple[np.float32, np.float32], divide: bool, primals: Any, tangents: Any) -> Any:
    x, low, high = primals
    masks = _masks(x, low, high, levels)
    out = _fake_quant(x, low, high, levels, divide)
    return out, sum(t * m for t, m in zip(tangents, masks, strict=True))


def _ends(x: Any, min: Any, max: Any, per_channel: bool) -> tuple[Any, Any, Any]:
    x, min, max = jnp.asarray(x), jnp.asarray(min), jnp.asarray(max)
    expected = x.shape[-1:] if per_channel else ()
    if (per_channel and not x.ndim) or min.shape != expected or max.shape != expected:
        raise OpError(f"min and max have shapes {min.shape} and {max.shape}; inputs of shape {x.shape} need {expected}")
    return x, min, max


def _attributes(x: Any, min: float, max: float) -> tuple[Any, Any, Any]:
    if min >= max:
        raise OpError(f"min has to be smaller than max, was: {min} >= {max}")
    return jnp.asarray(x), jnp.asarray(min, np.float32), jnp.asarray(max, np.float32)


@op("FakeQuantWithMinMaxArgs")
def fake_quant_args(inputs, *, min=-6.0, max=6.0, num_bits=8, narrow_range=False):
    """Round to the levels of a range given as attributes."""
    return _fake_quant(*_attributes(inputs, min, max), _levels(num_bits, narrow_range), False)


@op("FakeQuantWithMinMaxArgsGradient")
def fake_quant_args_gradient(gradients, inputs, *, min=-6.0, max=6.0, num_bits=8, narrow_range=False):
    """Return the gradients of values within the range, else 0."""
    return gradients * _masks(*_attributes(inputs, min, max), _levels(num_bits, narrow_range))[0]


def _register_fake(name: str, per_channel: bool) -> None:
    @op(name)
    def call(inputs, min, max, *, num_bits=8, narrow_range=False):
        """Round to the levels of a range, or of a range for each channel."""
        return _fake_quant(*_ends(inputs, min, max, per_channel), _levels(num_bits, narrow_range), not per_channel)

    @op(f"{name}Gradient")
    def gradient(gradients, inputs, min, max, *, num_bits=8, narrow_range=False):
        """Compute the gradients of `call`: values, min and max."""
        inside, below, above = _masks(*_ends(inputs, min, max, per_channel), _levels(num_bits, narrow_range))
        axes = tuple(range(jnp.ndim(inputs) - 1)) if per_channel else None
        return gradients * inside, jnp.sum(gradients * below, axes), jnp.sum(gradients * above, axes)


_register_fake("FakeQuantWithMinMaxVars", per_channel=False)
_register_fake("FakeQuantWithMinMaxVarsPerChannel", per_channel=True)


def _signed_levels(num_bits: Any, signed: bool, narrow_range: bool, dtype: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest quantized value, as floats."""
    if static_value(num_bits) is not None:
        bits = int(np.asarray(static_value(num_bits)).reshape(()))
        if not 0 < bits < (62 if signed else 63):
            raise OpError(f"num_bits is out of range: {bits} with signed_input {signed}")
        count = 1 << (bits - 1 if signed else bits)
        return dtype.type(narrow_range - count if signed else 0), dtype.type(count - 1)
    bits = jnp.asarray(num_bits).reshape(()) - (1 if signed else 0)
    count = jnp.ldexp(jnp.ones((), dtype), bits)
    return (narrow_range - count if signed else jnp.zeros((), dtype)), count - 1


def _scales(low: Any, high: Any, lowest: Any, highest: Any) -> tuple[Any, Any, Any, Any]:
    """Return ends of a range in which 0 is a level, the inverse step and the step."""
    unlimited = jnp.full_like(low, jnp.finfo(low.dtype).max)
    low_scale = jnp.where(lowest * low > 0, quotient(lowest, low), unlimited)
    high_scale = jnp.where(highest * high > 0, quotient(highest, high), unlimited)
    keep_low = low_scale < high_scale
    step = jnp.where(keep_low, quotient(low, lowest), quotient(high, highest))
    return (
        jnp.where(keep_low, low, lowest * step),
        jnp.where(keep_low, highest * step, high),
        jnp.where(keep_low, low_scale, high_scale),
        step,
    )


def _check_axis(axis: int, rank: int) -> None:
    if axis < -1 or axis >= max(rank, 1 if axis < 0 else 0):
        raise OpError(f"axis {axis} is out of range for a tensor of rank {rank}; -1 means none")


def _check_range(low: Any, high: Any, x: Any, axis: int) -> None:
    expected = () if axis < 0 else x.shape[axis : axis + 1]
    for name, value in (("input_min", low), ("input_max", high)):
        if value.shape != expected:
            raise OpError(f"{name} has shape {value.shape}; it must have shape {expected}")
    low, high = static_value(low), static_value(high)
    if low is not None and high is not None and (low > high).any():
        raise OpError(f"Invalid range: input_min {low} > input_max {high}")


def _quantize_and_dequantize(
    x: Any,
    low: Any,
    high: Any,
    num_bits: Any,
    *,
    signed_input: bool,
    range_given: bool,
    axis: int,
    narrow_range: bool = False,
    round_mode: str = "HALF_TO_EVEN",
) -> Any:
    lowest, highest = _signed_levels(num_bits, signed_input, narrow_range, np.dtype(x.dtype))
    if range_given:
        low, high = along(low, axis, x.ndim), along(high, axis, x.ndim)
    elif x.size == 0:
        return x
    else:
        axes = tuple(i for i in range(x.ndim) if i != axis)
        low, high = (f(x, axes, keepdims=axis >= 0) for f in (jnp.min, jnp.max))
    low, high, scale, step = _scales(low, high, lowest, highest)
    if range_given:
        x = lax.max(lax.min(x, jnp.broadcast_to(high, x.shape)), jnp.broadcast_to(low, x.shape))
    if round_mode == "HALF_UP":
        levels = jnp.floor(product(x, scale) + 0.5)
    else:
        levels = lax.round(x * scale, lax.RoundingMethod.TO_NEAREST_EVEN)
    return product(levels, step)


_RANGE = {"signed_input": True, "range_given": True, "narrow_range": False, "axis": -1}
_ROUNDED = {**_RANGE, "num_bits": 8, "range_given": False, "round_mode": "HALF_TO_EVEN"}


@op("QuantizeAndDequantizeV2", inputs="input input_min input_max", attributes=_ROUNDED)
@op("QuantizeAndDequantizeV3", inputs="input input_min input_max num_bits", attributes=_RANGE)
def quantize_and_dequantize(*, input, input_min, input_max, num_bits, range_given, axis=-1, masked=False, **options):
    """Round to quantized values; with ``masked``, gradients are 0 outside the range."""
    x = jnp.asarray(input)
    num_bits = np.asarray(num_bits) if isinstance(num_bits, int) else num_bits
    _check_axis(axis, x.ndim)
    if range_given:
        _check_range(input_min, input_max, x, axis)
    bits = static_value(num_bits)

    @jax.custom_jvp
    def call(x: Any, low: Any, high: Any, num_bits: Any) -> Any:
        count = num_bits if bits is None else bits
        return _quantize_and_dequantize(x, low, high, count, range_given=range_given, axis=axis, **options)

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, low, high, _ = primals
        t = tangents[0]
        return call(*primals), t * _inside(x, low, high, axis).astype(t.dtype) if masked else t

    return call(x, jnp.asarray(input_min), jnp.asarray(input_max), jnp.asarray(num_bits))


def _inside(x: Any, low: Any, high: Any, axis: int) -> Any:
    return (x >= along(low, axis, x.ndim)) & (x <= along(high, axis, x.ndim))


@op("QuantizeAndDequantizeV4", inputs="input input_min input_max", attributes=_ROUNDED)
def quantize_and_dequantize_v4(**operands):
    """Round as `quantize_and_dequantize`, with gradients within the range only."""
    return quantize_and_dequantize(**operands, masked=True)


@op("QuantizeAndDequantizeV4Grad")
def quantize_and_dequantize_v4_grad(gradients, input, input_min, input_max, *, axis=-1):
    """Return the gradients of values within the range, else 0."""
    x, low, high = jnp.asarray(input), jnp.asarray(input_min), jnp.asarray(input_max)
    _check_axis(axis, x.ndim)
    inside = _inside(x, low, high, axis)
    return gradients * inside.astype(x.dtype), jnp.zeros_like(low), jnp.zeros_like(high)


@op(
    "QuantizeAndDequantize",
    inputs="input",
    attributes={"signed_input": True, "num_bits": 8, "range_given": False, "input_min": 0.0, "input_max": 0.0},
)
def quantize_and_dequantize_v1(*, input, input_min, input_max, **options):
    """Round to quantized values, of old graphs; the gradient is the identity."""
    low, high = (np.asarray(v, np.float32).astype(input.dtype) for v in (input_min, input_max))
    return quantize_and_dequantize(input=input, input_min=low, input_max=high, **options)
