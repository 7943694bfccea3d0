"""TF1's ``TensorArray.stack()`` as one node: it gathers the elements at ``range(size)``.

As long as the size is known while tracing that is as good. Where data decides it, no range can be made, but the stack
of all elements can, padded up to ``config.dynamic_shape_bound``.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tf2jax_lite import ir

__all__ = ["stack_arrays"]


def stack_arrays(graph: ir.Graph) -> ir.Graph:
    """Returns the graph with a ``_TensorArrayStack`` for each gather of all elements of an array."""
    if "TensorArrayGatherV3" not in graph.ops:
        return graph
    functions = {name: _stacked(function) for name, function in graph.functions.items()}
    return dataclasses.replace(graph, main=_stacked(graph.main), functions=functions)


def _stacked(function: ir.Function) -> ir.Function:
    if "TensorArrayGatherV3" not in function.ops:
        return function
    nodes = {node.name: node for node in function.nodes}

    def made(ref: ir.TensorRef) -> ir.Node | None:
        found = nodes.get(ref.node)
        while found is not None and found.op == "Identity":
            found = nodes.get(found.inputs[0].node)
        return found

    def number(ref: ir.TensorRef) -> int | None:
        found = made(ref)
        value = found.attrs.get("value") if found is not None and found.op == "Const" else None
        return int(value) if isinstance(value, np.ndarray) and value.shape == () else None

    def is_whole(node: ir.Node) -> bool:
        handle, indices, flow = node.inputs
        positions = made(indices)
        if positions is None or positions.op != "Range":
            return False
        start, limit, delta = positions.inputs
        size = made(limit)
        if size is None or size.op != "TensorArraySizeV3" or number(start) != 0 or number(delta) != 1:
            return False
        return size.inputs == (handle, flow)

    def stacked(node: ir.Node) -> ir.Node:
        if node.op != "TensorArrayGatherV3" or not is_whole(node):
            return node
        handle, _, flow = node.inputs
        return dataclasses.replace(
            node, op="_TensorArrayStack", inputs=(handle, flow), groups=(None, None), input_types=("", "")
        )

    return dataclasses.replace(function, nodes=tuple(map(stacked, function.nodes)))
