"""Object graphs of SavedModels and of their checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def trainable_nodes(object_graph: Any) -> set[int]:
    """Return a SavedModel's nodes of trainable variables.

    See `concrete.trainable.trained_variables`.
    """
    nodes = dict(enumerate(object_graph.nodes))
    children = {i: {child.local_name: child.node_id for child in node.children} for i, node in nodes.items()}

    def listed(node: int, *path: str) -> set[int] | None:
        for name in path:
            node = children.get(node, {}).get(name, -1)
        is_list = node in nodes and nodes[node].WhichOneof("kind") == "user_object"
        return set(children[node].values()) if is_list else None

    variables = {i for i, node in nodes.items() if node.WhichOneof("kind") == "variable"}
    complete = listed(0, "trainable_variables")
    if complete is not None:
        return variables & complete
    found = {i for i in variables if nodes[i].variable.trainable}
    for i in nodes:
        held, trained = listed(i, "variables"), listed(i, "trainable_variables")
        if held is not None and trained is not None:
            found -= (held | (listed(i, "keras_api", "states") or set())) - trained
    return found


def checkpointed(graph: Any, root: Any) -> Iterator[tuple[Any, str]]:
    """Yield loaded variables with their keys in the checkpoint.

    Both object graphs are walked in parallel, by the names of children.
    """
    pending, seen = [(root, 0)], set()
    while pending:
        item, number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        node = graph.nodes[number]
        for attribute in node.attributes:
            if attribute.name == "VARIABLE_VALUE":
                yield item, attribute.checkpoint_key
        children = item._trackable_children() if hasattr(item, "_trackable_children") else {}
        pending += [(children[c.local_name], c.node_id) for c in node.children if c.local_name in children]
