"""Batch normalization and local response normalization."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import op


def _layout(x: Any, data_format: str) -> tuple[tuple[int, ...], tuple[Any, ...], Any]:
    """Returns the axes to reduce, the shape of a per-channel vector, and the number of values per channel."""
    channel = data_format.index("C")
    axes = tuple(i for i in range(x.ndim) if i != channel)
    shape = tuple(x.shape[i] if i == channel else 1 for i in range(x.ndim))
    count: Any = 1
    for i in axes:
        count = count * x.shape[i]
    return axes, shape, count


def _normalize(x: Any, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float, data_format: str) -> Any:
    _, shape, _ = _layout(x, data_format)
    wide = x.astype(scale.dtype)
    factor = scale * lax.rsqrt(variance + jnp.asarray(epsilon, variance.dtype))
    out = (wide - mean.reshape(shape)) * factor.reshape(shape) + offset.reshape(shape)
    return out.astype(x.dtype)


def _moments(x: Any, dtype: Any, data_format: str) -> tuple[Any, Any]:
    axes, shape, count = _layout(x, data_format)
    wide = x.astype(dtype)
    size = jnp.asarray(count, dtype)
    mean = jnp.sum(wide, axis=axes) / size
    centred = wide - mean.reshape(shape)
    return mean, jnp.sum(centred * centred, axis=axes) / size


def _batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any,
    variance: Any,
    epsilon: float,
    exponential_avg_factor: float,
    data_format: str,
    is_training: bool,
) -> tuple[Any, ...]:
    """Returns y, the mean and variance to keep, and the mean and variance that the gradient needs.

    As in TensorFlow (``_BaseFusedBatchNormGrad`` in nn_grad.py), only y has a gradient, and ``mean`` and ``variance``
    get none: gradient descent would soon make the variance negative.
    """
    x, scale, offset = jnp.asarray(x), jnp.asarray(scale), jnp.asarray(offset)
    mean, variance = lax.stop_gradient((jnp.asarray(mean), jnp.asarray(variance)))
    if not is_training:
        y = _normalize(x, scale, offset, mean, variance, epsilon, data_format)
        return y, mean, variance, mean, variance
    batch_mean, batch_variance = _moments(x, scale.dtype, data_format)
    y = _normalize(x, scale, offset, batch_mean, batch_variance, epsilon, data_format)
    count = _layout(x, data_format)[2]
    # What is kept is the unbiased estimate; with one value per channel there is none, and TensorFlow divides by one.
    unbiased = jnp.asarray(count, scale.dtype)
    fixed_mean, fixed_variance = lax.stop_gradient((batch_mean, batch_variance))
    corrected = fixed_variance * (unbiased / jnp.maximum(unbiased - 1, 1))
    kept_mean, kept_variance = fixed_mean, corrected
    if exponential_avg_factor != 1.0:
        f = jnp.asarray(exponential_avg_factor, scale.dtype)
        kept_mean = (1 - f) * mean + f * fixed_mean
        kept_variance = (1 - f) * variance + f * corrected
    return y, kept_mean, kept_variance, fixed_mean, fixed_variance


@op("FusedBatchNorm", "FusedBatchNormV2")
@inlined
def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1.0,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[Any, ...]:
    """See tf.raw_ops.FusedBatchNormV2."""
    return _batch_norm(x, scale, offset, mean, variance, epsilon, exponential_avg_factor, data_format, is_training)


@op("FusedBatchNormV3")
@inlined
def fused_batch_norm_v3(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1.0,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[Any, ...]:
    """See tf.raw_ops.FusedBatchNormV3; the third reserve space is a zero, as on TensorFlow's CPU."""
    results = _batch_norm(x, scale, offset, mean, variance, epsilon, exponential_avg_factor, data_format, is_training)
    return (*results, jnp.zeros((), results[1].dtype))


@functools.partial(jax.custom_jvp, nondiff_argnums=(5, 6))
def _training_grad(
    gradients: Any, x: Any, scale: Any, mean: Any, variance: Any, epsilon: float, data_format: str
) -> tuple[Any, Any, Any]:
    """Returns the gradients by x, scale and offset from the batch's mean and variance as they are given.

    Its own derivative is that of ``_recomputed_grad``, in which mean and variance follow x: what is given is cut off
    from gradients, and TensorFlow (``_FusedBatchNormGradGradV2`` in nn_grad.py) computes both anew too.
    """
    axes, shape, count = _layout(x, data_format)
    size = jnp.asarray(count, scale.dtype)
    wide = gradients.astype(scale.dtype)
    centred = x.astype(scale.dtype) - mean.reshape(shape)
    factor = lax.rsqrt(variance + jnp.asarray(epsilon, variance.dtype))
    by_offset = jnp.sum(wide, axis=axes)
    products = jnp.sum(wide * centred, axis=axes)
    slope = products * factor * factor / size
    rest = wide - (by_offset / size).reshape(shape) - centred * slope.reshape(shape)
    return (rest * (scale * factor).reshape(shape)).astype(x.dtype), products * factor, by_offset


def _recomputed_grad(gradients: Any, x: Any, scale: Any, epsilon: float, data_format: str) -> tuple[Any, Any, Any]:
    def forward(x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = _moments(x, scale.dtype, data_format)
        return _normalize(x, scale, offset, mean, variance, epsilon, data_format)

    return jax.vjp(forward, x, scale, jnp.zeros_like(scale))[1](gradients)


@_training_grad.defjvp
def _(epsilon: float, data_format: str, primals: Any, tangents: Any) -> Any:
    recomputed = functools.partial(_recomputed_grad, epsilon=epsilon, data_format=data_format)
    return _training_grad(*primals, epsilon, data_format), jax.jvp(recomputed, primals[:3], tangents[:3])[1]


def _grad(
    y_backprop: Any,
    x: Any,
    scale: Any,
    reserve_space_1: Any,
    reserve_space_2: Any,
    epsilon: float,
    data_format: str,
    is_training: bool,
) -> tuple[Any, ...]:
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


@op("FusedBatchNormGrad", "FusedBatchNormGradV2")
@inlined
def fused_batch_norm_grad(
    y_backprop: Any,
    x: Any,
    scale: Any,
    reserve_space_1: Any,
    reserve_space_2: Any,
    *,
    epsilon: float = 0.0001,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[Any, ...]:
    """See tf.raw_ops.FusedBatchNormGradV2."""
    return _grad(y_backprop, x, scale, reserve_space_1, reserve_space_2, epsilon, data_format, is_training)


@op("FusedBatchNormGradV3")
@inlined
def fused_batch_norm_grad_v3(
    y_backprop: Any,
    x: Any,
    scale: Any,
    reserve_space_1: Any,
    reserve_space_2: Any,
    reserve_space_3: Any,
    *,
    epsilon: float = 0.0001,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[Any, ...]:
    """See tf.raw_ops.FusedBatchNormGradV3."""
    return _grad(y_backprop, x, scale, reserve_space_1, reserve_space_2, epsilon, data_format, is_training)


def _over_neighbours(x: Any, radius: int) -> Any:
    """Sums over the channels at most ``radius`` away."""
    window, pads = (1, 1, 1, 2 * radius + 1), ((0, 0), (0, 0), (0, 0), (radius, radius))
    return in_float32(lambda v: lax.reduce_window(v, np.zeros((), v.dtype), lax.add, window, (1, 1, 1, 1), pads), x)


@op("LRN")
def lrn(input: Any, *, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5) -> Any:
    """Normalizes by the squares of neighbouring channels. See tf.raw_ops.LRN."""
    x = jnp.asarray(input)
    total = _over_neighbours(x * x, depth_radius)
    return x / lax.pow(jnp.asarray(bias, x.dtype) + jnp.asarray(alpha, x.dtype) * total, jnp.asarray(beta, x.dtype))


@op("LRNGrad")
def lrn_grad(
    input_grads: Any,
    input_image: Any,
    output_image: Any,
    *,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> Any:
    """See tf.raw_ops.LRNGrad. Like its kernel this takes ``output_image`` for LRN's result, whatever it holds."""
    grads, x, y = jnp.asarray(input_grads), jnp.asarray(input_image), jnp.asarray(output_image)
    norm = jnp.asarray(bias, x.dtype) + jnp.asarray(alpha, x.dtype) * _over_neighbours(x * x, depth_radius)
    shared = jnp.asarray(-2 * alpha * beta, x.dtype) * y * grads / norm
    return grads * lax.pow(norm, jnp.asarray(-beta, x.dtype)) + x * _over_neighbours(shared, depth_radius)
