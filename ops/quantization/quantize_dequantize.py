"""QuantizeAndDequantize V2 to V4: floats rounded to quantized values.

Gradients are straight-through.

TF: core/kernels/quantize_and_dequantize_op.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product, quotient
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value

from .uniform import along

__all__: list[str] = []


def _levels(num_bits: Any, signed: bool, narrow_range: bool, dtype: Any) -> tuple[Any, Any]:
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
    """Shift one end of a range so that 0 is a level.

    Returns both ends, the inverse step and the step.
    """
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
    signed: bool,
    range_given: bool,
    narrow_range: bool,
    axis: int,
    half_up: bool,
) -> Any:
    lowest, highest = _levels(num_bits, signed, narrow_range, np.dtype(x.dtype))
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
    if half_up:
        levels = jnp.floor(product(x, scale) + 0.5)
    else:
        levels = lax.round(x * scale, lax.RoundingMethod.TO_NEAREST_EVEN)
    return product(levels, step)


def _straight_through(
    input: Any,
    input_min: Any,
    input_max: Any,
    num_bits: Any,
    masked: bool,
    *,
    range_given: bool,
    axis: int,
    **options: Any,
) -> Any:
    """Round with gradient 1, or with ``masked`` 0 outside of the range."""
    x = jnp.asarray(input)
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


def _register(name: str, masked: bool) -> Callable[..., Any]:
    @op(name)
    def call(
        input,
        input_min,
        input_max,
        *,
        signed_input=True,
        num_bits=8,
        range_given=False,
        round_mode="HALF_TO_EVEN",
        narrow_range=False,
        axis=-1,
    ):
        """Round to quantized values, with gradient 1, or ``masked`` by the range."""
        return _straight_through(
            input,
            input_min,
            input_max,
            np.asarray(num_bits),
            masked,
            signed=signed_input,
            range_given=range_given,
            narrow_range=narrow_range,
            axis=axis,
            half_up=round_mode == "HALF_UP",
        )

    return call


quantize_and_dequantize_v2 = _register("QuantizeAndDequantizeV2", masked=False)
_register("QuantizeAndDequantizeV4", masked=True)


@op("QuantizeAndDequantizeV3")
def quantize_and_dequantize_v3(
    input, input_min, input_max, num_bits, *, signed_input=True, range_given=True, narrow_range=False, axis=-1
):
    """Round to quantized values of a number of bits that may be traced."""
    return _straight_through(
        input,
        input_min,
        input_max,
        num_bits,
        False,
        signed=signed_input,
        range_given=range_given,
        narrow_range=narrow_range,
        axis=axis,
        half_up=False,
    )


@op("QuantizeAndDequantizeV4Grad")
def quantize_and_dequantize_v4_grad(gradients, input, input_min, input_max, *, axis=-1):
    """Return the gradients of values within the range, else 0."""
    x, low, high = jnp.asarray(input), jnp.asarray(input_min), jnp.asarray(input_max)
    _check_axis(axis, x.ndim)
    inside = _inside(x, low, high, axis)
    return gradients * inside.astype(x.dtype), jnp.zeros_like(low), jnp.zeros_like(high)
