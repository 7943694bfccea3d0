"""Grouped convolutions: by group, and 1x1 kernels as one batched product.

XLA takes the groups of a filter gradient for one large convolution most of whose products are dropped, and is slow
where a group has few channels. Each group by itself is an ordinary convolution, to which all rules apply. With a 1x1
kernel the groups are the batch of matrix products.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, pad, reorder, strided_slice, transpose
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.xla_cpu import cost_model

from .depthwise import is_depthwise


def has_groups(conv: ConvParams) -> bool:
    """Return whether a convolution has groups of features or of the batch."""
    return conv.groups > 1 or conv.batch_groups > 1


def is_grouped(conv: ConvParams) -> bool:
    """Return whether groups have rules: XLA is slow, most for filter gradients."""
    if not has_groups(conv) or is_depthwise(conv):
        return False
    if conv.batch_groups > 1:
        return isinstance(conv.batch, int)
    sizes = (conv.batch, *conv.result, *conv.window, conv.in_channels, conv.out_channels)
    if not all(isinstance(n, int) for n in sizes):
        return False
    if math.prod(sizes) // conv.groups < cost_model.GROUPED_MIN_PRODUCTS:
        return False
    # XLA is faster where sums are long along one dimension alone.
    summed = math.prod(conv.window) * conv.in_channels // conv.groups
    return summed <= cost_model.GROUPED_MAX_SUM_LENGTH or max(conv.window) < math.prod(conv.window)


def group_channels(conv: ConvParams) -> int:
    """Return a group's input channels; of a filter gradient's, its batch."""
    return (conv.in_channels if conv.groups > 1 else conv.batch) // (conv.groups * conv.batch_groups)


def has_static_sizes(conv: ConvParams) -> bool:
    """Return whether batch and channels are static."""
    return isinstance(conv.batch, int) and isinstance(conv.in_channels, int)


def looped(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a grouped convolution from a loop over its groups."""
    # The number of groups, and the input's dimension that is divided.
    groups, split = conv.groups * conv.batch_groups, conv.lhs_spec[1 if conv.groups > 1 else 0]
    parts = []
    for x, dim in ((lhs, split), (rhs, conv.rhs_spec[0])):
        divided = lax.reshape(x, (*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :]))
        parts.append(jnp.moveaxis(divided, dim, 0))
    feature = conv.out_spec[1]
    out = lax.map(lambda operands: conv.convolve(*operands, feature_group_count=1, batch_group_count=1), tuple(parts))
    out = jnp.moveaxis(out, 0, feature)
    shape = list(out.shape)
    shape[feature : feature + 2] = [math.prod(shape[feature : feature + 2])]
    return lax.reshape(out, shape)


def is_grouped_pointwise(conv: ConvParams) -> bool:
    """Return whether each group is one matrix product: 1x1, or its gradient."""
    if not is_grouped(conv) or not has_static_sizes(conv):
        return False
    if conv.batch_groups > 1:
        return math.prod(conv.result) == 1 and not conv.has_lhs_dilation
    return math.prod(conv.window) == 1 and (not conv.has_lhs_dilation or max(conv.strides) == 1)


def pointwise(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an `is_grouped_pointwise` convolution, in the dtype of sums."""
    return (_pointwise if conv.groups > 1 else _pointwise_filter_gradient)(lhs, rhs, conv)


def _pointwise(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    rank, outputs = conv.rank, rhs.shape[conv.rhs_spec[0]]
    dims = range(1, rank + 1)
    x = reorder(lhs, conv.lhs_spec, (0, rank + 1, *dims))
    if not conv.has_lhs_dilation:
        x = strided_slice(pad(x, dims, conv.pads), dims, [0] * rank, conv.result, conv.strides)
    weights = lax.squeeze(rhs, conv.rhs_spec[2:])
    weights = weights if conv.rhs_spec[1] < conv.rhs_spec[0] else lax.transpose(weights, (1, 0))
    x, weights = _groups_first(x, conv.groups), _groups_first(weights, conv.groups)
    numbers = (((x.ndim - 1,), (1,)), ((0,), (0,)))
    out = lax.dot_general(x, weights, numbers, precision=conv.precision, preferred_element_type=conv.sum_dtype)
    out = transpose(out, (*range(1, out.ndim - 1), 0, out.ndim - 1))
    out = lax.reshape(out, (*out.shape[:-2], outputs))
    if conv.has_lhs_dilation:  # each result is a sum over one tap: values can be spread after the product
        out = pad(out, dims, conv.pads, conv.lhs_dilation)
    return reorder(out, (0, rank + 1, *dims), conv.out_spec)


def _pointwise_filter_gradient(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution with groups of the batch.

    Its "batch" is the channels, its "features" the examples, its "kernel" the gradient with respect to the output.
    """
    rank = conv.rank
    dims = range(1, rank + 1)
    x = reorder(lhs, (conv.lhs_spec[1], conv.lhs_spec[0], *conv.lhs_spec[2:]), (0, rank + 1, *dims))
    x = strided_slice(pad(x, dims, conv.pads), dims, [0] * rank, conv.window, conv.rhs_dilation)
    grad = reorder(rhs, (conv.rhs_spec[1], conv.rhs_spec[0], *conv.rhs_spec[2:]), (0, rank + 1, *dims))
    x, grad = _groups_first(x, conv.batch_groups), _groups_first(grad, conv.batch_groups)
    summed = tuple(range(1, rank + 2))
    numbers = ((summed, summed), ((0,), (0,)))
    out = lax.dot_general(x, grad, numbers, precision=conv.precision, preferred_element_type=conv.sum_dtype)
    out = lax.transpose(out, (1, 0, 2))
    out = lax.reshape(out, (*conv.result, out.shape[0], out.shape[1] * out.shape[2]))
    return reorder(out, (rank, rank + 1, *range(rank)), conv.out_spec)


def _groups_first(x: Any, groups: int) -> Any:
    """Return ``x`` with the groups of its last dimension as the first dimension."""
    split = lax.reshape(x, (*x.shape[:-1], groups, x.shape[-1] // groups))
    return materialize(transpose(split, (split.ndim - 2, *range(split.ndim - 2), split.ndim - 1)))
