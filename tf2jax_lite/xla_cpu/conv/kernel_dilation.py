"""Convolutions by a rate, on CPU: what stands the rate apart is moved into the batch, and its results back.

A convolution by a rate of 3x3 places is none for tiles (`spelling_tiles`). With the values of each phase in an image of
its own it is, which is worth the moving as long as little is padded for whole phases.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from jax import lax

from .params import Conv, pad, respec
from .winograd import is_tiled

__all__ = ["by_rate", "is_by_rate"]

_MOST_ADDED = 1.3  # results of whole phases for each that there is


def is_by_rate(conv: Conv, batch: Any, channels: Any, outputs: Any) -> bool:
    """Returns whether a convolution of one group is written with its phases in the batch.

    Args:
      conv: the convolution.
      batch: how many examples; may be symbolic, and then nothing is moved.
      channels: of the input.
      outputs: channels of the result.
    """
    if max(conv.rates) == 1 or max(conv.strides) > 1 or max(conv.gaps) > 1 or not isinstance(batch, int):
        return False
    phases = math.prod(conv.rates)
    lengths = [-(-n // r) for n, r in zip(conv.result, conv.rates, strict=True)]
    if phases * math.prod(lengths) > _MOST_ADDED * math.prod(conv.result):
        return False
    none = (1,) * len(conv.rates)
    apart = dataclasses.replace(conv, rates=none, result=tuple(lengths))
    return is_tiled(apart, batch * phases, channels, outputs)


def by_rate(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], convolve: Callable[..., Any]) -> Any:
    """Returns the convolution where `is_by_rate` is true.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution.
      params: its parameters as JAX's primitive has them.
      convolve: convolves the phases; takes values, kernel and such parameters.
    """
    rank = len(conv.rates)
    places = tuple(range(1, rank + 1))
    values = respec(lhs, conv.lhs, (0, rank + 1, *places))
    batch, channels = values.shape[0], values.shape[-1]
    lengths = [-(-n // r) for n, r in zip(conv.result, conv.rates, strict=True)]
    spans = [n + k - 1 for n, k in zip(lengths, conv.window, strict=True)]  # of each phase
    ends = [s * r - n - lo for s, r, n, (lo, _) in zip(spans, conv.rates, conv.sizes, conv.pads, strict=True)]
    values = pad(values, places, [(lo, end) for (lo, _), end in zip(conv.pads, ends, strict=True)])
    split = [n for pair in zip(spans, conv.rates, strict=True) for n in pair]
    values = lax.reshape(values, (batch, *split, channels))
    outer, inner = [1 + 2 * i for i in range(rank)], [2 + 2 * i for i in range(rank)]
    values = lax.transpose(values, (0, *inner, *outer, 2 * rank + 1))
    values = lax.reshape(values, (batch * math.prod(conv.rates), *spans, channels))
    alone = {
        **params,
        "padding": ((0, 0),) * rank,
        "rhs_dilation": (1,) * rank,
        "dimension_numbers": lax.ConvDimensionNumbers((0, rank + 1, *places), conv.rhs, (0, rank + 1, *places)),
    }
    found = convolve(values, rhs, **alone)
    found = lax.reshape(found, (batch, *conv.rates, *lengths, found.shape[-1]))
    pairs = [d for i in range(rank) for d in (1 + rank + i, 1 + i)]
    found = lax.transpose(found, (0, *pairs, 2 * rank + 1))
    found = lax.reshape(found, (batch, *(n * r for n, r in zip(lengths, conv.rates, strict=True)), found.shape[-1]))
    found = lax.slice(found, (0,) * (rank + 2), (batch, *conv.result, found.shape[-1]))
    return respec(found, (0, rank + 1, *places), conv.out)
