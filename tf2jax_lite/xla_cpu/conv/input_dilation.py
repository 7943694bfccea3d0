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

from tf2jax_lite.jaxprs.convolutions import ConvParams, interleave, strided_slice
from tf2jax_lite.xla_cpu import cost_model


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
