"""Convolutions of few channels with rows folded into them (space-to-depth).

XLA computes sixteen output channels at once, however few there are. With ``fold`` neighbors as channels, which needs no
transposition, a convolution has so many times the channels, and a kernel with a band of weights for each neighbor: some
products are with zeros, but no lane is unused. One difference: a value that is not finite reaches the results of all
neighbors that read its position, as its product with zero is NaN. ``precision=jax.lax.Precision.HIGHEST`` therefore
keeps the direct convolution.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, pad, reorder
from tf2jax_lite.xla_cpu import cost_model

from .channels_last import convolve_directly


def _fold(conv: ConvParams) -> int:
    """Return how many neighbors fold into one position; 1 for none."""
    few = next((outputs for channels, outputs in cost_model.FOLD_OUTPUTS if conv.in_channels <= channels), 0)
    most = min(few // conv.out_channels, cost_model.FOLD_MAX, conv.result[-1])
    return 1 << max(most, 1).bit_length() - 1


def is_folded(conv: ConvParams) -> bool:
    """Return whether a float32 convolution folds neighbors."""
    is_exact = lax.Precision.HIGHEST in (conv.precision if isinstance(conv.precision, tuple) else (conv.precision,))
    if conv.dtype != np.float32 or conv.has_lhs_dilation or is_exact:
        return False
    if (
        not isinstance(conv.in_channels, int)
        or conv.window[-1] == 1
        or conv.strides[-1] > 1
        or conv.rhs_dilation[-1] > 1
    ):
        return False
    return conv.products >= cost_model.FOLD_MIN_PRODUCTS and _fold(conv) > 1


def folded(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution with neighbors of its last dimension as channels."""
    rank, fold = conv.rank, _fold(conv)
    last = (0, rank + 1, *range(1, rank + 1))
    values = reorder(lhs, conv.lhs_spec, last)
    kernel = reorder(rhs, conv.rhs_spec, (rank + 1, rank, *range(rank)))
    window, (before, _) = conv.window[-1], conv.pads[-1]
    span = -(-(fold - 1 + window) // fold)  # folded positions that the windows of all neighbors reach over
    results = -(-conv.result[-1] // fold)
    values = pad(values, (rank,), ((before, (results + span - 1) * fold - before - conv.sizes[-1]),))
    values = lax.reshape(values, (*values.shape[:rank], results + span - 1, fold * values.shape[-1]))
    bands = [pad(kernel, (rank - 1,), ((i, span * fold - window - i),)) for i in range(fold)]
    kernel = lax.reshape(jnp.stack(bands, -2), (*conv.window[:-1], span, values.shape[-1], fold * kernel.shape[-1]))
    specs = lax.ConvDimensionNumbers(last, (rank + 1, rank, *range(rank)), last)
    out = convolve_directly(values, kernel, conv, padding=(*conv.pads[:-1], (0, 0)), dimension_numbers=specs)
    out = lax.reshape(out, (*out.shape[:-2], results * fold, out.shape[-1] // fold))
    return reorder(lax.slice_in_dim(out, 0, conv.result[-1], axis=rank), last, conv.out_spec)
