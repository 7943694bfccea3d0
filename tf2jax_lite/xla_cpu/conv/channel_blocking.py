"""Depthwise convolutions, some channels or one row at a time.

A result of a depthwise convolution reads as many values, and weights, of each channel as the kernel has taps: with 49
taps and 256 channels 100 KiB, twice the L1 cache. Where a row of channels is a power of two bytes long it is worse:
neighboring positions compete for the same few cache lines. Of 32 channels at a time it reads 12 KiB, which the next
result finds in the cache. Filter gradients, whose sums go through whole images, do so with 16 channels, or sum up each
row by itself where rows are long. Channels are brought into that order while the image is padded, and back afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import cost_model
from tf2jax_lite.xla_cpu.materialize import materialize

from .params import ConvParams, strided_slice, taps


def has_channel_blocks(conv: ConvParams) -> bool:
    """Return whether a depthwise convolution, channels last, goes by blocks."""
    channels, block = conv.out_channels, cost_model.DEPTHWISE_BLOCK
    return (
        conv.lhs_spec[1] == len(conv.lhs_spec) - 1
        and isinstance(channels, int)
        and channels >= cost_model.DEPTHWISE_BLOCK_MIN_CHANNELS
        and channels % block == 0
        and math.prod(conv.window) >= cost_model.DEPTHWISE_BLOCK_MIN_TAPS
        and max(conv.strides) == max(conv.lhs_dilation) == 1
    )


def sum_by_blocks(padded: Any, weights: Mapping[tuple[int, ...], Any], conv: ConvParams) -> Any:
    """Return the convolution of a padded input.

    Args:
      padded: an array of shape ``(..., channels)``.
      weights: for each tap an array of shape ``(1, channels)``.
      conv: the convolution.
    """
    dims, block = [d + 1 for d in conv.lhs_spec[2:]], cost_model.DEPTHWISE_BLOCK
    blocks, total = materialize(_to_blocks(padded, block)), None
    for tap in taps(conv.window):
        starts = [t * r for t, r in zip(tap, conv.rhs_dilation, strict=True)]
        part = strided_slice(blocks, dims, starts, conv.result, conv.strides)
        row = lax.squeeze(_to_blocks(weights[tap], block), (1,))
        product = lax.mul(part, lax.broadcast_in_dim(row, part.shape, (0, part.ndim - 1)))
        total = product if total is None else lax.add(total, product)
    return _from_blocks(materialize(total))


def filter_sums(padded: Any, grad: Any, conv: ConvParams) -> Any:
    """Return the filter gradient, of shape ``(taps, channels)``.

    All taps are one reduction. It sums up rows where they are long and the kernel is small, else images, channels by
    blocks where there are many; few sums are left then. Over everything at once one thread would do all the work.

    Args:
      padded: the images.
      grad: the gradient with respect to the result, its dimensions in the same order.
      conv: the gradient, a convolution whose "batch" is the channels and whose "features" are the examples.
    """
    channel, dims = conv.lhs_spec[0], list(conv.lhs_spec[2:])
    axes = dims
    size = _filter_block(channel, grad.shape[channel], grad.ndim, conv)
    if _has_long_rows(conv):
        axes, padded = dims[-1:], materialize(padded)
    elif size is not None:
        padded, grad = materialize(_to_blocks(padded, size)), materialize(_to_blocks(grad, size))
        dims = axes = [d + 1 for d in dims]
        sums = jnp.sum(jnp.stack(_tap_sums(padded, grad, conv, dims, axes)), 2)  # blocks, examples, channels
        return lax.reshape(sums, (sums.shape[0], size * sums.shape[1]))
    else:
        padded = materialize(padded)
    sums = jnp.stack(_tap_sums(padded, grad, conv, dims, axes))
    left = [d for d in range(grad.ndim) if d not in axes]
    return jnp.sum(sums, tuple(i for i, d in enumerate(left, 1) if d != channel))


def _filter_block(channel: int, channels: Any, rank: int, conv: ConvParams) -> int | None:
    if channel != rank - 1 or not isinstance(channels, int):
        return None
    count, blocks = math.prod(conv.result), cost_model.DEPTHWISE_FILTER_BLOCKS
    return next((n for n, fewest in blocks if channels % n == 0 and channels > n and count >= fewest), None)


def _has_long_rows(conv: ConvParams) -> bool:
    row, most = conv.window[-1], cost_model.DEPTHWISE_FILTER_MAX_TAPS_BY_ROW
    return row >= cost_model.DEPTHWISE_FILTER_MIN_ROW and math.prod(conv.result) <= most


def _tap_sums(padded: Any, grad: Any, conv: ConvParams, dims: Sequence[int], axes: Sequence[int]) -> Sequence[Any]:
    """Return each tap's sum over ``axes`` of the images' values times ``grad``."""
    products = []
    for tap in taps(conv.result):
        starts = [t * s for t, s in zip(tap, conv.strides, strict=True)]
        products.append(strided_slice(padded, dims, starts, conv.window, conv.rhs_dilation) * grad)
    zeros = [np.zeros((), padded.dtype)] * len(products)
    return lax.reduce(products, zeros, lambda a, b: [x + y for x, y in zip(a, b, strict=True)], axes)


def _to_blocks(x: Any, size: int) -> Any:
    """Return ``x``, of shape ``(..., channels)``, as ``(blocks, ..., size)``."""
    split = lax.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size))
    return lax.transpose(split, (x.ndim - 1, *range(x.ndim - 1), x.ndim))


def _from_blocks(x: Any) -> Any:
    """Undo `_to_blocks`."""
    joined = lax.transpose(x, (*range(1, x.ndim - 1), 0, x.ndim - 1))
    return lax.reshape(joined, (*joined.shape[:-2], joined.shape[-2] * joined.shape[-1]))
