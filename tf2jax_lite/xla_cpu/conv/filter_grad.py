"""Convolutions whose window is about as large as the image, and that give few results: gradients by the filter, mostly.

XLA's convolution is made for small windows. Here each result is a matrix product, one after the other. Where the image
and what it is multiplied with do not stay near the processor, each of them reads both anew: then the windows of some
rows at a time are laid side by side (*im2col*) for one product, near the processor, and the products of all rows are
added up. Of small images several make up such rows. That takes a half to four fifths of the time of one product after
the other, a fourth where there were many values, and a fourth of XLA's time for large images of few channels (two cores
with AVX2, JAX 0.10; with AVX-512 0.4 to 1.0, of volumes too, and a half to nine tenths for many small images).

A gradient by the filter that gives few channels has its operands exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.materialize import once

from .params import Conv, cut, pad, place_of, plain, product, respec, sum_of_products, taps, transposed

__all__ = ["is_laid_out", "is_turned", "is_whole", "laid_out", "turned", "whole"]

_FEW_PRODUCTS, _MOST_PRODUCTS = 9, (25, 25, 125)  # the second for each number of spatial dimensions
_FEWEST_COLUMNS, _MANY_COLUMNS = 16, 256  # of a product
_MANY_VALUES = 100  # of a window, for each result
_MOST_AT_ONCE, _MOST_RESULTS = 27, 128  # places of a window; in more of them, few channels
_FEWEST_CHANNELS, _FEW_CHANNELS, _FEW_OF_PAIRS = 8, 64, 32
_MANY_OF_FEW = 6 << 20  # values, as below
_FEWEST_WEIGHTS, _FEWEST_VALUES = 256, 1 << 18  # of a place, and of images and what they are multiplied with
_MANY_WEIGHTS, _FEWEST_OF_MANY = 1 << 12, 1 << 17
_FEWEST_OF_VOLUMES, _MANY_OF_VOLUMES, _FEWEST_OF_MORE = 1 << 18, 1 << 19, 3 << 20
_FAR_MORE = 4  # places of a window than results
_ROWS, _NEAR = 2048, 1 << 20  # rows at a time, and values of their windows


def is_whole(conv: Conv, others: tuple[Any, int]) -> bool:
    """Whether few outputs each sum a window about as large as the input: filter gradients, mostly.

    Args:
      conv: the convolution.
      others: the sizes of each matrix product that are not summed over; small ones are no gain.
    """
    results, window = math.prod(conv.result), math.prod(conv.window)
    if any(g != 1 for g in conv.gaps) or window == 1:
        return False
    summed, columns = others
    wide = (not isinstance(summed, int) or summed >= _FEWEST_CHANNELS) and columns >= _FEWEST_COLUMNS
    few = results <= _FEW_PRODUCTS and window >= 4 * results
    many = results <= _MOST_PRODUCTS[len(conv.window) - 1] and window >= _MANY_VALUES * results
    return results == 1 or ((few or many) and wide)


def whole(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution for which `is_whole` holds."""
    places, rank = conv.lhs[2:], len(conv.result)
    padded = pad(lhs, places, conv.pads)
    # In the order in which the (larger) input has them.
    pairs = sorted(zip((conv.lhs[1], *places), (conv.rhs[1], *conv.rhs[2:]), strict=True))
    ours, theirs = [d for d, _ in pairs], [d for _, d in pairs]
    spans = [(k - 1) * r + 1 for k, r in zip(conv.window, conv.rates, strict=True)]

    def part(starts: list[Any]) -> Any:
        """Returns the input's values for one result; positions may be traced."""
        sizes, firsts = list(padded.shape), [np.int32(0)] * padded.ndim
        for dim, start, span in zip(places, starts, spans, strict=True):
            sizes[dim], firsts[dim] = span, start
        found = lax.dynamic_slice(padded, firsts, sizes, allow_negative_indices=False)
        return cut(found, places, [0] * rank, conv.window, conv.rates)

    results = math.prod(conv.result)
    if results == 1:
        out = sum_of_products(part([np.int32(0)] * rank), rhs, (tuple(ours), tuple(theirs)), conv, wide)
        return respec(lax.reshape(out, (*conv.result, *out.shape)), (rank, rank + 1, *range(rank)), conv.out)
    # A loop: written out, the parts would all be held at the same time. The filter's side is laid out once for all.
    columns = transposed(rhs, (conv.rhs[0], *theirs))

    def add(index: Any, sums: Any) -> Any:
        starts = place_of(lax.convert_element_type(index, np.int32), conv.result, conv.strides)
        found = product(columns, part(starts), (tuple(range(1, rank + 2)), tuple(ours)), conv, wide)
        return lax.dynamic_update_index_in_dim(sums, found, index, 0)

    zeros = jnp.zeros((results, columns.shape[0], lhs.shape[conv.lhs[0]]), wide)
    out = lax.fori_loop(np.int32(0), np.int32(results), add, zeros)
    out = lax.reshape(out, (*conv.result, *out.shape[1:]))
    return respec(out, (rank + 1, rank, *range(rank)), conv.out)


def is_laid_out(conv: Conv, images: Any, channels: Any, outputs: Any) -> bool:
    """Whether windows are laid side by side for some rows at a time.

    XLA has small windows, and takes long where an image has few channels.

    Args:
      conv: a convolution of one group.
      images: how many are summed over.
      channels: of each of them, in the result its first dimension.
      outputs: channels that they are multiplied with.
    """
    if any(g != 1 for g in conv.gaps) or not all(isinstance(n, int) for n in (images, channels, outputs)):
        return False
    results, window = math.prod(conv.result), math.prod(conv.window)
    most = _MOST_RESULTS if channels < _FEWEST_CHANNELS else _MOST_AT_ONCE
    if not 1 < results <= most or outputs < _FEWEST_COLUMNS:
        return False
    if len(conv.window) == 2 and results == 2 and _FEWEST_CHANNELS <= channels <= _FEW_OF_PAIRS:
        return False  # two products, of short rows, take less than it does to move them
    values = images * window * (channels + outputs)
    if len(conv.window) == 3 and results > _FEW_PRODUCTS:  # a product for each place reads them so many times
        few = channels <= _FEW_CHANNELS or (channels <= 2 * _FEW_CHANNELS and values < _MANY_OF_VOLUMES)
        return few and values >= _FEWEST_OF_VOLUMES and images * window >= _MANY_VALUES // 2 * results
    if window < _MANY_VALUES * results:  # small images
        few = results <= _FEW_PRODUCTS and max(channels, outputs) <= _FEW_CHANNELS
        if not few or channels < _FEWEST_COLUMNS or images * window < _MANY_VALUES * results:
            return False
        weights = channels * outputs
        return weights >= _FEWEST_WEIGHTS and values >= (_FEWEST_VALUES if weights < _MANY_WEIGHTS else _FEWEST_OF_MANY)
    if channels < _FEWEST_CHANNELS:  # XLA is fast as long as all stays near the processor
        return values >= _MANY_OF_FEW
    if channels <= _FEW_CHANNELS:
        return channels * outputs >= _FEWEST_WEIGHTS and values >= _FEWEST_VALUES
    # Of many channels a product has columns enough.
    few = results <= _FEW_PRODUCTS and channels <= 2 * _FEW_CHANNELS and outputs <= _FEW_CHANNELS
    return few and values >= _FEWEST_OF_MORE


def laid_out(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution for which `is_laid_out` holds."""
    rank = len(conv.result)
    places = tuple(range(1, rank + 1))
    values = respec(lhs, conv.lhs, (rank + 1, 0, *places))  # image, places, channel
    others = respec(rhs, conv.rhs, (rank + 1, 0, *places))
    images, channels, outputs, results = values.shape[0], values.shape[-1], others.shape[-1], math.prod(conv.result)
    slab, counts = _slabs((images, *conv.window), min(_ROWS, _NEAR // (results * channels)))
    ends = [n * count for n, count in zip(slab, counts, strict=True)]
    after = [(0, end - n) for end, n in zip(ends, (images, *conv.window), strict=True)]
    others = pad(others, range(rank + 1), after)
    needed = [
        (e - 1) * r + (n - 1) * s + 1
        for e, r, n, s in zip(ends[1:], conv.rates, conv.result, conv.strides, strict=True)
    ]
    more = [max(n - sum(p) - size, 0) for n, p, size in zip(needed, conv.pads, conv.sizes, strict=True)]
    pads = [(lo, hi + m) for (lo, hi), m in zip(conv.pads, more, strict=True)]
    values = pad(values, range(rank + 1), [after[0], *pads])
    sizes = [
        (n - 1) * r + (k - 1) * s + 1
        for n, r, k, s in zip(slab[1:], conv.rates, conv.result, conv.strides, strict=True)
    ]
    rows, zero = math.prod(slab), np.int32(0)

    def add(index: Any, total: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        image, *starts = place_of(index, counts, slab)
        left = lax.dynamic_slice(others, (image, *starts, zero), (*slab, outputs), allow_negative_indices=False)
        # Transposed near the processor: rows of the whole may lie so far apart that they share few cache lines.
        left = lax.transpose(lax.reshape(left, (rows, outputs)), (1, 0))
        if results * channels >= _MANY_COLUMNS:
            left = once(left)  # else XLA has the product transpose it, which is slower where there are many columns
        at = (image, *(start * np.int32(r) for start, r in zip(starts, conv.rates, strict=True)), zero)
        part = lax.dynamic_slice(values, at, (slab[0], *sizes, channels), allow_negative_indices=False)
        right = lax.reshape(_windows(part, conv, slab[1:]), (rows, results * channels))
        return lax.add(total, product(left, right, ((1,), (0,)), conv, wide))

    start = jnp.zeros((outputs, results * channels), wide)
    total = lax.fori_loop(zero, np.int32(math.prod(counts)), add, start)
    total = lax.reshape(total, (outputs, *conv.result, channels))
    return respec(total, (rank + 1, 0, *places), conv.out)


def _windows(part: Any, conv: Conv, slab: Sequence[int]) -> Any:
    """Lays windows side by side; many places one dimension after the other, which is less code.

    Args:
      part: an image's rows, its channels last.
      conv: the convolution, whose results are the places of a window.
      slab: how many windows there are along each dimension.
    """
    last = part.ndim - 1
    dims = range(1, last)

    def side_by_side(part: Any, dims: Sequence[int]) -> Any:
        counts, steps, rates = ([of[d - 1] for d in dims] for of in (slab, conv.strides, conv.rates))
        places = taps([conv.result[d - 1] for d in dims])
        starts = [[p * s for p, s in zip(place, steps, strict=True)] for place in places]
        return lax.concatenate([cut(part, dims, at, counts, rates) for at in starts], last)

    if math.prod(conv.result) <= _MOST_AT_ONCE:
        return side_by_side(part, dims)
    for dim in reversed(dims):
        part = once(side_by_side(part, [dim]))
    return part


def _slabs(window: tuple[int, ...], rows: int) -> tuple[list[int], list[int]]:
    """Cuts a window into parts of about so many rows each.

    Returns:
      The sizes of a part, and how many of them there are along each dimension; the last may go beyond the window.
    """
    sizes: list[int] = []
    for n in reversed(window):
        count = -(-n // max(rows // math.prod(sizes), 1))
        sizes.append(-(-n // count))
    sizes.reverse()
    return sizes, [-(-n // size) for n, size in zip(window, sizes, strict=True)]


def is_turned(conv: Conv, batch: Any, outputs: Any) -> bool:
    """Whether a gradient by the filter is better made with its operands exchanged: few channels come out.

    XLA takes a window as large as the image for each of them, and is fast where many come out. With gaps between the
    image's values (the filter is a transposed convolution's) the exchanged window has a rate instead, for all channels.
    """
    if any(n != 1 for n in (*conv.strides, *conv.rates)):
        return False
    if max(conv.gaps) > 1:
        return math.prod(conv.window) > _FAR_MORE * math.prod(conv.result)
    if not isinstance(batch, int) or not isinstance(outputs, int):
        return False
    few = outputs < _FEWEST_COLUMNS and 2 * outputs <= batch
    return few and math.prod(conv.window) > math.prod(conv.result)


def turned(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Moves the image over the window: the same sums, the last place first."""
    pads = [(n - 1 - lo, n - 1 - hi) for n, (lo, hi) in zip(conv.result, conv.pads, strict=True)]
    # XLA is slow where a window is larger than the image, and without any padding.
    left = tuple((min(max(lo, 0), 1), min(max(hi, 0), 1)) for lo, hi in pads)
    before = [(lo - a, hi - b) for (lo, hi), (a, b) in zip(pads, left, strict=True)]
    turned = {
        **params,
        "dimension_numbers": lax.ConvDimensionNumbers(conv.rhs, conv.lhs, (conv.out[1], conv.out[0], *conv.out[2:])),
        "padding": left,
        "lhs_dilation": conv.rates,
        "rhs_dilation": conv.gaps,
        "precision": conv.precision[::-1] if isinstance(conv.precision, tuple) else conv.precision,
    }
    # Images of one channel XLA is fast with, volumes never.
    apart = rhs.shape[conv.rhs[0]] == 1 and len(conv.window) < 3
    found = (plain if apart else convolve)(pad(rhs, conv.rhs[2:], before), lhs, **turned)
    return lax.rev(found, conv.out[2:])
