"""Implementation selection: the one for CPU among several (``api_implements``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tf2jax_lite import ir
from tf2jax_lite.support.config import Config

# Attributes of FunctionDefs: tensorflow/python/eager/polymorphic_function/attributes.py.
_INTERFACE, _DEVICE = "api_implements", "api_preferred_device"
# Attributes of the forward and backward functions of a gradient: a variant must have the same.
_ROLES = ("forward_function_name", "backward_function_name")


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Redirect calls of functions that have a CPU variant to that variant.

    TensorFlow Probability's samplers and Keras's recurrent layers have one implementation for CPU and one for
    accelerators. The graph may call either; TensorFlow's implementation selector
    (tensorflow/core/grappler/optimizers/implementation_selector.cc) replaces it by the one for the device when the
    graph runs. The two may draw different random numbers; this library agrees with TensorFlow on CPU.
    """
    del config
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

    return graph.mapped(rewritten)


def _calling(node: ir.Node, chosen: Callable[[str], str]) -> ir.Node:
    called = node.attrs.get("f")
    if not isinstance(called, ir.FunctionRef) or chosen(called.name) == called.name:
        return node
    return dataclasses.replace(node, attrs={**node.attrs, "f": dataclasses.replace(called, name=chosen(called.name))})


def _is_interchangeable(one: ir.Function, other: ir.Function) -> bool:
    """Return whether two functions have equal signatures and roles in a gradient."""
    # Signatures are argument dtypes and the number of results.
    return (
        [a.dtype for a in one.args] == [a.dtype for a in other.args]
        and len(one.outputs) == len(other.outputs)
        and [role in one.attrs for role in _ROLES] == [role in other.attrs for role in _ROLES]
    )
