"""Functionalization: control flow v1 to If and While.

Control flow v1 consists of Switch, Merge, Enter, Exit, NextIteration and LoopCond.

TF1 graphs branch and loop by dataflow: a Switch kills one of its outputs, a node with a dead input is dead, a Merge
takes the input that is alive, and loops are cycles in *frames*. The steps are:

1. `switch_n` replaces ``_SwitchN`` by a tree of Switches.
2. `frames` finds the loops, and `while_regions` makes each a While node, innermost first.
3. In the acyclic remainder of each function, `node_conditions` finds the condition under which each node runs, as a
   binary decision diagram (`bdd`), and `if_regions` moves conditional nodes into If nodes.

Each step takes time linear in the number of nodes, times the nesting depth.
"""

from __future__ import annotations

import collections
import dataclasses

from tf2jax_lite import ir
from tf2jax_lite.ir.build import FunctionLibrary
from tf2jax_lite.ir.liveness import reached
from tf2jax_lite.ir.traversal import topological_order
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import UnsupportedError

from . import switch_n
from .frames import Frame, find_frames
from .if_regions import function_of
from .while_regions import while_of

OPS = frozenset(
    prefix + op for op in ("Switch", "Merge", "Enter", "Exit", "NextIteration") for prefix in ("", "Ref")
) | {"LoopCond", switch_n.OP}
"""The ops of control flow v1."""


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace control flow v1 by If and While nodes and functions for them.

    Functions that contain control flow v1 keep only the nodes that their results need.
    """
    del config
    if not OPS & graph.ops:
        return graph
    library = FunctionLibrary([*graph.functions, graph.main.name])
    summaries = Summaries(collections.ChainMap(library.functions, dict(graph.functions)), registry.ops_in_force())
    try:
        main = _function(library, summaries, graph.main)
        functions = {name: _function(library, summaries, function) for name, function in graph.functions.items()}
    except RecursionError:
        raise UnsupportedError(f"{graph.main.name!r}: branches are nested too deep.") from None
    return dataclasses.replace(graph, main=main, functions={**functions, **library.functions})


def _function(library: FunctionLibrary, summaries: Summaries, function: ir.Function) -> ir.Function:
    if not OPS & function.ops:
        return function
    live = [_without_ref(node) for node in reached(function).nodes]
    nodes, outputs = switch_n.with_binary_switches(
        function.name, live, function.outputs, (arg.name for arg in function.args)
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
        topological_order(function.name, root.nodes),
        outputs,
        role="result",
        control_outputs=function.control_outputs,
        attributes=function,
    )


def _without_ref(node: ir.Node) -> ir.Node:
    """Return RefSwitch, RefMerge and so on as Switch and Merge."""
    # References have become handles, which are values.
    return dataclasses.replace(node, op=node.op[3:]) if node.op in OPS and node.op.startswith("Ref") else node
