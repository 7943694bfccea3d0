"""MetaGraphs of TF1: graphs whose nodes are their variables and tables.

SavedModels, Hub modules and ``.meta`` files contain them.

Loading does not run the graph. Variables become captures with values from a checkpoint or their initializers; tables
become captures with the contents that their initializers name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import ImportedFunction, Interface
from tf2jax_lite.calling.names import keyword_parameters
from tf2jax_lite.calling.params import Variable
from tf2jax_lite.calling.structures import OutputRef, TensorArgument
from tf2jax_lite.frontend.graphdef import attributes, dtypes, functions, protos
from tf2jax_lite.frontend.safety.raw_protos import tensor_infos
from tf2jax_lite.frontend.safety.unsafe_ops import assets_of
from tf2jax_lite.ir.build import handles_as_arguments
from tf2jax_lite.ir.traversal import reached
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError
from tf2jax_lite.support.limits import read_bytes
from tf2jax_lite.support.stored_array import StoredArray
from tf2jax_lite.values.static import LOCAL

from .checkpoint_reader import Checkpoint, Key, restored_from
from .lookup_tables import TABLE_OPS, Tables
from .ref_variables import VARIABLE_OPS, without_references

Values = Callable[[str, str], Any]
"""Returns a variable's value, or None if it is unknown, given the names of the variable and of its node."""

Initializer = Callable[[Any, str], Any]
"""Returns the initial value of a variable, or None if it is unknown, given the GraphDef and the variable's node."""


def is_tf1(meta_graph: Any) -> bool:
    """Return whether a MetaGraph was written by TF1: it has no object graph."""
    return not meta_graph.object_graph_def.nodes


def read_meta_graph(path: str | os.PathLike[str]) -> Any:
    """Return the MetaGraph of a ``.meta`` file."""
    file = Path(path)
    if not file.is_file():
        raise InvalidModelError(f"{file}: there is no such file.")
    try:
        found = protos.message("MetaGraphDef").FromString(read_bytes(file))
    except DecodeError as error:
        raise InvalidModelError(f"{file}: not a MetaGraph, or cut short ({error}).") from error
    if not found.graph_def.node:
        raise InvalidModelError(f"{file}: the graph has no nodes.")
    return found


def checkpoint_beside(path: str | os.PathLike[str]) -> str | None:
    """Return the checkpoint prefix of a ``.meta`` file, or None if it stands alone.

    A prefix may end with a folder: ``dir/`` has the files ``dir/.meta``, ``dir/.index``, ``dir/.data-...``.
    """
    prefix = os.fspath(path).removesuffix(".meta") or f".{os.sep}"
    return prefix if os.path.exists(f"{prefix}.index") else None


def as_meta_graph(graph: Any) -> Any:
    """Return a GraphDef as a MetaGraph without further fields."""
    return protos.message_beside(graph, "MetaGraphDef")(graph_def=graph)


def load_signature(
    path: str | os.PathLike[str],
    meta_graph: Any,
    name: str,
    values: Values,
    library: Callable[[], Mapping[str, ir.Function]],
) -> ImportedFunction:
    """Import one signature of a TF1 SavedModel.

    Args:
      values: returns the values of variables, see `variable_values`.
      library: returns the MetaGraph's functions, which signatures share.
    """
    signatures = {n: s for n, s in meta_graph.signature_def.items() if not n.startswith("__saved_model")}
    if name not in signatures:
        known = ", ".join(sorted(signatures)) or "none"
        raise InvalidModelError(f"{os.fspath(path)}: there is no signature {name!r}. Signatures: {known}.")
    parts = [item for part in tensor_infos(signatures[name].inputs).values() for item in part.items()]
    inputs, outputs = dict(parts), tensor_infos(signatures[name].outputs)
    args: list[ir.Argument] = []
    protos = {node.name: node for node in meta_graph.graph_def.node}
    fed: dict[str, str] = {}
    for key, info in inputs.items():
        node, index = _tensor_name(info.name)
        if node not in protos:
            raise InvalidModelError(f"signature {name!r}: its input {key!r} is node {node!r}, which is not there.")
        fed[key] = functions.fed(protos[node], index).name
        if all(arg.name != fed[key] for arg in args):
            args.append(ir.Argument(fed[key], dtypes.from_tf(info.dtype), attributes.shape_of(info.tensor_shape)))
    wanted = [info.name for part in outputs.values() for info in part.values()]
    proto = meta_graph.graph_def
    main = functions.load_main(proto, name, args, wanted)
    main, captures = lift_state(
        main,
        values,
        trainable_names(meta_graph),
        Tables(proto, assets_of(path, meta_graph), path),
    )
    positions = {arg.name: index for index, arg in enumerate(args)}
    kwargs = {}
    for key in inputs:
        arg = args[positions[fed[key]]]
        dtype = arg.dtype if isinstance(arg.dtype, np.dtype) else None
        kwargs[key] = TensorArgument(positions[arg.name], arg.name, dtype, arg.shape)
    if not len(set(positions)) == len(kwargs) == len(parts):
        raise UnsupportedError(f"signature {name!r}: two of its inputs are the same tensor, or have the same name.")
    refs = map(OutputRef, itertools.count())
    results = _structure(outputs, lambda *_: next(refs))
    interface = Interface(name, _signature(kwargs), (), kwargs, len(args), results)
    return ImportedFunction(
        ir.Graph(main, library(), tuple(captures)),
        interface,
        ((), {key: _spec(key, info) for key, info in inputs.items()}),
        _structure(outputs, _spec),
    )


def _structure(outputs: Mapping[str, Mapping[str, Any]], leaf: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return a signature's results; those of a composite tensor are a tuple."""
    return {
        key: leaf(key, part[key]) if list(part) == [key] else tuple(leaf(*item) for item in part.items())
        for key, part in outputs.items()
    }


def lift_state(
    main: ir.Function, values: Values, trainable: set[str] | None, tables: Tables
) -> tuple[ir.Function, list[ir.Capture]]:
    """Replace variables and tables by captured arguments.

    Return the function and the captures.

    Args:
      trainable: names of the trainable variables; None if unknown: float variables then train.
    """
    main = without_references(reached(main))
    args, captures = list(main.args), []
    moved: dict[str, str] = {}
    handles: dict[str, str] = {}
    for node in main.nodes:
        if node.op == "VarHandleOp" and isinstance(node.attrs.get("dtype"), np.dtype):
            name = node.attrs.get("shared_name") or node.name
            if name.startswith(LOCAL):
                continue
            dtype = node.attrs["dtype"]
            if name not in handles:
                value = values(name, node.name)
                trains = variable_trains(name, node.name, dtype, trainable)
                shape = node.attrs.get("shape") if value is None else np.shape(value)
                value = None if value is None else as_param(value, dtype, trains, name)
                captured: Any = ir.Variable(name, dtype, shape, trains, value)
        elif node.op in TABLE_OPS:
            name = f"{node.op}/{node.attrs.get('shared_name') or node.name}"
            if name not in handles:
                captured = tables.table(node)
        else:
            continue
        if name not in handles:
            handles[name] = node.name
            captures.append(ir.Capture(len(args), captured))
            args.append(ir.Argument(node.name, ir.RESOURCE))
        moved[node.name] = handles[name]
    main = handles_as_arguments(dataclasses.replace(main, args=tuple(args)), moved)
    return main, captures


def as_param(value: Any, dtype: np.dtype, trainable: bool, name: str) -> Any:
    """Return a value as a param; a stored array stays in its file."""
    if isinstance(value, StoredArray):
        return value.astype(dtype)
    return Variable(np.asarray(value, dtype), trainable, name)


def variable_values(
    path: str | os.PathLike[str], meta_graph: Any, initializer: Initializer, *, stored: bool = False
) -> Values:
    """Return a function that reads variables from the checkpoint, or initializes them.

    Args:
      stored: return real numbers of the checkpoint as `StoredArray`s.
    Values are read once: signatures share them.
    """
    prefix, checkpoint, keys = _restored(path, meta_graph)

    @functools.cache
    def value(name: str, node: str) -> Any:
        key = keys.get(node, (name, ""))
        if checkpoint is not None and key in checkpoint:
            found = checkpoint.stored(key) if stored else None
            return checkpoint.read(key) if found is None else found
        # Local variables (metrics) are not saved; TensorFlow initializes them when the model is loaded.
        found = initializer(meta_graph.graph_def, node)
        if found is None:
            where = f"the checkpoint {prefix}" if checkpoint is not None else f"{prefix}.index, which is missing"
            raise InvalidModelError(f"{os.fspath(path)}: variable {name!r} has no value in {where}.")
        return found

    return value


def _restored(path: str | os.PathLike[str], meta_graph: Any) -> tuple[str, Checkpoint | None, dict[str, Key]]:
    """Return prefix and checkpoint of a SavedModel, and its keys by node."""
    prefix = os.path.join(path, "variables", "variables")
    if not os.path.exists(f"{prefix}.index"):
        return prefix, None, {}
    checkpoint = Checkpoint(prefix)
    return prefix, checkpoint, restored_from(meta_graph.graph_def, checkpoint, meta_graph.saver_def.restore_op_name)


def variable_keys(path: str | os.PathLike[str], meta_graph: Any) -> dict[str, tuple[str, Key | None]]:
    """Return node and checkpoint key of each variable by its names.

    These are the name of the param, and of the node. The key is None if the checkpoint does not hold the variable.
    """
    _, checkpoint, keys = _restored(path, meta_graph)
    found: dict[str, tuple[str, Key | None]] = {}
    for node in meta_graph.graph_def.node:
        if node.op == "VarHandleOp" or node.op in VARIABLE_OPS:
            name = attributes.text_of(node.attr["shared_name"].s) or node.name
            key = keys.get(node.name, (name, ""))
            held = key if checkpoint is not None and key in checkpoint else None
            found.setdefault(name, (node.name, held))
            found.setdefault(node.name, (node.name, held))
    return found


def trainable_names(meta_graph: Any) -> set[str] | None:
    """Return the names of trainable variables; None if the MetaGraph lacks them."""
    if not any(key in meta_graph.collection_def for key in ("variables", "trainable_variables")):
        return None
    found = set()
    for data in meta_graph.collection_def["trainable_variables"].bytes_list.value:
        try:
            proto = protos.message("VariableDef").FromString(data)
        except DecodeError as error:
            raise InvalidModelError(f"the collection 'trainable_variables' cannot be read ({error}).") from error
        found.add(proto.variable_name.split(":")[0])
    return found


def variable_trains(name: str, node: str, dtype: np.dtype, trainable: set[str] | None) -> bool:
    """Return whether a variable trains, by its name or by its node's name.

    The two may differ in an imported graph.
    """
    if trainable is None:
        return bool(np.issubdtype(dtype, np.inexact))
    return name in trainable or node in trainable


def _tensor_name(text: str) -> tuple[str, int]:
    name, _, index = text.partition(":")
    return name, int(index or 0)


def _signature(kwargs: Mapping[str, Any]) -> inspect.Signature:
    return inspect.Signature(keyword_parameters(kwargs, inspect.Parameter.POSITIONAL_OR_KEYWORD))


def _spec(key: str, info: Any) -> Any:
    import tensorflow as tf

    return tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.dtypes.as_dtype(info.dtype), key)


def checkpoint_values(graph: Any, prefix: str | os.PathLike[str] | None, restore_op: str = "") -> Any:
    """Return a function that reads variables' values of a plain graph.

    The values are None without a checkpoint. Of several savers in the graph, that of ``restore_op`` wrote it.
    """
    checkpoint = None if prefix is None else Checkpoint(prefix)
    keys = {} if checkpoint is None else restored_from(graph, checkpoint, restore_op)

    def value(name: str, node: str) -> Any:
        key = keys.get(node, (name, ""))
        if checkpoint is None:
            return None
        if key not in checkpoint:
            raise InvalidModelError(f"{os.fspath(prefix or '')}: the checkpoint holds no variable {key[0]!r}.")
        return checkpoint.read(key)

    return value
