"""Order, depth and expanded size of functions that call each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf2jax_lite.support.errors import InvalidModelError, LimitError


def check_size(callees: Mapping[str, Sequence[str]], sizes: dict[str, int], max_nodes: int, max_depth: int) -> None:
    """Raise an error for functions that are recursive, or too large expanded.

    Args:
      sizes: for each function the number of its nodes; those of calls are added.
    """
    depth: dict[str, int] = {}
    for name in callees_first(callees):
        depth[name] = 1 + max((depth[n] for n in callees[name] if n in depth), default=0)
        # Each call is traced separately: functions that call the next one twice each double the number of nodes.
        sizes[name] += sum(sizes[n] for n in callees[name] if n in depth)
        if sizes[name] > max_nodes:
            raise LimitError(
                f"function {name!r} has {sizes[name]} nodes when calls are expanded; max_nodes allows {max_nodes}. "
                "Raise it if you trust the model."
            )
        if depth[name] > max_depth + 1:
            raise LimitError(
                f"function {name!r} calls functions more than {max_depth} deep; that is too deep to trace."
            )


def callees_first(callees: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of functions so that each comes after those that it calls."""
    order: list[str] = []
    is_done: dict[str, bool] = {}
    for root in callees:
        if root in is_done:
            continue
        is_done[root] = False
        path = [(root, iter(callees[root]))]
        while path:
            name, remaining = path[-1]
            child = next((n for n in remaining if n in callees), None)
            if child is None:
                path.pop()
                is_done[name] = True
                order.append(name)
            elif child not in is_done:
                is_done[child] = False
                path.append((child, iter(callees[child])))
            elif not is_done[child]:
                raise InvalidModelError(
                    f"function {child!r} calls itself (through {name!r}); recursion cannot be traced into JAX."
                )
    return order
