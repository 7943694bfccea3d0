"""Convolutions as one product: 1x1, non-overlapping, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jax import lax

from .params import ConvParams, dot, dot_in_cheaper_order, pad, reorder, strided_slice


def is_pointwise(conv: ConvParams) -> bool:
    """Return whether the kernel has one tap."""
    strided = any(s > 1 for s in conv.strides)
    return math.prod(conv.window) == 1 and not (strided and conv.has_lhs_dilation)


def pointwise(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return the product of every ``stride``-th value, or spread by dilation."""
    dims = conv.lhs_spec[2:]
    if not conv.has_lhs_dilation:
        lhs = strided_slice(pad(lhs, dims, conv.pads), dims, [0] * len(dims), conv.result, conv.strides)
    weights = lax.squeeze(rhs, conv.rhs_spec[2:])
    out_first = conv.rhs_spec[0] < conv.rhs_spec[1]
    out = dot(lhs, weights, ((conv.lhs_spec[1],), (1 if out_first else 0,)), conv)
    # The product's dimensions: those of the input without its channel, then the output's channel.
    have = [d - (d > conv.lhs_spec[1]) for d in conv.lhs_spec]
    have[1] = out.ndim - 1
    if conv.has_lhs_dilation:  # each result is a sum over one tap: values can be spread after the product
        out = pad(out, have[2:], conv.pads, conv.lhs_dilation)
    return reorder(out, have, conv.out_spec)


def _split(x: Any, sizes: Mapping[int, tuple[int, int]]) -> tuple[Any, dict[int, int]]:
    """Split dimensions into an outer and an inner one.

    Args:
      x: an array.
      sizes: of the two, for each dimension that is split.

    Returns:
      The array; for each dimension before, its (or its outer part's, just before the inner one) new axis.
    """
    shape: list[Any] = []
    where: dict[int, int] = {}
    for d, size in enumerate(x.shape):
        where[d] = len(shape)
        shape += sizes.get(d, (size,))
    return lax.reshape(x, shape), where


def is_patches(conv: ConvParams) -> bool:
    """Return whether windows do not overlap and cover the input, without padding."""
    return (
        conv.strides == conv.window
        and all(r == 1 for r in conv.rhs_dilation)
        and not conv.has_lhs_dilation
        and all(before == 0 and after <= 0 for before, after in conv.pads)
    )


def patches(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an `is_patches` convolution: each value is in one window."""
    dims = conv.lhs_spec[2:]
    counts = [n * k for n, k in zip(conv.result, conv.window, strict=True)]
    lhs = strided_slice(lhs, dims, [0] * len(dims), counts)
    lhs, where = _split(lhs, dict(zip(dims, zip(conv.result, conv.window, strict=True), strict=True)))
    inner = [where[d] + 1 for d in dims]
    # In the order in which the (larger) input has them.
    pairs = sorted(zip((where[conv.lhs_spec[1]], *inner), (conv.rhs_spec[1], *conv.rhs_spec[2:]), strict=True))
    out = dot(lhs, rhs, (tuple(d for d, _ in pairs), tuple(d for _, d in pairs)), conv)
    left = [where[d] for d in range(len(conv.lhs_spec)) if d != conv.lhs_spec[1]]
    have = [left.index(where[d]) if d != conv.lhs_spec[1] else out.ndim - 1 for d in conv.lhs_spec]
    return reorder(out, have, conv.out_spec)


def is_patches_filter_gradient(conv: ConvParams) -> bool:
    """Return whether taps are so far apart that results meet only the first.

    This is `patches`' filter gradient.
    """
    return (
        all(s == 1 for s in conv.strides)
        and not conv.has_lhs_dilation
        and all(n <= r or k == 1 for n, r, k in zip(conv.result, conv.rhs_dilation, conv.window, strict=True))
    )


def patches_filter_gradient(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an `is_patches_filter_gradient` convolution: one tap by value."""
    dims = conv.lhs_spec[2:]
    periods = [r if k > 1 else n for n, r, k in zip(conv.result, conv.rhs_dilation, conv.window, strict=True)]
    after = [(lo, hi + r - n) for (lo, hi), r, n in zip(conv.pads, periods, conv.result, strict=True)]
    lhs = pad(lhs, dims, after)
    lhs, where = _split(lhs, dict(zip(dims, zip(conv.window, periods, strict=True), strict=True)))
    inner = [where[d] + 1 for d in dims]
    lhs = strided_slice(lhs, inner, [0] * len(inner), conv.result)
    # In the order in which the (larger) input has them.
    summed = (where[conv.lhs_spec[1]], *(where[d] for d in dims))
    pairs = sorted(zip(summed, (conv.rhs_spec[1], *conv.rhs_spec[2:]), strict=True))
    out = dot_in_cheaper_order(lhs, rhs, (tuple(d for d, _ in pairs), tuple(d for _, d in pairs)), conv)
    left = sorted((where[conv.lhs_spec[0]], *inner))
    have = [left.index(where[conv.lhs_spec[0]]), out.ndim - 1, *(left.index(d) for d in inner)]
    return reorder(out, have, conv.out_spec)
