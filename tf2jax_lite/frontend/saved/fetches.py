"""Fetches by name, as in ``tf.compat.v1.Session.run``: tensors and operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tf2jax_lite.frontend.graphdef import op_defs
from tf2jax_lite.support.errors import InvalidModelError


@dataclasses.dataclass(frozen=True)
class Fetches:
    """The fetched tensors and operations.

    Attributes:
      operations: names of nodes that run for their side effects, without duplicates.
      positions: for each given name the index in ``tensors``, or None for an operation.
    """

    tensors: tuple[str, ...]
    operations: tuple[str, ...]
    positions: tuple[int | None, ...]


def fetches(graph: Any, names: Iterable[str]) -> Fetches:
    """Classify names as tensors and operations.

    Args:
      graph: the GraphDef.
      names: ``node:index``; ``node`` for its first result, or for the operation if it has none; ``^node`` for the
        operation. Missing nodes raise an error later, when the graph is read.
    """
    nodes = {node.name: node for node in graph.node}
    signatures = {function.signature.name: function.signature for function in graph.library.function}
    tensors: list[str] = []
    operations: dict[str, None] = {}
    positions: list[int | None] = []
    for name in names:
        if name.startswith("^") or (name in nodes and not _has_results(nodes[name], signatures)):
            operations[name.removeprefix("^")] = None
            positions.append(None)
        else:
            positions.append(len(tensors))
            tensors.append(name)
    return Fetches(tuple(tensors), tuple(operations), tuple(positions))


def _has_results(node: Any, signatures: Any) -> bool:
    """Return whether a node has a result."""
    # Unknown or damaged nodes have one: reading the graph raises an error for them.
    if node.op in signatures:
        return bool(signatures[node.op].output_arg)
    definition = op_defs.definition(node.op)
    if definition is None:
        return True
    try:
        attrs = op_defs.read_attrs(node)
        return any(arg.types(attrs, node.name) for arg in definition.outputs)
    except InvalidModelError:
        return True
