"""Which nodes of a function have to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tf2jax_lite import ir


def live_nodes(
    function: ir.Function,
    effectful: Callable[[ir.Node], bool],
    outputs: Iterable[ir.TensorRef] | None = None,
    *,
    everything: bool = False,
) -> tuple[ir.Node, ...]:
    """Returns the nodes that the outputs or kept side effects need, in the function's order.

    A node with an effect is kept if the outputs or control outputs reach it over any edge, control edges
    included; a node without one is kept only if a kept node or an output uses its value.

    Args:
      function: the function.
      effectful: tells whether running a node changes something besides its results.
      outputs: the outputs that are wanted; all of them by default. Control outputs count only with the default.
      everything: whether nodes with an effect are kept though nothing reaches them.
    """
    nodes = {node.name: node for node in function.nodes}
    wanted = function.outputs if outputs is None else tuple(outputs)
    roots = [ref.node for ref in wanted]
    if outputs is None:
        effects = [node.name for node in function.nodes if effectful(node)]
        if effects:
            reached = _closure([*roots, *function.control_outputs], nodes, control=True)
            roots += [name for name in effects if everything or name in reached]
    live = _closure(roots, nodes, control=False)
    return tuple(node for node in function.nodes if node.name in live)


def needed_nodes(
    function: ir.Function, effectful: Callable[[ir.Node], bool], outputs: Iterable[ir.TensorRef]
) -> tuple[ir.Node, ...]:
    """Returns the nodes that some outputs need, and those with an effect that `live_nodes` keeps for the others.

    Args:
      function: the function.
      effectful: tells whether running a node changes something besides its results.
      outputs: the outputs that are wanted.
    """
    nodes = {node.name: node for node in function.nodes}
    effects = [node.name for node in live_nodes(function, effectful) if effectful(node)]
    live = _closure([*(ref.node for ref in outputs), *effects], nodes, control=False)
    return tuple(node for node in function.nodes if node.name in live)


def _closure(roots: Iterable[str], nodes: dict[str, ir.Node], *, control: bool) -> set[str]:
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
