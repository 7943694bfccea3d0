"""How functions call each other: never in a circle, and not too deep for tracing."""

from __future__ import annotations

from collections.abc import Mapping

from tf2jax_lite import ir
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InvalidModelError, LimitError

__all__ = ["MAX_CALL_DEPTH", "check_calls"]

MAX_CALL_DEPTH = 60
"""Calls within calls. A level of tracing takes up to a dozen of Python's frames, which has a thousand; models have a
handful of levels."""


def check_calls(graph: ir.Graph, *, everything: bool = False) -> None:
    """Refuses a graph that cannot be traced because of how its functions call each other.

    Args:
      graph: the graph.
      everything: look at functions that the main function does not reach, too.

    Raises:
      InvalidModelError: a function calls itself, directly or through others.
      LimitError: functions call each other deeper than `MAX_CALL_DEPTH`, or so often that there are more nodes than
        ``config.max_nodes`` when calls are expanded.
    """
    callees: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    pending = [graph.main, *(graph.functions.values() if everything else ())]
    while pending:
        function = pending.pop()
        if function.name in callees and function is not graph.main:
            continue
        key = "" if function is graph.main else function.name
        callees[key] = [ref.name for node in function.callers for ref in node.functions]
        sizes[key] = len(function.nodes)
        pending += [graph.functions[n] for n in callees[key] if n in graph.functions and n not in callees]
    _check(callees, sizes, current_config().max_nodes)


def _check(callees: Mapping[str, list[str]], sizes: dict[str, int], max_nodes: int) -> None:
    depth: dict[str, int] = {}
    for root in callees:
        path = [(root, iter(callees[root]))]
        is_open = {root}
        if root in depth:
            continue
        while path:
            name, left = path[-1]
            child = next((n for n in left if n in callees), None)
            if child is None:
                path.pop()
                is_open.discard(name)
                depth[name] = 1 + max((depth[n] for n in callees[name] if n in depth), default=0)
                # Every call is traced anew: functions that each call the next one twice soon make too many.
                sizes[name] += sum(sizes[n] for n in callees[name] if n in depth)
                if sizes[name] > max_nodes:
                    raise LimitError(
                        f"function {name!r} has {sizes[name]} nodes when calls are expanded; max_nodes allows "
                        f"{max_nodes}. Raise it if you trust the model."
                    )
                if depth[name] > MAX_CALL_DEPTH + 1:
                    raise LimitError(
                        f"function {name!r} calls functions more than {MAX_CALL_DEPTH} deep; that is too deep to trace."
                    )
            elif child in is_open:
                raise InvalidModelError(
                    f"function {child!r} calls itself (through {name!r}); recursion cannot be traced into JAX."
                )
            elif child not in depth:
                is_open.add(child)
                path.append((child, iter(callees[child])))
