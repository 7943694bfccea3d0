"""Convolutions with input dilation: transposed, and strided ones' gradients.

Computed as one convolution, most products are with the zeros between the input's values. A result meets values only at
every ``dilation``-th tap, and these taps repeat with the dilation as the period: so each *phase* of the results is a
convolution without input dilation, by a part of the kernel (a polyphase decomposition), and the phases are interleaved.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, dot, interleave, pad, reorder, strided_slice, transpose


def is_non_overlapping(conv: ConvParams) -> bool:
    """Return whether results meet at most one value: kernel within dilation."""
    if not conv.has_lhs_dilation or max(conv.strides) > 1:
        return False
    sizes = zip(conv.window, conv.lhs_dilation, conv.rhs_dilation, strict=True)
    return all(k <= g and (r == 1 or k == 1) for k, g, r in sizes)


def non_overlapping(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an `is_non_overlapping` convolution: one product for all patches."""
    rank = conv.rank
    dims = range(1, rank + 1)
    values = reorder(lhs, conv.lhs_spec, (0, rank + 1, *dims))
    kernel = lax.rev(transpose(rhs, (conv.rhs_spec[1], *conv.rhs_spec[2:], conv.rhs_spec[0])), dims)
    shape, outputs = values.shape[:-1], kernel.shape[-1]
    columns = lax.reshape(kernel, (kernel.shape[0], math.prod(kernel.shape[1:])))
    out = dot(values, columns, ((rank + 1,), (0,)), conv)
    out = lax.reshape(out, (*shape, *conv.window, outputs))
    patch = range(rank + 1, 2 * rank + 1)
    out = pad(out, patch, [(0, g - k) for k, g in zip(conv.window, conv.lhs_dilation, strict=True)])
    pairs = [d for pair in zip(dims, patch, strict=True) for d in pair]
    out = lax.transpose(out, (0, *pairs, 2 * rank + 1))
    lengths = [n * g for n, g in zip(conv.sizes, conv.lhs_dilation, strict=True)]
    out = lax.reshape(out, (shape[0], *lengths, outputs))
    firsts = [lo - k + 1 for (lo, _), k in zip(conv.pads, conv.window, strict=True)]
    ends = [n - first - length for n, first, length in zip(conv.result, firsts, lengths, strict=True)]
    out = pad(out, dims, list(zip(firsts, ends, strict=True)))
    return reorder(out, (0, rank + 1, *dims), conv.out_spec)


def has_polyphase(conv: ConvParams) -> bool:
    """Return whether a single-group convolution is computed phase by phase."""
    channels, outputs = conv.in_channels, conv.out_channels
    if not conv.has_lhs_dilation or max(conv.strides) > 1 or not isinstance(channels, int):
        return False
    if conv.rank == 3:
        return True  # there are rules for each phase, and XLA's own code is slow
    covers = all(k >= n for k, n in zip(conv.window, conv.sizes, strict=True))
    if outputs >= cost_model.POLYPHASE_MIN_OUTPUTS and covers:
        return True
    few = channels <= cost_model.POLYPHASE_MAX_CHANNELS or math.prod(conv.window) > cost_model.POLYPHASE_MAX_TAPS
    return channels < outputs or (few and channels <= 2 * outputs)


def phases_of(conv: ConvParams) -> tuple[list[int], list[list[list[tuple[int, int]]]]]:
    """Return the taps of each phase of the results.

    Args:
      conv: a convolution with strides of 1.

    Returns:
      The number of results of a phase in each dimension; and for each dimension and phase the taps that meet values,
      each with the index of the value that the phase's first result meets there.
    """
    counts = [-(-n // g) for n, g in zip(conv.result, conv.lhs_dilation, strict=True)]
    return counts, [
        [[(t, (phase + t * r - lo) // g) for t in range(k) if (phase + t * r - lo) % g == 0] for phase in range(g)]
        for g, k, r, (lo, _) in zip(conv.lhs_dilation, conv.window, conv.rhs_dilation, conv.pads, strict=True)
    ]


def polyphase(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution with input dilation, unstrided, in one group.

    Phases may have negative padding.
    """
    counts, dims = phases_of(conv)
    parts = []
    for phases in itertools.product(*dims):
        if not all(phases):
            parts.append(None)
            continue
        part, steps, pads = rhs, [], []
        for dim, met, count, size in zip(conv.rhs_spec[2:], phases, counts, conv.sizes, strict=True):
            (start, first), last = met[0], met[-1][1]
            step, dilation = (met[1][0] - start, met[1][1] - first) if len(met) > 1 else (1, 1)
            part = strided_slice(part, (dim,), (start,), (len(met),), (step,))
            steps.append(dilation)
            pads.append((-first, last + count - size))
        keywords = {"lhs_dilation": (1,) * conv.rank, "rhs_dilation": tuple(steps), "padding": tuple(pads)}
        parts.append(conv.convolve(lhs, part, **keywords))
    model = next(p for p in parts if p is not None)
    filled = [jnp.zeros(model.shape, model.dtype) if p is None else p for p in parts]
    out = interleave(filled, conv.out_spec[2:], conv.lhs_dilation, conv.result)
    return lax.convert_element_type(out, conv.out_dtype)
