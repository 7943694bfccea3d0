"""Convolutions of groups of channels on CPU: one group after the other, and windows of one place as one product.

XLA takes the groups of a gradient by the filter for one large convolution most of whose products are thrown away, and
is slow where a group has few channels. Each by itself is a convolution as any other, which goes by the rules for these.
Where a window has one place the groups are the batch of matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.xla_cpu.materialize import once

from .params import Conv, cut, pad, respec, transposed

__all__ = ["apart", "is_point_of_groups", "one_by_one", "points", "points_filter"]


def apart(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution with groups as one convolution for each, written out.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution.
      params: its parameters.
      convolve: makes a convolution of one group.
    """
    groups, split = _split(conv)
    parts = (lax.split(x, (x.shape[d] // groups,) * groups, d) for x, d in ((lhs, split), (rhs, conv.rhs[0])))
    found = [convolve(*part, **_alone(params)) for part in zip(*parts, strict=True)]
    return lax.concatenate(found, conv.out[1])


def one_by_one(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns what `apart` does, from a loop over the groups."""
    groups, split = _split(conv)
    parts = []
    for x, dim in ((lhs, split), (rhs, conv.rhs[0])):
        divided = lax.reshape(x, (*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :]))
        parts.append(jnp.moveaxis(divided, dim, 0))
    found = lax.map(lambda operands: convolve(*operands, **_alone(params)), tuple(parts))
    found = jnp.moveaxis(found, 0, conv.out[1])
    shape = list(found.shape)
    shape[conv.out[1] : conv.out[1] + 2] = [math.prod(shape[conv.out[1] : conv.out[1] + 2])]
    return lax.reshape(found, shape)


def _split(conv: Conv) -> tuple[int, int]:
    """Returns how many groups there are, and the dimension of the values that is divided."""
    return conv.groups * conv.batch_groups, conv.lhs[1 if conv.groups > 1 else 0]


def _alone(params: dict[str, Any]) -> dict[str, Any]:
    return {**params, "feature_group_count": 1, "batch_group_count": 1}


def is_point_of_groups(conv: Conv) -> bool:
    """Whether each group is one matrix product: a window of one place, or the gradient by such a filter."""
    if conv.batch_groups > 1:
        return math.prod(conv.result) == 1 and max(conv.gaps) == 1
    return math.prod(conv.window) == 1 and (max(conv.gaps) == 1 or max(conv.strides) == 1)


def points(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution with groups of features, whose window has one place.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution, as `is_point_of_groups`.
      wide: the dtype of sums.
    """
    rank, outputs = len(conv.window), rhs.shape[conv.rhs[0]]
    places, spread = range(1, rank + 1), max(conv.gaps) > 1
    x = respec(lhs, conv.lhs, (0, rank + 1, *places))
    if not spread:
        x = cut(pad(x, places, conv.pads), places, [0] * rank, conv.result, conv.strides)
    weights = lax.squeeze(rhs, conv.rhs[2:])
    weights = weights if conv.rhs[1] < conv.rhs[0] else lax.transpose(weights, (1, 0))
    x, weights = _in_front(x, conv.groups), _in_front(weights, conv.groups)
    numbers = (((x.ndim - 1,), (1,)), ((0,), (0,)))
    found = lax.dot_general(x, weights, numbers, precision=conv.precision, preferred_element_type=wide)
    found = transposed(found, (*range(1, found.ndim - 1), 0, found.ndim - 1))
    found = lax.reshape(found, (*found.shape[:-2], outputs))
    if spread:  # the sum over one place: values can be spread after the product
        found = pad(found, places, conv.pads, conv.gaps)
    return respec(found, (0, rank + 1, *places), conv.out)


def points_filter(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution with groups of the batch: the gradient of `points` by its filter.

    Its "batch" is the channels, its "features" the examples, its "kernel" the gradient of the output.

    Args:
      lhs: the values.
      rhs: the gradient of the output.
      conv: the convolution, as `is_point_of_groups`.
      wide: the dtype of sums.
    """
    rank = len(conv.window)
    places = range(1, rank + 1)
    x = respec(lhs, (conv.lhs[1], conv.lhs[0], *conv.lhs[2:]), (0, rank + 1, *places))
    x = cut(pad(x, places, conv.pads), places, [0] * rank, conv.window, conv.rates)
    grad = respec(rhs, (conv.rhs[1], conv.rhs[0], *conv.rhs[2:]), (0, rank + 1, *places))
    x, grad = _in_front(x, conv.batch_groups), _in_front(grad, conv.batch_groups)
    summed = tuple(range(1, rank + 2))
    numbers = ((summed, summed), ((0,), (0,)))
    found = lax.dot_general(x, grad, numbers, precision=conv.precision, preferred_element_type=wide)
    found = lax.transpose(found, (1, 0, 2))
    found = lax.reshape(found, (*conv.result, found.shape[0], found.shape[1] * found.shape[2]))
    return respec(found, (rank, rank + 1, *range(rank)), conv.out)


def _in_front(x: Any, groups: int) -> Any:
    """Returns ``x`` with the groups of its last dimension in front."""
    split = lax.reshape(x, (*x.shape[:-1], groups, x.shape[-1] // groups))
    return once(transposed(split, (split.ndim - 2, *range(split.ndim - 2), split.ndim - 1)))
