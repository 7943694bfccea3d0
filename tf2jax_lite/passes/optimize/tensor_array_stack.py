"""TF1's ``TensorArray.stack()``, a gather at ``range(size)``, to one node.

With a data-dependent size, the range has no static shape; the stack of all elements has one when padded to
``config.dynamic_shape_bound``.
"""

from __future__ import annotations

import dataclasses

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import Nodes
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.patterns import match, op

_SIZE = op("TensorArraySizeV3", "handle", "flow")
_STACK = op("TensorArrayGatherV3", "handle", op("Range", 0, _SIZE, 1), "flow")


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace each gather of all elements of a TensorArray by ``_TensorArrayStack``."""
    del config
    return graph.mapped(_stacked) if "TensorArrayGatherV3" in graph.ops else graph


def _stacked(function: ir.Function) -> ir.Function:
    if "TensorArrayGatherV3" not in function.ops:
        return function
    nodes = Nodes(function)

    def stacked(node: ir.Node) -> ir.Node:
        found = match(_STACK, node, nodes)
        if found is None:
            return node
        attrs = {"dtype": node.output_dtypes[0], "element_shape": node.attrs.get("element_shape")}
        return build.node("_TensorArrayStack", found.values["handle"], found.values["flow"], like=node, **attrs)

    return dataclasses.replace(function, nodes=tuple(map(stacked, function.nodes)))
