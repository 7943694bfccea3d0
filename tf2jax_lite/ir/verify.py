"""Check of a graph's calls: no recursion, bounded depth and expanded size."""

from __future__ import annotations

from tf2jax_lite import ir
from tf2jax_lite.support.call_graph import check_size
from tf2jax_lite.support.config import current_config

MAX_CALL_DEPTH = 60
"""Maximum nesting of calls. One level of tracing takes up to 12 Python frames of the default 1000; models have under
ten levels."""


def check_calls(graph: ir.Graph, *, everything: bool = False) -> None:
    """Raise an error if the calls of a graph's functions make it impossible to trace.

    Args:
      everything: also check functions that the main function does not reach.
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
    check_size(callees, sizes, current_config().max_nodes, MAX_CALL_DEPTH)
