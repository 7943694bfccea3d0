"""Convolutions of each channel, some channels or one row at a time.

A result of such a convolution reads as many places, and weights, of each channel as the window has: with 49 places of
256 channels 100 KiB, twice what a processor keeps nearest. Where a row of channels is a power of two bytes long it is
worse: neighbouring places compete for the same few lines. Of 32 channels at a time it reads 12 KiB, which the next
result finds where they are. Gradients by the filter, whose sums go through whole images, do so with 16 channels, or
sum up each row by itself where rows are long. Channels are brought into that order while the image is padded, and back
afterwards (docs/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.materialize import once

from .params import Conv, cut, taps

__all__ = ["filter_sums", "is_blocked", "weighted_sum"]

_BLOCK, FEWEST_CHANNELS, FEWEST_PLACES = 32, 256, 36
_LONG_ROW, _MOST_PLACES_OF_ROWS = 48, 25
_FILTER_BLOCKS = ((16, 1), (8, 25))  # channels of a block, and the fewest places that make up for short ones


def is_blocked(lhs: Any, conv: Conv) -> bool:
    """Whether a convolution of each channel goes through its channels by blocks: they have to come last."""
    channels = lhs.shape[-1]
    return (
        conv.lhs[1] == lhs.ndim - 1
        and isinstance(channels, int)
        and channels >= FEWEST_CHANNELS
        and channels % _BLOCK == 0
        and math.prod(conv.window) >= FEWEST_PLACES
        and max(conv.strides) == max(conv.gaps) == 1
    )


def weighted_sum(padded: Any, weights: dict[tuple[int, ...], Any], conv: Conv) -> Any:
    """Returns the convolution of what is padded already.

    Args:
      padded: an array of shape ``(..., channels)``.
      weights: of each place of the window an array of shape ``(1, channels)``.
      conv: the convolution.
    """
    places = [d + 1 for d in conv.lhs[2:]]
    blocks, total = once(_to_blocks(padded, _BLOCK)), None
    for tap in taps(conv.window):
        starts = [t * r for t, r in zip(tap, conv.rates, strict=True)]
        part = cut(blocks, places, starts, conv.result, conv.strides)
        row = lax.squeeze(_to_blocks(weights[tap], _BLOCK), (1,))
        found = lax.mul(part, lax.broadcast_in_dim(row, part.shape, (0, part.ndim - 1)))
        total = found if total is None else lax.add(total, found)
    return _from_blocks(once(total))


def filter_sums(padded: Any, grad: Any, conv: Conv) -> Any:
    """Returns the gradient by the filter, of shape ``(places of the window, channels)``.

    All places are one reduction. It sums up rows where they are long and the window is small, else images, channels by
    blocks where there are many; what is left is little. Over everything at once one thread would do all the work.

    Args:
      padded: the images.
      grad: the gradient by the result, its dimensions in the same order.
      conv: the gradient, a convolution whose "batch" is the channels and whose "features" are the examples.
    """
    channel, places = conv.lhs[0], list(conv.lhs[2:])
    axes = places
    size = _filter_block(channel, grad.shape[channel], grad.ndim, conv)
    if _has_long_rows(conv):
        axes, padded = places[-1:], once(padded)
    elif size is not None:
        padded, grad = once(_to_blocks(padded, size)), once(_to_blocks(grad, size))
        places = axes = [d + 1 for d in places]
        sums = jnp.sum(jnp.stack(_reduced(padded, grad, conv, places, axes)), 2)  # blocks, examples, channels
        return lax.reshape(sums, (sums.shape[0], size * sums.shape[1]))
    else:
        padded = once(padded)
    sums = jnp.stack(_reduced(padded, grad, conv, places, axes))
    left = [d for d in range(grad.ndim) if d not in axes]
    return jnp.sum(sums, tuple(i for i, d in enumerate(left, 1) if d != channel))


def _filter_block(channel: int, channels: Any, rank: int, conv: Conv) -> int | None:
    if channel != rank - 1 or not isinstance(channels, int):
        return None
    places = math.prod(conv.result)
    return next((n for n, fewest in _FILTER_BLOCKS if channels % n == 0 and channels > n and places >= fewest), None)


def _has_long_rows(conv: Conv) -> bool:
    row = conv.window[-1]
    return isinstance(row, int) and row >= _LONG_ROW and math.prod(conv.result) <= _MOST_PLACES_OF_ROWS


def _reduced(padded: Any, grad: Any, conv: Conv, places: Sequence[int], axes: Sequence[int]) -> Sequence[Any]:
    """Returns for each place of the window the sum over ``axes`` of the images there times ``grad``."""
    products = []
    for tap in taps(conv.result):
        starts = [t * s for t, s in zip(tap, conv.strides, strict=True)]
        products.append(cut(padded, places, starts, conv.window, conv.rates) * grad)
    zeros = [np.zeros((), padded.dtype)] * len(products)
    return lax.reduce(products, zeros, lambda a, b: [x + y for x, y in zip(a, b, strict=True)], axes)


def _to_blocks(x: Any, size: int) -> Any:
    """Returns ``x``, of shape ``(..., channels)``, as ``(blocks, ..., size)``."""
    split = lax.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size))
    return lax.transpose(split, (x.ndim - 1, *range(x.ndim - 1), x.ndim))


def _from_blocks(x: Any) -> Any:
    """Undoes `_to_blocks`."""
    joined = lax.transpose(x, (*range(1, x.ndim - 1), 0, x.ndim - 1))
    return lax.reshape(joined, (*joined.shape[:-2], joined.shape[-2] * joined.shape[-1]))
