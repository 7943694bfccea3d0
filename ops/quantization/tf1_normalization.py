"""Normalization of quantized images that come with their range."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError

from .tf1_requantize import from_float, scalar, to_float

__all__: list[str] = []

_INT32, _F32 = np.dtype(np.int32), np.float32


@op("QuantizedInstanceNorm")
def quantized_instance_norm(
    x: Any,
    x_min: Any,
    x_max: Any,
    *,
    output_range_given: bool = False,
    given_y_min: float = 0.0,
    given_y_max: float = 0.0,
    variance_epsilon: float = 1e-5,
    min_separation: float = 1e-3,
) -> tuple[Any, Any, Any]:
    """Normalizes each channel of each image by its own mean and variance. See tf.raw_ops.QuantizedInstanceNorm.

    Sums are in another order than TensorFlow's: a range may differ in its last bits, and numbers by a step.
    """
    x, low, high = jnp.asarray(x), scalar("x_min", x_min), scalar("x_max", x_max)
    if x.ndim != 4:
        raise OpError(f"images have rank 4, not {x.ndim}")
    if output_range_given and not given_y_min < given_y_max:
        raise OpError(f"given_y_min must be less than given_y_max, got {given_y_min} and {given_y_max}")
    values = to_float(x, low, high, x.dtype)
    centered = values - jnp.mean(values, axis=(1, 2), keepdims=True)
    variance = jnp.mean(lax.square(centered), axis=(1, 2), keepdims=True)
    normed = centered * lax.rsqrt(variance + _F32(variance_epsilon))
    if output_range_given:
        y_min, y_max = jnp.asarray(given_y_min, _F32), jnp.asarray(given_y_max, _F32)
    else:
        y_min = normed.min()
        y_max = jnp.maximum(normed.max(), y_min + _F32(min_separation))
    return from_float(normed, y_min, y_max, x.dtype), y_min, y_max


@op("QuantizedBatchNormWithGlobalNormalization")
def quantized_batch_norm_with_global_normalization(
    t: Any,
    t_min: Any,
    t_max: Any,
    m: Any,
    m_min: Any,
    m_max: Any,
    v: Any,
    v_min: Any,
    v_max: Any,
    beta: Any,
    beta_min: Any,
    beta_max: Any,
    gamma: Any,
    gamma_min: Any,
    gamma_max: Any,
    *,
    out_type: Any,
    variance_epsilon: float,
    scale_after_normalization: bool,
) -> tuple[Any, Any, Any]:
    """Normalizes by given means and variances of channels, in fixed point with 11 bits after the point.

    See tf.raw_ops.QuantizedBatchNormWithGlobalNormalization.
    """
    if np.dtype(out_type) != _INT32:
        raise OpError(f"the result is to be of {np.dtype(out_type)}; TensorFlow has a kernel for qint32 alone")
    t = jnp.asarray(t)
    if t.ndim != 4 or any(np.shape(vector) != (t.shape[3],) for vector in (m, v, beta, gamma)):
        raise OpError("t must have 4 dimensions, and m, v, beta and gamma one value for each of the last")

    def floats(name: str, value: Any, least: Any, most: Any) -> Any:
        value = jnp.asarray(value)
        return to_float(value, scalar(f"{name}_min", least), scalar(f"{name}_max", most), value.dtype)

    mean, variance = floats("m", m, m_min, m_max), floats("v", v, v_min, v_max)
    shift, factor = floats("beta", beta, beta_min, beta_max), floats("gamma", gamma, gamma_min, gamma_max)
    low, high = _F32(-(2.0**20)), _F32(2.0**20)
    scale = 1 / lax.sqrt(variance + _F32(variance_epsilon))
    if scale_after_normalization:
        scale = scale * factor
    offset = product(-mean, scale) + shift
    scales, offsets, one = (from_float(value, low, high, _INT32) for value in (scale, offset, np.ones((), _F32)))
    images = from_float(floats("t", t, t_min, t_max), low, high, _INT32)
    return lax.div(images * scales, jnp.broadcast_to(one, images.shape)) + offsets, jnp.asarray(low), jnp.asarray(high)
