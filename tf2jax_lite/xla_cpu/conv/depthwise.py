"""Depthwise convolutions and their filter gradients.

The result is a sum over the kernel's taps of shifted slices times weights; with input dilation (the gradient of a
strided one) each phase of the results has taps of its own. The filter gradient is one reduction with a result for each
tap.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, interleave, pad, reorder, strided_slice, taps, transpose
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.xla_cpu import cost_model

from .input_dilation import phases_of


def is_depthwise(conv: ConvParams) -> bool:
    """Return whether each channel is a group; one may have several results."""
    return conv.batch_groups == 1 and 1 < conv.groups == conv.in_channels


def has_few_taps(conv: ConvParams, channels: int = 1) -> bool:
    """Return whether a sum over taps of channels is short enough to unroll."""
    few = math.prod(conv.window) * channels <= cost_model.MAX_UNROLLED_TAPS
    return few and (not conv.has_lhs_dilation or max(conv.strides) == 1)


def is_unrolled_depthwise(conv: ConvParams) -> bool:
    """Return whether a convolution is depthwise with few taps."""
    return is_depthwise(conv) and has_few_taps(conv)


def _operands(lhs: Any, rhs: Any, conv: ConvParams) -> tuple[Any, dict[tuple[int, ...], Any]]:
    """Return inputs repeated by result, and each tap's weights (1, channels)."""
    lhs, rhs = lhs.astype(conv.sum_dtype), rhs.astype(conv.sum_dtype)
    repeats = rhs.shape[conv.rhs_spec[0]] // lhs.shape[conv.lhs_spec[1]]
    if repeats > 1:
        lhs = jnp.repeat(lhs, repeats, axis=conv.lhs_spec[1])
    # With lax alone all this is traced and lowered in half the time.
    weights = transpose(rhs, (*conv.rhs_spec[2:], conv.rhs_spec[1], conv.rhs_spec[0]))
    indices = list(taps(conv.window))
    rows = lax.split(lax.reshape(weights, (len(indices), weights.shape[-1])), (1,) * len(indices))
    return lhs, dict(zip(indices, rows, strict=True))


def depthwise(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a depthwise convolution with any multiplier, in the dtype of sums."""
    channel, dims = conv.lhs_spec[1], conv.lhs_spec[2:]
    lhs, weights = _operands(lhs, rhs, conv)

    def add_product(part: Any, tap: tuple[int, ...], total: Any) -> Any:
        row = lax.squeeze(weights[tap], (0,)) if channel == 0 else weights[tap]
        product = lax.mul(part, lax.broadcast_in_dim(row, part.shape, (0, channel)[-row.ndim :]))
        return product if total is None else lax.add(total, product)

    total: Any = None
    if conv.has_lhs_dilation:
        total = _by_phase(lhs, conv, add_product)
    else:
        padded = materialize(pad(lhs, dims, conv.pads))  # else its operands are recomputed for each tap
        for tap in taps(conv.window):
            starts = [t * r for t, r in zip(tap, conv.rhs_dilation, strict=True)]
            total = add_product(strided_slice(padded, dims, starts, conv.result, conv.strides), tap, total)
    if math.prod(conv.window) >= cost_model.MATERIALIZE_MIN_TAPS:  # XLA would compute the sum again for each user
        total = materialize(total)
    return reorder(total, conv.lhs_spec, conv.out_spec)


def _by_phase(lhs: Any, conv: ConvParams, add_product: Any) -> Any:
    """Convolve with input dilation: each output phase has its own taps.

    Phases are interleaved at the end.
    """
    dims = conv.lhs_spec[2:]
    counts, phases_by_dim = phases_of(conv)
    shape = list(lhs.shape)
    for dim, count in zip(dims, counts, strict=True):
        shape[dim] = count
    parts = []
    for phases in itertools.product(*phases_by_dim):
        total: Any = None
        for met in itertools.product(*phases):
            firsts = [first for _, first in met]
            pads = [(-f, f + c - n) for f, c, n in zip(firsts, counts, conv.sizes, strict=True)]
            total = add_product(pad(lhs, dims, pads), tuple(t for t, _ in met), total)
        parts.append(jnp.zeros(shape, lhs.dtype) if total is None else total)
    return interleave(parts, dims, conv.lhs_dilation, conv.result)


def is_depthwise_filter_gradient(conv: ConvParams) -> bool:
    """Return whether this is a filter gradient of a depthwise one with few taps.

    Its "batch" is the channels, its "features" the examples, its "kernel" the gradient with respect to the output.
    """
    few = math.prod(conv.result) <= cost_model.MAX_UNROLLED_TAPS
    return 1 < conv.batch_groups == conv.batch and few and not conv.has_lhs_dilation


def depthwise_filter_gradient(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return the filter gradient of `depthwise`, in the dtype of sums."""
    lhs, rhs = lhs.astype(conv.sum_dtype), rhs.astype(conv.sum_dtype)
    # The gradient in the input's order: its output channel where the input's channel is, and so on.
    grad = reorder(rhs, conv.rhs_spec, conv.lhs_spec)
    channel, dims = conv.lhs_spec[0], conv.lhs_spec[2:]
    repeats = grad.shape[channel] // lhs.shape[channel]
    if repeats > 1:
        lhs = jnp.repeat(lhs, repeats, axis=channel)
    padded = materialize(pad(lhs, dims, conv.pads))
    # Rows where they are long and the kernel is small, else images; few sums are left then. Over everything at once one
    # thread would do all the work.
    axes = dims[-1:] if _has_long_rows(conv) else dims
    products = []
    for tap in taps(conv.result):
        starts = [t * s for t, s in zip(tap, conv.strides, strict=True)]
        products.append(lax.mul(strided_slice(padded, dims, starts, conv.window, conv.rhs_dilation), grad))
    zeros = [np.zeros((), padded.dtype)] * len(products)
    sums = jnp.stack(lax.reduce(products, zeros, lambda a, b: [x + y for x, y in zip(a, b, strict=True)], axes))
    left = [d for d in range(grad.ndim) if d not in axes]
    sums = jnp.sum(sums, tuple(i for i, d in enumerate(left, 1) if d != channel))
    out = lax.reshape(sums, (*conv.result, 1, grad.shape[channel]))
    rank = len(dims)
    return reorder(out, (rank, rank + 1, *range(rank)), conv.out_spec)


def _has_long_rows(conv: ConvParams) -> bool:
    row, most = conv.window[-1], cost_model.DEPTHWISE_FILTER_MAX_TAPS_BY_ROW
    return row >= cost_model.DEPTHWISE_FILTER_MIN_ROW and math.prod(conv.result) <= most
