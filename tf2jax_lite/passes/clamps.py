"""Whole numbers that are clamped to one value: ``minimum(n, maximum(n, x))`` is ``n``, whatever ``x`` is.

`tf.math.bincount` with ``minlength`` and ``maxlength`` alike writes its number of bins so (Keras's CategoryEncoding
does): with this it is known while tracing although ``x`` is data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tf2jax_lite import ir

__all__ = ["settle_clamps"]

# Each with its opposite, and whether the opposite's limit leaves it nothing to choose.
_CLAMPS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Minimum": ("Maximum", np.greater_equal),
    "Maximum": ("Minimum", np.less_equal),
}
_INT32 = np.dtype(np.int32)


def settle_clamps(graph: ir.Graph) -> ir.Graph:
    """Returns the graph with the other operand of such a clamp given as what it comes to, in the same shape."""
    functions = {name: _function(function) for name, function in graph.functions.items()}
    main = _function(graph.main)
    if main is graph.main and all(functions[name] is function for name, function in graph.functions.items()):
        return graph
    return dataclasses.replace(graph, main=main, functions=functions)


def _function(function: ir.Function) -> ir.Function:
    if not function.ops.issuperset(_CLAMPS):
        return function
    nodes = {node.name: node for node in function.nodes}
    out: list[ir.Node] = []
    for node in function.nodes:
        found = _settled(node, nodes) if node.op in _CLAMPS else None
        out += found or [node]
    return function if len(out) == len(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _settled(node: ir.Node, nodes: Mapping[str, ir.Node]) -> list[ir.Node] | None:
    """Returns the nodes in the place of a clamp, or None where its value is open."""
    opposite, settles = _CLAMPS[node.op]
    for own in range(len(node.inputs)):
        limit, other = node.inputs[own], nodes.get(node.inputs[1 - own].node)
        value = _constant(limit, nodes)
        if value is None or other is None or other.op != opposite:
            continue
        against = [_constant(ref, nodes) for ref in other.inputs]
        if any(v is not None and settles(v, value) for v in against):
            return _constant_operand(node, own, value.dtype, nodes)
    return None


def _unused(name: str, nodes: Mapping[str, ir.Node]) -> str:
    while name in nodes:
        name += "_"
    return name


def _constant(ref: ir.TensorRef, nodes: Mapping[str, ir.Node]) -> np.ndarray | None:
    """Returns a constant whole number, else None; floating numbers could meet NaN."""
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
