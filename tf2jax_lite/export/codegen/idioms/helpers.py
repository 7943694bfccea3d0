"""Functions that generated modules define for themselves, written once if used.

Their source is copied as it stands here, so lines are as long as those of generated modules.
"""

# fmt: off
from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def _selu(x):
    """Compute selu, with the derivative of positive numbers at 0."""
    low = 1.7580993408473768 * jnp.expm1(jnp.where(x < 0, x, 0))
    return jnp.where(x < 0, low, 1.0507009873554805 * x)


def _layer_norm(x, gamma, beta, epsilon):
    """Normalize the last axis to mean 0 and variance 1, then scale and shift."""
    x = lax.optimization_barrier(x)  # else XLA computes it anew for each use
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
    return centered * (lax.rsqrt(variance + epsilon) * gamma) + beta


def _batch_norm(x, mean, variance, gamma, beta, epsilon):
    """Normalize the last axis by a mean and variance, then scale and shift."""
    scale = lax.rsqrt(variance + epsilon) * gamma
    return x * scale + (beta - mean * scale)


def _take(x, indices, axis=0):
    """Take slices along an axis; those of indices out of range are zeros."""
    where = (slice(None),) * axis + (indices,)
    return (
        jnp.asarray(x)
        .at[where]
        .get(mode="fill", fill_value=0, wrap_negative_indices=False)
    )


def _conv(x, kernel, strides=(1, 1), padding="SAME", dilation=(1, 1), groups=1):
    """Convolve images, whose last axis is the channels."""
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _conv_transpose(x, kernel, strides, padding):
    """Convolve images with strides between inputs; kernels are [..., out, in]."""
    return lax.conv_general_dilated(
        x,
        jnp.flip(kernel, (0, 1)),
        (1, 1),
        padding,
        lhs_dilation=strides,
        dimension_numbers=("NHWC", "HWOI", "NHWC"),
    )


def _max_pool(x, window, strides, padding):
    """Take maxima over windows of images, whose last axis is the channels."""
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, *window, 1), (1, *strides, 1), padding
    )


def _attention(query, key, value, scale, mask=None, lowest=-jnp.inf):
    """Attend to a sequence; arrays are [batch, length, heads, size]."""
    scores = jnp.einsum("bthd,bshd->bhts", query, key) * scale
    if mask is not None:
        scores = jnp.where(mask, scores, lowest)
    weights = jax.nn.softmax(scores)
    return jnp.einsum("bhts,bshd->bthd", weights, value)


def _lstm_cell(x, hidden, cell, kernel, recurrent_kernel, bias):
    """Return the next hidden state and cell of an LSTM."""
    gates = x @ kernel + hidden @ recurrent_kernel + bias
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell
