"""Convolutions as one product: 1x1, non-overlapping, and their gradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, dot, pad, reorder, strided_slice, transpose
from tf2jax_lite.jaxprs.materialize import materialize


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


def is_patches_filter_gradient(conv: ConvParams) -> bool:
    """Return whether taps are so far apart that results meet only the first.

    This is the filter gradient of a convolution whose windows do not overlap.
    """
    return (
        math.prod(conv.window) > 1
        and all(s == 1 for s in conv.strides)
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
    out = _dot_in_cheaper_order(lhs, rhs, (tuple(d for d, _ in pairs), tuple(d for _, d in pairs)), conv)
    left = sorted((where[conv.lhs_spec[0]], *inner))
    have = [left.index(where[conv.lhs_spec[0]]), out.ndim - 1, *(left.index(d) for d in inner)]
    return reorder(out, have, conv.out_spec)


def _dot_in_cheaper_order(a: Any, b: Any, contract: tuple[tuple[int, ...], tuple[int, ...]], conv: ConvParams) -> Any:
    """Return `dot` with operands in the order that transposes fewer values.

    XLA writes the left operand with its summed dimensions last, the right one with them first. An operand that it
    transposes is recomputed in that order, with all that it depends on, which takes ten times as long.
    """
    if not all(isinstance(n, int) for n in (*a.shape, *b.shape)):
        return dot(a, b, contract, conv)
    left_over = a.ndim - len(contract[0])

    def transposed(x: Any, dims: tuple[int, ...], last: bool) -> int:
        """Return how many values XLA would transpose."""
        axes = [d for d, n in enumerate(x.shape) if n > 1]
        dims = tuple(d for d in dims if x.shape[d] > 1)
        wanted = axes[len(axes) - len(dims) :] if last else axes[: len(dims)]
        return 0 if dims == tuple(wanted) else math.prod(x.shape)

    given = transposed(a, contract[0], True) + transposed(b, contract[1], False)
    swapped = transposed(b, contract[1], True) + transposed(a, contract[0], False)
    if swapped >= given:
        return dot(materialize(a) if transposed(a, contract[0], True) else a, b, contract, conv)
    if isinstance(conv.precision, tuple):
        conv = dataclasses.replace(conv, precision=conv.precision[::-1])
    out = dot(materialize(b) if transposed(b, contract[1], True) else b, a, (contract[1], contract[0]), conv)
    return transpose(out, (*range(out.ndim - left_over, out.ndim), *range(out.ndim - left_over)))
