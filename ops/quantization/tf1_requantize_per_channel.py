"""Giving quantized numbers another range where each channel, the last dimension, has a range of its own.

Unlike elsewhere, ranges are symmetric about 0 here: their larger end counts, and 0 stands for 0.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError

from .tf1_requantize import scalar

__all__ = ["largest", "saturated"]

_F32 = np.float32
_INT8 = np.dtype(np.int8)
_STEPS = _F32(2.0**31)


def largest(low: Any, high: Any) -> Any:
    """Returns the distance of ranges' farther ends from 0."""
    return jnp.maximum(jnp.abs(jnp.asarray(low)), jnp.abs(jnp.asarray(high)))


def saturated(values: Any, dtype: Any) -> Any:
    """Rounds floats, halves to even, to the numbers of an 8-bit type."""
    info = np.iinfo(np.dtype(dtype))
    return jnp.clip(lax.round(values, lax.RoundingMethod.TO_NEAREST_EVEN), info.min, info.max).astype(info.dtype)


def _channels(input: Any, input_min: Any, input_max: Any) -> tuple[Any, Any]:
    x = jnp.asarray(input)
    if x.dtype != np.int32:
        raise OpError(f"expected numbers of qint32, got {x.dtype}")
    if x.ndim != 4:
        raise OpError(f"the input must have 4 dimensions, not {x.ndim}")
    shapes = {np.shape(input_min), np.shape(input_max)}
    if shapes != {(x.shape[3],)}:
        raise OpError(f"ranges of shapes {sorted(shapes)} are not those of {x.shape[3]} channels")
    return x, largest(input_min, input_max)


@op("RequantizationRangePerChannel")
def requantization_range_per_channel(
    input: Any, input_min: Any, input_max: Any, *, clip_value_max: float
) -> tuple[Any, Any]:
    """Returns the range of the numbers that are there, up to a limit. See tf.raw_ops.RequantizationRangePerChannel.

    Numbers within 64 of the ends of 32 bits overflow in TensorFlow, and count as 0 there.
    """
    x, ends = _channels(input, input_min, input_max)
    least, most = x.min((0, 1, 2)), x.max((0, 1, 2))
    sizes = jnp.maximum(jnp.abs(least.astype(_F32)), jnp.abs(most.astype(_F32)))
    high = jnp.maximum((ends * sizes / _STEPS).max(), np.finfo(_F32).tiny)
    high = jnp.minimum(high, _F32(clip_value_max))
    return jnp.where((least >= 0).all(), _F32(0), -high), high


@op("RequantizePerChannel")
def requantize_per_channel(
    input: Any,
    input_min: Any,
    input_max: Any,
    requested_output_min: Any,
    requested_output_max: Any,
    *,
    out_type: Any = np.dtype(np.uint8),  # noqa: B008
) -> tuple[Any, Any, Any]:
    """Gives qint32 numbers another range, in 8 bits. See tf.raw_ops.RequantizePerChannel."""
    x, ends = _channels(input, input_min, input_max)
    low, high = (
        scalar("requested_output_min", requested_output_min),
        scalar("requested_output_max", requested_output_max),
    )
    factor = _F32(127) if np.dtype(out_type) == _INT8 else _F32(255)
    scales = product(factor, ends / largest(low, high) / _STEPS)
    return saturated(x.astype(_F32) * scales, out_type), jnp.asarray(low), jnp.asarray(high)
