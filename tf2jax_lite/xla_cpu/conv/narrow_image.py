"""Convolutions of images of width 1, or a few, by kernels that are wider.

Input gradients of kernels as wide as the image are such convolutions (spectrograms, sequences of embeddings), as the
results of those have width 1. XLA applies the whole kernel to the padding on both sides. But a result meets each of the
image's columns with one column of the kernel: these are results of the same convolution without that dimension, whose
kernel has as many times the output channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, transpose


def is_narrow(conv: ConvParams) -> bool:
    """Return whether a single-group image's dimension is that narrow."""
    return any(_is_narrow(conv, d) for d in range(conv.rank))


def _is_narrow(conv: ConvParams, d: int) -> bool:
    size, window = conv.sizes[d], conv.window[d]
    if window == 1 or conv.result[d] > _span(conv, d) + size - 1:  # most of the results are zeros
        return False
    wider = window >= cost_model.NARROW_MIN_KERNEL_RATIO * size
    return size == 1 or (size <= cost_model.NARROW_MAX_WIDTH and wider)


def _span(conv: ConvParams, d: int) -> int:
    return (conv.window[d] - 1) * conv.rhs_dilation[d] + 1


def without_narrow_dimension(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `is_narrow` holds."""
    d = next(d for d in range(conv.rank) if _is_narrow(conv, d))
    keywords = {
        "window_strides": _replaced(conv.strides, d, 1),
        "padding": _replaced(conv.pads, d, (0, 0)),
        "lhs_dilation": _replaced(conv.lhs_dilation, d, 1),
        "rhs_dilation": _replaced(conv.rhs_dilation, d, 1),
    }
    total: Any = None
    for column in range(conv.sizes[d]):
        values = lax.slice_in_dim(lhs, column, column + 1, axis=conv.lhs_spec[2 + d])
        kernel = _results_as_outputs(_kernel_columns(rhs, conv, d, column * conv.lhs_dilation[d]), conv, d)
        out = conv.convolve(values, kernel, **keywords)
        total = out if total is None else lax.add(total, out)
    return _outputs_as_results(total, conv, d, rhs.shape[conv.rhs_spec[0]])


def _kernel_columns(rhs: Any, conv: ConvParams, d: int, offset: int) -> Any:
    """Return the kernel column that each result meets, or zeros for none."""
    axis, span, dilation, stride = conv.rhs_spec[2 + d], _span(conv, d), conv.rhs_dilation[d], conv.strides[d]
    reach = (conv.result[d] - 1) * stride + 1
    # Result j meets column (low + offset - j * stride) / dilation: the dilated kernel, backwards.
    first = conv.pads[d][0] + offset - span + 1
    edges = (first, reach - span - first)
    reverse = lax.rev(rhs, (axis,))
    config = [(*edges, dilation - 1) if i == axis else (0, 0, 0) for i in range(rhs.ndim)]
    return lax.slice_in_dim(lax.pad(reverse, np.zeros((), reverse.dtype), config), 0, reach, stride, axis)


def _results_as_outputs(kernel: Any, conv: ConvParams, d: int) -> Any:
    """Make the columns for results output channels, before the kernel's own."""
    axis, out = conv.rhs_spec[2 + d], conv.rhs_spec[0]
    order = [i for i in range(kernel.ndim) if i != axis]
    order.insert(order.index(out), axis)
    moved = transpose(kernel, order)
    shape = [kernel.shape[i] for i in range(kernel.ndim)]
    shape[out], shape[axis] = shape[out] * shape[axis], 1
    return lax.reshape(moved, shape)


def _outputs_as_results(out: Any, conv: ConvParams, d: int, outputs: int) -> Any:
    """Undo `_results_as_outputs` in the results."""
    axis, feature = conv.out_spec[2 + d], conv.out_spec[1]
    shape = [n for i, n in enumerate(out.shape) if i != axis]
    at = feature - (axis < feature)
    shape[at : at + 1] = [conv.result[d], outputs]
    split = lax.reshape(out, shape)
    order = [i for i in range(out.ndim) if i != at]
    order.insert(axis, at)
    return transpose(split, order)


def _replaced(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
