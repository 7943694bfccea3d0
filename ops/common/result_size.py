"""Estimates of result sizes of ops whose results grow with input values.

They are evaluated before anything is allocated (`registry.Op.elements`) and return the number of elements, None if it
depends on a symbolic dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def _integers(value: Any) -> list[int] | None:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        return None
    return [int(v) for v in array.reshape(-1)]


def _product(sizes: list[int] | None) -> int | None:
    if sizes is None or any(s < 0 for s in sizes):
        return None  # the op itself raises
    return math.prod(sizes)


def from_sizes(position: int) -> Callable[..., int | None]:
    """Return the estimate of ops whose input at a position is the result's shape."""
    return lambda *inputs, **_: _product(_integers(inputs[position]))


def count(position: int) -> Callable[..., int | None]:
    """Return the estimate for inputs repeated along an axis of size ``position``."""

    def elements(*inputs: Any, **_: Any) -> int | None:
        counts = _integers(inputs[position])
        rest = max((int(np.size(v)) for i, v in enumerate(inputs) if i != position), default=1)
        return None if not counts or counts[0] < 0 else counts[0] * max(rest, 1)

    return elements


def repeated(input: Any, multiples: Any, **_: Any) -> int | None:
    """Return the size of Tile's result."""
    times = _product(_integers(multiples))
    return None if times is None else times * int(np.size(input))


def padded(input: Any, paddings: Any, *_: Any, **__: Any) -> int | None:
    """Return the size of Pad's result."""
    shape = np.shape(input)
    if not all(isinstance(d, int) for d in shape) or np.shape(paddings) != (len(shape), 2):
        return None
    around = _integers(paddings)
    return None if around is None else _product([d + around[2 * i] + around[2 * i + 1] for i, d in enumerate(shape)])


def range_elements(start: Any, limit: Any, delta: Any) -> int | None:
    """Return the length of Range's result."""
    if any(np.asarray(v).dtype == object for v in (start, limit, delta)):
        return None
    first, last, step = (float(np.reshape(v, ())) for v in (start, limit, delta))
    if step == 0 or not all(map(math.isfinite, (first, last, step))):
        return None
    length = (last - first) / step
    return None if length < 0 else math.ceil(length) if math.isfinite(length) else 1 << 62


def stitched(indices: list[Any], data: list[Any], **_: Any) -> int | None:
    """Return the size of DynamicStitch's result, of largest index + 1 rows."""
    largest = -1
    row = 1
    for index, value in zip(indices, data, strict=False):
        numbers = np.asarray(index)
        if numbers.dtype.kind not in "iu":
            return None
        largest = max(largest, int(numbers.max(initial=-1)))
        row = max(row, int(np.size(value)) // max(int(numbers.size), 1))
    return (largest + 1) * row


def gathered(params: Any, indices: Any, axis: Any = 0, **_: Any) -> int | None:
    """Return the size of Gather's result; batch dimensions count twice."""
    along = int(np.reshape(axis, ())) if np.size(axis) == 1 else 0
    rank = np.ndim(params)
    size = np.shape(params)[along] if -rank <= along < rank else 1
    return int(np.size(indices)) * (int(np.size(params)) // size if size else 0)


def gathered_nd(params: Any, indices: Any, **_: Any) -> int | None:
    """Return the size of GatherNd's result."""
    depth = np.shape(indices)[-1] if np.ndim(indices) else 1
    row = math.prod(np.shape(params)[depth:]) if depth <= np.ndim(params) else 1
    return int(np.size(indices)) // max(depth, 1) * row if depth else row * math.prod(np.shape(indices)[:-1])


def broadcast_elements(inputs: list[Any]) -> int:
    """Return an upper bound for elementwise, joining and selecting ops."""
    # No axis of a result is longer than the inputs' axes together.
    sizes = [int(np.size(v)) for v in inputs]
    if len(sizes) <= 1 or min(sizes) <= 1:
        return sum(sizes)
    ranks = [np.ndim(v) for v in inputs]
    rank = max(ranks)
    longest = [1] * rank
    for value in inputs:
        shape = np.shape(value)
        for axis, size in enumerate(shape, rank - len(shape)):
            longest[axis] = max(longest[axis], size if isinstance(size, int) else 1)
    return max(math.prod(longest), sum(sizes))
