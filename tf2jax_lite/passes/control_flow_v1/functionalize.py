"""Control flow v1 (Switch, Merge, Enter, Exit, NextIteration, LoopCond) as If and While.

TF1 graphs branch and loop by dataflow: a Switch kills one of its outputs, what depends on dead values is dead, a
Merge takes the input that is alive, and loops are cycles in *frames*. A Switch with many sides is first replaced by
such with two (switch_n.py). Frames become While nodes, innermost first
(frames.py, while_regions.py); then, in what remains of each function, values that live under a condition go into If
nodes
(bdd.py, node_conditions.py, if_regions.py). Each step takes time linear in the number of nodes, times the nesting
depth.
"""

from __future__ import annotations

import collections
import dataclasses

from tf2jax_lite import ir
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.support.errors import UnsupportedError

from . import switch_n
from .frames import Frame, find_frames, ordered
from .if_regions import Library, function_of
from .while_regions import while_of

__all__ = ["OPS", "functionalize"]

OPS = frozenset(
    prefix + op for op in ("Switch", "Merge", "Enter", "Exit", "NextIteration") for prefix in ("", "Ref")
) | {"LoopCond", switch_n.OP}
"""The ops of control flow v1."""


def functionalize(graph: ir.Graph) -> ir.Graph:
    """Returns the graph with If and While nodes, and functions for them, in place of control flow v1.

    In functions that hold such control flow only what their results need is kept.

    Raises:
      UnsupportedError: the control flow has no such form; the message names frame, nodes and reason.
    """
    if not OPS & graph.ops:
        return graph
    library = Library([*graph.functions, graph.main.name])
    summaries = Summaries(collections.ChainMap(library.functions, dict(graph.functions)), registry.known_ops())
    try:
        main = _function(library, summaries, graph.main)
        functions = {name: _function(library, summaries, function) for name, function in graph.functions.items()}
    except RecursionError:
        raise UnsupportedError(f"{graph.main.name!r}: branches are nested too deep.") from None
    return dataclasses.replace(graph, main=main, functions={**functions, **library.functions})


def _function(library: Library, summaries: Summaries, function: ir.Function) -> ir.Function:
    if not OPS & function.ops:
        return function
    nodes, outputs = switch_n.with_two_sides(
        function.name, [_plain(node) for node in _reached(function)], function.outputs, (a.name for a in function.args)
    )
    root = find_frames(function.name, nodes)

    def is_pure(node: ir.Node) -> bool:
        entry = registry.lookup(node.op)
        if entry is not None and (entry.effectful or entry.key is not None):
            return False
        inner = [summaries.of_name(ref.name) for ref in node.functions]
        return not any(effects or effects.needs_key for effects in inner)

    by_name = {node.name: node for node in nodes}
    arguments = {arg.name: arg.dtype for arg in function.args}

    def dtype(ref: ir.TensorRef) -> ir.DType:
        return by_name[ref.node].output_dtypes[ref.index] if ref.node in by_name else arguments[ref.node]

    def close(frame: Frame) -> list[ir.Node]:
        for child in frame.children.values():
            frame.nodes.extend(close(child))
        return while_of(library, function.name, frame, is_pure, dtype)

    for child in root.children.values():
        root.nodes.extend(close(child))
    return function_of(
        library,
        function.name,
        function.args,
        ordered(function.name, root.nodes),
        outputs,
        what="result",
        control_outputs=function.control_outputs,
        attributes=function,
    )


def _plain(node: ir.Node) -> ir.Node:
    """What forwards references forwards handles here, which are values like any other."""
    return dataclasses.replace(node, op=node.op[3:]) if node.op in OPS and node.op.startswith("Ref") else node


def _reached(function: ir.Function) -> list[ir.Node]:
    """Returns the nodes that TensorFlow's executor would run for the function's results."""
    nodes = {node.name: node for node in function.nodes}
    seen: set[str] = set()
    stack = [*(ref.node for ref in function.outputs), *function.control_outputs]
    while stack:
        name = stack.pop()
        if name in nodes and name not in seen:
            seen.add(name)
            stack.extend(ref.node for ref in nodes[name].inputs)
            stack.extend(nodes[name].control)
    return [node for node in function.nodes if node.name in seen]
