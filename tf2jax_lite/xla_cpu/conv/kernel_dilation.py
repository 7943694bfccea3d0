"""Convolutions with kernel dilation: phases go into the batch and back.

A dilated 3x3 convolution is not one for Winograd's filtering (`winograd`). With each phase's values as an image of its
own it is, which pays for moving them as long as little is padded for whole phases.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jax import lax

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, pad, reorder
from .winograd import is_winograd


def has_batched_phases(conv: ConvParams) -> bool:
    """Return whether one group's phases go into the (static) batch."""
    if max(conv.rhs_dilation) == 1 or max(conv.strides) > 1 or conv.has_lhs_dilation or not isinstance(conv.batch, int):
        return False
    phases = math.prod(conv.rhs_dilation)
    lengths = [-(-n // r) for n, r in zip(conv.result, conv.rhs_dilation, strict=True)]
    if phases * math.prod(lengths) > cost_model.KERNEL_DILATION_MAX_PADDING * math.prod(conv.result):
        return False
    none = (1,) * conv.rank
    phase = dataclasses.replace(conv, rhs_dilation=none, result=tuple(lengths), batch=conv.batch * phases)
    return is_winograd(phase)


def batched_phases(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `has_batched_phases` holds."""
    rank = conv.rank
    dims = tuple(range(1, rank + 1))
    values = reorder(lhs, conv.lhs_spec, (0, rank + 1, *dims))
    batch, channels = values.shape[0], values.shape[-1]
    lengths = [-(-n // r) for n, r in zip(conv.result, conv.rhs_dilation, strict=True)]
    spans = [n + k - 1 for n, k in zip(lengths, conv.window, strict=True)]  # of each phase
    ends = [s * r - n - lo for s, r, n, (lo, _) in zip(spans, conv.rhs_dilation, conv.sizes, conv.pads, strict=True)]
    values = pad(values, dims, [(lo, end) for (lo, _), end in zip(conv.pads, ends, strict=True)])
    split = [n for pair in zip(spans, conv.rhs_dilation, strict=True) for n in pair]
    values = lax.reshape(values, (batch, *split, channels))
    outer, inner = [1 + 2 * i for i in range(rank)], [2 + 2 * i for i in range(rank)]
    values = lax.transpose(values, (0, *inner, *outer, 2 * rank + 1))
    values = lax.reshape(values, (batch * math.prod(conv.rhs_dilation), *spans, channels))
    out = conv.convolve(
        values,
        rhs,
        padding=((0, 0),) * rank,
        rhs_dilation=(1,) * rank,
        dimension_numbers=lax.ConvDimensionNumbers((0, rank + 1, *dims), conv.rhs_spec, (0, rank + 1, *dims)),
    )
    out = lax.reshape(out, (batch, *conv.rhs_dilation, *lengths, out.shape[-1]))
    pairs = [d for i in range(rank) for d in (1 + rank + i, 1 + i)]
    out = lax.transpose(out, (0, *pairs, 2 * rank + 1))
    out = lax.reshape(out, (batch, *(n * r for n, r in zip(lengths, conv.rhs_dilation, strict=True)), out.shape[-1]))
    out = lax.slice(out, (0,) * (rank + 2), (batch, *conv.result, out.shape[-1]))
    return reorder(out, (0, rank + 1, *dims), conv.out_spec)
