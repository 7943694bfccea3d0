"""Convolutions of volumes by windows that do not reach along all of their dimensions: those of images.

A window of one plane is that of an image: planes are so many images. A window of one column is that of an image, too,
whose columns are all those of a plane, side by side. Networks of videos have both, one after the other (Tran et al.,
"A closer look at spatiotemporal convolutions for action recognition", 2018). XLA has long rows then, and what is known
of images (`spelling_rows`, `spelling_tiles`) holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from .params import Conv, cut, pad, respec

__all__ = ["flattened", "is_flat"]

_IMAGES = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def is_flat(conv: Conv) -> bool:
    """Returns whether a convolution of one group is one of volumes whose window is a plane's, or a column."""
    if len(conv.window) != 3:
        return False
    plane = conv.window[0] == conv.gaps[0] == 1
    return plane or (conv.window[1:] == conv.gaps[1:] == (1, 1))


def flattened(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution of volumes as one of images; `is_flat` must hold.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution.
      params: its parameters as JAX's primitive has them.
      convolve: convolves images; takes values, kernel and such parameters.
    """
    values, kernel = respec(lhs, conv.lhs, (0, 4, 1, 2, 3)), respec(rhs, conv.rhs, (4, 3, 0, 1, 2))
    plane = conv.window[0] == conv.gaps[0] == 1
    # Along what the window does not reach, padding is nothing but further results, and strides leave some out.
    alone = [0] if plane else [1, 2]
    places, counts = [d + 1 for d in alone], [conv.result[d] for d in alone]
    values = pad(values, places, [conv.pads[d] for d in alone])
    values = cut(values, places, [0] * len(alone), counts, [conv.strides[d] for d in alone])
    batch, depth, height, width, channels = values.shape
    if plane:
        values, kernel = lax.reshape(values, (batch * depth, height, width, channels)), lax.squeeze(kernel, (0,))
    else:
        values, kernel = lax.reshape(values, (batch, depth, height * width, channels)), lax.squeeze(kernel, (2,))

    def of(entries: Any, one: Any) -> tuple[Any, Any]:
        return tuple(entries[1:]) if plane else (entries[0], one)

    images = {
        **params,
        "window_strides": of(conv.strides, 1),
        "padding": of(conv.pads, (0, 0)),
        "lhs_dilation": of(conv.gaps, 1),
        "rhs_dilation": of(conv.rates, 1),
        "dimension_numbers": _IMAGES,
    }
    found = convolve(values, kernel, **images)
    return respec(lax.reshape(found, (batch, *conv.result, found.shape[-1])), (0, 4, 1, 2, 3), conv.out)
