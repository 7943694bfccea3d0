"""Convolutions by im2col: windows' values beside each other, one product.

For few windows with many weights, which XLA's convolution reads slowly, all at once. For filter gradients some rows of
windows at a time, in the cache; the products of all rows are added up. Of small images several make up such rows. That
takes a fourth of XLA's time for large images of few channels (two cores with AVX2, JAX 0.10). With AVX-512 and JAX
0.10.2 it took 0.2 to 0.8 of XLA's time for volumes, 0.25 to 1.0 for up to 4 channels, and 0.2 to 1.0 for 32 and more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, dot, pad, reorder, strided_slice, taps, transpose, unravel_index
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.xla_cpu import cost_model

from .padding import is_small


def _has_static_sizes(conv: ConvParams) -> bool:
    return all(isinstance(n, int) for n in (conv.batch, conv.in_channels, conv.out_channels))


def is_im2col(conv: ConvParams) -> bool:
    """Return whether there are few windows, and many weights beside them.

    XLA's convolution takes long to read weights that do not stay in the cache, and where the image is smaller than the
    kernel.
    """
    if conv.has_lhs_dilation or not _has_static_sizes(conv):
        return False
    windows, count, channels, outputs = (
        conv.batch * math.prod(conv.result),
        math.prod(conv.window),
        conv.in_channels,
        conv.out_channels,
    )
    if count > cost_model.IM2COL_MAX_TAPS and not is_small(conv):
        return False
    if min(channels, outputs) < cost_model.IM2COL_MIN_CHANNELS or windows > cost_model.IM2COL_MAX_WINDOWS:
        return False
    if windows * count * channels > cost_model.LLC_FLOATS:
        return False
    weights = count * channels * outputs
    small = 2 * math.prod(conv.sizes) < count <= cost_model.IM2COL_MAX_TAPS
    return small or (windows <= cost_model.IM2COL_FEW_WINDOWS and weights >= cost_model.IM2COL_MIN_WEIGHTS)


def im2col(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an `is_im2col` convolution, in the dtype of sums, by a loop."""
    rank = conv.rank
    dims = tuple(range(1, rank + 1))
    padded = pad(reorder(lhs, conv.lhs_spec, (0, rank + 1, *dims)), dims, conv.pads)
    channels, rows = padded.shape[-1], padded.shape[0] * math.prod(conv.result)
    sizes = [(n - 1) * s + 1 for n, s in zip(conv.result, conv.strides, strict=True)]
    zero = np.int32(0)

    def put(index: Any, windows: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        starts = (zero, *unravel_index(index, conv.window, conv.rhs_dilation), zero)
        part = lax.dynamic_slice(padded, starts, (padded.shape[0], *sizes, channels), allow_negative_indices=False)
        part = strided_slice(part, dims, [0] * rank, conv.result, conv.strides)
        part = lax.reshape(part, (rows, 1, channels))
        return lax.dynamic_update_slice(windows, part, (zero, index, zero), allow_negative_indices=False)

    count = math.prod(conv.window)
    windows = lax.fori_loop(zero, np.int32(count), put, jnp.zeros((rows, count, channels), lhs.dtype))
    weights = transpose(rhs, (*conv.rhs_spec[2:], conv.rhs_spec[1], conv.rhs_spec[0]))
    weights = lax.reshape(weights, (count, channels, weights.shape[-1]))
    out = dot(windows, weights, ((1, 2), (0, 1)), conv)
    out = lax.reshape(out, (padded.shape[0], *conv.result, out.shape[-1]))
    return reorder(out, (0, rank + 1, *dims), conv.out_spec)


def has_rows(conv: ConvParams) -> bool:
    """Return whether a filter gradient takes windows some rows at a time.

    In its terms the input channels are the images that are summed over, the batch is their channels, the output
    channels are the gradient's, and the results are taps. XLA is good at small windows, and takes long where an image
    has few channels, or many values of many channels.
    """
    if conv.has_lhs_dilation or not _has_static_sizes(conv):
        return False
    images, channels, outputs = conv.in_channels, conv.batch, conv.out_channels
    results, window = math.prod(conv.result), math.prod(conv.window)
    most = cost_model.FILTER_IM2COL_MAX_TAPS
    if channels < cost_model.FILTER_MIN_CHANNELS:
        most = cost_model.FILTER_IM2COL_MAX_TAPS_OF_FEW_CHANNELS
    if not 1 < results <= most or outputs < cost_model.SIMD_LANES:
        return False
    if conv.rank < 3 and channels in cost_model.FILTER_XLA_CHANNELS:
        return False
    values = images * window * (channels + outputs)
    per_tap = cost_model.FILTER_MIN_WINDOW_PER_TAP
    if conv.rank == 3 and results > cost_model.FILTER_FEW_TAPS:
        few = channels <= cost_model.FILTER_MAX_CHANNELS or (
            channels <= 2 * cost_model.FILTER_MAX_CHANNELS and values < cost_model.FILTER_MAX_FLOATS_OF_VOLUMES
        )
        return few and values >= cost_model.FILTER_MIN_FLOATS_OF_VOLUMES and images * window >= per_tap // 2 * results
    if channels > cost_model.FILTER_MAX_CHANNELS:
        least = cost_model.FILTER_MIN_FLOATS_OF_MANY_CHANNELS
        if conv.rank > 1 and results in conv.result:  # the taps are a line
            least = cost_model.FILTER_MIN_FLOATS_OF_LINES
        return results <= cost_model.FILTER_FEW_TAPS and values >= least
    weights = channels * outputs
    if window < per_tap * results:  # small images
        few = results <= cost_model.FILTER_FEW_TAPS and max(channels, outputs) <= cost_model.FILTER_MAX_CHANNELS
        if not few or channels < cost_model.SIMD_LANES or images * window < per_tap * results:
            return False
        least = cost_model.FILTER_MIN_FLOATS_OF_MANY_WEIGHTS
        if weights < cost_model.FILTER_MANY_WEIGHTS_PER_TAP:
            least = cost_model.FILTER_MIN_FLOATS
        return weights >= cost_model.FILTER_MIN_WEIGHTS_PER_TAP and values >= least
    if channels < cost_model.FILTER_MIN_CHANNELS:  # XLA is fast as long as all stays in the cache
        return outputs > cost_model.SIMD_LANES and values >= cost_model.FILTER_MIN_FLOATS_OF_FEW_CHANNELS
    return weights >= cost_model.FILTER_MIN_WEIGHTS_PER_TAP and values >= cost_model.FILTER_MIN_FLOATS


def _moves_gradient(conv: ConvParams) -> bool:
    """Return whether taps along the depth read other planes of the gradient.

    Otherwise they read other planes of the image. Values are copied for each tap that moves over them, and the image's
    are for all taps of a plane already: a half to 0.9 of the time (two cores with AVX-512). Along the depth, the image
    is longer than the gradient.
    """
    if conv.rank < 3 or conv.rhs_dilation[0] > 1:
        return False
    depth, span = conv.result[0], (conv.result[0] - 1) * conv.strides[0]
    of_image = conv.batch * math.prod(conv.result[1:])
    moving_gradient = (of_image + depth * conv.out_channels) * (1 + span / conv.window[0])
    return moving_gradient < depth * of_image + conv.out_channels


def by_rows(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `has_rows` holds, in the dtype of sums."""
    rank = conv.rank
    dims = tuple(range(1, rank + 1))
    planes = [0]  # of the gradient, for each tap along the depth
    if _moves_gradient(conv):
        planes = [tap * conv.strides[0] for tap in reversed(range(conv.result[0]))]
        conv = dataclasses.replace(
            conv, window=(conv.window[0] + planes[0], *conv.window[1:]), result=(1, *conv.result[1:])
        )
    values = reorder(lhs, conv.lhs_spec, (rank + 1, 0, *dims))  # image, spatial dimensions, channel
    others = reorder(rhs, conv.rhs_spec, (rank + 1, 0, *dims))
    others = pad(others, (1,), [(planes[0], planes[0])])
    images, channels, outputs, results = values.shape[0], values.shape[-1], others.shape[-1], math.prod(conv.result)
    few = results * channels < cost_model.FILTER_IM2COL_FEW_VALUES
    most = cost_model.FILTER_IM2COL_ROWS_OF_FEW_VALUES if few else cost_model.FILTER_IM2COL_ROWS
    most = min(most, cost_model.FILTER_IM2COL_FLOATS // (results * channels))
    block, counts = _blocks((images, *conv.window), most)
    ends = [n * count for n, count in zip(block, counts, strict=True)]
    after = [(0, end - n) for end, n in zip(ends, (images, *conv.window), strict=True)]
    others = pad(others, range(rank + 1), after)
    needed = [
        (e - 1) * r + (n - 1) * s + 1
        for e, r, n, s in zip(ends[1:], conv.rhs_dilation, conv.result, conv.strides, strict=True)
    ]
    more = [max(n - sum(p) - size, 0) for n, p, size in zip(needed, conv.pads, conv.sizes, strict=True)]
    pads = [(lo, hi + m) for (lo, hi), m in zip(conv.pads, more, strict=True)]
    values = pad(values, range(rank + 1), [after[0], *pads])
    sizes = [
        (n - 1) * r + (k - 1) * s + 1
        for n, r, k, s in zip(block[1:], conv.rhs_dilation, conv.result, conv.strides, strict=True)
    ]
    rows, zero = math.prod(block), np.int32(0)

    def add(index: Any, total: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        image, *starts = unravel_index(index, counts, block)
        at = (image, *(start * np.int32(r) for start, r in zip(starts, conv.rhs_dilation, strict=True)), zero)
        part = lax.dynamic_slice(values, at, (block[0], *sizes, channels), allow_negative_indices=False)
        # A row for each weight: XLA is slower at products that have to transpose an operand, and at few rows.
        left = _windows(materialize(lax.transpose(part, (rank + 1, *range(rank + 1)))), conv, block[1:])
        left = materialize(lax.reshape(left, (results * channels, rows)))
        parts = []
        for plane in planes:
            at = (image, starts[0] + np.int32(plane), *starts[1:], zero)
            right = lax.dynamic_slice(others, at, (*block, outputs), allow_negative_indices=False)
            parts.append(dot(left, lax.reshape(right, (rows, outputs)), ((1,), (0,)), conv))
        return lax.add(total, lax.concatenate(parts, 0))

    start = jnp.zeros((len(planes) * results * channels, outputs), conv.sum_dtype)
    total = lax.fori_loop(zero, np.int32(math.prod(counts)), add, start)
    total = lax.reshape(total, (len(planes) * conv.result[0], *conv.result[1:], channels, outputs))
    return reorder(total, (rank, rank + 1, *range(rank)), conv.out_spec)


def _windows(part: Any, conv: ConvParams, block: Sequence[int]) -> Any:
    """Return the values of windows, (taps and channels, images, *block).

    Of many taps, one dimension after another.

    Args:
      part: (channels, images, *sizes).
      conv: the convolution, whose results are the taps.
      block: the number of windows along each dimension.
    """
    dims = range(2, part.ndim)

    def stacked(part: Any, dims: Sequence[int]) -> Any:
        counts, steps, dilation = ([of[d - 2] for d in dims] for of in (block, conv.strides, conv.rhs_dilation))
        indices = taps([conv.result[d - 2] for d in dims])
        starts = [[i * s for i, s in zip(index, steps, strict=True)] for index in indices]
        return lax.concatenate([strided_slice(part, dims, at, counts, dilation) for at in starts], 0)

    if math.prod(conv.result) <= cost_model.FILTER_IM2COL_MAX_TAPS:
        return stacked(part, dims)
    for dim in reversed(dims):
        part = materialize(stacked(part, [dim]))
    return part


def _blocks(window: tuple[int, ...], rows: int) -> tuple[list[int], list[int]]:
    """Divide a window into blocks of about so many rows each.

    Returns:
      The sizes of a block, and the number of blocks along each dimension; the last may go beyond the window.
    """
    sizes: list[int] = []
    for n in reversed(window):
        count = -(-n // max(rows // math.prod(sizes), 1))
        sizes.append(-(-n // count))
    sizes.reverse()
    return sizes, [-(-n // size) for n, size in zip(window, sizes, strict=True)]
