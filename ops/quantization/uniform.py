"""Uniform quantization: integers with a scale and a zero point.

They are per tensor, or per slice along an axis.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import is_static

from ._fixed_point import multiplier, rescaled


def along(value: Any, axis: int, rank: int) -> Any:
    """Reshape a vector to broadcast along an axis of a tensor of ``rank``.

    If the axis is negative, reshape to a scalar.
    """
    value = value if is_static(value) else jnp.asarray(value)
    return value.reshape(tuple(-1 if i == axis else 1 for i in range(rank))) if axis >= 0 else value.reshape(())


def parameters(shape: tuple[Any, ...], scales: Any, zero_points: Any, axis: int) -> tuple[Any, Any]:
    """Return scales and zero points that broadcast against a tensor of ``shape``."""
    if not -1 <= axis < len(shape):
        raise OpError(f"quantization axis {axis} is out of range for a tensor of rank {len(shape)}")
    expected = shape[axis : axis + 1] if axis >= 0 else ()
    for name, value in (("scales", scales), ("zero_points", zero_points)):
        if jnp.shape(value) != expected:
            raise OpError(f"{name} has shape {jnp.shape(value)}; quantization axis {axis} of {shape} needs {expected}")
    return along(scales, axis, len(shape)), along(zero_points, axis, len(shape))


def clamped(x: Any, low: int, high: int, dtype: Any) -> Any:
    """Clamp int32 values to [low, high] and convert them.

    ``low`` wins if it is larger.
    """
    return jnp.maximum(jnp.minimum(x, np.int32(high)), np.int32(low)).astype(np.dtype(dtype))


def floor_to_int(x: Any) -> Any:
    """Round down to int32.

    Overflow returns the lowest int32, as in TensorFlow's kernels.
    """
    floor = jnp.floor(x)
    return jnp.where(jnp.abs(floor) < 2.0**31, floor, jnp.full_like(floor, -(2.0**31))).astype(np.int32)


@op("UniformQuantize")
def uniform_quantize(
    input, scales, zero_points, *, Tout, quantization_min_val, quantization_max_val, quantization_axis=-1
):
    """Convert floats to quantized integers.

    TF: core/kernels/uniform_quant_ops/uniform_quantize_op.cc.
    """
    x = jnp.asarray(input)
    scale, zero = parameters(x.shape, scales, zero_points, quantization_axis)
    steps = floor_to_int(product(x, np.float32(1) / scale) + np.float32(0.5))
    return clamped(steps + zero, quantization_min_val, quantization_max_val, Tout)


@op("UniformDequantize")
def uniform_dequantize(
    input, scales, zero_points, *, Tout, quantization_min_val, quantization_max_val, quantization_axis=-1
):
    """Convert quantized integers to floats.

    TF: core/kernels/uniform_quant_ops/uniform_dequantize_op.cc.
    """
    x = jnp.asarray(input)
    scale, zero = parameters(x.shape, scales, zero_points, quantization_axis)
    return product((x.astype(np.int32) - zero).astype(np.float32), scale).astype(np.dtype(Tout))


@op("UniformRequantize")
def uniform_requantize(
    input,
    input_scales,
    input_zero_points,
    output_scales,
    output_zero_points,
    *,
    Tout,
    input_quantization_min_val,
    input_quantization_max_val,
    output_quantization_min_val,
    output_quantization_max_val,
    input_quantization_axis=-1,
    output_quantization_axis=-1,
):
    """Convert quantized integers to another scale and zero point.

    TF: core/kernels/uniform_quant_ops/uniform_requantize_op.cc.
    """
    x = jnp.asarray(input)
    axes = input_quantization_axis, output_quantization_axis
    if min(axes) >= 0 and axes[0] != axes[1]:
        raise OpError(f"quantization axes {axes[0]} and {axes[1]} differ")
    scale, zero = parameters(x.shape, input_scales, input_zero_points, input_quantization_axis)
    out_scale, out_zero = parameters(x.shape, output_scales, output_zero_points, output_quantization_axis)
    out = rescaled(x.astype(np.int32) - zero, *multiplier(scale, over=out_scale)) + out_zero
    return clamped(out, output_quantization_min_val, output_quantization_max_val, Tout)


@op("UniformQuantizedAdd")
def uniform_quantized_add(
    lhs,
    rhs,
    lhs_scales,
    lhs_zero_points,
    rhs_scales,
    rhs_zero_points,
    output_scales,
    output_zero_points,
    *,
    lhs_quantization_min_val,
    lhs_quantization_max_val,
    rhs_quantization_min_val,
    rhs_quantization_max_val,
    output_quantization_min_val,
    output_quantization_max_val,
    lhs_quantization_axis=-1,
    rhs_quantization_axis=-1,
    output_quantization_axis=-1,
):
    """Add quantized tensors in the scale of the result, with broadcasting.

    TF: core/kernels/uniform_quant_ops/uniform_quantized_add_op.cc.
    """
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    shape = jnp.broadcast_shapes(lhs.shape, rhs.shape)
    out_scale, out_zero = parameters(shape, output_scales, output_zero_points, output_quantization_axis)

    def term(x: Any, scales: Any, zero_points: Any, axis: int) -> Any:
        if axis >= 0 and output_quantization_axis >= 0 and x.ndim - axis != len(shape) - output_quantization_axis:
            raise OpError("quantization axes of an operand and of the result must match")
        scale, zero = parameters(x.shape, scales, zero_points, axis)
        return rescaled(x - zero, *multiplier(scale, over=out_scale))

    total = term(lhs, lhs_scales, lhs_zero_points, lhs_quantization_axis) + term(
        rhs, rhs_scales, rhs_zero_points, rhs_quantization_axis
    )
    return clamped(total + out_zero, output_quantization_min_val, output_quantization_max_val, lhs.dtype)


@op("UniformQuantizedClipByValue")
def uniform_quantized_clip_by_value(
    operand, min, max, scales, zero_points, *, quantization_min_val, quantization_max_val, quantization_axis=-1
):
    """Clip to bounds that are quantized as the operand.

    TF: core/kernels/uniform_quant_ops/uniform_quantized_clip_by_value_op.cc.
    """
    x = jnp.asarray(operand)
    low, high = parameters(x.shape, min, max, quantization_axis)
    parameters(x.shape, scales, zero_points, quantization_axis)
    return lax.min(lax.max(x, jnp.broadcast_to(low, x.shape)), jnp.broadcast_to(high, x.shape))
