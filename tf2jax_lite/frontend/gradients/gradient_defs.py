"""Gradients registered on library functions (GradientDef).

They are functions of (arguments, gradients of the results).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import topological_order


def with_function_gradients(graph: ir.Graph, library: Any) -> ir.Graph:
    """Add a ``_CustomGradient`` after calls of functions with registered gradients.

    A ``SymbolicGradient`` of such a function calls its gradient.

    Only legacy calls, by a node whose op is the function's name, use it, and only in a plain graph: inside a
    ``tf.function``, TensorFlow takes the gradient of the function's body.

    Args:
      library: TensorFlow's FunctionDefLibrary, whose GradientDefs name functions and their gradients.
    """
    named = {g.function_name: g.gradient_func for g in library.gradient}
    gradients = {f: g for f, g in named.items() if f in graph.functions and g in graph.functions}
    if not gradients:
        return graph
    functions = dict(graph.functions)
    for name, gradient in gradients.items():
        wrapped = _upstream_first(graph.functions[name], graph.functions[gradient])
        functions[wrapped.name] = wrapped
    for name, function in graph.functions.items():
        functions[name] = _rewritten(function, gradients)
    return dataclasses.replace(graph, main=_rewritten(graph.main, gradients), functions=functions)


def _wrapper(function: str) -> str:
    return f"{function}/registered_gradient"


def _upstream_first(function: ir.Function, gradient: ir.Function) -> ir.Function:
    """Return a gradient function with the gradients of the results as first arguments."""
    split = len(function.args)
    args = (*gradient.args[split:], *gradient.args[:split])
    call = build.node(
        "StatefulPartitionedCall",
        [arg.name for arg in gradient.args],
        name="call",
        f=ir.FunctionRef(gradient.name),
        dtypes=[arg.dtype for arg in function.args],
    )
    outputs = tuple(ir.TensorRef("call", i) for i in range(split))
    return ir.Function(_wrapper(function.name), args, (call,), outputs, tuple(f"grad_{i}" for i in range(split)))


def _rewritten(function: ir.Function, gradients: Mapping[str, str]) -> ir.Function:
    nodes: list[ir.Node] = []
    for node in function.nodes:
        called = node.attrs.get("f")
        if node.op == "SymbolicGradient" and isinstance(called, ir.FunctionRef) and called.name in gradients:
            gradient = ir.FunctionRef(gradients[called.name])
            nodes.append(dataclasses.replace(node, op="StatefulPartitionedCall", attrs={"f": gradient}))
            continue
        if not isinstance(called, ir.FunctionRef) or called.name not in gradients or not node.attrs.get("_by_name"):
            nodes.append(node)
            continue
        original = dataclasses.replace(node, name=f"{node.name}/_original")
        results = tuple(ir.TensorRef(original.name, i) for i in range(len(node.output_dtypes)))
        count = len(node.inputs)
        marked = build.node(
            "_CustomGradient",
            results,
            node.inputs,
            node.inputs,
            gradient=ir.FunctionRef(_wrapper(called.name)),
            positions=list(range(count)),
            own=[-1] * count,
            dtypes=node.output_dtypes,
            like=node,
        )
        nodes += [original, marked]
    return dataclasses.replace(function, nodes=topological_order(function.name, nodes))
