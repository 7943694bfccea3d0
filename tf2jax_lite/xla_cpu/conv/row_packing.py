"""Convolutions of images with short rows: several images, or strips of one, side by side in rows that are long.

XLA's convolution on CPU (of JAX 0.10) shares its work among threads by columns of the result: blocks of about ``2**18 /
(channels * outputs)`` columns each go to one thread. One thread computes all where rows are no longer than that,
whatever the number of rows and of images. Zeros between the neighbours are what both would be padded with, and the
results that see values of two neighbours are dropped.

A window larger than the result, as gradients by the filter have, would reach over all neighbours: most results would be
dropped.
"""

from __future__ import annotations

import math
from typing import Any

from jax import lax

from .params import Conv, pad, plain, respec

__all__ = ["placing", "side_by_side"]

_BLOCK = 1 << 18  # columns, channels and outputs of one thread's share
# Of the channels; the second and third where there is no padding, which is slow anyway, the third of large results.
_FEWEST_CHANNELS, _FEWEST_UNPADDED, _FEWEST_OF_LARGE, _LARGE = 16, 5, 3, 3 << 21
_FEWEST_WEIGHTS = 384  # of a place: with 16 channels and as many outputs images by themselves are faster
_SMALL = 1 << 22  # values of images and results that stay near the processor
_MOST_BLOCKS = 64  # in a row that is made: more threads than that are not waited for
_FEW_IMAGES, _STRIPS = 4, 4
# Products that pay for laying values out anew: with several images; with one, of so many blocks a row at most.
_WORTH_IMAGES, _WORTH_STRIPS = 1 << 24, ((100 << 20, 1.75), (300 << 20, 4))


def placing(conv: Conv, batch: Any, channels: Any, outputs: Any) -> tuple[int, int] | None:
    """Returns how many images, and how many strips of each, are put into one row; None for none.

    Args:
      conv: a convolution of one group.
      batch: how many images; may be symbolic, and then nothing is put together.
      channels: of the input.
      outputs: channels of the result.
    """
    if max(conv.gaps) > 1 or math.prod(conv.window) > math.prod(conv.result):
        return None
    sizes = (batch, channels, outputs)
    padded = any(n > 0 for pair in conv.pads for n in pair)
    if len(conv.window) != 2 or not all(isinstance(n, int) for n in sizes):
        return None
    large = batch * outputs * math.prod(conv.result) >= _LARGE
    fewest = _FEWEST_CHANNELS if padded else _FEWEST_OF_LARGE if large else _FEWEST_UNPADDED
    if min(sizes[1:]) < fewest:
        return None
    if padded and channels * outputs < _FEWEST_WEIGHTS:
        return None
    products = math.prod((*sizes, *conv.result, *conv.window))
    blocks = conv.result[1] * channels * outputs / _BLOCK
    if batch == 1:
        shared = (conv.window[0] - 1) * conv.rates[0] + 1 - conv.strides[0]
        fits = -(-conv.result[0] // _STRIPS) * conv.strides[0] >= max(shared, 1)
        few = any(products >= least and blocks < most for least, most in _WORTH_STRIPS)
        return (_STRIPS, _STRIPS) if fits and few else None
    values = batch * (channels * math.prod(conv.sizes) + outputs * math.prod(conv.result))
    most = 1.5 if batch < _FEW_IMAGES else 8 if values <= _SMALL else 3 if padded else 5
    if products < _WORTH_IMAGES or blocks >= most:
        return None
    return next(n for n in range(1, batch + 1) if batch % n == 0 and (n == batch or n * blocks >= _MOST_BLOCKS)), 1


def side_by_side(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], images: int, strips: int) -> Any:
    """Returns a convolution of images, several of them in each row.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution: two window dimensions, one group, no gaps, no negative padding; its batch is a number.
      params: its parameters as JAX's primitive has them.
      images: how many images or strips are put into one row; a divisor of their number.
      strips: how many strips each image is cut into, one above the other, before that.
    """
    (down, across), (height, width) = conv.strides, conv.result
    spans = [(k - 1) * r + 1 for k, r in zip(conv.window, conv.rates, strict=True)]
    (top, bottom), (left, _) = conv.pads
    values = respec(lhs, conv.lhs, (0, 3, 1, 2))
    batch, channels = values.shape[0], values.shape[3]

    # Columns from the first of an image to the first of the next: what follows its values may be the other's padding.
    length = max(left + conv.sizes[1], (width - 1) * across + spans[1] - left, width * across)
    length = -(-length // across) * across
    columns = (left, length - left - conv.sizes[1])

    rows = -(-height // strips)  # of the result, in each strip
    if strips == 1:
        values, outer = pad(values, (2,), (columns,)), (top, bottom)
        values = lax.reshape(values, (batch, 1, *values.shape[1:]))
    else:
        step = rows * down
        values = pad(values, (1, 2), ((top, (strips + 1) * step - top - conv.sizes[0]), columns))
        shape = (batch, strips, step, length, channels)
        parts = [lax.slice_in_dim(values, i * step, (strips + i) * step, axis=1) for i in range(2)]
        main, after = (lax.reshape(part, shape) for part in parts)
        shared = spans[0] - down
        if shared > 0:
            main = lax.concatenate([main, lax.slice_in_dim(after, 0, shared, axis=2)], 2)
        values, outer = main, (0, 0)
    over = max(spans[1] - across, 0)  # of the last window
    # Without any padding XLA's convolution is slow.
    if outer == (0, 0) and over == 0:
        outer = (0, 1)
    groups = batch * strips // images
    values = lax.reshape(values, (groups, images, *values.shape[2:]))
    values = lax.transpose(values, (0, 2, 1, 3, 4))
    values = lax.reshape(values, (groups, values.shape[1], images * length, channels))
    alone = {
        **params,
        "dimension_numbers": lax.ConvDimensionNumbers((0, 3, 1, 2), conv.rhs, (0, 3, 1, 2)),
        "padding": (outer, (0, over)),
    }
    found = plain(values, rhs, **alone)
    outputs = found.shape[3]
    found = lax.reshape(lax.slice_in_dim(found, 0, rows, axis=1), (groups, rows, images, length // across, outputs))
    found = lax.transpose(lax.slice_in_dim(found, 0, width, axis=3), (0, 2, 1, 3, 4))
    found = lax.reshape(found, (batch, strips * rows, width, outputs))
    return respec(lax.slice_in_dim(found, 0, height, axis=1), (0, 3, 1, 2), conv.out)
