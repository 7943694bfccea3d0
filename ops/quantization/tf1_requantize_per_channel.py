"""Requantization with one range for each channel (the last dimension), as oneDNN.

Unlike in `tf1_requantize`, ranges are symmetric about 0: the end of larger magnitude is used, and 0 represents 0.
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

_F32 = np.float32
_INT8 = np.dtype(np.int8)
_STEPS = _F32(2.0**31)


def max_abs(low: Any, high: Any) -> Any:
    """Return the larger magnitude of both ends of ranges."""
    return jnp.maximum(jnp.abs(jnp.asarray(low)), jnp.abs(jnp.asarray(high)))


def round_and_saturate(values: Any, dtype: Any) -> Any:
    """Round floats, halves to even, to an 8-bit integer dtype, saturating."""
    info = np.iinfo(np.dtype(dtype))
    return jnp.clip(lax.round(values, lax.RoundingMethod.TO_NEAREST_EVEN), info.min, info.max).astype(info.dtype)


def _channels(input: Any, input_min: Any, input_max: Any) -> tuple[Any, Any]:
    x = jnp.asarray(input)
    if x.dtype != np.int32:
        raise OpError(f"expected a qint32 tensor, got {x.dtype}")
    if x.ndim != 4:
        raise OpError(f"the input must have 4 dimensions, not {x.ndim}")
    shapes = {np.shape(input_min), np.shape(input_max)}
    if shapes != {(x.shape[3],)}:
        raise OpError(f"ranges of shapes {sorted(shapes)} do not fit {x.shape[3]} channels")
    return x, max_abs(input_min, input_max)


@op("RequantizationRangePerChannel")
def requantization_range_per_channel(input, input_min, input_max, *, clip_value_max):
    """Return the range of the values in a qint32 tensor, up to a limit.

    TF: core/kernels/mkl/mkl_requantization_range_per_channel_op.cc.

    Integers within 64 of the ends of int32 overflow in TensorFlow, which uses 0 for them.
    """
    x, ends = _channels(input, input_min, input_max)
    lowest, highest = x.min((0, 1, 2)), x.max((0, 1, 2))
    magnitudes = jnp.maximum(jnp.abs(lowest.astype(_F32)), jnp.abs(highest.astype(_F32)))
    high = jnp.maximum((ends * magnitudes / _STEPS).max(), np.finfo(_F32).tiny)
    high = jnp.minimum(high, _F32(clip_value_max))
    return jnp.where((lowest >= 0).all(), _F32(0), -high), high


@op("RequantizePerChannel")
def requantize_per_channel(
    input, input_min, input_max, requested_output_min, requested_output_max, *, out_type=np.uint8
):
    """Convert qint32 with a range for each channel to 8 bits of one range.

    TF: core/kernels/mkl/mkl_requantize_per_channel_op.cc.
    """
    x, ends = _channels(input, input_min, input_max)
    low, high = (
        scalar("requested_output_min", requested_output_min),
        scalar("requested_output_max", requested_output_max),
    )
    factor = _F32(127) if np.dtype(out_type) == _INT8 else _F32(255)
    scales = product(factor, ends / max_abs(low, high) / _STEPS)
    return round_and_saturate(x.astype(_F32) * scales, out_type), jnp.asarray(low), jnp.asarray(high)
