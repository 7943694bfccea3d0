"""Convolutions of narrow groups as sums of depthwise ones.

There is one for each channel index in a group.

Matrix products of groups have as few columns as a group has channels, and need an im2col. Here the first channels of
all groups, each as often as its group has results, are convolved depthwise, then the second ones, and so on; and so
are their filter gradients. Some images at a time, so that the operands of each sum stay in the cache.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, strided_slice
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.xla_cpu import cost_model

from .depthwise import depthwise, depthwise_filter_gradient, has_few_taps
from .grouped import group_channels, has_static_sizes, is_grouped


def is_sum_of_depthwise(conv: ConvParams) -> bool:
    """Return whether narrow groups go channel index by channel index."""
    if not is_grouped(conv) or not has_static_sizes(conv):
        return False
    channels = group_channels(conv)
    if conv.batch_groups > 1:
        few = math.prod(conv.result) * channels <= cost_model.MAX_UNROLLED_TAPS and not conv.has_lhs_dilation
        return few and channels <= cost_model.GROUP_MAX_CHANNELS
    one_result = conv.groups == conv.out_channels
    return has_few_taps(conv, channels) and (channels <= cost_model.GROUP_MAX_CHANNELS or one_result)


def by_channel_of_group(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an `is_sum_of_depthwise` convolution, in the dtype of sums."""
    return (_sum_of_depthwise if conv.groups > 1 else _filter_gradient)(lhs, rhs, conv)


def _sum_of_depthwise(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    images, outputs = lhs.shape[conv.lhs_spec[0]], rhs.shape[conv.rhs_spec[0]]
    summed = functools.partial(_summed, conv=conv)
    some = _images_at_once(images, outputs * math.prod(map(max, conv.sizes, conv.result)))
    if some == images:
        return summed(lhs, rhs)
    shape = [0] * lhs.ndim
    for dim, size in zip(conv.out_spec, (images, outputs, *conv.result), strict=True):
        shape[dim] = size

    def put(index: Any, results: Any) -> Any:
        first = lax.convert_element_type(index, np.int32) * np.int32(some)  # JAX's own is wider in 64-bit mode
        part = lax.dynamic_slice_in_dim(lhs, first, some, conv.lhs_spec[0])
        return lax.dynamic_update_slice_in_dim(results, summed(part, rhs), first, conv.out_spec[0])

    return lax.fori_loop(np.int32(0), np.int32(images // some), put, jnp.zeros(shape, conv.sum_dtype))


def _summed(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    total, taps = None, 0
    for index in range(rhs.shape[conv.rhs_spec[1]]):
        values = _channels(lhs, conv.lhs_spec[1], index, conv.groups)
        if conv.has_lhs_dilation:
            values = materialize(values)  # each phase reads it
        weights = lax.slice_in_dim(rhs, index, index + 1, axis=conv.rhs_spec[1])
        out = depthwise(values, weights, conv)
        total = out if total is None else lax.add(total, out)
        taps += math.prod(conv.window)
        if taps + math.prod(conv.window) > cost_model.GROUP_MAX_TAPS:
            total, taps = materialize(total), 0
    return materialize(total) if taps else total


def _filter_gradient(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution with batch groups: `_sum_of_depthwise`'s gradient.

    Its "batch" is the channels, its "features" the examples, its "kernel" the gradient with respect to the output, and
    its results the taps of the filter.
    """
    groups, images = conv.batch_groups, lhs.shape[conv.lhs_spec[1]]
    channels = lhs.shape[conv.lhs_spec[0]] // groups

    def sums(lhs: Any, rhs: Any) -> Any:
        out = []
        for index in range(channels):
            values = _channels(lhs, conv.lhs_spec[0], index, groups)
            out.append(materialize(depthwise_filter_gradient(values, rhs, conv)))
        return lax.concatenate(out, conv.out_spec[0])

    some = _images_at_once(images, rhs.shape[conv.rhs_spec[0]] * math.prod(map(max, conv.sizes, conv.window)))
    if some == images:
        return sums(lhs, rhs)
    split = ((lhs, conv.lhs_spec[1]), (rhs, conv.rhs_spec[1]))

    def add(index: Any, total: Any) -> Any:
        first = lax.convert_element_type(index, np.int32) * np.int32(some)
        return lax.add(total, sums(*(lax.dynamic_slice_in_dim(x, first, some, d) for x, d in split)))

    shape = [0] * lhs.ndim
    for dim, size in zip(conv.out_spec, (channels, rhs.shape[conv.rhs_spec[0]], *conv.result), strict=True):
        shape[dim] = size
    return lax.fori_loop(np.int32(0), np.int32(images // some), add, jnp.zeros(shape, conv.sum_dtype))


def _channels(x: Any, dim: int, index: int, groups: int) -> Any:
    """Return one channel of each group."""
    return strided_slice(x, (dim,), (index,), (groups,), (x.shape[dim] // groups,))


def _images_at_once(images: int, values: int) -> int:
    """Return the number of images in the cache at a time: a divisor of all."""
    most = max(cost_model.L2_FLOATS // max(values, 1), 1)
    return next(n for n in range(min(images, most), 0, -1) if images % n == 0)
