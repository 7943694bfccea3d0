"""Convolutions of each channel by itself on CPU, and their gradients by the filter.

The result is a sum over the window's places of shifted slices times weights (*taps*); with gaps between the input's
values (the gradient of a strided one) each phase of the results has taps of its own. The gradient by the filter is one
reduction with a result for each place. Many channels go some at a time, and so do long rows (`spelling_blocks`).
"""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.xla_cpu.materialize import once

from .channel_blocking import filter_sums, is_blocked, weighted_sum
from .input_dilation import met
from .params import Conv, cut, interleave, pad, respec, taps, transposed

__all__ = ["depthwise", "depthwise_filter"]


def depthwise(lhs: Any, rhs: Any, conv: Conv) -> Any:
    """Returns a convolution of each channel by itself; a channel may give several results.

    Args:
      lhs: the values, of the dtype of sums.
      rhs: the kernel, of the same.
      conv: the convolution.
    """
    repeats = rhs.shape[conv.rhs[0]] // lhs.shape[conv.lhs[1]]
    channel, places = conv.lhs[1], conv.lhs[2:]
    if repeats > 1:
        lhs = jnp.repeat(lhs, repeats, axis=channel)
    # Weights as (window, channels), a row for each tap. With lax alone all this is traced and lowered in half the time.
    weights = transposed(rhs, (*conv.rhs[2:], conv.rhs[1], conv.rhs[0]))
    places_of = list(taps(conv.window))
    rows = lax.split(lax.reshape(weights, (len(places_of), weights.shape[-1])), (1,) * len(places_of))
    row_of = dict(zip(places_of, rows, strict=True))

    def weighted(part: Any, tap: tuple[int, ...], total: Any) -> Any:
        """Adds a place's product with its weights to what there is."""
        row = lax.squeeze(row_of[tap], (0,)) if channel == 0 else row_of[tap]
        found = lax.mul(part, lax.broadcast_in_dim(row, part.shape, (0, channel)[-row.ndim :]))
        return found if total is None else lax.add(total, found)

    if is_blocked(lhs, conv):
        return respec(weighted_sum(pad(lhs, places, conv.pads), row_of, conv), conv.lhs, conv.out)
    if all(g == 1 for g in conv.gaps):
        padded = once(pad(lhs, places, conv.pads))  # else what it is made of is computed again for each tap
        total: Any = None
        for tap in taps(conv.window):
            starts = [t * r for t, r in zip(tap, conv.rates, strict=True)]
            total = weighted(cut(padded, places, starts, conv.result, conv.strides), tap, total)
    else:
        total = _phases(lhs, conv, weighted)
    return respec(total, conv.lhs, conv.out)


def _phases(lhs: Any, conv: Conv, weighted: Any) -> Any:
    """Convolves what has gaps: each phase of the output has taps of its own; phases are interleaved at the end."""
    places = conv.lhs[2:]
    counts, dims = met(conv)
    shape = list(lhs.shape)
    for dim, count in zip(places, counts, strict=True):
        shape[dim] = count
    parts = []
    for phases in itertools.product(*dims):
        total: Any = None
        for places_met in itertools.product(*phases):
            firsts = [first for _, first in places_met]
            pads = [(-f, f + c - n) for f, c, n in zip(firsts, counts, conv.sizes, strict=True)]
            total = weighted(pad(lhs, places, pads), tuple(t for t, _ in places_met), total)
        parts.append(jnp.zeros(shape, lhs.dtype) if total is None else total)
    return interleave(parts, places, conv.gaps, conv.result)


def depthwise_filter(lhs: Any, rhs: Any, conv: Conv) -> Any:
    """Returns the gradient of `depthwise` by its filter.

    Its "batch" is the channels, its "features" the examples, its "kernel" the gradient of the output.

    Args:
      lhs: the values, of the dtype of sums.
      rhs: the gradient of the output, of the same.
      conv: the convolution.
    """
    # The gradient as the input lies: its output channel where the input's channel is, and so on.
    grad = respec(rhs, conv.rhs, conv.lhs)
    channel, places = conv.lhs[0], conv.lhs[2:]
    repeats = grad.shape[channel] // lhs.shape[channel]
    if repeats > 1:
        lhs = jnp.repeat(lhs, repeats, axis=channel)
    sums = filter_sums(pad(lhs, places, conv.pads), grad, conv)
    out = lax.reshape(sums, (*conv.result, 1, grad.shape[channel]))
    rank = len(places)
    return respec(out, (rank, rank + 1, *range(rank)), conv.out)
