"""Convolutions of few channels that give few, on CPU: neighbours in a row are so many channels of one place.

XLA computes sixteen outputs at once, however few there are, and reads channels by fours. With ``fold`` neighbours side
by side as channels, which the values lie as already, a convolution has so many times the channels and the outputs, and
a kernel with a band of weights for each neighbour: some products are by zero, but none are thrown away. What is
different: a value that is not finite reaches all results of the neighbours that see its place, as zero times it is
none. ``precision=jax.lax.Precision.HIGHEST`` therefore keeps the direct convolution.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from .params import Conv, pad, plain, respec
from .winograd import is_exact

__all__ = ["fold_of", "folded"]

_MOST_FOLDED = 8
# Up to so many channels, outputs of all neighbours.
_MOST_OUTPUTS = ((4, 32), (8, 16), (16, 8))
_FEWEST_PRODUCTS = 1 << 15


def fold_of(conv: Conv, batch: Any, channels: Any, outputs: Any) -> int:
    """Returns how many neighbours are put together; 1 for none.

    Args:
      conv: a convolution of one group.
      batch: how many examples; may be symbolic.
      channels: of the input.
      outputs: channels of the result.
    """
    if max(conv.gaps) > 1 or not isinstance(channels, int) or is_exact(conv.precision):
        return 1
    if conv.window[-1] == 1 or conv.strides[-1] > 1 or conv.rates[-1] > 1:
        return 1
    sizes = (batch if isinstance(batch, int) else 1, *conv.result, *conv.window, channels, outputs)
    if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) < _FEWEST_PRODUCTS:
        return 1
    most = next((most for few, most in _MOST_OUTPUTS if channels <= few), 0) // outputs
    fold = 1
    while 2 * fold <= min(most, _MOST_FOLDED, conv.result[-1]):
        fold *= 2
    return fold


def folded(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], fold: int) -> Any:
    """Returns a convolution with neighbours put together.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution, with no negative padding.
      params: its parameters as JAX's primitive has them.
      fold: what `fold_of` says.
    """
    rank = len(conv.window)
    places = tuple(range(1, rank + 1))
    values = respec(lhs, conv.lhs, (0, rank + 1, *places))
    kernel = respec(rhs, conv.rhs, (rank + 1, rank, *range(rank)))
    channels, outputs, window = values.shape[-1], kernel.shape[-1], conv.window[-1]
    seen = -(-(fold - 1 + window) // fold)  # so many places, that all neighbours see
    results = -(-conv.result[-1] // fold)
    before, length = conv.pads[-1][0], (results + seen - 1) * fold
    values = pad(values, places[-1:], ((before, length - before - conv.sizes[-1]),))
    values = lax.reshape(values, (*values.shape[:-2], length // fold, fold * channels))
    bands = [pad(kernel, (rank - 1,), ((i, seen * fold - window - i),)) for i in range(fold)]
    kernel = lax.reshape(jnp.stack(bands, -2), (*conv.window[:-1], seen, fold * channels, fold * outputs))
    last = (0, rank + 1, *places)
    specs = lax.ConvDimensionNumbers(last, (rank + 1, rank, *range(rank)), last)
    alone = {**params, "padding": (*conv.pads[:-1], (0, 0)), "dimension_numbers": specs}
    found = plain(values, kernel, **alone)
    found = lax.reshape(found, (*found.shape[:-2], results * fold, outputs))
    found = lax.slice_in_dim(found, 0, conv.result[-1], axis=rank)
    return respec(found, (0, rank + 1, *places), conv.out)
