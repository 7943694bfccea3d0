"""Pooling and its gradients on CPU: sums and maxima of shifted slices.

From measurements on two x86-64 cores (benchmarks/pages/performance.md): windows of at most 64 taps are unrolled; larger
ones are JAX's ``reduce_window``, one dimension after the other (`large_windows`). The gradient of a maximum first finds
the argmax of each window, in XLA's order (the first of equal maxima); then each phase of the input adds up the
cotangents of the windows whose argmax it is, which needs no scatter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.convolutions import interleave, taps

from . import cost_model, large_windows
from .large_windows import is_large
from .rules import Rule, by_table, with_cpu_rules

# Window, strides and padding, each with an entry for every dimension.
Windows = tuple[Sequence[int], Sequence[int], Sequence[tuple[int, int]]]


def _windows(params: dict[str, Any]) -> Windows:
    return params["window_dimensions"], params["window_strides"], params["padding"]


def _is_undilated(params: dict[str, Any]) -> bool:
    return all(n == 1 for name in ("base_dilation", "window_dilation") for n in params.get(name, ()))


def _dims(shape: Sequence[Any], windows: Windows) -> list[int]:
    """Return the dimensions that windows move along, or are padded in."""
    window, strides, pads = windows
    return [d for d in range(len(shape)) if window[d] != 1 or strides[d] != 1 or tuple(pads[d]) != (0, 0)]


def _is_unrolled(shape: Sequence[Any], windows: Windows) -> bool:
    """Return whether windows are small, static, without negative padding."""
    window, _, pads = windows
    dims = _dims(shape, windows)
    numbers = [n for d in dims for n in (shape[d], *pads[d])]
    if not dims or not all(isinstance(n, int) for n in numbers) or any(shape[d] < 1 for d in dims):
        return False
    if any(p < 0 for d in dims for p in pads[d]) or is_large(window):
        return False
    return min(_counts(shape, windows, dims)) >= 1


def _counts(shape: Sequence[int], windows: Windows, dims: Sequence[int]) -> list[int]:
    """Return the number of windows along each of ``dims``."""
    window, strides, pads = windows
    return [(shape[d] + sum(pads[d]) - window[d]) // strides[d] + 1 for d in dims]


def _pays(shape: Sequence[Any], windows: Windows) -> bool:
    """Return whether unrolled windows save their compile time in some calls."""
    window, strides, _ = windows
    dims = _dims(shape, windows)
    count = math.prod(window[d] for d in dims)
    sizes = dict(zip(dims, _counts(shape, windows, dims), strict=True))
    values = count * math.prod(n for n in (sizes.get(d, n) for d, n in enumerate(shape)) if isinstance(n, int))
    overlap = count >= cost_model.POOL_MIN_OVERLAP * math.prod(strides)
    return overlap and values >= cost_model.POOL_MIN_VALUES


def _slices(x: Any, fill: Any, windows: Windows) -> Iterator[Any]:
    """Yield, for each tap, the windows' values there."""
    window, strides, pads = windows
    dims = _dims(x.shape, windows)
    counts = _counts(x.shape, windows, dims)
    config = [(*pads[d], 0) for d in range(x.ndim)]
    padded = x if all(c == (0, 0, 0) for c in config) else lax.pad(x, fill, config)
    for tap in taps([window[d] for d in dims]):
        part = padded
        for d, start, count in zip(dims, tap, counts, strict=True):
            part = lax.slice_in_dim(part, start, start + (count - 1) * strides[d] + 1, strides[d], d)
        yield part


def _lowest(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def _is_half(x: Any) -> bool:
    """Return whether values are half precision, summed by XLA for its rounding."""
    return bool(jnp.issubdtype(x.dtype, jnp.inexact)) and jnp.finfo(x.dtype).bits < 32


# Maxima and sums.


def _is_max_of_slices(x: Any, **params: Any) -> bool:
    windows = _windows(params)
    return x.dtype != np.bool_ and _is_undilated(params) and _is_unrolled(x.shape, windows) and _pays(x.shape, windows)


def _max_of_slices(x: Any, **params: Any) -> Any:
    total: Any = None
    for part in _slices(x, _lowest(x.dtype), _windows(params)):
        total = part if total is None else lax.max(total, part)
    return total


def _is_separable_sum(x: Any, **params: Any) -> bool:
    return not _is_half(x) and large_windows.is_separable(x, params)


def _is_sum_of_slices(x: Any, **params: Any) -> bool:
    windows = _windows(params)
    unrolled = _is_undilated(params) and _is_unrolled(x.shape, windows)
    return not _is_half(x) and unrolled and _pays(x.shape, windows)


def _sum_of_slices(x: Any, **params: Any) -> Any:
    total: Any = None
    for part in _slices(x, np.zeros((), x.dtype), _windows(params)):
        total = part if total is None else lax.add(total, part)
    return total


def _shifted(x: Any, fill: Any, dims: Sequence[int], firsts: Sequence[int], counts: Sequence[int]) -> Any:
    """Return ``counts`` values from ``firsts``; outside is ``fill``."""
    config = [(0, 0, 0)] * x.ndim
    for d, first, count in zip(dims, firsts, counts, strict=True):
        config[d] = (-first, first + count - x.shape[d], 0)
    return x if all(c == (0, 0, 0) for c in config) else lax.pad(x, fill, config)


def _phases(dilation: int, window: int, low: int) -> list[list[tuple[int, int]]]:
    """Return each result phase's taps, with their first value's index."""
    return [
        [(tap, (phase + tap - low) // dilation) for tap in range(window) if (phase + tap - low) % dilation == 0]
        for phase in range(dilation)
    ]


def _dilated_dims(x: Any, params: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return dimensions with windows, dilation or padding, and result sizes."""
    (window, _, pads), dilation = _windows(params), params["base_dilation"]
    dims = [d for d in range(x.ndim) if window[d] != 1 or dilation[d] != 1 or tuple(pads[d]) != (0, 0)]
    return dims, [(x.shape[d] - 1) * dilation[d] + 1 + sum(pads[d]) - window[d] + 1 for d in dims]


def _is_dilated_sum(x: Any, **params: Any) -> bool:
    window, strides, pads = _windows(params)
    if _is_half(x) or all(n == 1 for n in params["base_dilation"]) or any(n != 1 for n in params["window_dilation"]):
        return False
    dims, sizes = _dilated_dims(x, params)
    numbers = [n for d in dims for n in (x.shape[d], *pads[d])]
    if not all(isinstance(n, int) for n in numbers) or any(s != 1 for s in strides):
        return False
    return not is_large(window) and all(x.shape[d] >= 1 for d in dims) and min(sizes) >= 1


def _dilated_sum(x: Any, **params: Any) -> Any:
    """Sum windows with base dilation: the gradient of a strided sum."""
    (window, _, pads), dilation = _windows(params), params["base_dilation"]
    dims, sizes = _dilated_dims(x, params)
    counts = [-(-n // dilation[d]) for n, d in zip(sizes, dims, strict=True)]
    zero = np.zeros((), x.dtype)
    parts = []
    for phases in itertools.product(*(_phases(dilation[d], window[d], pads[d][0]) for d in dims)):
        total: Any = None
        for met in itertools.product(*phases):
            part = _shifted(x, zero, dims, [first for _, first in met], counts)
            total = part if total is None else lax.add(total, part)
        parts.append(lax.full(_resized(x.shape, dims, counts), zero) if total is None else total)
    return interleave(parts, dims, [dilation[d] for d in dims], sizes)


def _resized(shape: Sequence[Any], dims: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
    given = dict(zip(dims, sizes, strict=True))
    return tuple(given.get(d, n) for d, n in enumerate(shape))


# The tangent and the gradient of a maximum: by the argmax of each window.


def _first_inside(shape: Any, windows: Windows) -> Any:
    """Return each window's first tap inside, with unit other dimensions."""
    window, strides, pads = windows
    dims = _dims(shape, windows)
    number: Any = np.zeros((1,) * len(shape), np.int32)
    for d, count in zip(dims, _counts(shape, windows, dims), strict=True):
        first = np.maximum(pads[d][0] - np.arange(count) * strides[d], 0).astype(np.int32)
        number = number * np.int32(window[d]) + first.reshape([-1 if i == d else 1 for i in range(len(shape))])
    return number


def _argmax(x: Any, windows: Windows) -> Any:
    """Return the number of the tap that is each window's argmax.

    As XLA's ``select_and_scatter`` with ``>=``: in the order of taps, another one is the argmax wherever the present
    one is not at least as large. It starts with the first tap inside the array, so that padding is not the argmax of a
    window of nothing but minus infinity.
    """
    dims = _dims(x.shape, windows)
    shape = _resized(x.shape, dims, _counts(x.shape, windows, dims))
    best: Any = lax.full(shape, _lowest(x.dtype))
    argmax: Any = jnp.broadcast_to(_first_inside(x.shape, windows), shape)
    for number, part in enumerate(_slices(x, _lowest(x.dtype), windows)):
        is_larger = lax.bitwise_not(lax.ge(best, part))
        best = lax.select(is_larger, part, best)
        argmax = lax.select(is_larger, lax.full(shape, np.int32(number)), argmax)
    return argmax


def _reach_inside(shape: Any, windows: Windows) -> bool:
    """Return whether each window reaches inside, so that no argmax is padding."""
    window, strides, pads = windows
    dims = list(range(len(shape)))
    for d, count in zip(dims, _counts(shape, windows, dims), strict=True):
        starts = np.arange(count) * strides[d] - pads[d][0]
        if ((starts + window[d] <= 0) | (starts >= shape[d])).any():
            return False
    return True


def _has_argmax(x: Any, select: Any, params: dict[str, Any]) -> bool:
    windows = window, strides, pads = _windows(params)
    if select is not lax.ge_p or not _is_undilated(params) or not _is_unrolled(x.shape, windows):
        return False
    dims = _dims(x.shape, windows)
    along = [window[d] for d in dims], [strides[d] for d in dims], [pads[d] for d in dims]
    return _reach_inside([x.shape[d] for d in dims], along)


def _has_argmax_by_dimension(x: Any, select: Any, params: dict[str, Any]) -> bool:
    """Return whether large windows' argmax can go dimension by dimension."""
    windows = window, _, pads = _windows(params)
    if select is not lax.ge_p or not _is_undilated(params) or not is_large(window):
        return False
    if any(p < 0 for pair in pads for p in pair) or not all(isinstance(n, int) for n in x.shape):
        return False
    if not 0 < x.size < np.iinfo(np.int32).max:
        return False
    return min(_counts(x.shape, windows, list(range(x.ndim)))) > 0 and _reach_inside(x.shape, windows)


def _is_tangent(tangent: Any, x: Any, *, select_prim: Any, **params: Any) -> bool:
    return _has_argmax(x, select_prim, params)


def _tangent(tangent: Any, x: Any, *, select_prim: Any, **params: Any) -> Any:
    windows = _windows(params)
    argmax, zero = _argmax(x, windows), np.zeros((), tangent.dtype)
    total: Any = None
    for number, part in enumerate(_slices(tangent, zero, windows)):
        own = lax.select(lax.eq(argmax, np.int32(number)), part, lax.full(part.shape, zero))
        total = own if total is None else lax.add(total, own)
    return total


def _is_large_tangent(tangent: Any, x: Any, *, select_prim: Any, **params: Any) -> bool:
    return _has_argmax_by_dimension(x, select_prim, params)


def _large_tangent(tangent: Any, x: Any, *, select_prim: Any, **params: Any) -> Any:
    return large_windows.tangent_at_argmax(tangent, x, params, _lowest(x.dtype))


def _is_gradient(grad: Any, x: Any, *, select_prim: Any, **params: Any) -> bool:
    return not _is_half(grad) and _has_argmax(x, select_prim, params)


def _is_large_gradient(grad: Any, x: Any, *, select_prim: Any, **params: Any) -> bool:
    return not _is_half(grad) and _has_argmax_by_dimension(x, select_prim, params)


def _large_gradient(grad: Any, x: Any, *, select_prim: Any, **params: Any) -> Any:
    return large_windows.gradient_at_argmax(grad, x, params, _lowest(x.dtype))


def _gradient(grad: Any, x: Any, *, select_prim: Any, **params: Any) -> Any:
    window, strides, pads = windows = _windows(params)
    dims = _dims(x.shape, windows)
    argmax = _argmax(x, windows)
    sizes, steps = [x.shape[d] for d in dims], [strides[d] for d in dims]
    counts = [-(-n // g) for n, g in zip(sizes, steps, strict=True)]
    # Value i of a dimension is in window o at tap i + before - o * stride: in each phase the taps go up by the stride
    # while the windows go down by one.
    met = [
        [[(t, (phase + pads[d][0] - t) // g) for t in range(window[d]) if (phase + pads[d][0] - t) % g == 0]
         for phase in range(g)]
        for d, g in zip(dims, steps, strict=True)
    ]  # fmt: skip
    weights = [math.prod(window[e] for e in dims[i + 1 :]) for i in range(len(dims))]
    # The windows in the array, or just outside of it, that any phase reads.
    read = [[first for phase in phases for _, first in phase] for phases in met]
    lows = [min(firsts, default=0) for firsts in read]
    spans = [max(f, default=0) + c - low for f, c, low in zip(read, counts, lows, strict=True)]
    argmax = _shifted(argmax, np.int32(-1), dims, lows, spans)
    grad = _shifted(grad, np.zeros((), grad.dtype), dims, lows, spans)
    parts = []
    for phases in itertools.product(*met):
        first = [phase[0] if phase else (0, 0) for phase in phases]
        number = sum(t * w for (t, _), w in zip(first, weights, strict=True))
        increments = [g * w for g, w in zip(steps, weights, strict=True)]
        starts = [f - low for (_, f), low in zip(first, lows, strict=True)]
        lengths = [len(p) for p in phases]
        parts.append(_gradient_of_phase(grad, argmax, dims, counts, starts, lengths, number, increments))
    return interleave(parts, dims, steps, sizes)


def _gradient_of_phase(
    grad: Any,
    argmax: Any,
    dims: list[int],
    counts: list[int],
    starts: list[int],
    lengths: list[int],
    number: int,
    increments: list[int],
) -> Any:
    """Add up the cotangents of the windows whose argmax the values of one phase are.

    A loop over the taps, although they could be unrolled: XLA would recompute the argmax for each of them.

    Args:
      grad: the cotangents of the windows' results.
      argmax: the numbers of the windows' taps.
      dims: the windows' dimensions; the next arguments have an entry for each.
      counts: the number of values of the phase.
      starts: the windows in which the values are at their first taps; at further ones they are in earlier windows.
      lengths: the number of taps.
      number: of the first tap.
      increments: of the number from tap to tap.
    """
    shape = _resized(grad.shape, dims, counts)
    zeros = lax.full(shape, np.zeros((), grad.dtype))

    def add(index: Any, total: Any) -> Any:
        firsts: list[Any] = [np.int32(0)] * grad.ndim
        here, rest = np.int32(number), lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        for d, start, length, step in reversed(list(zip(dims, starts, lengths, increments, strict=True))):
            tap = lax.rem(rest, np.int32(length))
            rest = lax.div(rest, np.int32(length))
            firsts[d] = np.int32(start) - tap
            here = here + tap * np.int32(step)
        own = lax.eq(lax.dynamic_slice(argmax, firsts, shape), here)
        return lax.add(total, lax.select(own, lax.dynamic_slice(grad, firsts, shape), zeros))

    count = math.prod(lengths)
    if count <= 1:
        return add(np.int32(0), zeros) if count else zeros
    return lax.fori_loop(np.int32(0), np.int32(count), add, zeros)


_SEPARABLE = "Too many taps to unroll: their number is the sum of the window's sides, not the product."
_SLICES = "XLA computes windows one by one; shifted slices vectorize over channels."

MAX_RULES = (
    Rule("max_pool_of_slices", _is_max_of_slices, _max_of_slices, _SLICES),
    Rule(
        "pool_by_dimension",
        lambda x, **params: large_windows.is_separable(x, params),
        lambda x, **params: large_windows.by_dimension(x, lax.reduce_window_max_p, params),
        _SEPARABLE,
    ),
)
SUM_RULES = (
    Rule(
        "pool_by_dimension",
        _is_separable_sum,
        lambda x, **params: large_windows.by_dimension(x, lax.reduce_window_sum_p, params),
        _SEPARABLE,
    ),
    Rule(
        "sum_pool_dilated",
        _is_dilated_sum,
        _dilated_sum,
        "Gradient of strided windows: XLA adds up the zeros between values; each phase meets some taps only.",
    ),
    Rule("sum_pool_of_slices", _is_sum_of_slices, _sum_of_slices, _SLICES),
)
TANGENT_RULES = (
    Rule("max_pool_tangent_by_dimension", _is_large_tangent, _large_tangent, _SEPARABLE),
    Rule("max_pool_tangent", _is_tangent, _tangent, "XLA compares pairs of value and tangent one window at a time."),
)
GRADIENT_RULES = (
    Rule("max_pool_gradient_by_dimension", _is_large_gradient, _large_gradient, _SEPARABLE),
    Rule("max_pool_gradient", _is_gradient, _gradient, "XLA scatters one window after the other, in one thread."),
)

with_cpu_rules(lax.reduce_window_max_p, by_table(MAX_RULES))
with_cpu_rules(lax.reduce_window_sum_p, by_table(SUM_RULES))
with_cpu_rules(lax.select_and_gather_add_p, by_table(TANGENT_RULES))
with_cpu_rules(lax.select_and_scatter_add_p, by_table(GRADIENT_RULES))
