"""Convolutions of what has gaps between its values: transposed ones, and gradients of strided ones by their inputs.

Written as one convolution, most of what they multiply by is the zeros in the gaps. A result meets values only at every
``gap``-th place of the window, and which these are repeats from ``gap`` to ``gap``: so each *phase* of the results is a
convolution without gaps, by the part of the window that it meets, and the phases are interleaved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from .params import Conv, cut, interleave, pad, product, respec, transposed

__all__ = ["by_phase", "has_phases", "is_apart", "met", "set_apart"]

_FEW_CHANNELS, _FEW_PLACES = 64, 9  # with more of the first and no more of the second XLA sums well
_FEWEST_OUTPUTS = 8


def is_apart(conv: Conv) -> bool:
    """Returns whether each result meets one value at most, its window no longer than the gaps."""
    if max(conv.gaps) == 1 or max(conv.strides) > 1:
        return False
    return all(k <= g and (r == 1 or k == 1) for k, g, r in zip(conv.window, conv.gaps, conv.rates, strict=True))


def set_apart(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution in which windows are apart: one matrix product, a value's results laid out side by side.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution, of one group; `is_apart` holds.
      wide: the dtype of sums.
    """
    rank = len(conv.window)
    values = respec(lhs, conv.lhs, (0, rank + 1, *range(1, rank + 1)))
    kernel = lax.rev(transposed(rhs, (conv.rhs[1], *conv.rhs[2:], conv.rhs[0])), range(1, rank + 1))
    shape, outputs = values.shape[:-1], kernel.shape[-1]
    columns = lax.reshape(kernel, (kernel.shape[0], math.prod(kernel.shape[1:])))
    found = product(values, columns, ((rank + 1,), (0,)), conv, wide)
    found = lax.reshape(found, (*shape, *conv.window, outputs))
    tiles = range(rank + 1, 2 * rank + 1)
    found = pad(found, tiles, [(0, g - k) for k, g in zip(conv.window, conv.gaps, strict=True)])
    pairs = [d for pair in zip(range(1, rank + 1), tiles, strict=True) for d in pair]
    found = lax.transpose(found, (0, *pairs, 2 * rank + 1))
    lengths = [n * g for n, g in zip(conv.sizes, conv.gaps, strict=True)]
    found = lax.reshape(found, (shape[0], *lengths, outputs))
    firsts = [lo - k + 1 for (lo, _), k in zip(conv.pads, conv.window, strict=True)]
    ends = [n - first - length for n, first, length in zip(conv.result, firsts, lengths, strict=True)]
    found = pad(found, range(1, rank + 1), list(zip(firsts, ends, strict=True)))
    return respec(found, (0, rank + 1, *range(1, rank + 1)), conv.out)


def has_phases(conv: Conv, channels: Any, outputs: int) -> bool:
    """Returns whether a convolution is written phase by phase.

    Args:
      conv: a convolution of one group.
      channels: of the input; may be symbolic.
      outputs: channels of the result.
    """
    if max(conv.gaps) == 1 or max(conv.strides) > 1 or not isinstance(channels, int):
        return False
    if len(conv.window) == 3:
        return True  # each phase is spelled, and XLA's own is slow
    if outputs >= _FEWEST_OUTPUTS and all(k >= n for k, n in zip(conv.window, conv.sizes, strict=True)):
        return True
    few = channels <= _FEW_CHANNELS or math.prod(conv.window) > _FEW_PLACES
    return channels < outputs or (few and channels <= 2 * outputs)


def met(conv: Conv) -> tuple[list[int], list[list[list[tuple[int, int]]]]]:
    """Returns what each phase of the results meets.

    Args:
      conv: a convolution with strides of 1.

    Returns:
      How many results each phase has (for each dimension), and for each dimension and phase the places of the window
      that meet values, each with the index of the value that the phase's first result meets there.
    """
    counts = [-(-n // g) for n, g in zip(conv.result, conv.gaps, strict=True)]
    return counts, [
        [[(t, (phase + t * r - lo) // g) for t in range(k) if (phase + t * r - lo) % g == 0] for phase in range(g)]
        for g, k, r, (lo, _) in zip(conv.gaps, conv.window, conv.rates, conv.pads, strict=True)
    ]


def by_phase(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns a convolution of what has gaps.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution; no strides, one group.
      params: its parameters as JAX's primitive has them.
      convolve: convolves each phase; takes values, kernel and such parameters, with padding that may be negative.
    """
    kernel_places = conv.rhs[2:]
    counts, dims = met(conv)
    ones = (1,) * len(kernel_places)
    parts = []
    for phases in itertools.product(*dims):
        if not all(phases):
            parts.append(None)
            continue
        part, rates, pads = rhs, [], []
        for dim, meets, count, size in zip(kernel_places, phases, counts, conv.sizes, strict=True):
            (start, first), last = meets[0], meets[-1][1]
            step, rate = (meets[1][0] - start, meets[1][1] - first) if len(meets) > 1 else (1, 1)
            part = cut(part, (dim,), (start,), (len(meets),), (step,))
            rates.append(rate)
            pads.append((-first, last + count - size))
        alone = {"lhs_dilation": ones, "rhs_dilation": tuple(rates), "padding": tuple(pads)}
        parts.append(convolve(lhs, part, **{**params, **alone}))
    model = next(p for p in parts if p is not None)
    filled = [jnp.zeros(model.shape, model.dtype) if p is None else p for p in parts]
    found = interleave(filled, conv.out[2:], conv.gaps, conv.result)
    return lax.convert_element_type(found, conv.dtype)
