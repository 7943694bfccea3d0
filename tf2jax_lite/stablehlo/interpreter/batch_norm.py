"""Batch normalization: three ops that XLA's front ends write and jax never does."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .core import OpContext, rule


def _along(ctx: OpContext, x: Any, *vectors: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the reduced axes, and feature vectors in the rank of ``x``."""
    axis = int(ctx.attr("feature_index"))
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return tuple(i for i in range(x.ndim) if i != axis), [jnp.reshape(v, shape) for v in vectors]


def _epsilon(ctx: OpContext, x: Any) -> Any:
    return jnp.asarray(ctx.attr("epsilon"), x.dtype)


@rule("stablehlo.batch_norm_training")
def _training(ctx: OpContext, x: Any, scale: Any, offset: Any) -> Any:
    axes, (wide_scale, wide_offset) = _along(ctx, x, scale, offset)
    mean = jnp.mean(x, axes, keepdims=True)
    centred = x - mean
    variance = jnp.mean(centred * centred, axes, keepdims=True)
    out = centred * lax.rsqrt(variance + _epsilon(ctx, x)) * wide_scale + wide_offset
    return out, mean.reshape(scale.shape), variance.reshape(scale.shape)


@rule("stablehlo.batch_norm_inference")
def _inference(ctx: OpContext, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    _, (scale, offset, mean, variance) = _along(ctx, x, scale, offset, mean, variance)
    return (x - mean) * lax.rsqrt(variance + _epsilon(ctx, x)) * scale + offset


@rule("stablehlo.batch_norm_grad")
def _gradient(ctx: OpContext, x: Any, scale: Any, mean: Any, variance: Any, grad: Any) -> Any:
    axes, (wide_scale, mean, variance) = _along(ctx, x, scale, mean, variance)
    rate = lax.rsqrt(variance + _epsilon(ctx, x))
    normal = (x - mean) * rate
    by_scale = jnp.sum(grad * normal, axes, keepdims=True)
    by_offset = jnp.sum(grad, axes, keepdims=True)
    count = jnp.asarray(x.size // scale.size, x.dtype)
    by_x = wide_scale * rate * (grad - (by_offset + normal * by_scale) / count)
    return by_x, by_scale.reshape(scale.shape), by_offset.reshape(scale.shape)
