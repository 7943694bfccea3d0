"""Quantization by a range of floats: QuantizeV2 and Dequantize.

Quantized dtypes are integer dtypes here.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product, quotient, rounded
from tf2jax_lite.ops.math.cast import cast
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value

__all__: list[str] = []


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
