"""Pooling of large windows on CPU, dimension by dimension.

The cost is the sum of the sides' lengths, not their product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from . import cost_model

_NAMES = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")


def is_large(window: Sequence[int]) -> bool:
    """Return whether a window has too many taps to unroll."""
    return math.prod(window) > cost_model.POOL_MAX_UNROLLED_TAPS


def _moving(x: Any, params: dict[str, Any]) -> list[int]:
    return [d for d in range(x.ndim) if params["window_dimensions"][d] > 1]


def is_separable(x: Any, params: dict[str, Any]) -> bool:
    """Return whether a sum or maximum is one over large windows of several dimensions.

    Args:
      x: the values.
      params: of JAX's ``reduce_window_sum`` or ``reduce_window_max``.
    """
    window, pads, moving = params["window_dimensions"], params["padding"], _moving(x, params)
    if len(moving) < 2 or not is_large(window):
        return False
    others = [d for d in range(x.ndim) if d not in moving]
    return all(params[name][d] == 1 for name in _NAMES for d in others) and all(
        tuple(pads[d]) == (0, 0) for d in others
    )


def by_dimension(x: Any, primitive: Any, params: dict[str, Any]) -> Any:
    """Return a sum or maximum for which `is_separable` holds.

    Args:
      x: the values.
      primitive: JAX's ``reduce_window_sum`` or ``reduce_window_max``.
      params: its parameters.
    """
    pads = params["padding"]
    for d in _moving(x, params):
        along = {name: tuple(n if i == d else 1 for i, n in enumerate(params[name])) for name in _NAMES}
        x = primitive.bind(x, **along, padding=tuple(tuple(p) if i == d else (0, 0) for i, p in enumerate(pads)))
    return x


def _argmax(x: Any, params: dict[str, Any], lowest: Any) -> Any:
    """Return for each window the index of its argmax in the flattened array.

    Of equal maxima the first, in the order of the array's dimensions: within a line, then of the lines.
    """
    window, strides, pads = params["window_dimensions"], params["window_strides"], params["padding"]
    index: Any = lax.reshape(lax.iota(np.int32, x.size), x.shape)
    for d in reversed(range(x.ndim)):
        if (window[d], strides[d], *pads[d]) == (1, 1, 0, 0):
            continue
        count = (x.shape[d] + sum(pads[d]) - window[d]) // strides[d] + 1
        # Start with the first tap inside the array: padding is no argmax, not even of minus infinities.
        first = np.maximum(np.arange(count) * strides[d] - pads[d][0], 0)
        start = tuple(jnp.take(a, first, axis=d, mode="clip") for a in (x, index))
        config = [(*pads[d], 0) if i == d else (0, 0, 0) for i in range(x.ndim)]
        values = lax.pad(x, lowest, config)
        indices = lax.pad(index, np.int32(x.size), config)
        span = (count - 1) * strides[d] + 1

        # A loop: with unrolled taps XLA would recompute the dimension before for each.
        def step(
            tap: Any, best: Any, d: int = d, span: int = span, values: Any = values, indices: Any = indices
        ) -> Any:
            here = lax.convert_element_type(tap, np.int32)  # JAX's own is wider in 64-bit mode
            value, where = (
                lax.slice_in_dim(lax.dynamic_slice_in_dim(a, here, span, d), 0, span, strides[d], d)
                for a in (values, indices)
            )
            is_larger = lax.bitwise_not(lax.ge(best[0], value))
            return lax.select(is_larger, value, best[0]), lax.select(is_larger, where, best[1])

        x, index = lax.fori_loop(np.int32(0), np.int32(window[d]), step, start)
    return index


def gradient_at_argmax(grad: Any, x: Any, params: dict[str, Any], lowest: Any) -> Any:
    """Return each value's sum over the windows whose argmax it is."""
    zeros = jnp.zeros((x.size,), grad.dtype)
    out = zeros.at[lax.reshape(_argmax(x, params, lowest), (grad.size,))].add(grad.ravel(), mode="drop")
    return lax.reshape(out, x.shape)


def tangent_at_argmax(tangent: Any, x: Any, params: dict[str, Any], lowest: Any) -> Any:
    """Return the tangents of the windows' argmax."""
    return jnp.take(tangent.ravel(), _argmax(x, params, lowest), mode="fill", fill_value=0)
