"""Contents of lookup tables captured from Python, read once at conversion."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.frontend.gradients.capture_threading import MAIN
from tf2jax_lite.frontend.gradients.rewrite import FunctionGraphs
from tf2jax_lite.ir import build
from tf2jax_lite.ops.containers.lookup_table import Table, table_of

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
