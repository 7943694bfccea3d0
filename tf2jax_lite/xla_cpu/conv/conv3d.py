"""Convolutions of volumes: for each place of the window's depth, one of images; large ones slab by slab.

XLA's convolution of volumes on CPU has none of what makes that of images fast.

A large volume is read and written anew for each place, and what lies between is as large as it is. So slabs of a few
planes are convolved one after the other, near the processor. A slab's planes are the rows of one image, each with its
own rows one behind the other, zeros between them: a shift down the volume is a shift by a row along the image, and the
places of the window's height are further outputs of one convolution, whose results are shifted and added up. With few
outputs that is faster for smaller volumes, too, as XLA computes sixteen and more at once: a half to a sixth of the time
(two cores with AVX-512, JAX 0.10). With many channels the images are better by tiles (`spelling_tiles`): 0.55 to 1.0 of
the slabs' time there.

Small volumes of few channels are one convolution of images, with the values at all places of the depth as channels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .params import Conv, cut, pad, plain, respec
from .winograd import is_tiled

__all__ = ["by_plane", "by_slab", "is_slabs", "is_stacked", "is_volume", "stacked"]

_MOST_PLANES = 16  # code grows with them
_IMAGES = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
_LARGE = 3 << 20  # values of volumes and results that do not stay near the processor
_FEW_OUTPUTS, _LARGE_OF_FEW = 16, 1 << 16
_SLAB = 3 << 19  # values of a slab and its results before they are added up
_MOST_OUTPUTS = 1 << 10  # of a slab's convolution
# Between these XLA sums longer and computes as many at once, as long as the volumes stay near the processor.
_STACKED_CHANNELS, _STACKED_OUTPUTS, _MOST_STACKED = range(5, 17), range(12, 65), 3 << 21


def is_volume(conv: Conv) -> bool:
    """Returns whether a convolution of one group is written plane by plane."""
    return len(conv.window) == 3 and conv.window[0] <= _MOST_PLANES and max(conv.gaps) == 1


def _planes(conv: Conv) -> Conv:
    """Returns the convolution of a volume's planes by one plane of the window."""
    names = ("sizes", "window", "result", "strides", "pads", "gaps", "rates")
    return dataclasses.replace(conv, **{name: getattr(conv, name)[1:] for name in names})


def is_slabs(conv: Conv, batch: Any, channels: Any, outputs: Any) -> bool:
    """Returns whether a convolution of volumes is written slab by slab.

    Args:
      conv: a convolution of one group, for which `is_volume` holds, with no negative padding.
      batch: how many volumes.
      channels: of the input.
      outputs: channels of the result.
    """
    if not all(isinstance(n, int) for n in (batch, channels, outputs)) or max(conv.strides) > 1:
        return False
    span = (conv.window[2] - 1) * conv.rates[2]
    if conv.window[1] == 1 or span == 0 or conv.pads[2][0] > span or conv.window[1] * outputs > _MOST_OUTPUTS:
        return False
    if is_tiled(_planes(conv), batch * conv.result[0], channels, outputs):
        return False
    values = batch * (channels * math.prod(conv.sizes) + outputs * math.prod(conv.result))
    return values >= (_LARGE_OF_FEW if outputs <= _FEW_OUTPUTS else _LARGE)


def by_slab(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any]) -> Any:
    """Returns a convolution of volumes; `is_slabs` must hold.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution.
      params: its parameters as JAX's primitive has them.
    """
    (front, back), (top, bottom), (left, right) = conv.pads
    depth, height, width = conv.result
    places, span = conv.window[1], (conv.window[2] - 1) * conv.rates[2]
    # From one row to the next; what follows a row's values is padding on both sides of it.
    length = max(conv.sizes[2] + max(left, right), width)
    values = respec(lhs, conv.lhs, (0, 4, 1, 2, 3))
    batch, channels, outputs = values.shape[0], values.shape[4], rhs.shape[conv.rhs[0]]
    values = pad(values, (1, 2, 3), ((front, back), (top, bottom), (0, length - conv.sizes[2])))
    columns = values.shape[2] * length
    values = lax.reshape(values, (*values.shape[:2], columns, channels))
    kernel = lax.transpose(respec(rhs, conv.rhs, (4, 3, 0, 1, 2)), (0, 2, 3, 1, 4))
    kernel = lax.reshape(kernel, (*kernel.shape[:3], places * outputs))
    alone = {
        **params,
        "window_strides": (1, 1),
        "padding": ((0, 0), (left, span - left)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (conv.rates[0], conv.rates[2]),
        "dimension_numbers": _IMAGES,
    }
    planes = min(max(_SLAB // (columns * (channels + places * outputs)), 1), depth)
    more = (conv.window[0] - 1) * conv.rates[0]
    slabs = -(-depth // planes)
    zero = np.int32(0)

    def put(index: Any, results: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        which = lax.div(index, np.int32(slabs))
        # The last slab begins where it ends with the volume.
        first = lax.min((index - which * np.int32(slabs)) * np.int32(planes), np.int32(depth - planes))
        sizes = (1, planes + more, columns, channels)
        slab = lax.dynamic_slice(values, (which, first, zero, zero), sizes, allow_negative_indices=False)
        found = plain(slab, kernel, **alone)
        total: Any = None
        for place in range(places):
            starts = (place * conv.rates[1] * length, place * outputs)
            part = cut(found, (2, 3), starts, (height * length, outputs), (1, 1))
            total = part if total is None else lax.add(total, part)
        rows = lax.slice_in_dim(lax.reshape(total, (1, planes, height, length, outputs)), 0, width, axis=3)
        return lax.dynamic_update_slice(results, rows, (which, first, zero, zero, zero), allow_negative_indices=False)

    results = jnp.zeros((batch, depth, height, width, outputs), params["preferred_element_type"])
    results = lax.fori_loop(zero, np.int32(batch * slabs), put, results)
    return respec(results, (0, 4, 1, 2, 3), conv.out)


def is_stacked(conv: Conv, batch: Any, channels: Any, outputs: Any) -> bool:
    """Returns whether a convolution of volumes is one of images, with the places of its depth as channels.

    Args:
      conv: a convolution of one group, for which `is_volume` holds.
      batch: how many volumes.
      channels: of the input.
      outputs: channels of the result.
    """
    if not all(isinstance(n, int) for n in (batch, channels, outputs)) or max(conv.strides) > 1:
        return False
    values = batch * (channels * math.prod(conv.sizes) + outputs * math.prod(conv.result))
    return channels in _STACKED_CHANNELS and outputs in _STACKED_OUTPUTS and values < _MOST_STACKED


def stacked(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution of volumes as one of images; takes what `by_plane` does."""
    values, images = _images(lhs, conv, params)
    kernel = respec(rhs, conv.rhs, (4, 3, 0, 1, 2))
    batch, depth = values.shape[0], conv.result[0]
    starts = [place * conv.rates[0] for place in range(conv.window[0])]
    planes = lax.concatenate([cut(values, (1,), (start,), (depth,), conv.strides[:1]) for start in starts], 4)
    planes = lax.reshape(planes, (batch * depth, *planes.shape[2:]))
    kernel = lax.transpose(kernel, (1, 2, 0, 3, 4))
    kernel = lax.reshape(kernel, (*kernel.shape[:2], planes.shape[-1], kernel.shape[-1]))
    found = convolve(planes, kernel, **images)
    return respec(lax.reshape(found, (batch, depth, *found.shape[1:])), (0, 4, 1, 2, 3), conv.out)


def _images(lhs: Any, conv: Conv, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns volumes padded along their depth, and the parameters of a convolution of their planes."""
    values = pad(respec(lhs, conv.lhs, (0, 4, 1, 2, 3)), (1,), conv.pads[:1])
    return values, {
        **params,
        "window_strides": conv.strides[1:],
        "padding": conv.pads[1:],
        "lhs_dilation": conv.gaps[1:],
        "rhs_dilation": conv.rates[1:],
        "dimension_numbers": _IMAGES,
    }


def by_plane(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution of volumes; `is_volume` must hold.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution.
      params: its parameters as JAX's primitive has them.
      convolve: convolves images; takes values, kernel and such parameters.
    """
    values, images = _images(lhs, conv, params)
    kernel = respec(rhs, conv.rhs, (4, 3, 0, 1, 2))
    batch, depth = values.shape[0], conv.result[0]
    total: Any = None
    for place in range(conv.window[0]):
        planes = cut(values, (1,), (place * conv.rates[0],), (depth,), conv.strides[:1])
        planes = lax.reshape(planes, (batch * depth, *planes.shape[2:]))
        part = convolve(planes, kernel[place], **images)
        total = part if total is None else total + part
    return respec(jnp.reshape(total, (batch, depth, *total.shape[1:])), (0, 4, 1, 2, 3), conv.out)
