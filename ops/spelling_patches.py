"""Convolutions of patches on CPU: windows side by side, and the gradient by their filter, each a matrix product."""

from __future__ import annotations

from typing import Any

from jax import lax

from .spelling_layout import Conv, cut, pad, product, respec

__all__ = ["every", "is_every", "is_patches", "patches"]


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
    shape: list[Any] = []
    where: dict[int, int] = {}  # dimension before: where it (or its outer part) is after
    for d, size in enumerate(lhs.shape):
        where[d] = len(shape)
        if d in places:
            i = places.index(d)
            shape += [conv.result[i], conv.window[i]]
        else:
            shape.append(size)
    lhs = lax.reshape(lhs, shape)
    inner = [where[d] + 1 for d in places]
    # In the order in which the (larger) input has them.
    pairs = sorted(zip((where[conv.lhs[1]], *inner), (conv.rhs[1], *conv.rhs[2:]), strict=True))
    out = product(lhs, rhs, (tuple(d for d, _ in pairs), tuple(d for _, d in pairs)), conv, wide)
    left = [where[d] for d in range(len(conv.lhs)) if d != conv.lhs[1]]
    have = [left.index(where[d]) if d != conv.lhs[1] else out.ndim - 1 for d in conv.lhs]
    return respec(out, have, conv.out)


def is_every(conv: Conv) -> bool:
    """Whether a window's places stand so far apart that all results lie before the second: patches' filter gradient."""
    return (
        all(s == 1 for s in conv.strides)
        and all(g == 1 for g in conv.gaps)
        and all(n <= r or k == 1 for n, r, k in zip(conv.result, conv.rates, conv.window, strict=True))
    )


def every(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns the convolution where `is_every` is true: each value of the input meets one place of the window."""
    places = conv.lhs[2:]
    rates = [r if k > 1 else n for n, r, k in zip(conv.result, conv.rates, conv.window, strict=True)]
    after = [(lo, hi + r - n) for (lo, hi), r, n in zip(conv.pads, rates, conv.result, strict=True)]
    lhs = pad(lhs, places, after)
    shape: list[Any] = []
    where: dict[int, int] = {}  # dimension before: where it (or the window's part of it) is after
    for d, size in enumerate(lhs.shape):
        where[d] = len(shape)
        if d in places:
            i = places.index(d)
            shape += [conv.window[i], rates[i]]
        else:
            shape.append(size)
    lhs = lax.reshape(lhs, shape)
    inner = [where[d] + 1 for d in places]
    lhs = cut(lhs, inner, [0] * len(inner), conv.result, [1] * len(inner))
    # In the order in which the (larger) input has them.
    pairs = sorted(zip((where[conv.lhs[1]], *(where[d] for d in places)), (conv.rhs[1], *conv.rhs[2:]), strict=True))
    out = product(lhs, rhs, (tuple(d for d, _ in pairs), tuple(d for _, d in pairs)), conv, wide)
    left = sorted((where[conv.lhs[0]], *inner))
    have = [left.index(where[conv.lhs[0]]), out.ndim - 1, *(left.index(d) for d in inner)]
    return respec(out, have, conv.out)
