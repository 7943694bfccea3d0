"""Functions that generated modules define for themselves, written once if used.

Their source is copied as it stands here, so lines are as long as those of generated modules.
"""

# fmt: off
from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def _selu(x):
    """Compute selu, with the derivative of positive numbers at 0."""
    low = 1.7580993408473768 * jnp.expm1(jnp.where(x < 0, x, 0))
    return jnp.where(x < 0, low, 1.0507009873554805 * x)


def _dense(x, params):
    """Apply a dense layer."""
    return x @ params["kernel"] + params["bias"]


def _layer_norm(x, params, epsilon):
    """Normalize the last axis to mean 0 and variance 1, then scale and shift."""
    x = lax.optimization_barrier(x)  # else XLA repeats it for each use
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
    scale = lax.rsqrt(variance + epsilon) * params["gamma"]
    return centered * scale + params["beta"]


def _normalize_rows(x, gamma, beta, epsilon):
    """Normalize the last axis to mean 0 and variance 1, then scale and shift."""
    x = lax.optimization_barrier(x)  # else XLA repeats it for each use
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
    return centered * (lax.rsqrt(variance + epsilon) * gamma) + beta


def _normalize(x, mean, variance, gamma, beta, epsilon):
    """Normalize the last axis by a mean and variance, then scale and shift."""
    scale = lax.rsqrt(variance + epsilon) * gamma
    return x * scale + (beta - mean * scale)


def _moving_batch_norm(x, params, epsilon=0.001):
    """Normalize the last axis by the layer's moving statistics."""
    scale = lax.rsqrt(params["moving_variance"] + epsilon) * params.get("gamma", 1)
    return x * scale + (params.get("beta", 0) - params["moving_mean"] * scale)


def _batch_norm(x, params, train=False, epsilon=0.001, momentum=0.99):
    """Normalize the last axis by moving statistics, or by the batch's if train.

    Training updates the moving statistics in params, which the caller copies.
    """
    mean, variance = params["moving_mean"], params["moving_variance"]
    if train:
        axes = tuple(range(x.ndim - 1))
        new = jnp.mean(x, axis=axes), jnp.var(x, axis=axes)
        params["moving_mean"] = momentum * mean + (1 - momentum) * new[0]
        params["moving_variance"] = momentum * variance + (1 - momentum) * new[1]
        mean, variance = new
    scale = lax.rsqrt(variance + epsilon) * params.get("gamma", 1)
    return x * scale + (params.get("beta", 0) - mean * scale)


def _take(x, indices, axis=0):
    """Take slices along an axis; those of indices out of range are zeros."""
    where = (slice(None),) * axis + (indices,)
    return (
        jnp.asarray(x)
        .at[where]
        .get(mode="fill", fill_value=0, wrap_negative_indices=False)
    )


def _argmax(x, axis=-1):
    """Return the index of the first maximum; NaN and -inf are the lowest number."""
    lowest = jnp.finfo(x.dtype).min
    return lax.argmax(jnp.where(x > lowest, x, lowest), axis % x.ndim, np.int32)


def _argmin(x, axis=-1):
    """Return the index of the first minimum; NaN and inf are the highest number."""
    highest = jnp.finfo(x.dtype).max
    return lax.argmin(jnp.where(x < highest, x, highest), axis % x.ndim, np.int32)


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


def _conv1d(x, kernel, strides=1, padding="SAME", dilation=1, groups=1):
    """Convolve sequences, which are images of one row."""
    rows = jnp.expand_dims(x, 1)
    rows = _conv(rows, kernel[None], (1, strides), padding, (1, dilation), groups)
    return jnp.squeeze(rows, 1)


def _depthwise_conv(x, kernel, strides=(1, 1), padding="SAME", dilation=(1, 1)):
    """Convolve each channel of images by itself; kernels are [..., channels, n]."""
    *window, channels, multiplier = kernel.shape
    kernel = kernel.reshape(*window, 1, channels * multiplier)
    return _conv(x, kernel, strides, padding, dilation, groups=channels)


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


def _attention(query, key, value, scale=None, mask=None, lowest=-jnp.inf):
    """Attend to a sequence; arrays are [batch, length, heads, size]."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * scale
    if mask is not None:
        scores = jnp.where(mask, scores, lowest)
    weights = jax.nn.softmax(scores)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def _dropout(x, rng, layer, rate=0.5):
    """Drop elements, and scale the others to the same mean; without a key return x."""
    if rng is None:
        return x
    key = jax.random.fold_in(rng, layer)
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


def _philox(counter, key):
    """Return four words of the generator Philox 4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1 = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
    for _ in range(10):
        c1, c3 = lax.mulhi(m1, c2) ^ c1 ^ k0, lax.mulhi(m0, c0) ^ c3 ^ k1
        c0, c1, c2, c3 = c1, m1 * c2, c3, m0 * c0
        k0, k1 = k0 + np.uint32(0x9E3779B9), k1 + np.uint32(0xBB67AE85)
    return c0, c1, c2, c3


def _philox_key(seed):
    """Return TensorFlow's key and counter for a seed of two integers."""
    seed = jnp.asarray(seed)
    low, high = seed.astype(np.uint32), (seed >> 31).astype(np.uint32)
    key = jnp.uint32(0x3EC8F720), jnp.uint32(0x02461E29)
    k0, k1, c2, c3 = _philox((low[0], high[0], low[1], high[1]), key)
    return jnp.stack([k0, k1]), jnp.stack([0 * c2, 0 * c3, c2, c3])


def _philox_uniform(key, counter, shape):
    """Draw TensorFlow's uniform numbers in [0, 1)."""
    size = math.prod(shape)
    step = lax.broadcasted_iota(np.uint32, (-(-size // 4), 4), 0)
    column = lax.broadcasted_iota(np.uint32, (-(-size // 4), 4), 1)
    c0 = counter[0] + step
    carry = (c0 < step).astype(np.uint32)
    c1 = counter[1] + carry
    carry = (c1 < carry).astype(np.uint32)
    c2 = counter[2] + carry
    carry = (c2 < carry).astype(np.uint32)
    words = _philox((c0, c1, c2, counter[3] + carry), key)
    words = jnp.select([column == i for i in range(4)], words)
    mantissa = (words.reshape(-1)[:size] & 0x7FFFFF) | 0x3F800000
    return (lax.bitcast_convert_type(mantissa, np.float32) - 1).reshape(shape)


def _philox_normal(key, counter, shape):
    """Draw TensorFlow's standard normal numbers."""
    size = math.prod(shape)
    units = _philox_uniform(key, counter, (-(-size // 2), 2))
    radius = jnp.sqrt(-2 * jnp.log(jnp.maximum(units[:, 0], 1e-7)))
    angle = 2 * jnp.pi * units[:, 1]
    pairs = jnp.stack([jnp.sin(angle) * radius, jnp.cos(angle) * radius], 1)
    return pairs.reshape(-1)[:size].reshape(shape)


def _philox_dropout(x, rate, seed):
    """Drop elements as TensorFlow does, and scale the others to the same mean."""
    noise = _philox_uniform(*_philox_key(seed), x.shape)
    return jnp.where(noise >= rate, x * (1 / (1 - rate)), 0)


def _lstm_cell(x, hidden, cell, params):
    """Return the next hidden state and cell of an LSTM."""
    gates = x @ params["kernel"] + hidden @ params["recurrent_kernel"] + params["bias"]
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def _gru_cell(x, hidden, params):
    """Return the next hidden state of a GRU; biases are [2, 3 * units]."""
    z, r, h = jnp.split(x @ params["kernel"] + params["bias"][0], 3, axis=-1)
    inner = hidden @ params["recurrent_kernel"] + params["bias"][1]
    recurrent_z, recurrent_r, recurrent_h = jnp.split(inner, 3, axis=-1)
    z = jax.nn.sigmoid(z + recurrent_z)
    h = jnp.tanh(h + jax.nn.sigmoid(r + recurrent_r) * recurrent_h)
    return z * hidden + (1 - z) * h
