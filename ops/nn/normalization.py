"""Batch normalization and local response normalization, and their gradients.

TF: core/kernels/fused_batch_norm_op.cc, core/kernels/lrn_op.cc, core/kernels/batch_norm_op.cc.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError


def _layout(x: Any, data_format: str) -> tuple[tuple[int, ...], tuple[Any, ...], Any]:
    """Return axes to reduce, a channel vector's broadcast shape, values per channel."""
    channel = data_format.index("C")
    axes = tuple(i for i in range(x.ndim) if i != channel)
    shape = tuple(x.shape[i] if i == channel else 1 for i in range(x.ndim))
    count: Any = 1
    for i in axes:
        count = count * x.shape[i]
    return axes, shape, count


def _normalize(x: Any, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float, data_format: str) -> Any:
    _, shape, _ = _layout(x, data_format)
    factor = scale * lax.rsqrt(variance + jnp.asarray(epsilon, variance.dtype))
    out = (x.astype(scale.dtype) - mean.reshape(shape)) * factor.reshape(shape) + offset.reshape(shape)
    return out.astype(x.dtype)


def _moments(x: Any, dtype: Any, data_format: str) -> tuple[Any, Any]:
    axes, shape, count = _layout(x, data_format)
    x, size = x.astype(dtype), jnp.asarray(count, dtype)
    mean = jnp.sum(x, axis=axes) / size
    centered = x - mean.reshape(shape)
    return mean, jnp.sum(centered * centered, axis=axes) / size


NORM_ATTRIBUTES = {"epsilon": 0.0001, "exponential_avg_factor": 1.0, "data_format": "NHWC", "is_training": True}
_GRAD_ATTRIBUTES = {"epsilon": 0.0001, "data_format": "NHWC", "is_training": True}


@op("FusedBatchNorm", "FusedBatchNormV2")
@inlined
def fused_batch_norm(
    x,
    scale,
    offset,
    mean,
    variance,
    *,
    epsilon=0.0001,
    exponential_avg_factor=1.0,
    data_format="NHWC",
    is_training=True,
):
    """Normalize each channel by the mean and variance of a batch, or by given ones.

    As in TensorFlow (``_BaseFusedBatchNormGrad`` in nn_grad.py), only the first result has a gradient, and it is 0 with
    respect to ``mean`` and ``variance``: gradient descent would soon make the variance negative.

    Returns:
      The result in the dtype of ``x``; running mean and variance; mean and variance for the gradient, [channels].
    """
    x, scale, offset = jnp.asarray(x), jnp.asarray(scale), jnp.asarray(offset)
    mean, variance = lax.stop_gradient((jnp.asarray(mean), jnp.asarray(variance)))
    if not is_training:
        y = _normalize(x, scale, offset, mean, variance, epsilon, data_format)
        return y, mean, variance, mean, variance
    batch_mean, batch_variance = _moments(x, scale.dtype, data_format)
    y = _normalize(x, scale, offset, batch_mean, batch_variance, epsilon, data_format)
    count = _layout(x, data_format)[2]
    # The running variance is the unbiased estimate; for one value per channel TensorFlow divides by 1.
    size = jnp.asarray(count, scale.dtype)
    fixed_mean, fixed_variance = lax.stop_gradient((batch_mean, batch_variance))
    running_mean, running_variance = fixed_mean, fixed_variance * (size / jnp.maximum(size - 1, 1))
    if exponential_avg_factor != 1.0:
        f = jnp.asarray(exponential_avg_factor, scale.dtype)
        running_mean = (1 - f) * mean + f * running_mean
        running_variance = (1 - f) * variance + f * running_variance
    return y, running_mean, running_variance, fixed_mean, fixed_variance


@op("FusedBatchNormV3", inputs="x scale offset mean variance", attributes=NORM_ATTRIBUTES)
def fused_batch_norm_v3(*, x, scale, offset, mean, variance, **attributes):
    """Normalize as `fused_batch_norm`, with the CPU kernel's third reserve space, 0."""
    results = fused_batch_norm(x, scale, offset, mean, variance, **attributes)
    return (*results, jnp.zeros((), results[1].dtype))


@functools.partial(jax.custom_jvp, nondiff_argnums=(5, 6))
def _training_grad(
    gradients: Any, x: Any, scale: Any, mean: Any, variance: Any, epsilon: float, data_format: str
) -> tuple[Any, Any, Any]:
    """Return the gradients with respect to x, scale and offset."""
    # Mean and variance of the batch are given. Its own derivative is that of ``_recomputed_grad``, in which mean and
    # variance depend on x: the given ones are constants for differentiation, and TensorFlow
    # (``_FusedBatchNormGradGradV2`` in nn_grad.py) recomputes both, too.
    axes, shape, count = _layout(x, data_format)
    size = jnp.asarray(count, scale.dtype)
    gradients = gradients.astype(scale.dtype)
    centered = x.astype(scale.dtype) - mean.reshape(shape)
    factor = lax.rsqrt(variance + jnp.asarray(epsilon, variance.dtype))
    d_offset = jnp.sum(gradients, axis=axes)
    products = jnp.sum(gradients * centered, axis=axes)
    correction = products * factor * factor / size
    d_normalized = gradients - (d_offset / size).reshape(shape) - centered * correction.reshape(shape)
    return (d_normalized * (scale * factor).reshape(shape)).astype(x.dtype), products * factor, d_offset


def _recomputed_grad(gradients: Any, x: Any, scale: Any, epsilon: float, data_format: str) -> tuple[Any, Any, Any]:
    def forward(x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = _moments(x, scale.dtype, data_format)
        return _normalize(x, scale, offset, mean, variance, epsilon, data_format)

    return jax.vjp(forward, x, scale, jnp.zeros_like(scale))[1](gradients)


@_training_grad.defjvp
def _(epsilon: float, data_format: str, primals: Any, tangents: Any) -> Any:
    recomputed = functools.partial(_recomputed_grad, epsilon=epsilon, data_format=data_format)
    return _training_grad(*primals, epsilon, data_format), jax.jvp(recomputed, primals[:3], tangents[:3])[1]


@op("FusedBatchNormGrad", "FusedBatchNormGradV2")
@inlined
def fused_batch_norm_grad(
    y_backprop, x, scale, reserve_space_1, reserve_space_2, *, epsilon=0.0001, data_format="NHWC", is_training=True
):
    """Compute the gradients of `fused_batch_norm` with respect to x, scale and offset.

    The mean and variance in the reserve spaces are used as given.
    """
    x, scale = jnp.asarray(x), jnp.asarray(scale)
    gradients = jnp.asarray(y_backprop).astype(x.dtype)
    mean, variance = jnp.asarray(reserve_space_1), jnp.asarray(reserve_space_2)
    empty = jnp.zeros((0,), scale.dtype)
    if is_training:
        return (*_training_grad(gradients, x, scale, mean, variance, epsilon, data_format), empty, empty)
    mean, variance = lax.stop_gradient((mean, variance))

    def forward(x: Any, scale: Any, offset: Any) -> Any:
        return _normalize(x, scale, offset, mean, variance, epsilon, data_format)

    return (*jax.vjp(forward, x, scale, jnp.zeros_like(scale))[1](gradients), empty, empty)


@op(
    "FusedBatchNormGradV3",
    inputs="y_backprop x scale reserve_space_1 reserve_space_2 reserve_space_3",
    attributes=_GRAD_ATTRIBUTES,
)
def fused_batch_norm_grad_v3(*, y_backprop, x, scale, reserve_space_1, reserve_space_2, reserve_space_3, **attributes):
    """Compute the gradients of `fused_batch_norm_v3`."""
    return fused_batch_norm_grad(y_backprop, x, scale, reserve_space_1, reserve_space_2, **attributes)


def _sum_of_neighbors(x: Any, radius: int) -> Any:
    """Sum over the channels at most ``radius`` away."""
    window, pads = (1, 1, 1, 2 * radius + 1), ((0, 0), (0, 0), (0, 0), (radius, radius))
    return in_float32(lambda v: lax.reduce_window(v, np.zeros((), v.dtype), lax.add, window, (1, 1, 1, 1), pads), x)


@op("LRN")
def lrn(input, *, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5):
    """Normalize by the squares of neighboring channels."""
    x = jnp.asarray(input)
    total = _sum_of_neighbors(x * x, depth_radius)
    return x / lax.pow(jnp.asarray(bias, x.dtype) + jnp.asarray(alpha, x.dtype) * total, jnp.asarray(beta, x.dtype))


@op("LRNGrad")
def lrn_grad(input_grads, input_image, output_image, *, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5):
    """Compute the gradient of `lrn`.

    Like the kernel, this uses ``output_image`` as the result of `lrn`, whatever its values.
    """
    grads, x, y = jnp.asarray(input_grads), jnp.asarray(input_image), jnp.asarray(output_image)
    norm = jnp.asarray(bias, x.dtype) + jnp.asarray(alpha, x.dtype) * _sum_of_neighbors(x * x, depth_radius)
    coupling = jnp.asarray(-2 * alpha * beta, x.dtype) * y * grads / norm
    return grads * lax.pow(norm, jnp.asarray(-beta, x.dtype)) + x * _sum_of_neighbors(coupling, depth_radius)


@op("BatchNormWithGlobalNormalization")
def batch_norm_with_global_normalization(t, m, v, beta, gamma, *, variance_epsilon, scale_after_normalization):
    """Normalize channels (the last axis) by given means and variances."""
    t, m, v, beta, gamma = map(jnp.asarray, (t, m, v, beta, gamma))
    if t.ndim != 4 or any(vector.ndim != 1 for vector in (m, v, beta, gamma)):
        raise OpError("t must have 4 dimensions, and m, v, beta and gamma one each")
    factor = lax.rsqrt(v + jnp.asarray(variance_epsilon, v.dtype))
    if scale_after_normalization:
        factor = factor * gamma
    return (t - m) * factor + beta


@op("BatchNormWithGlobalNormalizationGrad")
def batch_norm_with_global_normalization_grad(t, m, v, gamma, backprop, *, variance_epsilon, scale_after_normalization):
    """Return gradients with respect to t, m, v, beta and gamma."""

    def forward(*operands: Any) -> Any:
        return batch_norm_with_global_normalization(
            *operands, variance_epsilon=variance_epsilon, scale_after_normalization=scale_after_normalization
        )

    t, m, v, gamma = map(jnp.asarray, (t, m, v, gamma))
    return jax.vjp(forward, t, m, v, jnp.zeros_like(m), gamma)[1](jnp.asarray(backprop))
