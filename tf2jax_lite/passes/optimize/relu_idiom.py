"""``max(x, 0)`` of graphs exported with jax2tf to Relu, whose gradient at 0 is 0."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_value
from tf2jax_lite.support.config import Config


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace ``max(x, 0)`` that jax2tf exported for ``jax.nn.relu`` by Relu.

    ``config.infer_relu_from_jax2tf`` enables this.

    jax2tf names nodes after the JAX functions they come from, which distinguishes a relu from a plain maximum. The two
    differ in the gradient at 0: that of relu is 0, that of TensorFlow's Maximum goes to the first argument.
    """
    return graph.mapped(_rewrite) if config.infer_relu_from_jax2tf else graph


def _rewrite(function: ir.Function) -> ir.Function:
    if "Maximum" not in function.ops:
        return function
    nodes = {node.name: node for node in function.nodes}

    def is_zero(ref: ir.TensorRef) -> bool:
        value = constant_value(ref, nodes, through=("Cast", "Identity", "BroadcastTo"))
        return value is not None and value.dtype.kind != "O" and not np.any(value)

    out = []
    for node in function.nodes:
        if node.op == "Maximum" and "jax2tf" in node.name and "_relu" in node.name and is_zero(node.inputs[1]):
            node = build.node("Relu", node.inputs[0], T=node.output_dtypes[0], like=node)
        out.append(node)
    return (
        function
        if all(a is b for a, b in zip(out, function.nodes, strict=True))
        else dataclasses.replace(function, nodes=tuple(out))
    )
