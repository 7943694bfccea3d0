"""Functions of which a graph holds several implementations: the one that TensorFlow runs on CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tf2jax_lite import ir

__all__ = ["prefer_cpu"]

# As FunctionDefs are marked by tensorflow/python/eager/polymorphic_function/attributes.py.
_INTERFACE, _DEVICE = "api_implements", "api_preferred_device"
# What a function that belongs to a gradient is marked with: its counterpart must be marked in the same way.
_ROLES = ("forward_function_name", "backward_function_name")


def prefer_cpu(graph: ir.Graph) -> ir.Graph:
    """Returns the graph with calls of functions that have a variant for CPU as calls of that variant.

    TensorFlow Probability's samplers and Keras's recurrent layers are written once for CPU and once for
    accelerators. What is called in the graph may be either; TensorFlow's implementation selector
    (tensorflow/core/grappler/optimizers/implementation_selector.cc) puts the one for the device in its place when
    the graph runs. They may draw different numbers, and this library follows TensorFlow on CPU.
    """
    variants: dict[str, list[ir.Function]] = {}
    for function in graph.functions.values():
        if function.attrs.get(_INTERFACE) and function.attrs.get(_DEVICE) == "CPU":
            variants.setdefault(function.attrs[_INTERFACE], []).append(function)
    if not variants:
        return graph

    def chosen(name: str) -> str:
        function = graph.functions.get(name)
        if function is None or function.attrs.get(_DEVICE) == "CPU":
            return name
        found = [f for f in variants.get(function.attrs.get(_INTERFACE, ""), ()) if _is_interchangeable(function, f)]
        return found[0].name if len(found) == 1 else name

    def rewritten(function: ir.Function) -> ir.Function:
        nodes = [_calling(node, chosen) for node in function.nodes]
        return dataclasses.replace(function, nodes=tuple(nodes))

    functions = {name: rewritten(function) for name, function in graph.functions.items()}
    return dataclasses.replace(graph, main=rewritten(graph.main), functions=functions)


def _calling(node: ir.Node, chosen: Callable[[str], str]) -> ir.Node:
    called = node.attrs.get("f")
    if not isinstance(called, ir.FunctionRef) or chosen(called.name) == called.name:
        return node
    return dataclasses.replace(node, attrs={**node.attrs, "f": dataclasses.replace(called, name=chosen(called.name))})


def _is_interchangeable(one: ir.Function, other: ir.Function) -> bool:
    """Whether two functions take and give the same number of values of the same dtypes, in the same role."""
    return (
        [a.dtype for a in one.args] == [a.dtype for a in other.args]
        and len(one.outputs) == len(other.outputs)
        and [role in one.attrs for role in _ROLES] == [role in other.attrs for role in _ROLES]
    )
