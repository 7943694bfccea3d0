"""Between which numbers a whole number lies that is data, as far as the graph tells: interval arithmetic.

``tf.clip_by_value(x, 0, 255)`` is at most 255, whatever ``x`` is, and so is all that is taken out of it. What is
given holds for every value that TensorFlow could compute: a number that might not fit its dtype may be any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tf2jax_lite import ir

__all__ = ["Interval", "Intervals"]

# Deeper than what says something is, but not so deep that long chains cost time or Python's stack.
_DEPTH = 24


class Interval(NamedTuple):
    """All whole numbers from ``least`` to ``most``."""

    least: int
    most: int


def _joined(*parts: Interval) -> Interval:
    return Interval(min(p.least for p in parts), max(p.most for p in parts))


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return Interval(min(ends), max(ends))


def _clipped(x: Interval, least: Interval, most: Interval) -> Interval:
    return _minimum(_maximum(x, least), most)


def _minimum(a: Interval, b: Interval) -> Interval:
    return Interval(min(a.least, b.least), min(a.most, b.most))


def _maximum(a: Interval, b: Interval) -> Interval:
    return Interval(max(a.least, b.least), max(a.most, b.most))


def _first(x: Interval, *_: Interval) -> Interval:
    return x


# What a node's result lies between, of what its inputs lie between. Only what each number of the result comes from
# counts, so what moves numbers, or takes some of them, is `_first`.
_RULES: dict[str, Callable[..., Interval]] = {
    "Add": lambda a, b: Interval(a.least + b.least, a.most + b.most),
    "AddV2": lambda a, b: Interval(a.least + b.least, a.most + b.most),
    "Sub": lambda a, b: Interval(a.least - b.most, a.most - b.least),
    "Mul": _product,
    "Neg": lambda x: Interval(-x.most, -x.least),
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
# Of nothing they are the least and the largest number that there is.
_OF_NOTHING: dict[str, Callable[[Interval, Interval], Interval]] = {
    "Max": lambda x, every: Interval(every.least, x.most),
    "Min": lambda x, every: Interval(x.least, every.most),
}
_SIZES = frozenset({"Rank", "Shape", "Size"})


class Intervals:
    """What is known of the whole numbers and booleans of one function."""

    def __init__(self, nodes: Mapping[str, ir.Node]):
        self._nodes = nodes
        self._known: dict[str, Interval | None] = {}

    def of(self, ref: ir.TensorRef) -> Interval | None:
        """Returns what all elements of a tensor lie between; None for what is no whole number."""
        return self._of(ref, _DEPTH)

    def _of(self, ref: ir.TensorRef, depth: int) -> Interval | None:
        node = self._nodes.get(ref.node)
        if node is None or ref.index or len(node.output_dtypes) != 1:
            return None
        if ref.node not in self._known:
            # For as long as it is looked at, and in case of a cycle, nothing is known.
            self._known[ref.node] = every = _every(node)
            if every is not None and depth:
                self._known[ref.node] = self._found(node, every, depth - 1)
        return self._known[ref.node]

    def _found(self, node: ir.Node, every: Interval, depth: int) -> Interval:
        if node.op == "Const":
            return _constant(node.attrs.get("value"), every)
        if node.op in _SIZES:
            return Interval(0, every.most)
        rule, of_nothing = _RULES.get(node.op), _OF_NOTHING.get(node.op)
        if rule is None and of_nothing is None:
            return every
        # What is not known (an argument, for one) may be all that the result may be: but for casts, of one dtype.
        inputs = [self._of(ref, depth) or every for ref in node.inputs]
        found = rule(*inputs) if rule is not None else of_nothing(inputs[0], every)  # type: ignore[misc]
        return found if every.least <= found.least and found.most <= every.most else every


def _every(node: ir.Node) -> Interval | None:
    """Returns all that a dtype holds."""
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
