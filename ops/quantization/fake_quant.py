"""Fake quantization: floats rounded to the levels of a quantized range.

Gradients are straight-through.

TF: core/kernels/fake_quant_ops.cc.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product, quotient, rounded
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError

__all__: list[str] = []


def _levels(num_bits: int, narrow_range: bool) -> tuple[np.float32, np.float32]:
    if not 2 <= num_bits <= 16:
        raise OpError(f"num_bits is {num_bits}; it must be between 2 and 16")
    return np.float32(narrow_range), np.float32((1 << num_bits) - 1)


def _nudged(low: Any, high: Any, levels: tuple[np.float32, np.float32]) -> tuple[Any, Any, Any, Any]:
    """Shift a range so that 0 is a level, as Nudge of fake_quant_ops_functor.h.

    Returns:
      The lower end, the upper end, the step, and its inverse.
    """
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
    """Return masks of elements by the destination of their gradient.

    They are the values, the lower end and the upper end of the range.
    """
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


def _register(name: str, per_channel: bool) -> None:
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


_register("FakeQuantWithMinMaxVars", per_channel=False)
_register("FakeQuantWithMinMaxVarsPerChannel", per_channel=True)
