"""Uniform quantization: integers with a scale and a zero point.

They are per tensor, or per slice along an axis. Products are accumulated in int32, and rescaled in fixed point on
32-bit integers, so that JAX's 64-bit mode is not needed.

TF: core/kernels/uniform_quant_ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.integer_convolution import integer_convolution
from tf2jax_lite.ops.common.precision import product, quotient
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.ops.xla.protos import fields
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from .quantize import along


def multiplier(*scales: Any, over: Any) -> tuple[Any, Any]:
    """Return a quotient of scales as a 31-bit fraction and a power of two.

    The dividend is the product of ``scales``. Static scales are computed in float64, others in the widest float dtype
    that JAX has.

    Args:
      *scales: float32 arrays that broadcast.
      over: the divisor, float32.

    Returns:
      int32 fraction and int32 exponent, as QuantizeMultiplier of uniform_quant_ops/math_utils.h.
    """
    values = [static_value(s) for s in (*scales, over)]
    for value in values:
        if value is not None and not (value > 0).all():
            raise OpError(f"scales must be all positive, got {value}")
    if all(value is not None for value in values):
        xp, doubles = np, [np.asarray(v, np.float64) for v in values]
    else:
        xp, doubles = jnp, [jnp.asarray(s).astype(canonical(np.float64)) for s in (*scales, over)]
    *factors, divisor = doubles
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    fraction, shift = xp.frexp(product / divisor)  # pyright: ignore
    fixed = xp.floor(fraction * 2.0**31 + 0.5)
    overflows = fixed >= 2**31
    shift = (shift + overflows).astype(np.int32)
    fixed = xp.where(overflows, 2**30, fixed).astype(np.int32)
    small, large = shift < -31, shift > 30
    fixed = xp.where(small, 0, xp.where(large, 2**31 - 1, fixed))
    return fixed.astype(np.int32), xp.where(small, 0, xp.minimum(shift, 30)).astype(np.int32)


def _product(x: Any, factor: Any) -> tuple[Any, Any]:
    """Return words of the 64-bit product of a signed and a nonnegative 32-bit integer."""
    low_half, sixteen = np.uint32(0xFFFF), np.int32(16)
    unsigned = (lax.bitcast_convert_type(v, np.uint32) for v in (x, factor))
    x0, f0 = (v & low_half for v in unsigned)
    x1, f1 = (lax.shift_right_arithmetic(v, jnp.broadcast_to(sixteen, v.shape)) for v in (x, factor))
    lowest = x0 * f0
    # None of these sums overflows 32 bits.
    inner = x1 * f0.astype(np.int32) + (lowest >> 16).astype(np.int32)
    middle = x0 * f1.astype(np.uint32) + (lax.bitcast_convert_type(inner, np.uint32) & low_half)
    high = x1 * f1 + (inner >> 16) + (middle >> 16).astype(np.int32)
    return high, (middle << 16) | (lowest & low_half)


def rescaled(x: Any, factor: Any, shift: Any) -> Any:
    """Return ``x * factor * 2**(shift - 31)`` as int32, halves up, saturating."""
    x, factor, shift = jnp.broadcast_arrays(*(jnp.asarray(v, np.int32) for v in (x, factor, shift)))
    high, low = _product(x, factor)
    right = 31 - shift
    beyond = right > 32
    # Half of the last place is added before the shift.
    half_low = jnp.where(beyond, np.uint32(0), np.uint32(1) << jnp.where(beyond, 0, right - 1).astype(np.uint32))
    half_high = jnp.where(beyond, np.int32(1) << jnp.where(beyond, right - 33, 0), 0)
    total = low + half_low
    high = high + half_high + (total < low).astype(np.int32)
    # A shift by a word or more uses the high word only.
    word = right >= 32
    inside = jnp.where(word, 1, right)
    signed = lax.bitcast_convert_type(
        (total >> inside.astype(np.uint32))
        | (lax.bitcast_convert_type(high, np.uint32) << (32 - inside).astype(np.uint32)),
        np.int32,
    )
    fits = (high >> inside) == (signed >> 31)
    limit = jnp.where(high < 0, np.int32(-(2**31)), np.int32(2**31 - 1))
    return jnp.where(word, high >> jnp.where(word, right - 32, 0), jnp.where(fits, signed, limit))


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
    """Clamp int32 values to [low, high] (``low`` wins) and convert them."""
    return jnp.maximum(jnp.minimum(x, np.int32(high)), np.int32(low)).astype(np.dtype(dtype))


def floor_to_int(x: Any) -> Any:
    """Round down to int32; overflow is the lowest int32, as in TensorFlow's kernels."""
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


class _Quantization(NamedTuple):
    """Quantization of an operand or result: inputs and attributes with its prefix."""

    scales: Any
    zero_points: Any
    quantization_axis: int
    quantization_min_val: int
    quantization_max_val: int

    def parameters(self, shape: tuple[Any, ...]) -> tuple[Any, Any]:
        return parameters(shape, self.scales, self.zero_points, self.quantization_axis)

    def clamped(self, x: Any, dtype: Any) -> Any:
        return clamped(x, self.quantization_min_val, self.quantization_max_val, dtype)

    def check_axis(self, name: str, *allowed: int) -> None:
        axis = self.quantization_axis
        if axis not in (-1, *allowed):
            raise OpError(f"{name}_quantization_axis is {axis}; it must be -1" + "".join(f" or {a}" for a in allowed))


def _quantization(given: Mapping[str, Any], name: str) -> _Quantization:
    return _Quantization(*(given[f"{name}_{field}"] for field in _Quantization._fields))


def _inputs(*names: str) -> str:
    return " ".join(f"{name}_scales {name}_zero_points" for name in names)


def _attributes(*names: str) -> dict[str, Any]:
    ends = {f"{name}_quantization_{end}_val": REQUIRED for name in names for end in ("min", "max")}
    return {**ends, **{f"{name}_quantization_axis": -1 for name in names}}


@op(
    "UniformRequantize",
    inputs=f"input {_inputs('input', 'output')}",
    attributes={"Tout": REQUIRED, **_attributes("input", "output")},
)
def uniform_requantize(*, input, Tout, **given):
    """Convert quantized integers to another scale and zero point."""
    x, source, output = jnp.asarray(input), _quantization(given, "input"), _quantization(given, "output")
    axes = source.quantization_axis, output.quantization_axis
    if min(axes) >= 0 and axes[0] != axes[1]:
        raise OpError(f"quantization axes {axes[0]} and {axes[1]} differ")
    scale, zero = source.parameters(x.shape)
    out_scale, out_zero = output.parameters(x.shape)
    out = rescaled(x.astype(np.int32) - zero, *multiplier(scale, over=out_scale)) + out_zero
    return output.clamped(out, Tout)


_BINARY = f"lhs rhs {_inputs('lhs', 'rhs', 'output')}"


@op("UniformQuantizedAdd", inputs=_BINARY, attributes=_attributes("lhs", "rhs", "output"))
def uniform_quantized_add(*, lhs, rhs, **given):
    """Add quantized tensors in the scale of the result, with broadcasting."""
    lhs, rhs, output = jnp.asarray(lhs), jnp.asarray(rhs), _quantization(given, "output")
    shape = jnp.broadcast_shapes(lhs.shape, rhs.shape)
    out_scale, out_zero = output.parameters(shape)

    def term(x: Any, name: str) -> Any:
        own = _quantization(given, name)
        axis, out_axis = own.quantization_axis, output.quantization_axis
        if axis >= 0 and out_axis >= 0 and x.ndim - axis != len(shape) - out_axis:
            raise OpError("quantization axes of an operand and of the result must match")
        scale, zero = own.parameters(x.shape)
        return rescaled(x - zero, *multiplier(scale, over=out_scale))

    return output.clamped(term(lhs, "lhs") + term(rhs, "rhs") + out_zero, lhs.dtype)


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


def _quantized_rows(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return slices as centered int32 of 8 bits, their float32 scales and zero points."""
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


@op(
    "UniformQuantizedDot",
    inputs=_BINARY,
    attributes={"Tout": REQUIRED, **_attributes("lhs", "rhs", "output")},
)
def uniform_quantized_dot(*, lhs, rhs, Tout, **given):
    """Multiply quantized matrices."""
    left, right, output = (_quantization(given, name) for name in ("lhs", "rhs", "output"))
    left.check_axis("lhs")
    right.check_axis("rhs", 1)
    output.check_axis("output", 1)
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    scale, zero = left.parameters(lhs.shape)
    rhs_scale, rhs_zero = right.parameters(rhs.shape)
    total = _dot(_centered(lhs, zero), _centered(rhs, rhs_zero))
    out_scale, out_zero = output.parameters(total.shape)
    return output.clamped(rescaled(total, *multiplier(scale, rhs_scale, over=out_scale)) + out_zero, Tout)


@op(
    "UniformQuantizedDotHybrid",
    inputs=f"lhs rhs {_inputs('rhs')}",
    attributes={"Tout": REQUIRED, **_attributes("rhs")},
)
def uniform_quantized_dot_hybrid(*, lhs, rhs, Tout, **given):
    """Quantize a float matrix row by row and multiply by a quantized one."""
    right = _quantization(given, "rhs")
    right.check_axis("rhs", 1)
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    rhs_scale, rhs_zero = right.parameters(rhs.shape)
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


_CONVOLUTION = {
    "padding": REQUIRED,
    "window_strides": (),
    "explicit_padding": (),
    "lhs_dilation": (),
    "rhs_dilation": (),
    "batch_group_count": 1,
    "feature_group_count": 1,
    "dimension_numbers": "",
}


@op(
    "UniformQuantizedConvolution",
    inputs=_BINARY,
    attributes={"Tout": REQUIRED, **_CONVOLUTION, **_attributes("lhs", "rhs", "output")},
)
def uniform_quantized_convolution(*, lhs, rhs, Tout, **given):
    """Convolve quantized arrays."""
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    convolve = _Convolution(lhs, rhs, **{name: given[name] for name in _CONVOLUTION})
    channel = convolve.numbers.out_spec[1]
    left, right, output = (_quantization(given, name) for name in ("lhs", "rhs", "output"))
    left.check_axis("lhs")
    right.check_axis("rhs", convolve.numbers.rhs_spec[0])
    output.check_axis("output", channel)
    scale, zero = left.parameters(lhs.shape)
    _, rhs_zero = right.parameters(rhs.shape)
    # Padding with 0 after subtraction: the zero point is padded.
    total = convolve(_centered(lhs, zero), _centered(rhs, rhs_zero))
    rhs_scale = along(right.scales, channel if right.quantization_axis >= 0 else -1, total.ndim)
    out_scale, out_zero = output.parameters(total.shape)
    return output.clamped(rescaled(total, *multiplier(scale, rhs_scale, over=out_scale)) + out_zero, Tout)


@op(
    "UniformQuantizedConvolutionHybrid",
    inputs=f"lhs rhs {_inputs('rhs')}",
    attributes={"Tout": REQUIRED, **_CONVOLUTION, **_attributes("rhs")},
)
def uniform_quantized_convolution_hybrid(*, lhs, rhs, Tout, batch_group_count, **given):
    """Quantize float images one by one and convolve by a quantized filter."""
    lhs, rhs, right = jnp.asarray(lhs), jnp.asarray(rhs), _quantization(given, "rhs")
    options = {name: given[name] for name in _CONVOLUTION if name in given}
    convolve = _Convolution(lhs, rhs, batch_group_count=batch_group_count, **options)
    batch, channel = convolve.numbers.out_spec[:2]
    right.check_axis("rhs", convolve.numbers.rhs_spec[0])
    _, rhs_zero = right.parameters(rhs.shape)
    batch_axis = convolve.numbers.lhs_spec[0]
    values, scale, _ = _quantized_rows(lhs, tuple(i for i in range(lhs.ndim) if i != batch_axis))
    total = convolve(values, _centered(rhs, rhs_zero))
    # With batch groups, the channels of a group come from the images of one part of the batch.
    part = scale.reshape(batch_group_count, total.shape[batch])
    part = jnp.repeat(part, total.shape[channel] // batch_group_count, 0)
    order = (batch, channel) if batch < channel else (channel, batch)
    shape = tuple(total.shape[i] if i in order else 1 for i in range(total.ndim))
    scale = (part.T if batch < channel else part).reshape(shape)
    rhs_scale = along(right.scales, channel if right.quantization_axis >= 0 else -1, total.ndim)
    return product(product(total.astype(np.float32), scale), rhs_scale).astype(np.dtype(Tout))
