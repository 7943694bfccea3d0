"""Ops of old graphs: Inception's (2015) batch norm, 3-D conv gradients.

These gradients take shapes as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.ops.nn.conv import conv3d_backprop_filter, conv3d_backprop_input
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims_array
from tf2jax_lite.values.types import Array


@op("BatchNormWithGlobalNormalization")
def batch_norm_with_global_normalization(
    t: Array, m: Array, v: Array, beta: Array, gamma: Array, *, variance_epsilon: float, scale_after_normalization: bool
) -> Array:
    """Normalize channels (the last axis) by given means and variances.

    TF: tf.raw_ops.BatchNormWithGlobalNormalization (core/kernels/batch_norm_op.cc).
    """
    t, m, v, beta, gamma = map(jnp.asarray, (t, m, v, beta, gamma))
    if t.ndim != 4 or any(vector.ndim != 1 for vector in (m, v, beta, gamma)):
        raise OpError("t must have 4 dimensions, and m, v, beta and gamma one each")
    factor = lax.rsqrt(v + jnp.asarray(variance_epsilon, v.dtype))
    if scale_after_normalization:
        factor = factor * gamma
    return (t - m) * factor + beta


@op("BatchNormWithGlobalNormalizationGrad")
def batch_norm_with_global_normalization_grad(
    t: Array,
    m: Array,
    v: Array,
    gamma: Array,
    backprop: Array,
    *,
    variance_epsilon: float,
    scale_after_normalization: bool,
) -> tuple[Array, ...]:
    """Return gradients with respect to t, m, v, beta and gamma.

    TF: tf.raw_ops.BatchNormWithGlobalNormalizationGrad (core/kernels/batch_norm_op.cc).
    """

    def forward(*operands: Any) -> Any:
        return batch_norm_with_global_normalization(
            *operands, variance_epsilon=variance_epsilon, scale_after_normalization=scale_after_normalization
        )

    t, m, v, gamma = map(jnp.asarray, (t, m, v, gamma))
    return jax.vjp(forward, t, m, v, jnp.zeros_like(m), gamma)[1](jnp.asarray(backprop))


@op("Conv3DBackpropInput", pattern=Pattern.CONTRACTION)
def conv3d_backprop_input_v1(
    input: Array,
    filter: Array,
    out_backprop: Array,
    *,
    strides: Sequence[int],
    padding: str,
    dilations: Sequence[int] = (),
) -> Array:
    """Return the input gradient of a 3-D convolution.

    TF: tf.raw_ops.Conv3DBackpropInput.

    ``input`` is given for its shape.
    """
    sizes = dims_array(input.shape)
    return conv3d_backprop_input(sizes, filter, out_backprop, strides=strides, padding=padding, dilations=dilations)


@op("Conv3DBackpropFilter", pattern=Pattern.CONTRACTION)
def conv3d_backprop_filter_v1(
    input: Array,
    filter: Array,
    out_backprop: Array,
    *,
    strides: Sequence[int],
    padding: str,
    dilations: Sequence[int] = (),
) -> Array:
    """Return the filter gradient of a 3-D convolution.

    TF: tf.raw_ops.Conv3DBackpropFilter.

    ``filter`` is given for its shape.
    """
    sizes = dims_array(filter.shape)
    return conv3d_backprop_filter(input, sizes, out_backprop, strides=strides, padding=padding, dilations=dilations)
