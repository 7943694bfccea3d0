"""Check of the ops that TensorFlow runs while it loads a SavedModel.

``tf.saved_model.load`` calls functions of the model that make and fill tables and other resources, and those that
restore objects from the checkpoint; of a TF1 model it runs the restoring op and the initializers. In an untrusted file
they could hang, or use all memory. They may therefore only contain ops that such functions need; ``config.trusted``
names others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import function_def_to_graph

from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InvalidModelError, LimitError, UntrustedError
from tf2jax_lite.support.limits import is_trusted
from tf2jax_lite.support.op_traits import ops_with

from .raw_protos import ancestors, reached_functions
from .unsafe_ops import loading_ends

_RESTORING = ops_with("restoring")
_ANYWHERE = ops_with("loading")
"""Ops whose results are not larger than their inputs, or than the file."""

_SIZED = ops_with("loading-sized")
"""Ops whose results have the size of a shape, which must be known before they run."""

_LONGEST_KEY = 1 << 16
"""Functions that save and restore take keys of the checkpoint, which are attribute paths."""

_CALLED = ("_create_resource", "_initialize", "_destroy_resource")


def reject_at_load(meta_graph: Any, path: str | os.PathLike[str]) -> None:
    """Raise an error if loading may run ops other than of initializers and savers.

    Args:
      path: the model's directory, for messages.
    """
    where = os.fspath(path)
    graph = meta_graph.graph_def
    library = {function.signature.name: function for function in graph.library.function}
    if meta_graph.object_graph_def.nodes:
        main: list[Any] = []
        names = set(_functions_of_objects(meta_graph.object_graph_def))
    else:
        running = ancestors(graph, loading_ends(meta_graph))
        main = [node for node in graph.node if node.name in running]
        names = set()
    names = reached_functions(main, graph.library, names)
    restoring = ancestors(graph, [meta_graph.saver_def.restore_op_name]) if main else set()
    found = [(n.op, n.name, "graph") for n in main if not _is_allowed(n, n.name in restoring)]
    for name in sorted(names):
        found += [(n.op, n.name, name) for n in library[name].node_def if not _is_allowed(n, False)]
    if found:
        ops = sorted({op for op, _, _ in found})
        lines = [f"  {op}: node {node!r} in {function!r}" for op, node, function in found[:20]]
        raise UntrustedError(
            f"{where}: TensorFlow would run {', '.join(ops)} while it loads the model, which no table or variable "
            "needs:\n"
            + "\n".join(lines)
            + f'\nIf you trust the model, allow it by name: override_config("trusted", "{",".join(ops)}").'
        )
    _reject_large(meta_graph, main, sorted(names), where)


def _is_allowed(node: Any, restoring: bool) -> bool:
    if node.op in _ANYWHERE or node.op in _SIZED or is_trusted(node.op):
        return True
    return restoring and node.op in _RESTORING


def _functions_of_objects(objects: Any) -> Iterator[str]:
    """Yield names of functions that the loader calls: for resources, and to restore."""
    nodes = objects.nodes
    for node in nodes:
        wanted = [child.node_id for child in node.children if child.local_name in _CALLED]
        for saveable in node.saveable_objects.values():
            wanted += [saveable.save_function, saveable.restore_function]
        for position in wanted:
            if not 0 <= position < len(nodes):
                raise InvalidModelError(f"an object of the model names the object {position}; there are {len(nodes)}.")
            called = nodes[position]
            yield from called.function.concrete_functions
            yield called.bare_concrete_function.concrete_function_name


def _reject_large(meta_graph: Any, main: list[Any], names: list[str], where: str) -> None:
    """Raise an error for results of unknown shape, or that are too large together."""
    graph = meta_graph.graph_def
    library = {function.signature.name: function for function in graph.library.function}
    if not any(node.op in _SIZED for node in (*main, *(n for name in names for n in library[name].node_def))):
        return
    total = 0
    for name, scratch in _scratch_graphs(meta_graph, main, names, where):
        strings: dict[Any, int | None] = {}
        for operation in scratch.get_operations():
            if operation.type not in _SIZED or is_trusted(operation.type):
                continue
            for result in operation.outputs:
                count, size = result.shape.num_elements(), result.dtype.size
                if result.dtype == tf.string:
                    size = _longest_string(result, strings)
                if count is None or size is None:
                    raise UntrustedError(
                        f"{where}: TensorFlow would run {operation.type} (node {operation.name!r} in {name!r}) while "
                        "it loads the model, and its memory use is unknown before it runs. If you trust the "
                        f'model, allow it by name: override_config("trusted", "{operation.type}").'
                    )
                total += count * size
                if total > current_config().max_constant_bytes:
                    raise LimitError(
                        f"{where}: the results of loading the model in TensorFlow, up to {operation.name!r} in "
                        f"{name!r}, take {total} bytes; max_constant_bytes allows "
                        f"{current_config().max_constant_bytes}. Raise it if you trust the model."
                    )


def _longest_string(result: Any, bounds: dict[Any, int | None]) -> int | None:
    """Return an upper bound of a string tensor's bytes; None if it is unknown."""
    # bounds: the bounds of other tensors of its graph, to which this function adds.
    pending = [result]
    while pending:
        tensor = pending[-1]
        operation = tensor.op
        inputs = [x for x in operation.inputs if x.dtype == tf.string]
        joins = operation.type in _SIZED or operation.type == "Identity"
        missing = [x for x in inputs if x.ref() not in bounds] if joins else []
        if missing:
            pending += missing
            continue
        pending.pop()
        if operation.type == "Const":
            bounds[tensor.ref()] = max(map(len, operation.get_attr("value").string_val), default=0)
        elif operation.type == "Placeholder":
            bounds[tensor.ref()] = _LONGEST_KEY
        elif joins:
            sizes = [bounds[x.ref()] for x in inputs]
            combine = sum if operation.type in ("Add", "AddV2") else max
            bounds[tensor.ref()] = (
                None if None in sizes else min(combine([size or 0 for size in sizes] or [0]), 1 << 62)
            )
        else:
            bounds[tensor.ref()] = None
    return bounds[result.ref()]


def _scratch_graphs(meta_graph: Any, main: list[Any], names: list[str], where: str) -> Iterator[tuple[str, Any]]:
    """Yield graphs in which TensorFlow infers shapes; they never run."""
    # Recorded shapes of arguments are not used, as the file may be wrong.
    graph = meta_graph.graph_def
    library = {function.signature.name: function for function in graph.library.function}
    try:
        if main:
            kept = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
            kept.node.extend(main)
            yield "graph", _imported(kept)
        for name in names:
            function = library[name]
            with _imported(graph_pb2.GraphDef(versions=graph.versions, library=graph.library)).as_default():
                shapes = [None] * len(function.signature.input_arg)
                body, _ = function_def_to_graph.function_def_to_graph_def(function, shapes)
            body.versions.CopyFrom(graph.versions)
            body.library.CopyFrom(graph.library)
            yield name, _imported(body)
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        text = str(error).strip().splitlines()
        raise InvalidModelError(
            f"{where}: TensorFlow cannot read what it would run on loading ({text[0] if text else error!r})."
        ) from error


def _imported(graph: Any) -> tf.Graph:
    scratch = tf.Graph()
    with scratch.as_default():
        tf.graph_util.import_graph_def(graph, name="")
    return scratch
