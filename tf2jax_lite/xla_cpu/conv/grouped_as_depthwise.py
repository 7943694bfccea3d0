"""Convolutions of groups of few channels on CPU: a sum of convolutions of each channel by itself, one for each member.

Matrix products of groups have as few columns as a group has channels, and all windows have to be laid side by side for
them. Here the first channels of all groups, each as often as its group has results, are convolved channel by channel,
then the second ones, and so on; and so are the gradients by their filters. Some images at a time, so that what is made
of them stays near the processor.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.materialize import once
from tf2jax_lite.xla_cpu.outline import kept

from .depthwise import depthwise, depthwise_filter
from .params import Conv, cut

__all__ = ["by_member", "filter_by_member"]

_MOST_TAPS = 36  # of one loop: code grows with them
_NEAR = 1 << 20  # values of a member at a time


def by_member(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution with groups of features.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution; all sizes are known.
      wide: the dtype of sums.
    """
    images, outputs = lhs.shape[conv.lhs[0]], rhs.shape[conv.rhs[0]]
    summed = functools.partial(kept, functools.partial(_summed, conv=conv, wide=wide))
    some = _at_once(images, outputs * math.prod(map(max, conv.sizes, conv.result)))
    if some == images:
        return summed(lhs, rhs)
    shape = [0] * lhs.ndim
    for dim, size in zip(conv.out, (images, outputs, *conv.result), strict=True):
        shape[dim] = size

    def put(index: Any, results: Any) -> Any:
        first = lax.convert_element_type(index, np.int32) * np.int32(some)  # JAX's own is wider in 64-bit mode
        part = lax.dynamic_slice_in_dim(lhs, first, some, conv.lhs[0])
        return lax.dynamic_update_slice_in_dim(results, summed(part, rhs), first, conv.out[0])

    return lax.fori_loop(np.int32(0), np.int32(images // some), put, jnp.zeros(shape, wide))


def _summed(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    members, total, taps = rhs.shape[conv.rhs[1]], None, 0
    for member in range(members):
        values = _members(lhs, conv.lhs[1], member, conv.groups)
        if max(conv.gaps) > 1:
            values = once(values)  # each phase reads it
        weights = lax.slice_in_dim(rhs, member, member + 1, axis=conv.rhs[1])
        found = depthwise(values.astype(wide), weights.astype(wide), conv)
        total = found if total is None else lax.add(total, found)
        taps += math.prod(conv.window)
        if taps + math.prod(conv.window) > _MOST_TAPS:
            total, taps = once(total), 0
    return total


def filter_by_member(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution with groups of the batch: the gradient of `by_member` by its filter.

    Its "batch" is the channels, its "features" the examples, its "kernel" the gradient of the output and its results
    the places of the filter.

    Args:
      lhs: the values.
      rhs: the gradient of the output.
      conv: the convolution; all sizes are known.
      wide: the dtype of sums.
    """
    groups, images = conv.batch_groups, lhs.shape[conv.lhs[1]]
    members = lhs.shape[conv.lhs[0]] // groups

    def sums(lhs: Any, rhs: Any) -> Any:
        found = []
        for member in range(members):
            values = _members(lhs, conv.lhs[0], member, groups)
            found.append(once(depthwise_filter(values.astype(wide), rhs.astype(wide), conv)))
        return lax.concatenate(found, conv.out[0])

    some = _at_once(images, rhs.shape[conv.rhs[0]] * math.prod(map(max, conv.sizes, conv.window)))
    if some == images:
        return sums(lhs, rhs)

    def add(index: Any, total: Any) -> Any:
        first = lax.convert_element_type(index, np.int32) * np.int32(some)
        parts = (lax.dynamic_slice_in_dim(x, first, some, d) for x, d in ((lhs, conv.lhs[1]), (rhs, conv.rhs[1])))
        return lax.add(total, sums(*parts))

    shape = [0] * lhs.ndim
    for dim, size in zip(conv.out, (members, rhs.shape[conv.rhs[0]], *conv.result), strict=True):
        shape[dim] = size
    return lax.fori_loop(np.int32(0), np.int32(images // some), add, jnp.zeros(shape, wide))


def _members(x: Any, dim: int, member: int, groups: int) -> Any:
    """Returns one channel of each group."""
    return cut(x, (dim,), (member,), (groups,), (x.shape[dim] // groups,))


def _at_once(images: int, values: int) -> int:
    """Returns how many images are taken at a time: a divisor of all."""
    most = max(_NEAR // max(values, 1), 1)
    return next(n for n in range(min(images, most), 0, -1) if images % n == 0)
