"""Reductions."""

import jax.numpy as jnp

from .registry import Static, op
from .values import normalize_axes


@op("Sum")
def reduce_sum(x, axis: Static, *, keep_dims=False):
    """Sums over axes. See tf.raw_ops.Sum."""
    return jnp.sum(x, axis=normalize_axes(axis, x.ndim), keepdims=keep_dims, dtype=x.dtype)
