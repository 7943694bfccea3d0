"""Min/max folding by integer ranges: ``maximum(n, x)`` is ``n`` if ``x <= n``.

The number of bins of `tf.math.bincount` is ``minimum(n, maximum(n, x))`` if ``minlength`` equals ``maxlength`` (Keras's
CategoryEncoding), and ``maximum(256, x + 1)`` with ``x`` clipped to [0, 255] in Keras's Equalization. Folding makes it
static although ``x`` is runtime-dependent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_value
from tf2jax_lite.jaxprs.interval import Interval
from tf2jax_lite.passes.analysis.integer_ranges import IntegerRanges
from tf2jax_lite.support.config import Config

# Whether the range of the other operand determines the result.
_CLAMPS: dict[str, Callable[[Interval, int], bool]] = {
    "Minimum": lambda other, limit: other.lower >= limit,
    "Maximum": lambda other, limit: other.upper <= limit,
}
_INT32 = np.dtype(np.int32)


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace the runtime-dependent operand of such clamps by the broadcast limit.

    The limit gets the operand's shape.
    """
    del config
    return graph.mapped(_function)


def _function(function: ir.Function) -> ir.Function:
    if function.ops.isdisjoint(_CLAMPS):
        return function
    nodes = {node.name: node for node in function.nodes}
    ranges = IntegerRanges(nodes)
    taken = {*nodes, *(arg.name for arg in function.args)}
    out: list[ir.Node] = []
    for node in function.nodes:
        found = _folded(node, nodes, ranges, taken) if node.op in _CLAMPS else None
        out += found or [node]
    return function if len(out) == len(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _folded(
    node: ir.Node, nodes: Mapping[str, ir.Node], ranges: IntegerRanges, taken: set[str]
) -> list[ir.Node] | None:
    """Return the nodes that replace a clamp; None if the ranges do not determine it."""
    for own in range(len(node.inputs)):
        value, other = _constant(node.inputs[own], nodes), ranges.of(node.inputs[1 - own])
        both_constant = _constant(node.inputs[1 - own], nodes) is not None  # tracing folds these
        if value is not None and other is not None and not both_constant and _CLAMPS[node.op](other, int(value)):
            return _with_constant_operand(node, own, value.dtype, taken)
    return None


def _constant(ref: ir.TensorRef, nodes: Mapping[str, ir.Node]) -> np.ndarray | None:
    """Return an integer Const's value, else None: a float's other operand may be NaN."""
    value = constant_value(ref, nodes, through=())
    return value if value is not None and value.ndim == 0 and value.dtype.kind in "iu" else None


def _with_constant_operand(node: ir.Node, own: int, dtype: np.dtype, taken: set[str]) -> list[ir.Node]:
    limit, other = node.inputs[own], node.inputs[1 - own]
    shape = build.node("Shape", other, name=ir.free_name(f"{node.name}/shape", taken), T=dtype, out_type=_INT32)
    fill = build.node("Fill", shape, limit, name=ir.free_name(f"{node.name}/limit", taken), T=dtype, index_type=_INT32)
    inputs = [limit, limit]
    inputs[1 - own] = ir.TensorRef(fill.name)
    return [shape, fill, dataclasses.replace(node, inputs=tuple(inputs))]
