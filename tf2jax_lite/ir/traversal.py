"""Walk over nodes of a function and functions of a graph; liveness.

`producer` and `skip` look through nodes that forward a value, `Nodes` is a function as patterns read it,
`constant_value` reads a Const, `topological_order` sorts nodes, `argument_offset` relates the inputs of a call to the
arguments of the callee, `called_functions` finds the functions that a graph reaches, and `live_nodes` those nodes that
outputs and effects need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError

from .graph import Function, Graph, Node, TensorRef

IDENTITY = frozenset({"Identity"})
# In control flow v1, an edge from NextIteration to Merge closes a loop. It does not order nodes.
_MERGES = frozenset({"Merge", "RefMerge"})
_BACK_EDGES = frozenset({"NextIteration", "RefNextIteration"})


def skip(ref: TensorRef, nodes: Mapping[str, Node], ops: Collection[str] = IDENTITY) -> TensorRef:
    """Return the tensor that a chain of nodes forwards as ``ref``."""
    while (node := nodes.get(ref.node)) is not None and node.op in ops:
        ref = node.inputs[0]
    return ref


def producer(ref: TensorRef, nodes: Mapping[str, Node], through: Collection[str] = IDENTITY) -> Node | None:
    """Return a tensor's node, behind forwarding nodes; None for an argument."""
    return nodes.get(skip(ref, nodes, through).node)


def constant_value(ref: TensorRef, nodes: Mapping[str, Node], through: Collection[str] = IDENTITY) -> np.ndarray | None:
    """Return the value of a tensor that a Const node makes; None for any other."""
    node = producer(ref, nodes, through)
    value = node.attrs.get("value") if node is not None and node.op == "Const" else None
    return value if isinstance(value, np.ndarray) else None


class Nodes:
    """The nodes of a function, as `tf2jax_lite.support.patterns.match` reads a graph."""

    def __init__(self, function: Function):
        self.by_name: Mapping[str, Node] = {node.name: node for node in function.nodes}

    def producer(self, value: TensorRef, through: Collection[str] = ()) -> Node | None:
        """Return a tensor's node, behind forwarding nodes; None for an argument."""
        return producer(value, self.by_name, IDENTITY.union(through))

    def kind(self, operation: Node) -> str:
        """Return a node's op."""
        return operation.op

    def operands(self, operation: Node) -> Sequence[TensorRef]:
        """Return a node's inputs."""
        return operation.inputs

    def number(self, value: TensorRef) -> int | None:
        """Return the integer of a Const of one element."""
        array = constant_value(value, self.by_name)
        return int(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "iu" else None


def argument_offset(node: Node, callee: Function) -> int:
    """Return the number of inputs not passed on: If's predicate, Case's index.

    Calls, branches and loops pass their last inputs.
    """
    return len(node.inputs) - len(callee.args)


def topological_order(function: str, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return nodes after those that they wait for; ties keep the given order.

    Args:
      nodes: its nodes. Edges from NextIteration to Merge do not count.
    """
    by_name = {node.name: node for node in nodes}
    ordered: list[Node] = []
    is_placed: dict[str, bool] = {}  # False while the nodes that it waits for are being placed

    def pending(node: Node) -> list[str]:
        """Return the names of a node's sources that are not placed."""
        merges = node.op in _MERGES
        return [
            source
            for source in dict.fromkeys([*[ref.node for ref in node.inputs], *node.control])
            if not is_placed.get(source) and source in by_name and not (merges and by_name[source].op in _BACK_EDGES)
        ]

    for root, node in by_name.items():
        if root in is_placed:
            continue
        # TensorFlow writes most functions in order. Between two roots, no node is being placed.
        for source, _ in node.inputs:
            if source not in is_placed and source in by_name:
                break
        else:
            if not node.control or not pending(node):
                is_placed[root] = True
                ordered.append(node)
                continue
        stack = [root]
        while stack:
            current = stack[-1]
            state = is_placed.get(current)
            if state is not None:
                stack.pop()
                if not state:
                    is_placed[current] = True
                    ordered.append(by_name[current])
                continue
            is_placed[current] = False
            for source in reversed(pending(by_name[current])):
                if source in is_placed:
                    raise InvalidModelError(f"function {function!r}: nodes {source!r} and {current!r} are on a cycle.")
                stack.append(source)
    return tuple(ordered)


def called_functions(graph: Graph) -> set[str]:
    """Return the library functions that main calls, directly or through others."""
    found: set[str] = set()
    pending = [graph.main]
    while pending:
        for node in pending.pop().callers:
            names = {ref.name for ref in node.functions if ref.name in graph.functions} - found
            found |= names
            pending += [graph.functions[name] for name in names]
    return found


CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
IFS = frozenset({"If", "StatelessIf", "XlaIf", "_If"})
CASES = frozenset({"Case", "StatelessCase"})
WHILES = frozenset({"While", "StatelessWhile", "XlaWhile", "_While"})


def live_nodes(
    function: ir.Function,
    effects: Collection[str],
    outputs: Iterable[ir.TensorRef] | None = None,
    *,
    everything: bool = False,
) -> tuple[ir.Node, ...]:
    """Return the nodes that outputs or side effects need, in the function's order.

    A node with an effect is kept if the outputs or control outputs reach it over any edge, control edges
    included; a node without one is kept only if a kept node or an output uses its value.

    Args:
      function: the function.
      effects: names of its nodes that have a side effect.
      outputs: the outputs that are wanted; all of them by default. Control outputs count only with the default.
      everything: whether to keep nodes with an effect that no output reaches.
    """
    wanted = function.outputs if outputs is None else tuple(outputs)
    roots = [ref.node for ref in wanted]
    if outputs is None and effects:
        if everything:
            roots += effects
        else:
            found = _closure([*roots, *function.control_outputs], function, control=True)
            roots += [name for name in effects if name in found]
    return _needed(roots, function)


def needed_nodes(
    function: ir.Function, effects: Collection[str], outputs: Iterable[ir.TensorRef]
) -> tuple[ir.Node, ...]:
    """Return nodes that outputs need, and nodes with effects that are kept."""
    kept = [node.name for node in live_nodes(function, effects) if node.name in effects]
    return _needed([*(ref.node for ref in outputs), *kept], function)


def reached(function: ir.Function) -> ir.Function:
    """Return the function with nodes its results reach over all edges.

    These are the nodes that TensorFlow's executor runs; a TF1 graph holds many others.
    """
    found = _closure([*(ref.node for ref in function.outputs), *function.control_outputs], function, control=True)
    return dataclasses.replace(function, nodes=tuple([node for node in function.nodes if node.name in found]))


def _needed(roots: Iterable[str], function: ir.Function) -> tuple[ir.Node, ...]:
    """Return nodes that compute ``roots`` (nodes or arguments), themselves too."""
    seen = set(roots)
    found = []
    for node in reversed(function.nodes):  # in topological order, users of a node come before it here
        if node.name in seen:
            found.append(node)
            for name, _ in node.inputs:
                seen.add(name)
    if len(found) + sum([arg.name in seen for arg in function.args]) == len(seen):
        return tuple(reversed(found))
    # A back edge of a TF1 loop, or a root that does not exist.
    live = _closure(seen, function, control=False)
    return tuple([node for node in function.nodes if node.name in live])


def _closure(roots: Iterable[str], function: ir.Function, *, control: bool) -> set[str]:
    nodes = {node.name: node for node in function.nodes}
    seen: set[str] = set()
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        node = nodes.get(name)
        if node is not None:
            for ref in node.inputs:
                if ref.node not in seen:
                    stack.append(ref.node)
            if control:
                stack.extend(node.control)
    return seen
