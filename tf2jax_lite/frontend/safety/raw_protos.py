"""Walks over unverified GraphDefs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["ancestors", "called_functions"]


def called_functions(node: Any) -> set[str]:
    """Return the names of functions that a NodeDef may call.

    They are its op, and those among its attributes.
    """
    found = {node.op}
    for value in node.attr.values():
        if value.HasField("func"):
            found.add(value.func.name)
        found.update(item.name for item in value.list.func)
    return found


def ancestors(graph: Any, ends: Iterable[str]) -> set[str]:
    """Return the names of tensors or nodes of a GraphDef and of their ancestors."""
    nodes = {node.name: node for node in graph.node}
    stack = [end.split(":")[0].lstrip("^") for end in ends]
    seen: set[str] = set()
    while stack:
        name = stack.pop()
        if name in nodes and name not in seen:
            seen.add(name)
            stack.extend(text.split(":")[0].lstrip("^") for text in nodes[name].input)
    return seen
