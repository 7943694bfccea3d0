"""Filter gradients with few channels, whose operands are exchanged."""

from __future__ import annotations

import functools
import math
from typing import Any

from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, pad
from tf2jax_lite.xla_cpu import cost_model

from .channels_last import convolve_directly


def has_swapped_operands(conv: ConvParams) -> bool:
    """Return whether a filter gradient is faster with swapped operands.

    It is if it has few channels.

    XLA takes a window as large as the image for each of them, and is fast where many result. With input dilation (the
    filter is a transposed convolution's) the swapped kernel is dilated instead, for all channels.
    """
    if any(n != 1 for n in (*conv.strides, *conv.rhs_dilation)):
        return False
    if conv.has_lhs_dilation:
        if all(n <= g for n, g in zip(conv.result, conv.lhs_dilation, strict=True)):
            return False  # each phase (`polyphase`) has one tap, which is a matrix product
        return math.prod(conv.window) > cost_model.FILTER_SWAP_MIN_WINDOW_RATIO * math.prod(conv.result)
    batch, outputs = conv.batch, conv.out_channels
    if not isinstance(batch, int) or not isinstance(outputs, int):
        return False
    few = outputs < cost_model.SIMD_LANES and 2 * outputs <= batch
    return few and math.prod(conv.window) > math.prod(conv.result)


def is_swapped_with_dilation(conv: ConvParams) -> bool:
    """Return whether `has_swapped_operands` holds with input dilation."""
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
    convolve = functools.partial(convolve_directly, conv=conv) if is_fast else conv.convolve
    out = convolve(
        pad(rhs, conv.rhs_spec[2:], before),
        lhs,
        dimension_numbers=lax.ConvDimensionNumbers(conv.rhs_spec, conv.lhs_spec, out_spec),
        padding=left,
        lhs_dilation=conv.rhs_dilation,
        rhs_dilation=conv.lhs_dilation,
        precision=conv.precision[::-1] if isinstance(conv.precision, tuple) else conv.precision,
    )
    return lax.rev(out, conv.out_spec[2:])
