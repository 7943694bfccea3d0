"""Matrix products and convolutions of uniformly quantized integers.

They are accumulated in int32.

TF: core/kernels/uniform_quant_ops/uniform_quantized_dot_ops.cc,
core/kernels/uniform_quant_ops/uniform_quantized_convolution_ops.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.integer_convolution import integer_convolution
from tf2jax_lite.ops.common.rounding import product, quotient
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.xla.protos import fields
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

from ._fixed_point import multiplier, rescaled
from .uniform import along, clamped, floor_to_int, parameters

__all__: list[str] = []


def _quantized_rows(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Quantize floats to 8 bits, with a scale and a zero point for each slice.

    Args:
      axes: the axes of a slice.

    Returns:
      int32 values minus their zero point, float32 scales, and int32 zero points.
    """
    double = canonical(np.float64)
    low = jnp.minimum(jnp.min(x, axes, keepdims=True), 0).astype(double)
    high = jnp.maximum(jnp.max(x, axes, keepdims=True), 0).astype(double)
    span = high - low
    scale = quotient(span, 255).astype(np.float32)
    inverse = (255 / jnp.where(span == 0, jnp.ones_like(span), span)).astype(np.float32)
    empty = (scale == 0) | (span == 0) | ~jnp.isfinite(inverse)
    below, above = (v / jnp.where(empty, 1, scale).astype(double) for v in (low, high))
    # The zero point of the end with the smaller error.
    zero = jnp.where(128 + jnp.abs(below) < 127 + jnp.abs(above), -128 - below, 127 - above)
    zero = jnp.clip(lax.round(zero, lax.RoundingMethod.AWAY_FROM_ZERO), -128, 127).astype(np.int32)
    steps = clamped(floor_to_int(product(x, inverse) + np.float32(0.5)) + zero, -128, 127, np.int32)
    return jnp.where(empty, 0, steps - zero), jnp.where(empty, np.float32(1), scale), zero


def _centered(x: Any, zero: Any) -> Any:
    return jnp.asarray(x).astype(np.int32) - zero


def _dot(lhs: Any, rhs: Any) -> Any:
    if lhs.ndim != 2 or rhs.ndim != 2 or lhs.shape[1] != rhs.shape[0]:
        raise OpError(f"shapes {lhs.shape} and {rhs.shape} are not those of two matrices to multiply")
    return lax.dot_general(lhs, rhs, (((1,), (0,)), ((), ())), preferred_element_type=np.dtype(np.int32))


def _per_tensor(name: str, axis: int, *allowed: int) -> None:
    if axis not in (-1, *allowed):
        raise OpError(f"{name} is {axis}; it must be -1" + "".join(f" or {a}" for a in allowed))


@op("UniformQuantizedDot")
def uniform_quantized_dot(
    lhs,
    rhs,
    lhs_scales,
    lhs_zero_points,
    rhs_scales,
    rhs_zero_points,
    output_scales,
    output_zero_points,
    *,
    Tout,
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
    """Multiply quantized matrices."""
    _per_tensor("lhs_quantization_axis", lhs_quantization_axis)
    _per_tensor("rhs_quantization_axis", rhs_quantization_axis, 1)
    _per_tensor("output_quantization_axis", output_quantization_axis, 1)
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    scale, zero = parameters(lhs.shape, lhs_scales, lhs_zero_points, -1)
    rhs_scale, rhs_zero = parameters(rhs.shape, rhs_scales, rhs_zero_points, rhs_quantization_axis)
    total = _dot(_centered(lhs, zero), _centered(rhs, rhs_zero))
    out_scale, out_zero = parameters(total.shape, output_scales, output_zero_points, output_quantization_axis)
    out = rescaled(total, *multiplier(scale, rhs_scale, over=out_scale)) + out_zero
    return clamped(out, output_quantization_min_val, output_quantization_max_val, Tout)


@op("UniformQuantizedDotHybrid")
def uniform_quantized_dot_hybrid(
    lhs,
    rhs,
    rhs_scales,
    rhs_zero_points,
    *,
    Tout,
    rhs_quantization_min_val,
    rhs_quantization_max_val,
    rhs_quantization_axis=-1,
):
    """Quantize a float matrix row by row and multiply by a quantized one."""
    _per_tensor("rhs_quantization_axis", rhs_quantization_axis, 1)
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    rhs_scale, rhs_zero = parameters(rhs.shape, rhs_scales, rhs_zero_points, rhs_quantization_axis)
    values, scale, _ = _quantized_rows(lhs, (1,))
    out = _dot(values, _centered(rhs, rhs_zero)).astype(np.float32)
    return product(product(out, scale), rhs_scale).astype(np.dtype(Tout))


def _numbers(text: str, rank: int) -> lax.ConvDimensionNumbers:
    if not text:
        order = tuple(range(rank))
        return lax.ConvDimensionNumbers(order, order, order)
    entries = fields(text)
    one = {i: (entries.get(i) or [0])[-1] for i in (1, 2, 4, 5, 7, 8)}
    return lax.ConvDimensionNumbers(
        lhs_spec=(one[1], one[2], *entries.get(3, ())),
        rhs_spec=(one[5], one[4], *entries.get(6, ())),
        out_spec=(one[7], one[8], *entries.get(9, ())),
    )


def _pads(
    padding: str,
    explicit: Sequence[int],
    sizes: Sequence[Any],
    window: Sequence[Any],
    strides: Sequence[int],
) -> Any:
    count = len(sizes)
    if padding == "EXPLICIT":
        if len(explicit) != 2 * count:
            raise OpError(f"explicit_padding has {len(explicit)} entries; {count} spatial dimensions need {2 * count}")
        return [(int(explicit[2 * i]), int(explicit[2 * i + 1])) for i in range(count)]
    if explicit or padding not in ("SAME", "VALID"):
        raise OpError(f"padding {padding!r} with explicit_padding {list(explicit)}")
    if padding == "VALID":
        return [(0, 0)] * count
    return lax.padtype_to_pads(tuple(sizes), tuple(window), tuple(strides), "SAME")


def _dilated(size: Any, dilation: int) -> Any:
    return (size - 1) * dilation + 1 if not (isinstance(size, int) and size == 0) else 0


class _Convolution:
    """A convolution of integers minus their zero points, and its dimension numbers."""

    def __init__(
        self,
        lhs: Any,
        rhs: Any,
        *,
        padding: str,
        window_strides: Sequence[int],
        explicit_padding: Sequence[int],
        lhs_dilation: Sequence[int],
        rhs_dilation: Sequence[int],
        batch_group_count: int,
        feature_group_count: int,
        dimension_numbers: str,
    ):
        rank = lhs.ndim
        if rank != rhs.ndim or rank < 3:
            raise OpError(f"shapes {lhs.shape} and {rhs.shape} are not those of a convolution")
        self.numbers = _numbers(dimension_numbers, rank)
        ones = (1,) * (rank - 2)
        self.strides = tuple(window_strides) or ones
        self.dilations = tuple(lhs_dilation) or ones, tuple(rhs_dilation) or ones
        sizes, window = (
            [_dilated(x.shape[i], d) for i, d in zip(spec[2:], dilation, strict=True)]
            for x, spec, dilation in zip((lhs, rhs), self.numbers[:2], self.dilations, strict=True)
        )
        self.pads = _pads(padding, explicit_padding, sizes, window, self.strides)
        self.groups = feature_group_count, batch_group_count

    def __call__(self, lhs: Any, rhs: Any) -> Any:
        return integer_convolution(
            lhs,
            rhs,
            self.strides,
            self.pads,
            lhs_dilation=self.dilations[0],
            rhs_dilation=self.dilations[1],
            dimension_numbers=self.numbers,
            feature_group_count=self.groups[0],
            batch_group_count=self.groups[1],
            preferred_element_type=np.dtype(np.int32),
        )


@op("UniformQuantizedConvolution")
def uniform_quantized_convolution(
    lhs,
    rhs,
    lhs_scales,
    lhs_zero_points,
    rhs_scales,
    rhs_zero_points,
    output_scales,
    output_zero_points,
    *,
    Tout,
    padding,
    lhs_quantization_min_val,
    lhs_quantization_max_val,
    rhs_quantization_min_val,
    rhs_quantization_max_val,
    output_quantization_min_val,
    output_quantization_max_val,
    window_strides=(),
    explicit_padding=(),
    lhs_dilation=(),
    rhs_dilation=(),
    batch_group_count=1,
    feature_group_count=1,
    dimension_numbers="",
    lhs_quantization_axis=-1,
    rhs_quantization_axis=-1,
    output_quantization_axis=-1,
):
    """Convolve quantized arrays."""
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    convolve = _Convolution(
        lhs,
        rhs,
        padding=padding,
        window_strides=window_strides,
        explicit_padding=explicit_padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        batch_group_count=batch_group_count,
        feature_group_count=feature_group_count,
        dimension_numbers=dimension_numbers,
    )
    channel = convolve.numbers.out_spec[1]
    _per_tensor("lhs_quantization_axis", lhs_quantization_axis)
    _per_tensor("rhs_quantization_axis", rhs_quantization_axis, convolve.numbers.rhs_spec[0])
    _per_tensor("output_quantization_axis", output_quantization_axis, channel)
    scale, zero = parameters(lhs.shape, lhs_scales, lhs_zero_points, -1)
    _, rhs_zero = parameters(rhs.shape, rhs_scales, rhs_zero_points, rhs_quantization_axis)
    # Padding with 0 after subtraction: the zero point is padded.
    total = convolve(_centered(lhs, zero), _centered(rhs, rhs_zero))
    rhs_scale = along(rhs_scales, channel if rhs_quantization_axis >= 0 else -1, total.ndim)
    out_scale, out_zero = parameters(total.shape, output_scales, output_zero_points, output_quantization_axis)
    out = rescaled(total, *multiplier(scale, rhs_scale, over=out_scale)) + out_zero
    return clamped(out, output_quantization_min_val, output_quantization_max_val, Tout)


@op("UniformQuantizedConvolutionHybrid")
def uniform_quantized_convolution_hybrid(
    lhs,
    rhs,
    rhs_scales,
    rhs_zero_points,
    *,
    Tout,
    padding,
    rhs_quantization_min_val,
    rhs_quantization_max_val,
    window_strides=(),
    explicit_padding=(),
    lhs_dilation=(),
    rhs_dilation=(),
    batch_group_count=1,
    feature_group_count=1,
    dimension_numbers="",
    rhs_quantization_axis=-1,
):
    """Quantize float images one by one and convolve by a quantized filter."""
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    convolve = _Convolution(
        lhs,
        rhs,
        padding=padding,
        window_strides=window_strides,
        explicit_padding=explicit_padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        batch_group_count=batch_group_count,
        feature_group_count=feature_group_count,
        dimension_numbers=dimension_numbers,
    )
    batch, channel = convolve.numbers.out_spec[:2]
    _per_tensor("rhs_quantization_axis", rhs_quantization_axis, convolve.numbers.rhs_spec[0])
    _, rhs_zero = parameters(rhs.shape, rhs_scales, rhs_zero_points, rhs_quantization_axis)
    batch_axis = convolve.numbers.lhs_spec[0]
    values, scale, _ = _quantized_rows(lhs, tuple(i for i in range(lhs.ndim) if i != batch_axis))
    total = convolve(values, _centered(rhs, rhs_zero))
    # With batch groups, the channels of a group come from the images of one part of the batch.
    part = scale.reshape(batch_group_count, total.shape[batch])
    part = jnp.repeat(part, total.shape[channel] // batch_group_count, 0)
    order = (batch, channel) if batch < channel else (channel, batch)
    shape = tuple(total.shape[i] if i in order else 1 for i in range(total.ndim))
    scale = (part.T if batch < channel else part).reshape(shape)
    rhs_scale = along(rhs_scales, channel if rhs_quantization_axis >= 0 else -1, total.ndim)
    return product(product(total.astype(np.float32), scale), rhs_scale).astype(np.dtype(Tout))
