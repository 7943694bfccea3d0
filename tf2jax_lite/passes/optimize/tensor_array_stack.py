"""TF1's ``TensorArray.stack()``, a gather at ``range(size)``, to one node.

With a data-dependent size, the range has no static shape; the stack of all elements has one when padded to
``config.dynamic_shape_bound``.
"""

from __future__ import annotations

import dataclasses

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_scalar, producer
from tf2jax_lite.support.config import Config


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace each gather of all elements of a TensorArray by ``_TensorArrayStack``."""
    del config
    return graph.mapped(_stacked) if "TensorArrayGatherV3" in graph.ops else graph


def _stacked(function: ir.Function) -> ir.Function:
    if "TensorArrayGatherV3" not in function.ops:
        return function
    nodes = {node.name: node for node in function.nodes}

    def is_whole(node: ir.Node) -> bool:
        handle, indices, flow = node.inputs
        positions = producer(indices, nodes)
        if positions is None or positions.op != "Range":
            return False
        start, limit, delta = positions.inputs
        size = producer(limit, nodes)
        if size is None or size.op != "TensorArraySizeV3":
            return False
        if constant_scalar(start, nodes) != 0 or constant_scalar(delta, nodes) != 1:
            return False
        return size.inputs == (handle, flow)

    def stacked(node: ir.Node) -> ir.Node:
        if node.op != "TensorArrayGatherV3" or not is_whole(node):
            return node
        handle, _, flow = node.inputs
        attrs = {name: node.attrs[name] for name in ("dtype", "element_shape")}
        return build.node("_TensorArrayStack", handle, flow, like=node, **attrs)

    return dataclasses.replace(function, nodes=tuple(map(stacked, function.nodes)))
