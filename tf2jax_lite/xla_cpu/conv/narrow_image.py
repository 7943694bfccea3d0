"""Convolutions of images that are one place wide, or a few, by kernels that are wider, on CPU.

So are gradients by the input of kernels as wide as the image (spectrograms, sequences of embeddings), whose results
have one place there. XLA lays the whole kernel over the padding around each of them. But a result meets each place of
the image with one place of the kernel: these are results of the same convolution without that dimension, whose kernel
has as many outputs more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from .params import Conv, transposed

__all__ = ["is_narrow", "narrowed"]

_MOST_PLACES, _TIMES_WIDER = 4, 8  # of an image with more than one place, and how much wider a kernel then is


def is_narrow(conv: Conv) -> bool:
    """Returns whether a dimension of the image, of one group, is that narrow."""
    return any(_is_narrow(conv, d) for d in range(len(conv.sizes)))


def _is_narrow(conv: Conv, d: int) -> bool:
    size, window = conv.sizes[d], conv.window[d]
    if window == 1 or conv.result[d] > _span(conv, d) + size - 1:  # most of the results are zeros
        return False
    return size == 1 or (size <= _MOST_PLACES and window >= _TIMES_WIDER * size)


def _span(conv: Conv, d: int) -> int:
    return (conv.window[d] - 1) * conv.rates[d] + 1


def narrowed(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution for which `is_narrow` holds.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution, of one group.
      params: its parameters.
      convolve: makes a convolution without the dimension.
    """
    d = next(filter(functools.partial(_is_narrow, conv), range(len(conv.sizes))))
    plain = {
        **params,
        "window_strides": _with(conv.strides, d, 1),
        "padding": _with(conv.pads, d, (0, 0)),
        "lhs_dilation": _with(conv.gaps, d, 1),
        "rhs_dilation": _with(conv.rates, d, 1),
    }
    total: Any = None
    for place in range(conv.sizes[d]):
        values = lax.slice_in_dim(lhs, place, place + 1, axis=conv.lhs[2 + d])
        kernel = _as_outputs(_met(rhs, conv, d, place * conv.gaps[d]), conv, d)
        found = convolve(values, kernel, **plain)
        total = found if total is None else lax.add(total, found)
    return _from_outputs(total, conv, d, rhs.shape[conv.rhs[0]])


def _met(rhs: Any, conv: Conv, d: int, offset: int) -> Any:
    """Returns what each result meets of the kernel along a dimension: a zero where it meets none."""
    axis, span, rate, stride = conv.rhs[2 + d], _span(conv, d), conv.rates[d], conv.strides[d]
    spread = (conv.result[d] - 1) * stride + 1
    # Result j meets place (low + offset - j * stride) / rate: the kernel with its gaps, backwards.
    first = conv.pads[d][0] + offset - span + 1
    edges = (first, spread - span - first)
    turned = lax.rev(rhs, (axis,))
    config = [(*edges, rate - 1) if i == axis else (0, 0, 0) for i in range(rhs.ndim)]
    return lax.slice_in_dim(lax.pad(turned, np.zeros((), turned.dtype), config), 0, spread, stride, axis)


def _as_outputs(kernel: Any, conv: Conv, d: int) -> Any:
    """Makes what results along a dimension meet outputs of the kernel: each of them ahead of the outputs."""
    axis, out = conv.rhs[2 + d], conv.rhs[0]
    order = [i for i in range(kernel.ndim) if i != axis]
    order.insert(order.index(out), axis)
    moved = transposed(kernel, order)
    shape = [kernel.shape[i] for i in range(kernel.ndim)]
    shape[out], shape[axis] = shape[out] * shape[axis], 1
    return lax.reshape(moved, shape)


def _from_outputs(found: Any, conv: Conv, d: int, outputs: int) -> Any:
    """Undoes `_as_outputs` in the results."""
    axis, feature = conv.out[2 + d], conv.out[1]
    shape = [n for i, n in enumerate(found.shape) if i != axis]
    at = feature - (axis < feature)
    shape[at : at + 1] = [conv.result[d], outputs]
    split = lax.reshape(found, shape)
    order = [i for i in range(found.ndim) if i != at]
    order.insert(axis, at)
    return transposed(split, order)


def _with(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
