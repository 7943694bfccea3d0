"""Slice specifications of StridedSlice, resolved to one range for each dimension.

A specification consists of begin, end, strides and five masks, as in tensorflow/core/util/strided_slice_op.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tf2jax_lite.dynamic_shapes.bounds import min_dim
from tf2jax_lite.dynamic_shapes.provenance import Entry
from tf2jax_lite.dynamic_shapes.tracker import UnboundedError
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.common.static_shape import is_int, is_zero
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims


@dataclasses.dataclass(frozen=True)
class Item:
    """An entry of a slice specification, in the order of the specification.

    Attributes:
      kind: "new" (a new dimension), "shrink" (an index, whose dimension is dropped) or "range".
      begin: the index, or the first element of a range; None if masked.
      end: the end of a range; None if masked.
      stride: step of a range.
    """

    kind: str
    begin: Entry | None = None
    end: Entry | None = None
    stride: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """A slice of resolved size, dimension by dimension.

    The elements of dimension i are the ``counts[i]`` numbers ``range(starts[i], limits[i], steps[i])``, in descending
    order if i is in ``reverse``. A traced start has step 1, and its limit is unused. ``layout`` has for each dimension
    of the result its dimension in the input, or None for a new one.
    """

    starts: list[Entry]
    limits: list[Any]
    counts: list[Any]
    steps: list[int]
    reverse: tuple[int, ...]
    layout: tuple[int | None, ...]

    @property
    def result(self) -> tuple[Any, ...]:
        """The shape of the result."""
        return self.shaped(self.counts)

    def shaped(self, sizes: Any) -> tuple[Any, ...]:
        """Return the shape of the result from sizes of the input's dimensions."""
        return tuple(1 if axis is None else sizes[axis] for axis in self.layout)

    @property
    def is_static(self) -> bool:
        """Whether no start is traced."""
        return all(s.is_known for s in self.starts)

    @property
    def is_contiguous(self) -> bool:
        """Whether all steps are 1."""
        return all(s == 1 for s in self.steps)


Masks = tuple[int, int, int, int, int]


def spec_items(rank: int, begin: list[Entry], end: list[Entry], strides: tuple[Any, ...], masks: Masks) -> list[Item]:
    """Return the entries of a specification, with the ellipsis expanded.

    Args:
      rank: rank of the input.
      begin: ``count`` entries.
      masks: begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask.
    """
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask = masks
    count = len(strides)
    if not len(begin) == len(end) == count:
        raise OpError(f"begin, end and strides must have as many entries, got {len(begin)}, {len(end)} and {count}")
    if ellipsis_mask & (ellipsis_mask - 1):
        raise OpError("more than one ellipsis in a slice")
    taken = sum(1 for i in range(count) if not (new_axis_mask | ellipsis_mask) >> i & 1)
    if taken > rank:
        raise OpError(f"a slice of {taken} dimensions of a tensor of rank {rank}")
    rest = [Item("range")] * (rank - taken)
    items: list[Item] = []
    for i in range(count):
        stride = strides[i]
        if ellipsis_mask >> i & 1:
            items.extend(rest)
            continue
        if new_axis_mask >> i & 1:
            items.append(Item("new"))
            continue
        if not is_int(stride):
            raise OpError("strides must be static integers")
        if stride == 0:
            raise OpError("a slice with stride 0")
        if shrink_axis_mask >> i & 1:
            if stride < 0:
                raise OpError("only stride 1 allowed on non-range indexing")
            items.append(Item("shrink", begin[i]))
        else:
            masked = begin_mask >> i & 1, end_mask >> i & 1
            items.append(Item("range", None if masked[0] else begin[i], None if masked[1] else end[i], int(stride)))
    return items if ellipsis_mask & ((1 << count) - 1) else [*items, *rest]


def plan_of(shape: tuple[Any, ...], begin: list[Entry], end: list[Entry], strides: Any, masks: Masks) -> Plan:
    """Return the plan of a specification for an input of a shape.

    Arguments other than ``shape`` are those of `spec_items`.
    """
    return plan_of_items(shape, spec_items(len(shape), begin, end, dims(strides), masks))


def plan_of_items(shape: tuple[Any, ...], items: list[Item]) -> Plan:
    """Return the plan of specification entries for an input of a shape."""
    starts: list[Entry] = []
    limits: list[Any] = []
    counts: list[Any] = []
    steps: list[int] = []
    reverse: list[int] = []
    layout: list[int | None] = []
    for item in items:
        if item.kind == "new":
            layout.append(None)
            continue
        axis = len(starts)
        size = shape[axis]
        if item.kind == "shrink":
            start = _index(item.begin, size, axis)
            limit, count = start.offset + 1, 1
        else:
            layout.append(axis)
            start, limit, count = _range(item, size, axis)
            if item.stride < 0:
                reverse.append(axis)
        starts.append(start)
        limits.append(limit)
        counts.append(count)
        steps.append(abs(item.stride))
    return Plan(starts, limits, counts, steps, tuple(reverse), tuple(layout))


def _index(entry: Any, size: Any, axis: int) -> Entry:
    if not entry.is_known:
        return entry
    at = entry.offset
    if is_int(at) and is_int(size) and not -size <= at < size:
        raise OpError(f"slice index {at} of dimension {axis} out of bounds")
    return Entry(None, size + at if is_int(at) and at < 0 else at)


class _DynamicRangeError(UnboundedError):
    """A range has a data-dependent size."""

    def __init__(self, axis: int):
        problem = (
            f"a slice of dimension {axis} with traced bounds has a size that depends on values; use tf.slice with a "
            "static size, or pass the bounds as static arguments"
        )
        super().__init__(problem)


def _range(item: Item, size: Any, axis: int) -> tuple[Entry, Any, Any]:
    """Return a range's lowest element, exclusive upper end, and number of elements."""
    begin, end, stride = item.begin, item.end, item.stride
    if not ((begin is None or begin.is_known) and (end is None or end.is_known)):
        count = end.minus(begin) if begin is not None and end is not None else None
        if count is None or stride != 1:
            raise _DynamicRangeError(axis)
        assert begin is not None
        return begin, None, max_dim(min_dim(count, size), 0)
    first = None if begin is None else begin.offset
    last = None if end is None else end.offset
    if is_int(size) and all(v is None or is_int(v) for v in (first, last)):
        index = range(size)[slice(first, last, stride)]
        if not index:
            return Entry(None, 0), 0, 0
        return Entry(None, min(index[0], index[-1])), max(index[0], index[-1]) + 1, len(index)
    top = size if stride > 0 else size - 1
    bottom = 0 if stride > 0 else -1

    def bound(value: Any) -> Any:
        if is_int(value):
            if value >= 0:
                return top if value >= 2**31 - 1 else min_dim(value, top)
            return max_dim(size + value, bottom)
        return min_dim(value, top)  # a dimension expression: assumed to be non-negative

    if stride > 0:
        low = 0 if first is None else bound(first)
        high = top if last is None else bound(last)
        high = high if is_zero(low) else max_dim(high, low)
        return Entry(None, low), high, -(-(high - low) // stride)
    high = top if first is None else bound(first)
    low = bottom if last is None else bound(last)
    count = -(-max_dim(high - low, 0) // -stride)
    return Entry(None, high + (count - 1) * stride), high + 1, count
