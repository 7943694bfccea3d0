"""Gradients of list element reads: sums of TensorLists to sums of elements.

TensorFlow's gradient of reading an element is a list of the same length with only that element set, and every
iteration adds up whole lists. The length and shape of that list come from another list, so that such a loop could only
be unrolled.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import Nodes
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.patterns import match, op

_SUMS = ("AddN", "AddV2")
_NEEDED = frozenset({"TensorListSetItem", "TensorListReserve"})
# A list with only one element set.
_SINGLE_UPDATE = op(
    "TensorListSetItem",
    op("TensorListReserve"),
    where=lambda node: isinstance(node.attrs.get("element_dtype"), np.dtype),
)
_INT32 = np.dtype(np.int32)


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace the addition of a list with one set element by an element update."""
    del config
    return graph.mapped(_function) if graph.ops.issuperset(_NEEDED) else graph


def _function(function: ir.Function) -> ir.Function:
    if not function.ops.issuperset(_NEEDED) or function.ops.isdisjoint(_SUMS):
        return function
    nodes = Nodes(function)
    out: list[ir.Node] = []
    for node in function.nodes:
        out += _added(node, nodes) if node.op in _SUMS and node.output_dtypes == (ir.VARIANT,) else [node]
    return function if len(out) == len(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _added(node: ir.Node, nodes: Nodes) -> list[ir.Node]:
    """Return the nodes that replace a sum of lists; the last of them has its name."""
    made = [nodes.producer(ref) for ref in node.inputs]
    single = [one if one is not None and match(_SINGLE_UPDATE, one, nodes) else None for one in made]
    whole = [ref for ref, one in zip(node.inputs, single, strict=True) if one is None]
    elements = [one for one in single if one is not None]
    if not elements or len(whole) != 1:
        return [node]
    (total,) = whole
    out: list[ir.Node] = []
    for number, one in enumerate(elements):
        _, index, value = one.inputs
        dtype = one.attrs["element_dtype"]
        name = f"{node.name}/element_{number}"
        last = number == len(elements) - 1
        control = (*node.control, *one.control)
        shape = build.node("Shape", value, name=f"{name}/shape", T=dtype, out_type=_INT32)
        item = build.node(
            "TensorListGetItem", total, index, shape, name=f"{name}/item", control=control, element_dtype=dtype
        )
        summed = build.node("AddV2", item, value, name=f"{name}/sum", T=dtype)
        written = build.node(
            "TensorListSetItem",
            total,
            index,
            summed,
            name=node.name if last else name,
            control=control,
            location=node.location,
            element_dtype=dtype,
        )
        out += [shape, item, summed, written]
        total = ir.TensorRef(written.name)
    return out
