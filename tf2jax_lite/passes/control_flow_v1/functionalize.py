"""Functionalization: control flow v1 to If and While.

Control flow v1 consists of Switch, Merge, Enter, Exit, NextIteration and LoopCond.

TF1 graphs branch and loop by dataflow: a Switch kills one of its outputs, a node with a dead input is dead, a Merge
takes the input that is alive, and loops are cycles in *frames*. The steps are:

1. `with_binary_switches` replaces ``_SwitchN`` by a tree of Switches.
2. `while_regions` finds the loops, and makes each a While node, innermost first.
3. In the acyclic remainder of each function, `node_conditions` finds the condition under which each node runs, as a
   binary decision diagram, and `if_regions` moves conditional nodes into If nodes.

Each step takes time linear in the number of nodes, times the nesting depth.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import FunctionLibrary, constant, redirected
from tf2jax_lite.ir.traversal import reached, topological_order
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError

from .if_regions import function_of
from .while_regions import Frame, find_frames, while_of

OPS = frozenset(
    prefix + op for op in ("Switch", "Merge", "Enter", "Exit", "NextIteration") for prefix in ("", "Ref")
) | {"LoopCond", "_SwitchN"}
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
    nodes, outputs = with_binary_switches(function.name, live, function.outputs, (arg.name for arg in function.args))
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


_SWITCH_N = "_SwitchN"


def with_binary_switches(
    function: str, nodes: Sequence[ir.Node], outputs: Iterable[ir.TensorRef], taken: Iterable[str]
) -> tuple[list[ir.Node], tuple[ir.TensorRef, ...]]:
    """Return a function's nodes and outputs with Switch in place of ``_SwitchN``."""
    if not any(node.op == _SWITCH_N for node in nodes):
        return list(nodes), tuple(outputs)
    rewriting = _Rewriting({*taken, *(node.name for node in nodes)}, {node.name for node in nodes})
    moved: dict[ir.TensorRef, ir.TensorRef] = {}
    for node in nodes:
        if node.op == _SWITCH_N:
            moved.update(rewriting.named(function, node))
    made: list[ir.Node] = []
    for node in nodes:
        node = redirected(node, moved)
        made.extend(rewriting.rewritten(node) if node.op == _SWITCH_N else [node])
    return made, tuple(moved.get(ref, ref) for ref in outputs)


class _Halving(NamedTuple):
    """A Switch: outputs below ``middle`` are behind its true output."""

    name: str
    source: ir.TensorRef
    middle: int


class _Rewriting:
    """Builder of the Switches.

    Switches on the same index share predicates, so that liveness conditions agree.
    """

    def __init__(self, taken: set[str], nodes: set[str]):
        self._taken = taken
        self._nodes = nodes
        self._switches: dict[str, list[_Halving]] = {}
        self._unsigned: dict[ir.TensorRef, ir.TensorRef] = {}
        self._predicates: dict[tuple[ir.TensorRef, int], ir.TensorRef] = {}

    def named(self, function: str, node: ir.Node) -> dict[ir.TensorRef, ir.TensorRef]:
        """Name the Switches of a ``_SwitchN``; return the replacements of its outputs.

        The first keeps the name, so that control edges from the node remain valid.
        """
        count = len(node.output_dtypes)
        if count == 0:
            raise InvalidModelError(f"node {node.name!r} ({_SWITCH_N}) in {function!r} has no output.")
        switches = self._switches[node.name] = []
        moved: dict[ir.TensorRef, ir.TensorRef] = {}
        parts = [(0, count, ir.TensorRef(node.name))]
        while parts:
            low, high, source = parts.pop()
            if high - low == 1:
                moved[ir.TensorRef(node.name, low)] = source
                continue
            name = node.name if not switches else ir.free_name(f"{node.name}/sides_{low}_to_{high - 1}", self._taken)
            middle = (low + high) // 2
            switches.append(_Halving(name, source, middle))
            parts += [(low, middle, ir.TensorRef(name, 1)), (middle, high, ir.TensorRef(name, 0))]
        return moved if switches else {}

    def rewritten(self, node: ir.Node) -> list[ir.Node]:
        """Return the Switches and their new predicates, for a node with redirected inputs."""
        value, index = node.inputs
        dtypes = node.output_dtypes
        if len(dtypes) == 1:
            return [build.node("Identity", value, T=dtypes[0], like=node)]
        made: list[ir.Node] = []
        for position, halving in enumerate(self._switches[node.name]):
            source = halving.source if position else value
            predicate = self._predicate(index, halving.middle, made)
            made.append(build.node("Switch", source, predicate, T=dtypes[0], name=halving.name, like=node))
        return made

    def _predicate(self, index: ir.TensorRef, middle: int, made: list[ir.Node]) -> ir.TensorRef:
        found = self._predicates.get((index, middle))
        if found is not None:
            return found
        where = str(index).replace(":", "_")
        unsigned = np.dtype(np.uint32)  # as which a negative index is too large
        if index not in self._unsigned:
            name = ir.free_name(f"{where}/unsigned", self._taken)
            bits = build.node("Bitcast", index, name=name, T=np.dtype(np.int32), type=unsigned)
            made.append(bits)
            self._unsigned[index] = ir.TensorRef(bits.name)
        # The control edge puts the constant in the frame of the index, as TensorFlow does in loops.
        control = (index.node,) if index.node in self._nodes else ()
        limit = constant(ir.free_name(f"{where}/limit_{middle}", self._taken), np.uint32(middle), control)
        name = ir.free_name(f"{where}/is_below_{middle}", self._taken)
        test = build.node("Less", self._unsigned[index], limit, name=name, T=unsigned)
        made.extend((limit, test))
        self._predicates[index, middle] = ir.TensorRef(test.name)
        return ir.TensorRef(test.name)
