"""What a graph is asked for by name, as ``tf.compat.v1.Session.run`` takes it: tensors, and operations that run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tf2jax_lite.frontend.graphdef import op_defs
from tf2jax_lite.support.errors import InvalidModelError

__all__ = ["Fetches", "fetches"]


@dataclasses.dataclass(frozen=True)
class Fetches:
    """What a graph is asked for.

    Attributes:
      tensors: names of tensors, as they were given.
      operations: names of nodes that run for what they do, each once.
      places: for each name that was given the position in ``tensors``, or None for an operation.
    """

    tensors: tuple[str, ...]
    operations: tuple[str, ...]
    places: tuple[int | None, ...]


def fetches(graph: Any, names: Iterable[str]) -> Fetches:
    """Tells tensors from operations.

    Args:
      graph: the GraphDef.
      names: ``node:index``, or ``node`` for its first result, or for the operation if it has none; ``^node`` is the
        operation always. Whether there is such a node is looked at when the graph is read.
    """
    nodes = {node.name: node for node in graph.node}
    signatures = {function.signature.name: function.signature for function in graph.library.function}
    tensors: list[str] = []
    operations: dict[str, None] = {}
    places: list[int | None] = []
    for name in names:
        if name.startswith("^") or (name in nodes and not _has_results(nodes[name], signatures)):
            operations[name.removeprefix("^")] = None
            places.append(None)
        else:
            places.append(len(tensors))
            tensors.append(name)
    return Fetches(tuple(tensors), tuple(operations), tuple(places))


def _has_results(node: Any, signatures: Any) -> bool:
    """Whether a node has a result; one that is unknown or damaged is taken to have some: who reads it says so."""
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
