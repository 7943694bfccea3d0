"""Integer ranges: bounds of integer tensors, by interval arithmetic.

``tf.clip_by_value(x, 0, 255)`` is at most 255 for every ``x``, and so is every element taken from it. The ranges hold
for every value that TensorFlow could compute: an expression that might overflow has the range of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.jaxprs import interval
from tf2jax_lite.jaxprs.interval import Interval

# Maximum length of a chain of nodes: limits time and Python's stack; useful ranges come from shorter chains.
_MAX_DEPTH = 24


# The range of a node's result, given those of its inputs. Ops that move or select elements have the range of their
# first input.
_RULES: dict[str, Callable[..., Interval]] = {
    "Add": interval.add,
    "AddV2": interval.add,
    "Sub": interval.sub,
    "Mul": interval.mul,
    "Neg": interval.neg,
    "Minimum": interval.minimum,
    "Maximum": interval.maximum,
    "ClipByValue": interval.clip,
    "Select": lambda _, a, b: interval.union(a, b),
    "SelectV2": lambda _, a, b: interval.union(a, b),
    "Pack": interval.union,
    **dict.fromkeys(
        [
            *("BroadcastTo", "Cast", "ExpandDims", "Identity", "PreventGradient", "Reshape", "ReverseV2"),
            *("Snapshot", "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose"),
        ],
        interval.first,
    ),
}
# Reductions of no elements are the smallest or largest value of the dtype.
_REDUCTIONS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "Max": lambda x, every: Interval(every.lower, x.upper),
    "Min": lambda x, every: Interval(x.lower, every.upper),
}
_SIZES = frozenset({"Rank", "Shape", "Size"})


class IntegerRanges:
    """Ranges of the integers and booleans of one function."""

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
            return Interval(0, every.upper)
        rule, reduction = _RULES.get(node.op), _REDUCTIONS.get(node.op)
        if rule is None and reduction is None:
            return every
        # An unknown input (such as an argument) has the range of its dtype, which is the result's except for casts.
        inputs = [self._of(ref, depth) or every for ref in node.inputs]
        found = rule(*inputs) if rule is not None else reduction(inputs[0], every)  # type: ignore[misc]
        return found if every.lower <= found.lower and found.upper <= every.upper else every


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
    return interval.of_array(value)
