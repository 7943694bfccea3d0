"""Gradients of elements that loops read from lists, added to one element where the graph adds whole lists.

TensorFlow's gradient of reading an element is a list of the same length with that element alone set, and lists are
added up: in each iteration, all of them. How long that list is, and of which shape, it takes from a list, too, so that
no loop could be compiled of it: it was unrolled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf2jax_lite import ir

__all__ = ["add_to_elements"]

_SUMS = ("AddN", "AddV2")
_NEEDED = frozenset({"TensorListSetItem", "TensorListReserve"})
_INT32 = np.dtype(np.int32)


def add_to_elements(graph: ir.Graph) -> ir.Graph:
    """Returns the graph with what such a list adds to others added to their element."""
    if not graph.ops.issuperset(_NEEDED):
        return graph
    functions = {name: _function(function) for name, function in graph.functions.items()}
    return dataclasses.replace(graph, main=_function(graph.main), functions=functions)


def _function(function: ir.Function) -> ir.Function:
    if not function.ops.issuperset(_NEEDED) or function.ops.isdisjoint(_SUMS):
        return function
    nodes = {node.name: node for node in function.nodes}
    out: list[ir.Node] = []
    for node in function.nodes:
        out += _added(node, nodes) if node.op in _SUMS and node.output_dtypes == (ir.VARIANT,) else [node]
    return function if len(out) == len(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _made(ref: ir.TensorRef, nodes: Mapping[str, ir.Node]) -> ir.Node | None:
    node = nodes.get(ref.node)
    while node is not None and node.op == "Identity":
        node = nodes.get(node.inputs[0].node)
    return node


def _alone(ref: ir.TensorRef, nodes: Mapping[str, ir.Node]) -> ir.Node | None:
    """Returns the node that sets the only element of a list, if that is what a tensor is."""
    node = _made(ref, nodes)
    if node is None or node.op != "TensorListSetItem" or not isinstance(node.attrs.get("element_dtype"), np.dtype):
        return None
    reserved = _made(node.inputs[0], nodes)
    return node if reserved is not None and reserved.op == "TensorListReserve" else None


def _added(node: ir.Node, nodes: Mapping[str, ir.Node]) -> list[ir.Node]:
    """Returns the nodes in the place of a sum of lists; the last of them has its name."""
    single = [_alone(ref, nodes) for ref in node.inputs]
    whole = [ref for ref, one in zip(node.inputs, single, strict=True) if one is None]
    elements = [one for one in single if one is not None]
    if not elements or len(whole) != 1:
        return [node]
    (total,) = whole
    out: list[ir.Node] = []
    for number, one in enumerate(elements):
        _, place, value = one.inputs
        dtype = one.attrs["element_dtype"]
        name = f"{node.name}/element_{number}"
        last = number == len(elements) - 1
        control = (*node.control, *one.control)
        attrs = {"element_dtype": dtype}
        shape = ir.Node(
            f"{name}/shape", "Shape", (value,), (None,), (), {"T": dtype, "out_type": _INT32}, output_dtypes=(_INT32,)
        )
        item = ir.Node(
            f"{name}/item",
            "TensorListGetItem",
            (total, place, ir.TensorRef(shape.name)),
            (None, None, None),
            control,
            attrs,
            output_dtypes=(dtype,),
        )
        summed = ir.Node(
            f"{name}/sum",
            "AddV2",
            (ir.TensorRef(item.name), value),
            (None, None),
            (),
            {"T": dtype},
            input_types=("T", "T"),
            output_dtypes=(dtype,),
        )
        written = ir.Node(
            node.name if last else name,
            "TensorListSetItem",
            (total, place, ir.TensorRef(summed.name)),
            (None, None, None),
            control,
            {"resize_if_index_out_of_bounds": False, **attrs},
            output_dtypes=(ir.VARIANT,),
            location=node.location,
        )
        out += [shape, item, summed, written]
        total = ir.TensorRef(written.name)
    return out
