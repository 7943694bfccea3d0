"""How pooling and its gradients are written on CPU: sums and maxima over the places of a window, as shifted slices.

The rule, from measurements on two x86-64 cores (docs/performance.md): windows of at most 64 places are unrolled; a sum
over all that there is becomes a plain reduction; larger windows are JAX's ``reduce_window``, one dimension after the
other. The gradient of a maximum
first finds which place of each window wins, in XLA's order (the first of equal maxima), and then each phase of the
input adds up the windows that it won, which needs no scattering.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.conv.params import interleave

from . import large_windows
from .large_windows import is_large, one_by_one
from .rules import call, twin

__all__ = ["call", "max_on_cpu", "sum_on_cpu", "winners_on_cpu", "won_on_cpu"]

# Window, strides and padding, each with an entry for every dimension.
Where = tuple[Sequence[int], Sequence[int], Sequence[tuple[int, int]]]


def _pooled(shape: Sequence[Any], where: Where) -> list[int] | None:
    """Returns the dimensions that windows move along; None where the rule does not hold for them."""
    window, strides, pads = where
    dims = [d for d in range(len(shape)) if window[d] != 1 or strides[d] != 1 or tuple(pads[d]) != (0, 0)]
    numbers = [n for d in dims for n in (shape[d], *pads[d])]
    if not dims or not all(isinstance(n, int) for n in numbers) or any(shape[d] < 1 for d in dims):
        return None
    if any(p < 0 for d in dims for p in pads[d]) or is_large(window):
        return None
    return dims


def _counts(shape: Sequence[int], where: Where, dims: list[int]) -> list[int]:
    """Returns how many windows there are along each of ``dims``."""
    window, strides, pads = where
    return [(shape[d] + sum(pads[d]) - window[d]) // strides[d] + 1 for d in dims]


def _parts(x: Any, fill: Any, where: Where, dims: list[int]) -> Any:
    """Returns, for each place of the window, the values that the windows have there."""
    window, strides, pads = where
    counts = _counts(x.shape, where, dims)
    config = [(*pads[d], 0) for d in range(x.ndim)]
    padded = x if all(c == (0, 0, 0) for c in config) else lax.pad(x, fill, config)
    for place in itertools.product(*(range(window[d]) for d in dims)):
        part = padded
        for d, start, count in zip(dims, place, counts, strict=True):
            part = lax.slice_in_dim(part, start, start + (count - 1) * strides[d] + 1, strides[d], d)
        yield place, part


def _plain(params: dict[str, Any]) -> bool:
    return all(n == 1 for name in ("base_dilation", "window_dilation") for n in params.get(name, ()))


def _arguments(params: dict[str, Any]) -> Where:
    return params["window_dimensions"], params["window_strides"], params["padding"]


def _lowest(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def max_on_cpu(x: Any, **params: Any) -> Any:
    """Returns ``reduce_window_max``, or None to leave it alone."""
    where = _arguments(params)
    dims = _pooled(x.shape, where)
    if dims is None or not _plain(params) or min(_counts(x.shape, where, dims)) < 1 or x.dtype == np.bool_:
        return one_by_one(x, lax.reduce_window_max_p, params)
    total: Any = None
    for _, part in _parts(x, _lowest(x.dtype), where, dims):
        total = part if total is None else lax.max(total, part)
    return total


def sum_on_cpu(x: Any, **params: Any) -> Any:
    """Returns ``reduce_window_sum``, or None to leave it alone (half precision stays, for the sake of its rounding)."""
    window, strides, pads = where = _arguments(params)
    if jnp.issubdtype(x.dtype, jnp.inexact) and jnp.finfo(x.dtype).bits < 32:
        return None
    if _plain(params) and all(tuple(p) == (0, 0) for p in pads):
        moving = [d for d in range(x.ndim) if window[d] != 1 or strides[d] != 1]
        if moving and all(window[d] == x.shape[d] for d in moving):
            return lax.expand_dims(lax.reduce(x, np.zeros((), x.dtype), lax.add, moving), moving)
    if (found := one_by_one(x, lax.reduce_window_sum_p, params)) is not None:
        return found
    if any(n != 1 for n in params.get("window_dilation", ())):
        return None
    gaps = params["base_dilation"]
    if any(g != 1 for g in gaps):
        return _sum_of_spread(x, where, gaps)
    dims = _pooled(x.shape, where)
    if dims is None or min(_counts(x.shape, where, dims)) < 1:
        return None
    total: Any = None
    for _, part in _parts(x, np.zeros((), x.dtype), where, dims):
        total = part if total is None else lax.add(total, part)
    return total


def _shifted(x: Any, fill: Any, dims: Sequence[int], firsts: Sequence[int], counts: Sequence[int]) -> Any:
    """Returns ``counts`` values of each dimension from ``firsts`` on; outside is ``fill``."""
    config = [(0, 0, 0)] * x.ndim
    for d, first, count in zip(dims, firsts, counts, strict=True):
        config[d] = (-first, first + count - x.shape[d], 0)
    return x if all(c == (0, 0, 0) for c in config) else lax.pad(x, fill, config)


def _meetings(gap: int, window: int, low: int) -> list[list[tuple[int, int]]]:
    """For each phase of a result: the places of the window that meet values, and which value comes first there."""
    return [
        [(place, (phase + place - low) // gap) for place in range(window) if (phase + place - low) % gap == 0]
        for phase in range(gap)
    ]


def _sum_of_spread(x: Any, where: Where, gaps: Any) -> Any:
    """Adds up windows over values with gaps between: what the gradient of a sum over strided windows is."""
    window, strides, pads = where
    dims = [d for d in range(x.ndim) if window[d] != 1 or gaps[d] != 1 or tuple(pads[d]) != (0, 0)]
    numbers = [n for d in dims for n in (x.shape[d], *pads[d])]
    if not all(isinstance(n, int) for n in numbers) or any(s != 1 for s in strides):
        return None
    if is_large(window) or any(x.shape[d] < 1 for d in dims):
        return None
    sizes = [(x.shape[d] - 1) * gaps[d] + 1 + sum(pads[d]) - window[d] + 1 for d in dims]
    if min(sizes) < 1:
        return None
    counts = [-(-n // gaps[d]) for n, d in zip(sizes, dims, strict=True)]
    met = [_meetings(gaps[d], window[d], pads[d][0]) for d in dims]
    zero = np.zeros((), x.dtype)
    parts = []
    for phases in itertools.product(*met):
        total: Any = None
        for places in itertools.product(*phases):
            part = _shifted(x, zero, dims, [first for _, first in places], counts)
            total = part if total is None else lax.add(total, part)
        parts.append(lax.full(_resized(x.shape, dims, counts), zero) if total is None else total)
    return interleave(parts, dims, [gaps[d] for d in dims], sizes)


def _resized(shape: Sequence[Any], dims: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
    given = dict(zip(dims, sizes, strict=True))
    return tuple(given.get(d, n) for d, n in enumerate(shape))


# Which place of a window wins.


def _first_inside(shape: Any, where: Where, dims: list[int]) -> Any:
    """Returns the number of each window's first place inside the array, with size 1 along the other dimensions."""
    window, strides, pads = where
    number: Any = np.zeros((1,) * len(shape), np.int32)
    for d, count in zip(dims, _counts(shape, where, dims), strict=True):
        first = np.maximum(pads[d][0] - np.arange(count) * strides[d], 0).astype(np.int32)
        number = number * np.int32(window[d]) + first.reshape([-1 if i == d else 1 for i in range(len(shape))])
    return number


def _winners(x: Any, where: Where, dims: list[int]) -> Any:
    """Returns the number of each window's winning place.

    As XLA's ``select_and_scatter`` with ``>=``: places in order, and another one leads wherever the leader is not at
    least as large. The first place inside the array leads from the start, so that padding does not win a window of
    nothing but minus infinity.
    """
    shape = _resized(x.shape, dims, _counts(x.shape, where, dims))
    leader: Any = lax.full(shape, _lowest(x.dtype))
    winner: Any = jnp.broadcast_to(_first_inside(x.shape, where, dims), shape)
    for number, (_, part) in enumerate(_parts(x, _lowest(x.dtype), where, dims)):
        takes = lax.bitwise_not(lax.ge(leader, part))
        leader = lax.select(takes, part, leader)
        winner = lax.select(takes, lax.full(shape, np.int32(number)), winner)
    return winner


def _selecting(x: Any, select: Any, params: dict[str, Any]) -> list[int] | None:
    where = _arguments(params)
    dims = _pooled(x.shape, where)
    if dims is None or select is not lax.ge_p or not _plain(params) or min(_counts(x.shape, where, dims)) < 1:
        return None
    return dims if _hold_something(x.shape, where, dims) else None


def _hold_something(shape: Any, where: Where, dims: Sequence[int]) -> bool:
    """Whether each window holds something, so that no winner is padding."""
    window, strides, pads = where
    for d, count in zip(dims, _counts(shape, where, list(dims)), strict=True):
        starts = np.arange(count) * strides[d] - pads[d][0]
        if ((starts + window[d] <= 0) | (starts >= shape[d])).any():
            return False
    return True


def _is_large_selection(x: Any, select: Any, params: dict[str, Any]) -> bool:
    """Whether the winners of large windows can be found one dimension after the other."""
    where = window, _, pads = _arguments(params)
    if (
        select is not lax.ge_p
        or not _plain(params)
        or not is_large(window)
        or any(p < 0 for pair in pads for p in pair)
    ):
        return False
    if not all(isinstance(n, int) for n in x.shape) or not 0 < x.size < np.iinfo(np.int32).max:
        return False
    return min(_counts(x.shape, where, list(range(x.ndim)))) > 0 and _hold_something(x.shape, where, range(x.ndim))


def winners_on_cpu(tangent: Any, x: Any, *, select_prim: Any, **params: Any) -> Any:
    """Returns ``select_and_gather_add`` (the tangent of a maximum over windows), or None to leave it alone."""
    if _is_large_selection(x, select_prim, params):
        return large_windows.chosen(tangent, x, params, _lowest(x.dtype))
    dims = _selecting(x, select_prim, params)
    if dims is None:
        return None
    where = _arguments(params)
    winner = _winners(x, where, dims)
    zero = np.zeros((), tangent.dtype)
    total: Any = None
    for number, (_, part) in enumerate(_parts(tangent, zero, where, dims)):
        won = lax.select(lax.eq(winner, np.int32(number)), part, lax.full(part.shape, zero))
        total = won if total is None else lax.add(total, won)
    return total


def won_on_cpu(grad: Any, x: Any, *, select_prim: Any, **params: Any) -> Any:
    """Returns ``select_and_scatter_add`` (the gradient of a maximum over windows), or None to leave it alone."""
    if jnp.issubdtype(grad.dtype, jnp.inexact) and jnp.finfo(grad.dtype).bits < 32:
        return None
    if _is_large_selection(x, select_prim, params):
        return large_windows.added(grad, x, params, _lowest(x.dtype))
    dims = _selecting(x, select_prim, params)
    if dims is None:
        return None
    window, strides, pads = where = _arguments(params)
    winner = _winners(x, where, dims)
    sizes, gaps = [x.shape[d] for d in dims], [strides[d] for d in dims]
    counts = [-(-n // g) for n, g in zip(sizes, gaps, strict=True)]
    # Value i of a dimension lies in window o at place i + before - o * stride: in each phase the places go up by the
    # stride while the windows go down by one.
    met = [
        [[(p, (phase + pads[d][0] - p) // g) for p in range(window[d]) if (phase + pads[d][0] - p) % g == 0]
         for phase in range(g)]
        for d, g in zip(dims, gaps, strict=True)
    ]  # fmt: skip
    weights = [math.prod(window[e] for e in dims[i + 1 :]) for i in range(len(dims))]
    # What lies in the array or just outside of it, as far as any phase looks.
    seen = [[first for phase in phases for _, first in phase] for phases in met]
    lows = [min(firsts, default=0) for firsts in seen]
    spans = [max(f, default=0) + c - low for f, c, low in zip(seen, counts, lows, strict=True)]
    winner = _shifted(winner, np.int32(-1), dims, lows, spans)
    grad = _shifted(grad, np.zeros((), grad.dtype), dims, lows, spans)
    parts = []
    for phases in itertools.product(*met):
        first = [phase[0] if phase else (0, 0) for phase in phases]
        number = sum(p * w for (p, _), w in zip(first, weights, strict=True))
        steps = [g * w for g, w in zip(gaps, weights, strict=True)]
        starts = [f - low for (_, f), low in zip(first, lows, strict=True)]
        parts.append(_won_in_phase(grad, winner, dims, counts, starts, [len(p) for p in phases], number, steps))
    return interleave(parts, dims, gaps, sizes)


def _won_in_phase(
    grad: Any,
    winner: Any,
    dims: list[int],
    counts: list[int],
    starts: list[int],
    lengths: list[int],
    number: int,
    steps: list[int],
) -> Any:
    """Adds up what the values of one phase have won.

    A loop over the places, although each could be written out: XLA would compute the winner anew for each of them.

    Args:
      grad: of the windows' results.
      winner: the numbers of the winning places.
      dims: what windows move along; what follows has an entry for each.
      counts: how many values the phase has.
      starts: the windows in which the values lie at their first places; at further ones they lie in earlier windows.
      lengths: how many places there are.
      number: of the first place.
      steps: by how much the number grows from place to place.
    """
    shape = _resized(grad.shape, dims, counts)
    zeros = lax.full(shape, np.zeros((), grad.dtype))

    def add(index: Any, total: Any) -> Any:
        firsts: list[Any] = [np.int32(0)] * grad.ndim
        here, rest = np.int32(number), lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        for d, start, length, step in reversed(list(zip(dims, starts, lengths, steps, strict=True))):
            place = lax.rem(rest, np.int32(length))
            rest = lax.div(rest, np.int32(length))
            firsts[d] = np.int32(start) - place
            here = here + place * np.int32(step)
        wins = lax.eq(lax.dynamic_slice(winner, firsts, shape), here)
        return lax.add(total, lax.select(wins, lax.dynamic_slice(grad, firsts, shape), zeros))

    places = math.prod(lengths)
    if places <= 1:
        return add(np.int32(0), zeros) if places else zeros
    return lax.fori_loop(np.int32(0), np.int32(places), add, zeros)


twin(lax.reduce_window_max_p, max_on_cpu)
twin(lax.reduce_window_sum_p, sum_on_cpu)
twin(lax.select_and_gather_add_p, winners_on_cpu)
twin(lax.select_and_scatter_add_p, won_on_cpu)
