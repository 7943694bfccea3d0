"""Convolutions of images that have fewer places than the window, on CPU.

XLA (of JAX 0.10) has fast code for convolutions whose kernel has no more places than the image, padding not counted,
and sums product by product elsewhere: a 5x5 window on an image of 4x4 takes ten to two hundred times as long. So the
padding is put around the image first, in a call of its own, as XLA would make it part of the convolution again. A line
of it stays with the convolution: without any padding all windows are written down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tf2jax_lite.xla_cpu.outline import kept

from .params import Conv, pad

__all__ = ["is_small", "surrounded"]


def is_small(conv: Conv) -> bool:
    """Returns whether an image, of one group, has fewer places than the window."""
    sizes = (*conv.sizes, *conv.window)
    if len(conv.window) > 2 or max(conv.gaps) > 1 or not all(isinstance(n, int) for n in sizes):
        return False
    return math.prod(conv.sizes) < math.prod(conv.window)


def surrounded(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution for which `is_small` holds.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution, of one group, with padding that is not negative.
      params: its parameters.
      convolve: makes the convolution of the image and its padding.
    """
    rest = _line(conv)
    around = [(low - a, high - b) for (low, high), (a, b) in zip(conv.pads, rest, strict=True)]
    image = kept(lambda x: pad(x, conv.lhs[2:], around), lhs)
    return convolve(image, rhs, **{**params, "padding": rest})


def _line(conv: Conv) -> tuple[tuple[int, int], ...]:
    """Returns one line of the padding that can be left out, and nothing where the image would be too small still."""
    around = [n + low + high for n, (low, high) in zip(conv.sizes, conv.pads, strict=True)]
    rank = len(around)
    for d in range(rank):
        fewer = math.prod(n - (i == d) for i, n in enumerate(around))
        if max(conv.pads[d]) and fewer >= math.prod(conv.window):
            line = (0, 1) if conv.pads[d][1] else (1, 0)
            return tuple(line if i == d else (0, 0) for i in range(rank))
    return ((0, 0),) * rank
