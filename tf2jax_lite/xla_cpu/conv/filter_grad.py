"""Convolutions of few results whose window is about as large as the image: filter gradients, mostly.

XLA's convolution is made for small windows. Here each result is a matrix product, one after the other; `im2col` has
another rule, for operands that do not stay in the cache. A filter gradient with few channels of results has its
operands swapped.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, dot, dot_in_cheaper_order, pad, reorder, strided_slice, transpose, unravel_index

__all__ = ["dot_per_tap", "has_swapped_operands", "is_dot_per_tap", "is_swapped_with_dilation", "swapped_operands"]


def is_dot_per_tap(conv: ConvParams) -> bool:
    """Return whether few results each sum a window about as large as the input; small products are no gain."""
    results, window = math.prod(conv.result), math.prod(conv.window)
    if conv.has_lhs_dilation or window == 1:
        return False
    rows, columns = conv.batch, conv.out_channels
    wide = not isinstance(rows, int) or rows >= cost_model.FILTER_MIN_CHANNELS
    wide = wide and columns >= cost_model.SIMD_LANES
    few = results <= cost_model.FILTER_FEW_TAPS and window >= 4 * results
    most = cost_model.FILTER_MAX_TAPS[conv.rank - 1]
    many = results <= most and window >= cost_model.FILTER_MIN_WINDOW_PER_TAP * results
    return results == 1 or ((few or many) and wide)


def dot_per_tap(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `is_dot_per_tap` holds, in the dtype of sums."""
    dims, rank = conv.lhs_spec[2:], conv.rank
    padded = pad(lhs, dims, conv.pads)
    # In the order in which the (larger) input has them.
    pairs = sorted(zip((conv.lhs_spec[1], *dims), (conv.rhs_spec[1], *conv.rhs_spec[2:]), strict=True))
    lhs_dims, rhs_dims = [d for d, _ in pairs], [d for _, d in pairs]
    spans = [(k - 1) * r + 1 for k, r in zip(conv.window, conv.rhs_dilation, strict=True)]

    def window(starts: list[Any]) -> Any:
        """Return the input's values for one result; positions may be traced."""
        sizes, firsts = list(padded.shape), [np.int32(0)] * padded.ndim
        for dim, start, span in zip(dims, starts, spans, strict=True):
            sizes[dim], firsts[dim] = span, start
        values = lax.dynamic_slice(padded, firsts, sizes, allow_negative_indices=False)
        return strided_slice(values, dims, [0] * rank, conv.window, conv.rhs_dilation)

    results = math.prod(conv.result)
    if results == 1:
        contract = tuple(lhs_dims), tuple(rhs_dims)
        out = dot_in_cheaper_order(window([np.int32(0)] * rank), rhs, contract, conv)
        return reorder(lax.reshape(out, (*conv.result, *out.shape)), (rank, rank + 1, *range(rank)), conv.out_spec)
    # A loop: unrolled, the windows would all be held at the same time. The filter's side is transposed once for all.
    columns = transpose(rhs, (conv.rhs_spec[0], *rhs_dims))

    def add(index: Any, sums: Any) -> Any:
        starts = unravel_index(lax.convert_element_type(index, np.int32), conv.result, conv.strides)
        out = dot(columns, window(starts), (tuple(range(1, rank + 2)), tuple(lhs_dims)), conv)
        return lax.dynamic_update_index_in_dim(sums, out, index, 0)

    zeros = jnp.zeros((results, columns.shape[0], lhs.shape[conv.lhs_spec[0]]), conv.sum_dtype)
    out = lax.fori_loop(np.int32(0), np.int32(results), add, zeros)
    out = lax.reshape(out, (*conv.result, *out.shape[1:]))
    return reorder(out, (rank + 1, rank, *range(rank)), conv.out_spec)


def has_swapped_operands(conv: ConvParams) -> bool:
    """Return whether a filter gradient is faster with its operands swapped: few channels result.

    XLA takes a window as large as the image for each of them, and is fast where many result. With input dilation (the
    filter is a transposed convolution's) the swapped kernel is dilated instead, for all channels.
    """
    if any(n != 1 for n in (*conv.strides, *conv.rhs_dilation)):
        return False
    if conv.has_lhs_dilation:
        return math.prod(conv.window) > cost_model.FILTER_SWAP_MIN_WINDOW_RATIO * math.prod(conv.result)
    batch, outputs = conv.batch, conv.out_channels
    if not isinstance(batch, int) or not isinstance(outputs, int):
        return False
    few = outputs < cost_model.SIMD_LANES and 2 * outputs <= batch
    return few and math.prod(conv.window) > math.prod(conv.result)


def is_swapped_with_dilation(conv: ConvParams) -> bool:
    """Return whether `has_swapped_operands` holds for a convolution with input dilation."""
    return conv.has_lhs_dilation and has_swapped_operands(conv)


def swapped_operands(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Move the image over the window: the same sums, in the reverse order of taps."""
    pads = [(n - 1 - lo, n - 1 - hi) for n, (lo, hi) in zip(conv.result, conv.pads, strict=True)]
    # XLA is slow where a window is larger than the image, and without any padding.
    left = tuple((min(max(lo, 0), 1), min(max(hi, 0), 1)) for lo, hi in pads)
    before = [(lo - a, hi - b) for (lo, hi), (a, b) in zip(pads, left, strict=True)]
    out_spec = (conv.out_spec[1], conv.out_spec[0], *conv.out_spec[2:])
    # Images of one channel XLA is fast with, volumes never.
    is_fast = rhs.shape[conv.rhs_spec[0]] == 1 and conv.rank < 3
    out = (conv.convolve_directly if is_fast else conv.convolve)(
        pad(rhs, conv.rhs_spec[2:], before),
        lhs,
        dimension_numbers=lax.ConvDimensionNumbers(conv.rhs_spec, conv.lhs_spec, out_spec),
        padding=left,
        lhs_dilation=conv.rhs_dilation,
        rhs_dilation=conv.lhs_dilation,
        precision=conv.precision[::-1] if isinstance(conv.precision, tuple) else conv.precision,
    )
    return lax.rev(out, conv.out_spec[2:])
