"""Check the calls of layers in a functional model of Keras: its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tf2jax_lite.support.errors import InvalidModelError

_CONSTANT = "_CONSTANT_VALUE"  # in place of a layer's name in nodes of tf_keras


def check_nodes(item: dict[str, Any], where: str) -> None:
    """Raise an error for calls on constants alone, or that wait for each other.

    A call on constants computes at once, with any arguments; no layer of a model that Keras saved has one. Calls on
    results of other layers are traced, and compute nothing. For calls that wait for each other tf_keras does not end.
    """
    nodes = item.get("inbound_nodes")
    for node in nodes if isinstance(nodes, list) else ():
        if not _is_symbolic(node):
            raise InvalidModelError(f"{where}: the layer {item.get('name')!r} is called on no result of another layer.")
    layers = item.get("layers")
    if isinstance(layers, list):
        waiting = _waiting([layer for layer in layers if isinstance(layer, dict)])
        if waiting:
            raise InvalidModelError(f"{where}: the layer {waiting[0]!r} is called on a result that no layer has.")


def _is_symbolic(node: Any) -> bool:
    """Return whether an argument of a layer has a result of another layer."""
    # It looks where Keras does.
    if isinstance(node, dict):
        if "class_name" in node:
            return node["class_name"] == "__keras_tensor__"
        return any(_is_symbolic(value) for value in node.values())
    if not isinstance(node, list):
        return False
    if _is_reference(node):
        if node[0] != _CONSTANT and type(node[1]) is type(node[2]) is int:
            return True
        return len(node) == 4 and isinstance(node[3], dict) and _is_symbolic(node[3])
    return any(_is_symbolic(value) for value in node)


def _is_reference(node: list[Any]) -> bool:
    """Return whether a list is ``[layer, call, result]``, perhaps with keywords."""
    return 3 <= len(node) <= 4 and isinstance(node[0], str)


def _references(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers, and the numbers of their calls, whose results a call gets."""
    if isinstance(node, list):
        if _is_reference(node):
            if node[0] != _CONSTANT:
                yield node[0], node[1]
            node = node[3:]
        for value in node:
            yield from _references(value)
    elif isinstance(node, dict) and "class_name" not in node:
        for value in node.values():
            yield from _references(value)


def _waiting(layers: list[dict[str, Any]]) -> list[Any]:
    """Return the layers with calls that can never be made."""
    # tf_keras makes those of a layer in order, when all inputs exist.
    calls: dict[Any, list[Any]] = {}
    exist: dict[Any, range] = {}
    for layer in layers:
        name, nodes, kind = layer.get("name"), layer.get("inbound_nodes"), layer.get("class_name")
        if isinstance(name, str) and isinstance(nodes, list):
            calls.setdefault(name, []).extend(list(_references(node)) for node in nodes)
            # A model's first call is that on its own inputs. That of a Sequential may not exist.
            first, made = (1, 1) if kind in ("Functional", "Model") else (0, 1 if kind == "Sequential" else 0)
            exist[name] = range(first, made) if kind != "InputLayer" else range(1 << 62)
    progress = True
    while progress:
        progress = False
        for name, nodes in calls.items():
            while nodes and all(type(at) is int and at in exist.get(other, range(1 << 62)) for other, at in nodes[0]):
                nodes.pop(0)
                exist[name] = range(exist[name].start, exist[name].stop + 1)
                progress = True
    return [name for name, nodes in calls.items() if nodes]
