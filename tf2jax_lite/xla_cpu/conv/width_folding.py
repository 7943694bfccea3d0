"""Convolutions of few channels with rows folded into them (space-to-depth).

XLA computes sixteen output channels at once, however few there are, and reads input channels by fours. With ``fold``
neighbors as channels, which needs no transposition, a convolution has so many times the input and output channels, and
a kernel with a band of weights for each neighbor: some products are with zeros, but no lane is unused. One difference:
a value that is not finite reaches the results of all neighbors that read its position, as its product with zero is NaN.
``precision=jax.lax.Precision.HIGHEST`` therefore keeps the direct convolution.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, pad, reorder
from .winograd import is_exact


def fold_of(conv: ConvParams) -> int:
    """Return how many neighbors fold into one position; 1 for none."""
    channels, outputs = conv.in_channels, conv.out_channels
    if conv.has_lhs_dilation or not isinstance(channels, int) or is_exact(conv.precision):
        return 1
    if conv.window[-1] == 1 or conv.strides[-1] > 1 or conv.rhs_dilation[-1] > 1:
        return 1
    batch = conv.batch if isinstance(conv.batch, int) else 1
    sizes = (batch, *conv.result, *conv.window, channels, outputs)
    if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) < cost_model.FOLD_MIN_PRODUCTS:
        return 1
    most = next((most for few, most in cost_model.FOLD_MAX_OUTPUTS if channels <= few), 0) // outputs
    fold = 1
    while 2 * fold <= min(most, cost_model.FOLD_MAX, conv.result[-1]):
        fold *= 2
    return fold


def is_folded(conv: ConvParams) -> bool:
    """Return whether a float32 convolution folds neighbors."""
    return conv.dtype == np.float32 and fold_of(conv) > 1


def folded(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return an unnegatively padded convolution with `fold_of` rows."""
    rank, fold = conv.rank, fold_of(conv)
    dims = tuple(range(1, rank + 1))
    values = reorder(lhs, conv.lhs_spec, (0, rank + 1, *dims))
    kernel = reorder(rhs, conv.rhs_spec, (rank + 1, rank, *range(rank)))
    channels, outputs, window = values.shape[-1], kernel.shape[-1], conv.window[-1]
    span = -(-(fold - 1 + window) // fold)  # folded positions that the windows of all neighbors reach over
    results = -(-conv.result[-1] // fold)
    before, length = conv.pads[-1][0], (results + span - 1) * fold
    values = pad(values, dims[-1:], ((before, length - before - conv.sizes[-1]),))
    values = lax.reshape(values, (*values.shape[:-2], length // fold, fold * channels))
    bands = [pad(kernel, (rank - 1,), ((i, span * fold - window - i),)) for i in range(fold)]
    kernel = lax.reshape(jnp.stack(bands, -2), (*conv.window[:-1], span, fold * channels, fold * outputs))
    last = (0, rank + 1, *dims)
    specs = lax.ConvDimensionNumbers(last, (rank + 1, rank, *range(rank)), last)
    out = conv.convolve_directly(values, kernel, padding=(*conv.pads[:-1], (0, 0)), dimension_numbers=specs)
    out = lax.reshape(out, (*out.shape[:-2], results * fold, outputs))
    out = lax.slice_in_dim(out, 0, conv.result[-1], axis=rank)
    return reorder(out, last, conv.out_spec)
