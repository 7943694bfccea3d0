"""Ops that run foreign code or touch files, and where a model would run them.

TensorFlow runs parts of a SavedModel when it loads it (initializers of tables and other resources), and the prefix of a
split model when it is called. Such models raise an error before TensorFlow sees them. ``config.trusted`` names ops and
files to allow.

``tf.saved_model.load`` calls functions of the model that make and fill tables and other resources, and those that
restore objects from the checkpoint; of a TF1 model it runs the restoring op and the initializers. In an untrusted file
they could hang, or use all memory. They may therefore only contain ops that such functions need (`reject_at_load`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tf2jax_lite.frontend.graphdef import attributes, op_defs, protos
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InvalidModelError, LimitError, UntrustedError
from tf2jax_lite.support.limits import is_trusted, regular
from tf2jax_lite.support.op_traits import UNSAFE, ops_with

from .raw_protos import ancestors, called_functions, reached_functions, tensor_infos

Entry = tuple[str, str, str, str | None]

_NO_FILE = ("", "local://")
_BY_ATTRIBUTE: Mapping[str, tuple[str, Callable[[str], bool], str]] = {
    "DecodeProtoV2": ("descriptor_source", lambda text: text not in _NO_FILE and text[:8] != "bytes://", "reads files"),
    "EncodeProto": ("descriptor_source", lambda text: text not in _NO_FILE and text[:8] != "bytes://", "reads files"),
    "FixedUnigramCandidateSampler": ("vocab_file", bool, "reads files"),
    "PrintV2": ("output_stream", lambda text: text.startswith("file:"), "writes files"),
}
"""Ops that touch files for some values of an attribute: the attribute, the values, and the effect."""

_SAVER_OPS = ops_with("saver")
_FROM_FILE = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")


def unsafe_reason(op: str, attribute: Callable[[str], Any]) -> str | None:
    """Return the effect of a node besides computing; None if it has none.

    Args:
      attribute: returns a string attribute of it (str or bytes), or None.
    """
    if op in UNSAFE or op not in _BY_ATTRIBUTE:
        return UNSAFE.get(op)
    name, touches, reason = _BY_ATTRIBUTE[op]
    value = attribute(name)
    text = attributes.text_of(value) if isinstance(value, bytes) else str(value or "")
    return reason if touches(text) else None


def reject_unsafe_ops(nodes: Iterable[Entry], where: str) -> None:
    """Raise an error for nodes that run code or touch files.

    Args:
      nodes: ``(op, node, function, reason)``, the last as `unsafe_reason` returns it.
      where: the model's name, for messages.
    """
    found = [entry for entry in nodes if entry[3] and not is_trusted(entry[0])]
    if not found:
        return
    ops = sorted({entry[0] for entry in found})
    lines = [f"  {op}: node {node!r} in {function!r}, {reason}" for op, node, function, reason in found[:20]]
    if len(found) > 20:
        lines.append(f"  and {len(found) - 20} more")
    raise UntrustedError(
        f"{where}: TensorFlow would have to run {', '.join(ops)}, which config.trusted does not allow:\n"
        + "\n".join(lines)
        + f'\nIf you trust the model, allow it by name: override_config("trusted", "{",".join(ops)}").'
    )


def reject_unsafe_graph(graph: Any, where: str, ends: Iterable[str]) -> None:
    """Raise an error for unsafe ops that TensorFlow runs for some nodes.

    See `reject_unsafe_ops`.
    """
    reject_unsafe_ops([_entry(node, function) for function, node in _running(graph, ends)], where)


def _running(graph: Any, ends: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield function and node of all that TensorFlow runs for some nodes."""
    # Nodes of ops without state always count: TensorFlow evaluates constant ones when it imports a graph.
    names = ancestors(graph, ends)
    main = [node for node in graph.node if node.name in names or not _has_state(node.op)]
    inner = [(f.signature.name, node, _has_state(node.op)) for f in graph.library.function for node in f.node_def]
    stateless = [node for _, node, has_state in inner if not has_state]
    called = reached_functions([*main, *stateless], graph.library)
    yield from (("graph", node) for node in main)
    yield from ((name, node) for name, node, has_state in inner if name in called or not has_state)


def _has_state(op: str) -> bool:
    found = op_defs.definition(op)
    return found is not None and found.stateful


def _entry(node: Any, function: str) -> Entry:
    return (
        node.op,
        node.name,
        function,
        unsafe_reason(node.op, lambda name: node.attr[name].s if name in node.attr else ""),
    )


def reject_unsafe_model(meta_graph: Any, path: str | os.PathLike[str], ends: Iterable[str] = ()) -> None:
    """Raise an error for unsafe ops that TensorFlow runs in a SavedModel.

    Savers may read and write checkpoints.

    Args:
      ends: of a TF1 graph, nodes that run besides those of its signatures.
    """
    where = os.fspath(path)
    graph = meta_graph.graph_def
    assets = set(assets_of(path, meta_graph))
    savers = _saver_functions(meta_graph)
    if meta_graph.object_graph_def.nodes:  # TensorFlow 2 loads functions; the top-level graph is for TensorFlow 1
        nodes = [(function.signature.name, node) for function in graph.library.function for node in function.node_def]
        saving: set[str] = set()
    else:
        asked = ancestors(graph, [*_run_ends(meta_graph), *ends])
        nodes = list(_running(graph, [*asked, *loading_ends(meta_graph)]))
        saving = ancestors(graph, _saver_ends(meta_graph)) - asked
    found = [
        _entry(node, name)
        for name, node in nodes
        if not (node.op in _SAVER_OPS and (name in savers or (name == "graph" and node.name in saving)))
    ]
    reject_unsafe_ops(found, where)
    running = {(name, node.name) for name, node in nodes}
    main = () if meta_graph.object_graph_def.nodes else graph.node
    reject_files(main, assets, path, lambda node: ("graph", node) in running)
    for function in graph.library.function:
        name = function.signature.name
        reject_files(function.node_def, set(), path, lambda node, name=name: (name, node) in running)


def reject_files(
    protos: Any, assets: Container[str], path: str | os.PathLike[str], is_running: Callable[[str], bool]
) -> None:
    """Raise an error for tables filled from files other than arguments and assets."""
    fillers = [node for node in protos if node.op in _FROM_FILE and is_running(node.name)]
    nodes = {node.name: node for node in protos} if fillers else {}
    for filler in fillers:
        seen: set[str] = set()
        source = filler
        while source is not None and source.name not in seen and len(source.input) > (source is filler):
            if source is not filler and source.op not in ("Identity", "Placeholder"):
                break
            seen.add(source.name)
            name = source.input[1 if source is filler else 0].split(":")[0]
            source = None if name in assets else nodes.get(name)
        if source is None or source.op == "Placeholder":
            continue
        texts = source.attr["value"].tensor.string_val if source.op == "Const" else ()
        if len(texts) != 1:
            refuse = f"{filler.name!r} ({filler.op}) reads a file that {source.name!r} ({source.op}) names"
            if not is_trusted(filler.op):
                raise UntrustedError(f"{os.fspath(path)}: {refuse}. If you trust the model, allow {filler.op} by name.")
            continue
        outside_file(attributes.text_of(texts[0]), path)


def assets_of(path: str | os.PathLike[str], meta_graph: Any) -> dict[str, str]:
    """Return the present file of each tensor that names an asset."""
    found = list(meta_graph.asset_file_def)
    key = "saved_model_assets"  # TF1 stores them in a collection
    if key in meta_graph.collection_def:
        for packed in meta_graph.collection_def[key].any_list.value:
            try:
                found.append(protos.message("AssetFileDef").FromString(packed.value))
            except DecodeError as error:
                raise InvalidModelError(f"{os.fspath(path)}: the list of assets cannot be read ({error}).") from error
    return {asset.tensor_info.name.split(":")[0]: str(asset_path(path, asset.filename)) for asset in found}


def asset_path(path: str | os.PathLike[str], name: str) -> Path:
    """Return the path of an asset of a SavedModel."""
    folder = Path(path) / "assets"
    file = folder / name
    inside = bool(name) and not os.path.isabs(name) and ".." not in Path(name).parts and "\0" not in name
    if inside:
        inside = file.resolve().is_relative_to(Path(path).resolve())
    if not inside and not is_trusted(name) and not is_trusted(file):
        raise UntrustedError(
            f"{os.fspath(path)}: the asset {name!r} leads out of the model's directory. If you trust the model, "
            f'allow it by name: override_config("trusted", {name!r}).'
        )
    return regular(file)


def _saver_functions(meta_graph: Any) -> set[str]:
    """Return functions that only savers call, which may read and write checkpoints."""
    ends = _saver_ends(meta_graph)
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    savers: set[str] = set()
    for name in ancestors(meta_graph.graph_def, ends):
        savers.update(called_functions(nodes[name]))
    others: set[str] = set(meta_graph.object_graph_def.concrete_functions)
    graph = meta_graph.graph_def
    for name in ancestors(graph, _run_ends(meta_graph)):
        others.update(called_functions(nodes[name]))
    for function in graph.library.function:
        if function.signature.name not in savers:
            for node in function.node_def:
                others.update(called_functions(node))
    return savers - others


def _saver_ends(meta_graph: Any) -> list[str]:
    saver = meta_graph.saver_def
    return [saver.save_tensor_name, saver.restore_op_name]


def _run_ends(meta_graph: Any) -> list[str]:
    """Return the nodes that run besides savers: signatures' results and initializers."""
    ends = []
    for signature in meta_graph.signature_def.values():
        ends += [info.name for part in tensor_infos(signature.outputs).values() for info in part.values()]
    for key, collection in meta_graph.collection_def.items():
        if "init" in key or "main_op" in key or "table" in key:
            ends += list(collection.node_list.value)
    return ends


_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op", "table_initializer")
_LOCAL_VARIABLES = "local_variables"


def loading_ends(meta_graph: Any) -> Iterator[str]:
    """Yield the names of the nodes that TensorFlow's loader runs in a TF1 graph."""
    yield meta_graph.saver_def.restore_op_name
    for key, signature in meta_graph.signature_def.items():
        if key.startswith("__saved_model"):
            yield from (info.name for info in signature.outputs.values())
    for key in _INIT_COLLECTIONS:
        if key in meta_graph.collection_def:
            yield from meta_graph.collection_def[key].node_list.value
    if _LOCAL_VARIABLES in meta_graph.collection_def:
        for data in meta_graph.collection_def[_LOCAL_VARIABLES].bytes_list.value:
            try:
                yield protos.message("VariableDef").FromString(data).initializer_name
            except DecodeError as error:
                raise InvalidModelError(f"the collection {_LOCAL_VARIABLES!r} cannot be read ({error}).") from error


def outside_file(path: str, model: str | os.PathLike[str] | None) -> Path:
    """Return a file that a graph names by a constant, if it may be read."""
    file = Path(path)
    if "\0" in path:
        raise InvalidModelError(f"a table is read from the file {path!r}.")
    inside = model is not None and file.resolve().is_relative_to(Path(model).resolve())
    if not inside and not is_trusted(path):
        raise UntrustedError(
            f"a table is read from the file {path!r}, which is not an asset. If you trust the model, allow it "
            f'by name: override_config("trusted", {path!r}).'
        )
    return regular(file)


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
    if meta_graph.object_graph_def.nodes:
        main: list[Any] = []
        names = set(_functions_of_objects(meta_graph.object_graph_def))
    else:
        running = ancestors(graph, loading_ends(meta_graph))
        main = [node for node in graph.node if node.name in running]
        names = set()
    restoring = ancestors(graph, [meta_graph.saver_def.restore_op_name]) if main else set()
    _reject_others(graph, main, names, restoring, where)


def reject_setup(graph: Any, ends: Iterable[str], where: str) -> None:
    """Raise an error, as `reject_at_load` does, for nodes of a graph that run at once.

    Args:
      ends: names of nodes, which run with all that they need.
    """
    running = ancestors(graph, ends)
    _reject_others(graph, [node for node in graph.node if node.name in running], set(), set(), where)


def _reject_others(graph: Any, main: list[Any], names: set[str], restoring: set[str], where: str) -> None:
    library = {function.signature.name: function for function in graph.library.function}
    names = reached_functions(main, graph.library, names)
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
    _reject_large(graph, main, sorted(names), where)


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


def _reject_large(graph: Any, main: list[Any], names: list[str], where: str) -> None:
    """Raise an error for results of unknown shape, or that are too large together."""
    library = {function.signature.name: function for function in graph.library.function}
    if not any(node.op in _SIZED for node in (*main, *(n for name in names for n in library[name].node_def))):
        return
    total = 0
    for name, scratch in _scratch_graphs(graph, main, names, where):
        strings: dict[Any, int | None] = {}
        for operation in scratch.get_operations():
            if operation.type not in _SIZED or is_trusted(operation.type):
                continue
            for result in operation.outputs:
                count, size = result.shape.num_elements(), result.dtype.size
                if result.dtype == "string":
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
        inputs = [x for x in operation.inputs if x.dtype == "string"]
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


def _scratch_graphs(graph: Any, main: list[Any], names: list[str], where: str) -> Iterator[tuple[str, Any]]:
    """Yield graphs in which TensorFlow infers shapes; they never run."""
    import tensorflow as tf  # `inspect` checks files without it
    from tensorflow.core.framework import graph_pb2
    from tensorflow.python.framework import function_def_to_graph

    # Recorded shapes of arguments are not used, as the file may be wrong.
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


def _imported(graph: Any) -> Any:
    import tensorflow as tf

    scratch = tf.Graph()
    with scratch.as_default():
        tf.graph_util.import_graph_def(graph, name="")
    return scratch
