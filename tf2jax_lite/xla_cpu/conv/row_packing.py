"""Convolutions of short rows: images, or strips, packed into long rows.

XLA's convolution on CPU (of JAX 0.10) shares its work among threads by columns of the result: blocks of about ``2**18 /
(channels * outputs)`` columns each go to one thread. One thread computes everything where rows are no longer than that,
whatever the number of rows and of images. Zeros between the neighbors serve as the padding of both, and results that
read values of two neighbors are dropped.

A kernel larger than the result, as in filter gradients, would reach over all neighbors: most results would be dropped.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, pad, reorder


def packing_of(conv: ConvParams) -> tuple[int, int] | None:
    """Return images or strips per row, and strips per image; None for no change.

    Args:
      conv: a single-group convolution; a symbolic batch is left alone.
    """
    batch, channels, outputs = sizes = conv.batch, conv.in_channels, conv.out_channels
    if conv.has_lhs_dilation or math.prod(conv.window) > math.prod(conv.result):
        return None
    if conv.rank != 2 or not all(isinstance(n, int) for n in sizes):
        return None
    padded = any(n > 0 for pair in conv.pads for n in pair)
    large = batch * outputs * math.prod(conv.result) >= cost_model.ROW_LARGE_RESULT
    fewest = cost_model.ROW_MIN_CHANNELS_UNPADDED
    if padded:
        fewest = cost_model.ROW_MIN_CHANNELS
    elif large:
        fewest = cost_model.ROW_MIN_CHANNELS_OF_LARGE_RESULTS
    if min(channels, outputs) < fewest:
        return None
    if padded and channels * outputs < cost_model.ROW_MIN_WEIGHTS_PER_TAP:
        return None
    products = math.prod((*sizes, *conv.result, *conv.window))
    blocks = conv.result[1] * channels * outputs / cost_model.EIGEN_BLOCK
    if batch == 1:
        strips = cost_model.ROW_STRIPS
        shared = (conv.window[0] - 1) * conv.rhs_dilation[0] + 1 - conv.strides[0]
        fits = -(-conv.result[0] // strips) * conv.strides[0] >= max(shared, 1)
        few = any(products >= least and blocks < most for least, most in cost_model.STRIP_LIMITS)
        return (strips, strips) if fits and few else None
    values = batch * (channels * math.prod(conv.sizes) + outputs * math.prod(conv.result))
    if batch < cost_model.ROW_FEW_IMAGES:
        most = 1.5
    elif values <= cost_model.LLC_FLOATS:
        most = 8
    else:
        most = 3 if padded else 5
    if products < cost_model.ROW_MIN_PRODUCTS or blocks >= most:
        return None
    enough = cost_model.ROW_MAX_BLOCKS
    return next(n for n in range(1, batch + 1) if batch % n == 0 and (n == batch or n * blocks >= enough)), 1


def has_packed_rows(conv: ConvParams) -> bool:
    """Return whether a float32 convolution packs rows."""
    return conv.dtype == np.float32 and packing_of(conv) is not None


def pack_rows(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an unnegatively padded convolution with `packing_of` rows."""
    packing = packing_of(conv)
    assert packing is not None
    images, strips = packing
    (down, across), (height, width) = conv.strides, conv.result
    spans = [(k - 1) * r + 1 for k, r in zip(conv.window, conv.rhs_dilation, strict=True)]
    (top, bottom), (left, _) = conv.pads
    values = reorder(lhs, conv.lhs_spec, (0, 3, 1, 2))
    batch, channels = values.shape[0], values.shape[3]

    # Columns from the first of an image to the first of the next: zeros after its values may be the other's padding.
    length = max(left + conv.sizes[1], (width - 1) * across + spans[1] - left, width * across)
    length = -(-length // across) * across
    columns = (left, length - left - conv.sizes[1])

    rows = -(-height // strips)  # of the result, in each strip
    groups = batch * strips // images
    if strips == 1:
        # XLA's fast code has no more padding before the first row than "SAME" has; an input gradient may have more.
        rows_before, rows_after = ((top, bottom), (0, 0)) if 2 * top > spans[0] - 1 else ((0, 0), (top, bottom))
        values, outer = pad(values, (1, 2), (rows_before, columns)), rows_after
        values = lax.reshape(values, (groups, images, *values.shape[1:]))
        values = lax.transpose(values, (0, 2, 1, 3, 4))
    else:
        values, outer = _strips(values, columns, top, rows * down, spans[0] - down), (0, 0)
    values = lax.reshape(values, (groups, values.shape[1], images * length, channels))
    over = max(spans[1] - across, 0)  # of the last window
    # Without any padding XLA's convolution is slow.
    if outer == (0, 0) and over == 0:
        outer = (0, 1)
    specs = lax.ConvDimensionNumbers((0, 3, 1, 2), conv.rhs_spec, (0, 3, 1, 2))
    out = conv.convolve_directly(values, rhs, dimension_numbers=specs, padding=(outer, (0, over)))
    outputs = out.shape[3]
    out = lax.reshape(lax.slice_in_dim(out, 0, rows, axis=1), (groups, rows, images, length // across, outputs))
    out = lax.transpose(lax.slice_in_dim(out, 0, width, axis=3), (0, 2, 1, 3, 4))
    out = lax.reshape(out, (batch, strips * rows, width, outputs))
    return reorder(lax.slice_in_dim(out, 0, height, axis=1), (0, 3, 1, 2), conv.out_spec)


def _strips(values: Any, columns: tuple[int, int], top: int, step: int, shared: int) -> Any:
    """Return the strips of one image beside each other, padded.

    The shape is (1, rows of a strip, strips, columns, channels). XLA fuses the padding, the shared rows and the
    transpose; it would copy each part of a concatenation of strips first.

    Args:
      values: one image, its channels last.
      columns: of padding, before and after each strip.
      top: rows of padding.
      step: rows from one strip to the next.
      shared: further rows that a strip reads.
    """
    height, strips = values.shape[1], cost_model.ROW_STRIPS
    values = pad(values, (1, 2), ((top, (strips + 1) * step - top - height), columns))
    shape = (1, strips, step, *values.shape[2:])
    own, after = (lax.reshape(lax.slice_in_dim(values, i * step, (strips + i) * step, axis=1), shape) for i in range(2))
    if shared > 0:
        own = lax.concatenate([own, lax.slice_in_dim(after, 0, shared, axis=2)], 2)
    return lax.transpose(own, (0, 2, 1, 3, 4))
