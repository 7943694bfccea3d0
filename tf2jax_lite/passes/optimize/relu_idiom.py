"""What jax2tf lost on the way out of JAX, read back: a relu whose gradient at 0 is 0."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.config import Config

__all__ = ["infer_relu"]


def infer_relu(graph: ir.Graph, config: Config) -> ir.Graph:
    """Returns the graph with ``max(x, 0)`` as Relu where jax2tf wrote it for ``jax.nn.relu``, if configured so.

    jax2tf names nodes after the JAX functions they come from, so the name tells a relu from a plain maximum. The two
    differ in the gradient at 0: a relu's is 0, TensorFlow's Maximum gives all of it to the first argument.
    """
    if not config.infer_relu_from_jax2tf:
        return graph
    functions = {name: _rewrite(function) for name, function in graph.functions.items()}
    return dataclasses.replace(graph, main=_rewrite(graph.main), functions=functions)


def _rewrite(function: ir.Function) -> ir.Function:
    if "Maximum" not in function.ops:
        return function
    nodes = {node.name: node for node in function.nodes}

    def is_zero(ref: ir.TensorRef) -> bool:
        node = nodes.get(ref.node)
        while node is not None and node.op in ("Cast", "Identity", "BroadcastTo"):
            node = nodes.get(node.inputs[0].node)
        value = None if node is None or node.op != "Const" else node.attrs.get("value")
        return isinstance(value, np.ndarray) and value.dtype.kind != "O" and not np.any(value)

    out = []
    for node in function.nodes:
        if node.op == "Maximum" and "jax2tf" in node.name and "_relu" in node.name and is_zero(node.inputs[1]):
            node = dataclasses.replace(
                node, op="Relu", inputs=node.inputs[:1], groups=node.groups[:1], input_types=node.input_types[:1]
            )
        out.append(node)
    return (
        function
        if all(a is b for a, b in zip(out, function.nodes, strict=True))
        else dataclasses.replace(function, nodes=tuple(out))
    )
