"""Quantization with a range: to integers, back, and there and back in one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product, quotient
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value

__all__: list[str] = []


def _steps(num_bits: Any, signed: bool, narrow: bool, dtype: Any) -> tuple[Any, Any]:
    """Returns the lowest and the highest quantized value, as floats."""
    if static_value(num_bits) is not None:
        bits = int(np.asarray(static_value(num_bits)).reshape(()))
        if not 0 < bits < (62 if signed else 63):
            raise OpError(f"num_bits is out of range: {bits} with signed_input {signed}")
        count = 1 << (bits - 1 if signed else bits)
        return dtype.type(narrow - count if signed else 0), dtype.type(count - 1)
    bits = jnp.asarray(num_bits).reshape(()) - (1 if signed else 0)
    count = jnp.ldexp(jnp.ones((), dtype), bits)
    return (narrow - count if signed else jnp.zeros((), dtype)), count - 1


def _scales(low: Any, high: Any, lowest: Any, highest: Any) -> tuple[Any, Any, Any, Any]:
    """Moves one end of a range so that 0 keeps a level; returns the ends, the steps in a unit and the step."""
    most = jnp.full_like(low, jnp.finfo(low.dtype).max)
    from_low = jnp.where(lowest * low > 0, quotient(lowest, low), most)
    from_high = jnp.where(highest * high > 0, quotient(highest, high), most)
    by_low = from_low < from_high
    step = jnp.where(by_low, quotient(low, lowest), quotient(high, highest))
    return (
        jnp.where(by_low, low, lowest * step),
        jnp.where(by_low, highest * step, high),
        jnp.where(by_low, from_low, from_high),
        step,
    )


def _along(value: Any, axis: int, rank: int) -> Any:
    """Shapes a vector for an axis; a scalar if there is none."""
    if axis < 0:
        return value.reshape(())
    return value.reshape(tuple(-1 if i == axis else 1 for i in range(rank)))


def _check_axis(axis: int, rank: int) -> None:
    if axis < -1 or axis >= max(rank, 1 if axis < 0 else 0):
        raise OpError(f"axis {axis} is out of range for a tensor of rank {rank}; -1 means none")


def _check_range(low: Any, high: Any, x: Any, axis: int) -> None:
    wanted = () if axis < 0 else x.shape[axis : axis + 1]
    for name, value in (("input_min", low), ("input_max", high)):
        if value.shape != wanted:
            raise OpError(f"{name} has shape {value.shape}; it must have shape {wanted}")
    low, high = static_value(low), static_value(high)
    if low is not None and high is not None and (low > high).any():
        raise OpError(f"Invalid range: input_min {low} > input_max {high}")


def _there_and_back(
    x: Any,
    low: Any,
    high: Any,
    num_bits: Any,
    *,
    signed: bool,
    given: bool,
    narrow: bool,
    axis: int,
    half_up: bool,
) -> Any:
    lowest, highest = _steps(num_bits, signed, narrow, np.dtype(x.dtype))
    if given:
        low, high = _along(low, axis, x.ndim), _along(high, axis, x.ndim)
    elif x.size == 0:
        return x
    else:
        axes = tuple(i for i in range(x.ndim) if i != axis)
        low, high = (f(x, axes, keepdims=axis >= 0) for f in (jnp.min, jnp.max))
    low, high, scale, step = _scales(low, high, lowest, highest)
    if given:
        x = lax.max(lax.min(x, jnp.broadcast_to(high, x.shape)), jnp.broadcast_to(low, x.shape))
    if half_up:
        levels = jnp.floor(product(x, scale) + 0.5)
    else:
        levels = lax.round(x * scale, lax.RoundingMethod.TO_NEAREST_EVEN)
    return product(levels, step)


def _straight_through(
    input: Any, input_min: Any, input_max: Any, num_bits: Any, masked: bool, *, given: bool, axis: int, **rest: Any
) -> Any:
    x = jnp.asarray(input)
    _check_axis(axis, x.ndim)
    if given:
        _check_range(input_min, input_max, x, axis)
    bits = static_value(num_bits)

    @jax.custom_jvp
    def call(x: Any, low: Any, high: Any, num_bits: Any) -> Any:
        return _there_and_back(x, low, high, num_bits if bits is None else bits, given=given, axis=axis, **rest)

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, low, high, _ = primals
        t = tangents[0]
        return call(*primals), t * _inside(x, low, high, axis).astype(t.dtype) if masked else t

    return call(x, jnp.asarray(input_min), jnp.asarray(input_max), jnp.asarray(num_bits))


def _inside(x: Any, low: Any, high: Any, axis: int) -> Any:
    return (x >= _along(low, axis, x.ndim)) & (x <= _along(high, axis, x.ndim))


@op("QuantizeAndDequantizeV2")
def quantize_and_dequantize_v2(
    input: Any,
    input_min: Any,
    input_max: Any,
    *,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    narrow_range: bool = False,
    axis: int = -1,
) -> Any:
    """Rounds to quantized values; the gradient passes all. See tf.raw_ops.QuantizeAndDequantizeV2."""
    return _straight_through(
        input,
        input_min,
        input_max,
        np.asarray(num_bits),
        False,
        signed=signed_input,
        given=range_given,
        narrow=narrow_range,
        axis=axis,
        half_up=round_mode == "HALF_UP",
    )


@op("QuantizeAndDequantizeV3")
def quantize_and_dequantize_v3(
    input: Any,
    input_min: Any,
    input_max: Any,
    num_bits: Any,
    *,
    signed_input: bool = True,
    range_given: bool = True,
    narrow_range: bool = False,
    axis: int = -1,
) -> Any:
    """Rounds to quantized values of a number of bits that may be traced. See tf.raw_ops.QuantizeAndDequantizeV3."""
    return _straight_through(
        input,
        input_min,
        input_max,
        num_bits,
        False,
        signed=signed_input,
        given=range_given,
        narrow=narrow_range,
        axis=axis,
        half_up=False,
    )


@op("QuantizeAndDequantizeV4")
def quantize_and_dequantize_v4(
    input: Any,
    input_min: Any,
    input_max: Any,
    *,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    narrow_range: bool = False,
    axis: int = -1,
) -> Any:
    """Rounds to quantized values; the gradient passes inside the range. See tf.raw_ops.QuantizeAndDequantizeV4."""
    return _straight_through(
        input,
        input_min,
        input_max,
        np.asarray(num_bits),
        True,
        signed=signed_input,
        given=range_given,
        narrow=narrow_range,
        axis=axis,
        half_up=round_mode == "HALF_UP",
    )


@op("QuantizeAndDequantizeV4Grad")
def quantize_and_dequantize_v4_grad(
    gradients: Any, input: Any, input_min: Any, input_max: Any, *, axis: int = -1
) -> tuple[Any, Any, Any]:
    """Passes gradients of values inside the range. See tf.raw_ops.QuantizeAndDequantizeV4Grad."""
    x, low, high = jnp.asarray(input), jnp.asarray(input_min), jnp.asarray(input_max)
    _check_axis(axis, x.ndim)
    inside = _inside(x, low, high, axis)
    return gradients * inside.astype(x.dtype), jnp.zeros_like(low), jnp.zeros_like(high)
