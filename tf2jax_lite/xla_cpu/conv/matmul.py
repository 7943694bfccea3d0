"""Convolutions of patches on CPU: windows side by side, and the gradient by their filter, each a matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax import lax

from .params import Conv, cut, pad, product, respec, sum_of_products

__all__ = ["is_patches", "is_patches_filter", "patches", "patches_filter"]


def _regrouped(x: Any, sizes: Mapping[int, tuple[int, int]]) -> tuple[Any, dict[int, int]]:
    """Splits dimensions into an outer and an inner one.

    Args:
      x: an array.
      sizes: of the two, for each dimension that is split.

    Returns:
      The array; for each dimension before, where it (or its outer part, just before the inner one) is now.
    """
    shape: list[Any] = []
    where: dict[int, int] = {}
    for d, size in enumerate(x.shape):
        where[d] = len(shape)
        shape += sizes.get(d, (size,))
    return lax.reshape(x, shape), where


def is_patches(conv: Conv) -> bool:
    """Whether windows stand side by side without padding."""
    return (
        conv.strides == conv.window
        and all(r == 1 for r in conv.rates)
        and all(g == 1 for g in conv.gaps)
        and all(before == 0 and after <= 0 for before, after in conv.pads)
    )


def patches(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns the convolution where `is_patches` is true: each value of the input is in one window."""
    places = conv.lhs[2:]
    counts = [n * k for n, k in zip(conv.result, conv.window, strict=True)]
    lhs = cut(lhs, places, [0] * len(places), counts, [1] * len(places))
    lhs, where = _regrouped(lhs, dict(zip(places, zip(conv.result, conv.window, strict=True), strict=True)))
    inner = [where[d] + 1 for d in places]
    # In the order in which the (larger) input has them.
    pairs = sorted(zip((where[conv.lhs[1]], *inner), (conv.rhs[1], *conv.rhs[2:]), strict=True))
    out = product(lhs, rhs, (tuple(d for d, _ in pairs), tuple(d for _, d in pairs)), conv, wide)
    left = [where[d] for d in range(len(conv.lhs)) if d != conv.lhs[1]]
    have = [left.index(where[d]) if d != conv.lhs[1] else out.ndim - 1 for d in conv.lhs]
    return respec(out, have, conv.out)


def is_patches_filter(conv: Conv) -> bool:
    """Whether a window's places stand so far apart that all results lie before the second: patches' filter gradient."""
    return (
        all(s == 1 for s in conv.strides)
        and all(g == 1 for g in conv.gaps)
        and all(n <= r or k == 1 for n, r, k in zip(conv.result, conv.rates, conv.window, strict=True))
    )


def patches_filter(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns the convolution where `is_patches_filter` is true: each value meets one place of the window."""
    places = conv.lhs[2:]
    rates = [r if k > 1 else n for n, r, k in zip(conv.result, conv.rates, conv.window, strict=True)]
    after = [(lo, hi + r - n) for (lo, hi), r, n in zip(conv.pads, rates, conv.result, strict=True)]
    lhs = pad(lhs, places, after)
    lhs, where = _regrouped(lhs, dict(zip(places, zip(conv.window, rates, strict=True), strict=True)))
    inner = [where[d] + 1 for d in places]
    lhs = cut(lhs, inner, [0] * len(inner), conv.result, [1] * len(inner))
    # In the order in which the (larger) input has them.
    pairs = sorted(zip((where[conv.lhs[1]], *(where[d] for d in places)), (conv.rhs[1], *conv.rhs[2:]), strict=True))
    out = sum_of_products(lhs, rhs, (tuple(d for d, _ in pairs), tuple(d for _, d in pairs)), conv, wide)
    left = sorted((where[conv.lhs[0]], *inner))
    have = [left.index(where[conv.lhs[0]]), out.ndim - 1, *(left.index(d) for d in inner)]
    return respec(out, have, conv.out)
