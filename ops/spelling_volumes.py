"""Convolutions of volumes: for each place of the window's depth, one of images.

XLA's convolution of volumes on CPU has none of what makes that of images fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from .spelling_layout import Conv, cut, pad, respec

__all__ = ["by_plane", "is_volume"]

_MOST_PLANES = 16  # code grows with them
_IMAGES = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def is_volume(conv: Conv) -> bool:
    """Returns whether a convolution of one group is written plane by plane."""
    return len(conv.window) == 3 and conv.window[0] <= _MOST_PLANES and max(conv.gaps) == 1


def by_plane(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution of volumes; `is_volume` must hold.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution.
      params: its parameters as JAX's primitive has them.
      convolve: convolves images; takes values, kernel and such parameters.
    """
    values = pad(respec(lhs, conv.lhs, (0, 4, 1, 2, 3)), (1,), conv.pads[:1])
    kernel = respec(rhs, conv.rhs, (4, 3, 0, 1, 2))
    batch, depth = values.shape[0], conv.result[0]
    images = {
        **params,
        "window_strides": conv.strides[1:],
        "padding": conv.pads[1:],
        "lhs_dilation": conv.gaps[1:],
        "rhs_dilation": conv.rates[1:],
        "dimension_numbers": _IMAGES,
    }
    total: Any = None
    for place in range(conv.window[0]):
        planes = cut(values, (1,), (place * conv.rates[0],), (depth,), conv.strides[:1])
        planes = lax.reshape(planes, (batch * depth, *planes.shape[2:]))
        part = convolve(planes, kernel[place], **images)
        total = part if total is None else total + part
    return respec(jnp.reshape(total, (batch, depth, *total.shape[1:])), (0, 4, 1, 2, 3), conv.out)
