"""Convolutions of groups of channels on CPU: windows laid side by side, and one matrix product for each group.

XLA takes the groups of a gradient by the filter for one large convolution most of whose products are thrown away, and
is slow where a group has few channels. Here the groups are the batch of matrix products. Windows are laid side by side
strip by strip of the results, so that they stay near the processor; in arrays here groups come first, channels last.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .once import once
from .spelling_layout import Conv, cut, pad, place_of, respec, transposed

__all__ = ["grouped", "grouped_filter"]

_MOST_LAID_OUT = 1 << 20  # values of windows at a time
_MOST_COLUMNS = 1 << 12  # values of a window: with more each of its places has a product of its own
_ZERO = np.int32(0)


@dataclasses.dataclass(frozen=True)
class _Moves:
    """How windows move over an image: their results' and their own places, and the steps between these."""

    results: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    rates: tuple[int, ...]

    def spans(self, results: Sequence[int]) -> list[int]:
        """Returns how much of the image so many results read."""
        ends = [(k - 1) * r + 1 for k, r in zip(self.window, self.rates, strict=True)]
        return [(n - 1) * s + end for n, s, end in zip(results, self.strides, ends, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Strips:
    """A division of all results, images and places, into equal parts; what is added to make them equal is dropped."""

    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def whole(self) -> tuple[int, ...]:
        return tuple(c * s for c, s in zip(self.counts, self.sizes, strict=True))

    def first(self, index: Any) -> list[Any]:
        """Returns the first image and place of a strip."""
        return place_of(index, self.counts, self.sizes)


def _strips(images: int, channels: int, moves: _Moves) -> _Strips:
    sizes = [1, *moves.results]
    image = math.prod(moves.results) * math.prod(moves.window) * channels
    if image <= _MOST_LAID_OUT:
        sizes[0] = min(images, _MOST_LAID_OUT // image)
    else:
        longest = max(range(len(moves.results)), key=lambda d: moves.results[d])
        parts = min(-(-image // _MOST_LAID_OUT), moves.results[longest])
        sizes[1 + longest] = -(-moves.results[longest] // parts)
    counts = (-(-n // s) for n, s in zip((images, *moves.results), sizes, strict=True))
    return _Strips(tuple(sizes), tuple(counts))


def _in_front(x: Any, groups: int) -> Any:
    """Returns ``x`` with the groups of its last dimension in front."""
    split = lax.reshape(x, (*x.shape[:-1], groups, x.shape[-1] // groups))
    return once(transposed(split, (split.ndim - 2, *range(split.ndim - 2), split.ndim - 1)))


def _behind(x: Any) -> Any:
    """Returns ``x`` with its first dimension, the groups, before its last, in one."""
    moved = transposed(x, (*range(1, x.ndim - 1), 0, x.ndim - 1))
    return lax.reshape(moved, (*moved.shape[:-2], moved.shape[-2] * moved.shape[-1]))


def _padded(x: Any, whole: Sequence[int]) -> Any:
    """Returns ``x`` with zeros, or less, behind its first dimensions, so that these have such sizes."""
    return pad(x, range(len(whole)), [(0, want - n) for want, n in zip(whole, x.shape, strict=False)])


def _image(lhs: Any, specs: Sequence[int], conv: Conv, groups: int, strips: _Strips, moves: _Moves) -> Any:
    """Returns what is read, ``[groups, images, places..., channels]``, padded for whole strips."""
    places = range(1, len(conv.window) + 1)
    x = respec(lhs, specs, (0, len(conv.window) + 1, *places))
    x = _padded(pad(x, places, conv.pads, conv.gaps), (strips.whole[0], *moves.spans(strips.whole[1:])))
    return _in_front(x, groups)


def _read(x: Any, strips: _Strips, moves: _Moves, first: Sequence[Any], shift: Sequence[Any]) -> Any:
    """Returns the values that one place of each window of a strip reads: ``[groups, images, places..., channels]``."""
    at = [f * np.int32(s) + t for f, s, t in zip(first[1:], moves.strides, shift, strict=True)]
    sizes = strips.sizes[1:]
    spans = [(n - 1) * s + 1 for n, s in zip(sizes, moves.strides, strict=True)]
    part = lax.dynamic_slice(x, (_ZERO, first[0], *at, _ZERO), (x.shape[0], strips.sizes[0], *spans, x.shape[-1]))
    return cut(part, range(2, part.ndim - 1), [0] * len(sizes), sizes, moves.strides)


def _windows(x: Any, strips: _Strips, moves: _Moves, index: Any) -> Any:
    """Returns ``[groups, results, places of a window * channels]`` of a strip; a loop, which compiles fast."""
    first, count = strips.first(index), math.prod(moves.window)
    rows = math.prod(strips.sizes)

    def put(place: Any, laid: Any) -> Any:
        place = lax.convert_element_type(place, np.int32)  # JAX's own is wider in 64-bit mode
        part = _read(x, strips, moves, first, place_of(place, moves.window, moves.rates))
        part = lax.reshape(part, (x.shape[0], rows, 1, x.shape[-1]))
        return lax.dynamic_update_slice(laid, part, (_ZERO, _ZERO, place, _ZERO))

    laid = lax.fori_loop(_ZERO, np.int32(count), put, jnp.zeros((x.shape[0], rows, count, x.shape[-1]), x.dtype))
    return lax.reshape(laid, (x.shape[0], rows, count * x.shape[-1]))


def _product(a: Any, b: Any, contract: tuple[int, int], conv: Conv, wide: Any) -> Any:
    numbers = (((contract[0],), (contract[1],)), ((0,), (0,)))
    return lax.dot_general(a, b, numbers, precision=conv.precision, preferred_element_type=wide)


def _each(count: int, step: Callable[[Any], Any]) -> Any:
    """Returns the results of steps, stacked."""
    if count == 1:
        return step(_ZERO)[None]

    def put(index: Any, results: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)
        return lax.dynamic_update_index_in_dim(results, step(index), index, 0)

    one = jax.eval_shape(step, _ZERO)
    return lax.fori_loop(_ZERO, np.int32(count), put, jnp.zeros((count, *one.shape), one.dtype))


def grouped(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution with groups of features.

    Args:
      lhs: the values.
      rhs: the kernel.
      conv: the convolution; all sizes are known.
      wide: the dtype of sums.
    """
    rank, outputs = len(conv.window), rhs.shape[conv.rhs[0]]
    moves = _Moves(conv.result, conv.window, conv.strides, conv.rates)
    strips = _strips(lhs.shape[conv.lhs[0]], lhs.shape[conv.lhs[1]], moves)
    x = _image(lhs, conv.lhs, conv, conv.groups, strips, moves)
    kernel = transposed(rhs, (*conv.rhs[2:], conv.rhs[1], conv.rhs[0]))
    kernel = _in_front(lax.reshape(kernel, (math.prod(kernel.shape[:-1]), outputs)), conv.groups)
    found = _each(
        math.prod(strips.counts), lambda i: _product(_windows(x, strips, moves, i), kernel, (2, 1), conv, wide)
    )
    # [strips..., groups, in a strip..., outputs] becomes [groups, images, places..., outputs].
    found = lax.reshape(found, (*strips.counts, conv.groups, *strips.sizes, found.shape[-1]))
    order = [d for i in range(rank + 1) for d in (i, rank + 2 + i)]
    found = transposed(found, (rank + 1, *order, found.ndim - 1))
    found = _behind(lax.reshape(found, (conv.groups, *strips.whole, found.shape[-1])))
    found = _padded(found, (lhs.shape[conv.lhs[0]], *conv.result))
    return respec(found, (0, rank + 1, *range(1, rank + 1)), conv.out)


def grouped_filter(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Returns a convolution with groups of the batch: the gradient of `grouped` by its filter.

    Its "batch" is the channels, its "features" the examples, its "kernel" the gradient of the output and its results
    the places of the filter.

    Args:
      lhs: the values.
      rhs: the gradient of the output.
      conv: the convolution; all sizes are known.
      wide: the dtype of sums.
    """
    rank, groups = len(conv.window), conv.batch_groups
    channels = lhs.shape[conv.lhs[0]] // groups
    moves = _Moves(conv.window, conv.result, conv.rates, conv.strides)
    images = lhs.shape[conv.lhs[1]]
    many = math.prod(conv.result) * channels > _MOST_COLUMNS
    whole = _Strips((images, *conv.window), (1,) * (rank + 1))
    strips = whole if many else _strips(images, channels * groups, moves)
    x = _image(lhs, (conv.lhs[1], conv.lhs[0], *conv.lhs[2:]), conv, groups, strips, moves)
    grad = respec(rhs, (conv.rhs[1], conv.rhs[0], *conv.rhs[2:]), (0, rank + 1, *range(1, rank + 1)))
    grad = _in_front(_padded(grad, strips.whole), groups)
    rows, outputs = math.prod(strips.sizes), grad.shape[-1]

    def of_place(index: Any) -> Any:
        part = _read(x, strips, moves, [_ZERO] * (rank + 1), place_of(index, moves.window, moves.rates))
        return _product(
            lax.reshape(part, (groups, rows, channels)), lax.reshape(grad, (groups, rows, outputs)), (1, 1), conv, wide
        )

    def of_strip(index: Any) -> Any:
        part = lax.dynamic_slice(grad, (_ZERO, *strips.first(index), _ZERO), (groups, *strips.sizes, outputs))
        part = lax.reshape(part, (groups, rows, outputs))
        return _product(_windows(x, strips, moves, index), part, (1, 1), conv, wide)

    if many:
        found = jnp.moveaxis(_each(math.prod(conv.result), of_place), 0, 1)
    elif math.prod(strips.counts) == 1:
        found = of_strip(_ZERO)
    else:

        def add(index: Any, sums: Any) -> Any:
            return sums + of_strip(lax.convert_element_type(index, np.int32))

        start = jnp.zeros((groups, math.prod(conv.result) * channels, outputs), wide)
        found = lax.fori_loop(_ZERO, np.int32(math.prod(strips.counts)), add, start)
    found = _behind(lax.reshape(found, (groups, *conv.result, channels, outputs)))
    return respec(found, (rank, rank + 1, *range(rank)), conv.out)
