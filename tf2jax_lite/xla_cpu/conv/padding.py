"""Convolutions with explicit or negative padding."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from tf2jax_lite.jaxprs.convolutions import ConvParams, pad
from tf2jax_lite.jaxprs.materialize import materialize


def has_negative_padding(conv: ConvParams) -> bool:
    """Return whether padding is negative somewhere, without input dilation."""
    return not conv.has_lhs_dilation and any(n < 0 for pair in conv.pads for n in pair)


def without_negative_padding(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution without values that negative padding leaves out.

    XLA reads beyond the array where padding is negative on one side and positive on the other
    (https://github.com/openxla/xla/issues/48713), and is slow elsewhere.
    """
    outer = tuple((max(lo, 0), max(hi, 0)) for lo, hi in conv.pads)
    inner = [(min(lo, 0), min(hi, 0)) for lo, hi in conv.pads]
    if any(n + lo + hi < 1 for n, (lo, hi) in zip(conv.sizes, inner, strict=True)):  # only padding is left
        sizes = (lhs.shape[conv.lhs_spec[0]] // conv.batch_groups, rhs.shape[conv.rhs_spec[0]], *conv.result)
        return jnp.zeros([n for _, n in sorted(zip(conv.out_spec, sizes, strict=True))], conv.out_dtype)
    return conv.convolve(pad(lhs, conv.lhs_spec[2:], inner), rhs, padding=outer)


def is_small(conv: ConvParams) -> bool:
    """Return whether an ungrouped image has fewer positions than kernel taps.

    XLA (of JAX 0.10) has fast code for convolutions whose kernel is no larger than the image without its padding, and
    sums product by product elsewhere: a 5x5 kernel on an image of 4x4 takes ten to two hundred times as long.
    """
    sizes = (*conv.sizes, *conv.window)
    if conv.rank > 2 or conv.has_lhs_dilation or not all(isinstance(n, int) for n in sizes):
        return False
    return math.prod(conv.sizes) < math.prod(conv.window)


def with_explicit_padding(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an `is_small` convolution, padded first except for one line.

    Materialized, as XLA would make the padding part of the convolution again; a line of it stays with the convolution,
    as without any padding XLA writes all windows to memory.
    """
    wide, rest = conv.sum_dtype, _line(conv)
    around = [(low - a, high - b) for (low, high), (a, b) in zip(conv.pads, rest, strict=True)]
    image = materialize(pad(lhs.astype(wide), conv.lhs_spec[2:], around))
    return conv.convolve(image, rhs.astype(wide), padding=rest, preferred_element_type=wide)


def _line(conv: ConvParams) -> tuple[tuple[int, int], ...]:
    """Return the padding line to leave out; none if the image remains small."""
    around = [n + low + high for n, (low, high) in zip(conv.sizes, conv.pads, strict=True)]
    rank = len(around)
    for d in range(rank):
        fewer = math.prod(n - (i == d) for i, n in enumerate(around))
        if max(conv.pads[d]) and fewer >= math.prod(conv.window):
            line = (0, 1) if conv.pads[d][1] else (1, 0)
            return tuple(line if i == d else (0, 0) for i in range(rank))
    return ((0, 0),) * rank
