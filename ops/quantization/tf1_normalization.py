"""TF1's instance and batch normalization of quantized images.

Images are (tensor, min, max).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError

from .tf1_requantize import float_to_quantized, quantized_to_float, scalar

__all__: list[str] = []

_INT32, _F32 = np.dtype(np.int32), np.float32


@op("QuantizedInstanceNorm")
def quantized_instance_norm(
    x,
    x_min,
    x_max,
    *,
    output_range_given=False,
    given_y_min=0.0,
    given_y_max=0.0,
    variance_epsilon=1e-05,
    min_separation=0.001,
):
    """Normalize each channel of each image by its own mean and variance.

    TF: core/kernels/quantized_instance_norm.cc.

    The order of summation is not TensorFlow's: a range may differ in its last bits, and integers by one.
    """
    x, low, high = jnp.asarray(x), scalar("x_min", x_min), scalar("x_max", x_max)
    if x.ndim != 4:
        raise OpError(f"images have rank 4, not {x.ndim}")
    if output_range_given and not given_y_min < given_y_max:
        raise OpError(f"given_y_min must be less than given_y_max, got {given_y_min} and {given_y_max}")
    values = quantized_to_float(x, low, high, x.dtype)
    centered = values - jnp.mean(values, axis=(1, 2), keepdims=True)
    variance = jnp.mean(lax.square(centered), axis=(1, 2), keepdims=True)
    normed = centered * lax.rsqrt(variance + _F32(variance_epsilon))
    if output_range_given:
        y_min, y_max = jnp.asarray(given_y_min, _F32), jnp.asarray(given_y_max, _F32)
    else:
        y_min = normed.min()
        y_max = jnp.maximum(normed.max(), y_min + _F32(min_separation))
    return float_to_quantized(normed, y_min, y_max, x.dtype), y_min, y_max


@op("QuantizedBatchNormWithGlobalNormalization")
def quantized_batch_norm_with_global_normalization(
    t,
    t_min,
    t_max,
    m,
    m_min,
    m_max,
    v,
    v_min,
    v_max,
    beta,
    beta_min,
    beta_max,
    gamma,
    gamma_min,
    gamma_max,
    *,
    out_type,
    variance_epsilon,
    scale_after_normalization,
):
    """Normalize by given means and variances of channels, in fixed point.

    TF: core/kernels/quantized_batch_norm_op.cc.

    Fixed-point numbers have 11 fractional bits.
    """
    if np.dtype(out_type) != _INT32:
        raise OpError(f"out_type {np.dtype(out_type)}; TensorFlow has a kernel for qint32 only")
    t = jnp.asarray(t)
    if t.ndim != 4 or any(np.shape(vector) != (t.shape[3],) for vector in (m, v, beta, gamma)):
        raise OpError("t must have 4 dimensions, and m, v, beta and gamma one value for each of the last")

    def floats(name: str, value: Any, low: Any, high: Any) -> Any:
        value = jnp.asarray(value)
        return quantized_to_float(value, scalar(f"{name}_min", low), scalar(f"{name}_max", high), value.dtype)

    mean, variance = floats("m", m, m_min, m_max), floats("v", v, v_min, v_max)
    shift, factor = floats("beta", beta, beta_min, beta_max), floats("gamma", gamma, gamma_min, gamma_max)
    low, high = _F32(-(2.0**20)), _F32(2.0**20)
    scale = 1 / lax.sqrt(variance + _F32(variance_epsilon))
    if scale_after_normalization:
        scale = scale * factor
    offset = product(-mean, scale) + shift
    scales, offsets, one = (
        float_to_quantized(value, low, high, _INT32) for value in (scale, offset, np.ones((), _F32))
    )
    images = float_to_quantized(floats("t", t, t_min, t_max), low, high, _INT32)
    return lax.div(images * scales, jnp.broadcast_to(one, images.shape)) + offsets, jnp.asarray(low), jnp.asarray(high)
