"""Whole numbers that are clamped to one value: ``maximum(n, x)`` is ``n`` for every ``x`` that is at most ``n``.

`tf.math.bincount` writes its number of bins so: ``minimum(n, maximum(n, x))`` with ``minlength`` and ``maxlength``
alike (Keras's CategoryEncoding), and ``maximum(256, x + 1)`` of an ``x`` that was clipped to 0 to 255 before (Keras's
Equalization). With this it is known while tracing although ``x`` is data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.passes.analysis.integer_ranges import Interval, Intervals

__all__ = ["settle_clamps"]

# Whether what the other operand lies between leaves nothing to choose.
_CLAMPS: dict[str, Callable[[Interval, int], bool]] = {
    "Minimum": lambda other, limit: other.least >= limit,
    "Maximum": lambda other, limit: other.most <= limit,
}
_INT32 = np.dtype(np.int32)


def settle_clamps(graph: ir.Graph) -> ir.Graph:
    """Returns the graph with the other operand of such a clamp given as what it comes to, in the same shape."""
    return graph.mapped(_function)


def _function(function: ir.Function) -> ir.Function:
    if function.ops.isdisjoint(_CLAMPS):
        return function
    nodes = {node.name: node for node in function.nodes}
    intervals = Intervals(nodes)
    out: list[ir.Node] = []
    for node in function.nodes:
        found = _settled(node, nodes, intervals) if node.op in _CLAMPS else None
        out += found or [node]
    return function if len(out) == len(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _settled(node: ir.Node, nodes: Mapping[str, ir.Node], intervals: Intervals) -> list[ir.Node] | None:
    """Returns the nodes in the place of a clamp, or None where its value is open."""
    for own in range(len(node.inputs)):
        value, other = _constant(node.inputs[own], nodes), intervals.of(node.inputs[1 - own])
        known = _constant(node.inputs[1 - own], nodes) is not None  # which tracing folds by itself
        if value is not None and other is not None and not known and _CLAMPS[node.op](other, int(value)):
            return _constant_operand(node, own, value.dtype, nodes)
    return None


def _unused(name: str, nodes: Mapping[str, ir.Node]) -> str:
    while name in nodes:
        name += "_"
    return name


def _constant(ref: ir.TensorRef, nodes: Mapping[str, ir.Node]) -> np.ndarray | None:
    """Returns a constant whole number, else None: floating numbers could meet NaN."""
    node = nodes.get(ref.node)
    value = None if node is None or node.op != "Const" else node.attrs.get("value")
    whole = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu"
    return value if whole else None


def _constant_operand(node: ir.Node, own: int, dtype: np.dtype, nodes: Mapping[str, ir.Node]) -> list[ir.Node]:
    limit, other = node.inputs[own], node.inputs[1 - own]
    attrs = {"T": dtype, "out_type": _INT32}
    name = _unused(f"{node.name}/shape", nodes)
    shape = ir.Node(name, "Shape", (other,), (None,), (), attrs, output_dtypes=(_INT32,))
    fill = ir.Node(
        _unused(f"{node.name}/limit", nodes),
        "Fill",
        (ir.TensorRef(shape.name), limit),
        (None, None),
        (),
        {"T": dtype, "index_type": _INT32},
        output_dtypes=(dtype,),
    )
    inputs = [limit, limit]
    inputs[1 - own] = ir.TensorRef(fill.name)
    return [shape, fill, dataclasses.replace(node, inputs=tuple(inputs))]
