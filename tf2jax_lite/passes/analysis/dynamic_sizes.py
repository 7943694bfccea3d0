"""Dynamic-size analysis: whether a call may have to trace again because of sizes.

Both answers are decided from the graph. False is certain, True is not: arguments may be static in a call, and a loop
may be unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.traits import Pattern

from .static_values import StaticValues

_VARIABLES = frozenset({"VarHandleOp", "_XlaAotOnlyVarHandleOp"})
_BOOL = np.dtype(bool)


def may_compare_sizes(graph: ir.Graph, ops: Mapping[str, registry.Op]) -> bool:
    """Return whether a node may compare sizes.

    Such a node has a boolean result that NumPy can compute.
    """
    return any(
        _BOOL in node.output_dtypes and (entry := ops.get(node.op)) is not None and entry.fold is not None
        for _, node in graph.walk()
    )


def may_have_dynamic_sizes(graph: ir.Graph, ops: Mapping[str, registry.Op]) -> bool:
    """Return whether the size of a value may depend on data.

    It may if a node sizes its result by a value that is not computed from shapes and constants alone. Branches and
    loops may always: their results may differ in size, and a loop's counter is traced.
    """
    return _SizeAnalysis(graph, ops).may_be_dynamic()


class _SizeAnalysis(StaticValues):
    """Static values of a graph without dynamic sizes, where each shape is static.

    The first dynamic size is of a node whose operands have static shapes. So if no node has one under this assumption,
    there is none.
    """

    def may_be_dynamic(self) -> bool:
        self.visit()
        for function, static in self.functions():
            for node in function.nodes:
                entry = self._ops.get(node.op)
                if node.op in CALLS or node.op in _VARIABLES:
                    continue
                if entry is None or entry.needs_context or node.functions:
                    return True
                if not all(ref in static for ref in _sizing(entry, node)):
                    return True
        return False

    def _of_op(self, node: ir.Node, inputs: Sequence[bool]) -> list[bool]:
        entry = self._ops.get(node.op)
        if entry is not None and entry.pattern is Pattern.SHAPE_ONLY:
            return [True] * len(node.output_dtypes)
        return super()._of_op(node, inputs)


def _sizing(entry: registry.Op, node: ir.Node) -> Iterator[ir.TensorRef]:
    """Yield the inputs whose values may determine the size of a result."""
    # An op with a `Bound` counts all of them, one that may ask the tracker of dynamic shapes all but the first.
    position = 0
    for index, group in enumerate(node.groups):
        count = 1 if group is None else group
        name = entry.inputs[index] if index < len(entry.inputs) else None
        if (
            entry.bound is not None
            or (entry.shapes is not None and index > 0)
            or name in entry.static
            or name in entry.unconverted
        ):
            yield from node.inputs[position : position + count]
        position += count
