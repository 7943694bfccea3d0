"""Large windows of pooling on CPU: one dimension after the other, a sum of their sides' lengths for their product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["added", "chosen", "is_large", "one_by_one"]

_MOST_PLACES = 64  # what is not more is written out
_NAMES = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")


def is_large(window: Sequence[int]) -> bool:
    """Returns whether a window is too large to be written out place by place."""
    return math.prod(window) > _MOST_PLACES


def one_by_one(x: Any, primitive: Any, params: dict[str, Any]) -> Any:
    """Returns a sum or maximum over large windows of several dimensions, or None where there is no such window.

    Args:
      x: the values.
      primitive: JAX's ``reduce_window_sum`` or ``reduce_window_max``.
      params: its parameters.
    """
    window, pads = params["window_dimensions"], params["padding"]
    moving = [d for d in range(x.ndim) if window[d] > 1]
    if len(moving) < 2 or not is_large(window):
        return None
    others = [d for d in range(x.ndim) if d not in moving]
    if any(params[name][d] != 1 for name in _NAMES for d in others) or any(tuple(pads[d]) != (0, 0) for d in others):
        return None
    for d in moving:
        alone = {name: tuple(n if i == d else 1 for i, n in enumerate(params[name])) for name in _NAMES}
        x = primitive.bind(x, **alone, padding=tuple(tuple(p) if i == d else (0, 0) for i, p in enumerate(pads)))
    return x


def _winners(x: Any, params: dict[str, Any], lowest: Any) -> Any:
    """Returns for each window the index of its winner in the flattened array.

    The winner is the first of equal maxima, in the order of the array's dimensions: within a line, then of the lines.
    """
    window, strides, pads = params["window_dimensions"], params["window_strides"], params["padding"]
    index: Any = lax.reshape(lax.iota(np.int32, x.size), x.shape)
    for d in reversed(range(x.ndim)):
        if (window[d], strides[d], *pads[d]) == (1, 1, 0, 0):
            continue
        count = (x.shape[d] + sum(pads[d]) - window[d]) // strides[d] + 1
        # The first place inside the array leads, so that padding wins no window of nothing but minus infinity.
        first = np.maximum(np.arange(count) * strides[d] - pads[d][0], 0)
        start = tuple(jnp.take(a, first, axis=d, mode="clip") for a in (x, index))
        config = [(*pads[d], 0) if i == d else (0, 0, 0) for i in range(x.ndim)]
        values = lax.pad(x, lowest, config)
        places = lax.pad(index, np.int32(x.size), config)
        span = (count - 1) * strides[d] + 1

        # A loop: of places written out one after the other XLA would compute the dimension before anew for each.
        def step(
            place: Any, leader: Any, d: int = d, span: int = span, values: Any = values, places: Any = places
        ) -> Any:
            here = lax.convert_element_type(place, np.int32)  # JAX's own is wider in 64-bit mode
            value, where = (
                lax.slice_in_dim(lax.dynamic_slice_in_dim(a, here, span, d), 0, span, strides[d], d)
                for a in (values, places)
            )
            takes = lax.bitwise_not(lax.ge(leader[0], value))
            return lax.select(takes, value, leader[0]), lax.select(takes, where, leader[1])

        x, index = lax.fori_loop(np.int32(0), np.int32(window[d]), step, start)
    return index


def added(grad: Any, x: Any, params: dict[str, Any], lowest: Any) -> Any:
    """Returns ``x``'s gradient: to each value what the windows that it wins bring."""
    zeros = jnp.zeros((x.size,), grad.dtype)
    found = zeros.at[lax.reshape(_winners(x, params, lowest), (grad.size,))].add(grad.ravel(), mode="drop")
    return lax.reshape(found, x.shape)


def chosen(tangent: Any, x: Any, params: dict[str, Any], lowest: Any) -> Any:
    """Returns the tangents of the windows' winners."""
    return jnp.take(tangent.ravel(), _winners(x, params, lowest), mode="fill", fill_value=0)
