"""Captures of the variables and tables that nodes of a function's graph create.

``tf.saved_model.load`` restores a TF1 SavedModel as functions whose graphs keep their reference variables and tables.
TensorFlow's resource manager holds them under the nodes' shared names; there are no Python objects for them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_state_ops

from tf2jax_lite import ir
from tf2jax_lite.calling.params import Variable
from tf2jax_lite.frontend.gradients.capture_threading import MAIN, Asked, Unroutable, with_extra_inputs
from tf2jax_lite.frontend.gradients.rewrite import FunctionGraphs
from tf2jax_lite.frontend.graphdef import attributes, dtypes
from tf2jax_lite.frontend.saved.lookup_tables import TABLE_OPS
from tf2jax_lite.frontend.saved.ref_variables import VARIABLE_OPS, without_references
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import handles_as_arguments
from tf2jax_lite.ops.containers.lookup_table import Table, table_of
from tf2jax_lite.support.errors import UnsupportedError

_STATE_OPS = VARIABLE_OPS | TABLE_OPS | {"VarHandleOp"}
_LOAD_SUFFIX = re.compile(r"_load_(\d+)(_\d+)?$")  # distinguishes variables of two loads of one model


def with_captured_state(
    graph: ir.Graph, func_graph: Any, taken: Iterable[str], *, read: bool, tables: bool
) -> tuple[ir.Graph, list[ir.Capture]]:
    """Make variable and table nodes captured arguments.

    Return the graph and the captures.

    Variables and tables without a value in TensorFlow stay nodes: a function may make a variable and assign it.

    Args:
      graph: the graph as loaded; functions that it calls may contain such nodes, too.
      func_graph: TensorFlow's graph of the main function.
      taken: names of the variables that the function captures already.
      read: whether to read the values; otherwise reference variables are captured without one.
      tables: whether to capture tables as well. Otherwise they and variables of strings stay nodes.
    """
    if graph.ops.isdisjoint(_STATE_OPS):
        return graph, []
    proto = func_graph.as_graph_def()
    protos = {_key(n): n for nodes in (proto.node, *(f.node_def for f in proto.library.function)) for n in nodes
              if n.op in _STATE_OPS}  # fmt: skip
    captured = _variables(protos, func_graph, set(taken), read, tables)
    if tables and read:
        captured.update((key, table) for key, n in protos.items() if (table := _table(n)) is not None)
    asked = Asked("state")

    def lifted(name: str, function: ir.Function) -> ir.Function:
        if function.ops.isdisjoint(_STATE_OPS):
            return function
        function = without_references(function)
        moved = {
            node.name: asked.add(name, captured[key])
            for node in function.nodes
            if node.op in _STATE_OPS and (key := _node_key(node)) in captured
        }
        return handles_as_arguments(function, moved)

    main = lifted(MAIN, graph.main)
    graph = dataclasses.replace(
        graph, main=main, functions={name: lifted(name, function) for name, function in graph.functions.items()}
    )
    try:
        graph = with_extra_inputs(
            graph, asked, lambda name, value: ir.TensorRef(asked.add(name, value)), lambda value: ir.RESOURCE
        )
    except Unroutable as reason:
        raise UnsupportedError(
            f"{main.name!r}: a function that is called holds a variable or a table, which cannot be passed to it "
            f"({reason}). Call it directly (not in a map or a dataset)."
        ) from None
    return graph, [ir.Capture(len(main.args) + i, value) for i, value in enumerate(asked.of(MAIN))]


def _key(proto: Any) -> tuple[bool, str]:
    """Return the key of a resource: whether it is a table, and its shared name."""
    return proto.op in TABLE_OPS, proto.attr["shared_name"].s.decode() or proto.name


def _node_key(node: ir.Node) -> tuple[bool, str]:
    return node.op in TABLE_OPS, node.attrs.get("shared_name") or node.name


def _variables(
    protos: Mapping[tuple[bool, str], Any], func_graph: Any, taken: set[str], read: bool, strict: bool
) -> dict[tuple[bool, str], Any]:
    """Return the variables by key."""
    # They are those that have a value, or the reference variables if values are not read.
    variables = {key: proto for key, proto in protos.items() if proto.op not in TABLE_OPS}
    if read:
        values = dict(zip(variables, _values(list(variables.values())), strict=True))
    else:
        values = dict.fromkeys(variables)
    trainable = _trainable(func_graph)
    captured: dict[tuple[bool, str], Any] = {}
    for key, proto in sorted(variables.items(), key=lambda item: _load_number(item[0][1])):
        value = values[key]
        if value is None and (read or proto.op not in VARIABLE_OPS):
            continue
        dtype = dtypes.from_tf(tf.dtypes.as_dtype(proto.attr["dtype"].type))
        if not isinstance(dtype, np.dtype):
            if not strict:
                continue
            raise UnsupportedError(f"variable {proto.name!r} holds {dtype}s, which JAX cannot hold.")
        name = ir.free_name(_LOAD_SUFFIX.sub("", key[1]), taken)
        trains = bool(np.issubdtype(dtype, np.inexact)) if trainable is None else key[1] in trainable
        shape = attributes.shape_of(proto.attr["shape"].shape) if value is None else value.shape
        value = None if value is None else Variable(value, trains, name)
        captured[key] = ir.Variable(name, dtype, shape, trains, value)
    return captured


def _load_number(shared_name: str) -> int:
    found = _LOAD_SUFFIX.search(shared_name)
    return int(found[1]) if found else 0


def _values(protos: Sequence[Any]) -> list[np.ndarray | None]:
    """Return the values of variables, by their NodeDefs; None for uninitialized ones."""
    if not protos:
        return []
    with tf.init_scope():
        flags = _run(protos, _is_initialized)
        ready = [proto for proto, flag in zip(protos, flags, strict=True) if flag]
        found = iter(_run(ready, _read) if ready else [])
        return [next(found).numpy() if flag else None for flag in flags]


def _is_initialized(resource: Any, proto: Any) -> Any:
    if proto.op in VARIABLE_OPS:
        return gen_state_ops.is_variable_initialized(resource)
    return tf.raw_ops.VarIsInitializedOp(resource=resource)


def _read(resource: Any, proto: Any) -> Any:
    if proto.op in VARIABLE_OPS:
        return tf.identity(resource)
    return tf.raw_ops.ReadVariableOp(resource=resource, dtype=tf.dtypes.as_dtype(proto.attr["dtype"].type))


def _table(proto: Any) -> Table | None:
    """Return a table's contents; None for a variable or an uninitialized table."""
    if proto.op not in TABLE_OPS:
        return None
    keys, values = (tf.dtypes.as_dtype(proto.attr[name].type) for name in ("key_dtype", "value_dtype"))
    try:
        with tf.init_scope():
            (found,) = _run(
                [proto],
                lambda table, _: tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=keys, Tvalues=values),
            )
    except tf.errors.OpError:
        return None
    return table_of(*(tensor.numpy() for tensor in found))


def _run(protos: Sequence[Any], use: Any) -> Any:
    """Return the results of ``use``, run by TensorFlow on each resource and NodeDef."""
    graph_def = tf.compat.v1.GraphDef()
    for index, proto in enumerate(protos):
        node = graph_def.node.add()
        node.CopyFrom(proto)
        node.name = f"resource_{index}"
        node.op = "HashTableV2" if proto.op == "HashTable" else proto.op  # the same table by another handle
        node.attr["shared_name"].s = _key(proto)[1].encode()
        for attr in ("_class", "_output_shapes"):
            if attr in node.attr:
                del node.attr[attr]
    ends = [f"{node.name}:0" for node in graph_def.node]

    def run() -> Any:
        resources = tf.graph_util.import_graph_def(graph_def, return_elements=ends, name="")
        return [use(resource, proto) for resource, proto in zip(resources, protos, strict=True)]

    return tf.compat.v1.wrap_function(run, [])()


def _trainable(func_graph: Any) -> set[str] | None:
    """Return the shared names of trainable variable nodes; None if unknown."""
    # They are unknown if no graph has a collection of variables.
    found: set[str] | None = None
    for graph in FunctionGraphs(func_graph).all():
        if not any(graph.get_collection(key) for key in ("variables", "trainable_variables")):
            continue
        operations = [getattr(v, "op", None) for v in graph.get_collection("trainable_variables")]
        names = {op.get_attr("shared_name").decode() or op.name for op in operations if op is not None}
        found = names if found is None else found | names
    return found


_FIND = frozenset({"LookupTableFind", "LookupTableFindV2"})
_INITIALIZE = frozenset({"InitializeTable", "InitializeTableV2", "LookupTableImport", "LookupTableImportV2"})
_WRITE = frozenset({"LookupTableInsert", "LookupTableImport", "LookupTableRemove"})


def table_dtypes(main: ir.Function, functions: Mapping[str, ir.Function]) -> list[tuple[Any, Any]]:
    """Return the dtypes of keys and values of a graph's lookups.

    The handle of a table does not have them.
    """
    ops = main.ops.union(*[function.ops for function in functions.values()])
    if not ops & _FIND:
        return []
    nodes = [node for function in (main, *functions.values()) for node in function.nodes]
    if any(node.op.removesuffix("V2") in _WRITE for node in nodes):
        return []  # contents that change while the function runs cannot be constants
    pairs = {(node.attrs.get("Tin"), node.attrs.get("Tout")): None for node in nodes if node.op in _FIND}
    return list(pairs)


def initialize_tables(graph: ir.Graph, func_graph: Any) -> ir.Graph:
    """Initialize tables that the function fills, as its first call does.

    A table that is made while a function is traced is created outside of the graph, and filled inside of it.

    Returns:
      The graph without the nodes that fill these tables.
    """
    if graph.ops.isdisjoint(_INITIALIZE):
        return graph
    graphs = FunctionGraphs(func_graph)
    filled: dict[str | None, set[str]] = {}
    for traced in graphs.all():
        for node in traced.get_operations():
            inputs = list(map(_known_value, node.inputs)) if node.type in _INITIALIZE else [None]
            if not any(value is None for value in inputs):
                with tf.init_scope(), contextlib.suppress(tf.errors.OpError):  # it has other contents
                    tf.raw_ops.LookupTableImportV2(**dict(zip(("table_handle", "keys", "values"), inputs, strict=True)))
                filled.setdefault(graphs.name_of(traced), set()).add(node.name)

    def without(key: str, function: ir.Function) -> ir.Function:
        if not (names := filled.get(key)):
            return function
        nodes = [build.node("NoOp", name=n.name, control=n.control) if n.name in names else n for n in function.nodes]
        return dataclasses.replace(function, nodes=tuple(nodes))

    library = {name: without(name, function) for name, function in graph.functions.items()}
    return dataclasses.replace(graph, main=without(MAIN, graph.main), functions=library)


def _known_value(tensor: Any) -> Any:
    """Return a graph tensor's captured or constant value, or None."""
    while not isinstance(tensor, tf.__internal__.EagerTensor):
        captures = getattr(tensor.graph, "captures", ())
        outer = next((external for external, internal in captures if internal is tensor), None)
        if outer is None:
            return tf.get_static_value(tensor)
        tensor = outer
    return tensor


def captured_table(handle: Any, pairs: list[tuple[Any, Any]]) -> Table | None:
    """Return the current contents of a table; None for a handle of another resource.

    Args:
      pairs: dtypes of keys and values that the table may have.
    Tables of vectors and of strings are not supported: JAX has no string keys.
    """
    for key_dtype, value_dtype in pairs:
        if not isinstance(key_dtype, np.dtype) or not isinstance(value_dtype, np.dtype):
            continue
        key_type, value_type = tf.as_dtype(key_dtype), tf.as_dtype(value_dtype)
        try:
            with tf.init_scope():
                # A lookup checks the dtypes. An export does not: TensorFlow aborts if they are not the table's.
                tf.raw_ops.LookupTableFindV2(
                    table_handle=handle, keys=tf.zeros([0], key_type), default_value=tf.zeros([], value_type)
                )
                keys, found = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=key_type, Tvalues=value_type)
                size = int(tf.raw_ops.LookupTableSizeV2(table_handle=handle))
        except tf.errors.OpError:  # a table of other dtypes, or another resource
            continue
        return _without_empty_buckets(keys.numpy(), found.numpy(), size)
    return None


def _without_empty_buckets(keys: np.ndarray, found: np.ndarray, size: int) -> Table | None:
    """Return the table; None if its keys and empty buckets cannot be distinguished."""
    # The export of a DenseHashTable has all its buckets, as columns. The keys that mark empty ones repeat.
    if keys.size != len(keys) or found.size != len(found):
        return None
    keys, found = keys.reshape(-1), found.reshape(-1)
    if len(keys) != size:
        distinct, counts = np.unique(keys, return_counts=True)
        once = np.isin(keys, distinct[counts == 1])
        keys, found = keys[once], found[once]
    return table_of(keys, found) if len(keys) == size else None
