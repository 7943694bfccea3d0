"""Liveness: the nodes of a function that its outputs and effects need."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from tf2jax_lite import ir


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
