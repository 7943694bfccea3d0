"""Integer ranges: bounds of integer tensors, by interval arithmetic.

``tf.clip_by_value(x, 0, 255)`` is at most 255 for every ``x``, and so is every element taken from it. The ranges hold
for every value that TensorFlow could compute: an expression that might overflow has the range of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tf2jax_lite import ir

# Maximum length of a chain of nodes: limits time and Python's stack; useful ranges come from shorter chains.
_MAX_DEPTH = 24


class Interval(NamedTuple):
    """All integers from ``low`` to ``high``."""

    low: int
    high: int


def _joined(*parts: Interval) -> Interval:
    return Interval(min(p.low for p in parts), max(p.high for p in parts))


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return Interval(min(ends), max(ends))


def _clipped(x: Interval, low: Interval, high: Interval) -> Interval:
    return _minimum(_maximum(x, low), high)


def _minimum(a: Interval, b: Interval) -> Interval:
    return Interval(min(a.low, b.low), min(a.high, b.high))


def _maximum(a: Interval, b: Interval) -> Interval:
    return Interval(max(a.low, b.low), max(a.high, b.high))


def _first(x: Interval, *_: Interval) -> Interval:
    return x


# The range of a node's result, given those of its inputs. Ops that move or select elements have the range of their
# first input.
_RULES: dict[str, Callable[..., Interval]] = {
    "Add": lambda a, b: Interval(a.low + b.low, a.high + b.high),
    "AddV2": lambda a, b: Interval(a.low + b.low, a.high + b.high),
    "Sub": lambda a, b: Interval(a.low - b.high, a.high - b.low),
    "Mul": _product,
    "Neg": lambda x: Interval(-x.high, -x.low),
    "Minimum": _minimum,
    "Maximum": _maximum,
    "ClipByValue": _clipped,
    "Select": lambda _, a, b: _joined(a, b),
    "SelectV2": lambda _, a, b: _joined(a, b),
    "Pack": _joined,
    **dict.fromkeys(
        [
            *("BroadcastTo", "Cast", "ExpandDims", "Identity", "PreventGradient", "Reshape", "ReverseV2"),
            *("Snapshot", "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose"),
        ],
        _first,
    ),
}
# Reductions of no elements are the smallest or largest value of the dtype.
_REDUCTIONS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "Max": lambda x, every: Interval(every.low, x.high),
    "Min": lambda x, every: Interval(x.low, every.high),
}
_SIZES = frozenset({"Rank", "Shape", "Size"})


class IntegerRanges:
    """Ranges of the integers and booleans of one function.

    Args:
      nodes: the function's nodes by name.
    """

    def __init__(self, nodes: Mapping[str, ir.Node]):
        self._nodes = nodes
        self._ranges: dict[str, Interval | None] = {}

    def of(self, ref: ir.TensorRef) -> Interval | None:
        """Return the range of a tensor's elements; None if not integer or bool."""
        return self._of(ref, _MAX_DEPTH)

    def _of(self, ref: ir.TensorRef, depth: int) -> Interval | None:
        node = self._nodes.get(ref.node)
        if node is None or ref.index or len(node.output_dtypes) != 1:
            return None
        if ref.node not in self._ranges:
            # While it is computed, and in a cycle, the range is that of the dtype.
            self._ranges[ref.node] = every = _every(node)
            if every is not None and depth:
                self._ranges[ref.node] = self._found(node, every, depth - 1)
        return self._ranges[ref.node]

    def _found(self, node: ir.Node, every: Interval, depth: int) -> Interval:
        if node.op == "Const":
            return _constant(node.attrs.get("value"), every)
        if node.op in _SIZES:
            return Interval(0, every.high)
        rule, reduction = _RULES.get(node.op), _REDUCTIONS.get(node.op)
        if rule is None and reduction is None:
            return every
        # An unknown input (such as an argument) has the range of its dtype, which is the result's except for casts.
        inputs = [self._of(ref, depth) or every for ref in node.inputs]
        found = rule(*inputs) if rule is not None else reduction(inputs[0], every)  # type: ignore[misc]
        return found if every.low <= found.low and found.high <= every.high else every


def _every(node: ir.Node) -> Interval | None:
    """Return the range of a node's dtype."""
    dtype = node.output_dtypes[0]
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biu":
        return None
    if dtype.kind == "b":
        return Interval(0, 1)
    info = np.iinfo(dtype)
    return Interval(int(info.min), int(info.max))


def _constant(value: object, every: Interval) -> Interval:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biu" or not value.size:
        return every
    return Interval(int(value.min()), int(value.max()))
