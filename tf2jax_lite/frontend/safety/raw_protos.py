"""Walks over unverified GraphDefs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_INT64 = 9


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


def reached_functions(nodes: Iterable[Any], library: Any, names: Iterable[str] = ()) -> set[str]:
    """Return the functions of a library that nodes may call, directly or not.

    They include the gradients of functions. ``names`` are those of further functions that are called.
    """
    functions = {function.signature.name: function for function in library.function}
    gradients = {item.function_name: item.gradient_func for item in library.gradient}
    pending = [*names, *(name for node in nodes for name in called_functions(node))]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in functions and name not in seen:
            seen.add(name)
            pending += [called for node in functions[name].node_def for called in called_functions(node)]
            pending += [gradients[name]] if name in gradients else []
    return seen


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


def tensor_infos(infos: Any) -> dict[str, dict[str, Any]]:
    """Return the TensorInfos of a signature's inputs or outputs by sorted key.

    A composite tensor has one for each component, under the name that TensorFlow gives the argument.
    """
    found: dict[str, dict[str, Any]] = {}
    for key, info in sorted(infos.items()):
        found[key] = {key: info}
        if info.HasField("coo_sparse"):
            found[key] = {f"{key}_{name}": part for name, part in _sparse_parts(info)}
        elif info.HasField("composite_tensor"):
            found[key] = {f"{key}_component_{i}": part for i, part in enumerate(info.composite_tensor.components)}
    return found


def _sparse_parts(info: Any) -> Iterable[tuple[str, Any]]:
    rank = -1 if info.tensor_shape.unknown_rank else len(info.tensor_shape.dim)
    tensors = info.coo_sparse
    for name, tensor, dtype, sizes in (
        ("indices", tensors.indices_tensor_name, _INT64, (-1, rank)),
        ("values", tensors.values_tensor_name, info.dtype, (-1,)),
        ("dense_shape", tensors.dense_shape_tensor_name, _INT64, (rank,)),
    ):
        part = type(info)(name=tensor, dtype=dtype)
        for size in sizes:
            part.tensor_shape.dim.add(size=size)
        yield name, part


def without_devices(graph: Any) -> Any:
    """Clear the devices of a GraphDef's nodes: those of a cluster do not exist here."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            node.ClearField("device")
    return graph


def is_placed_elsewhere(graph: Any) -> bool:
    """Return whether a GraphDef names devices of other processes.

    Soft placement does not replace them.
    """
    every = (graph.node, *(function.node_def for function in graph.library.function))
    return any("/job:" in node.device and "/job:localhost" not in node.device for nodes in every for node in nodes)
