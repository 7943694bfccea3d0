"""The prefix of a split model as a graph, and its form for files.

In a file, captured values are constants, and captured tables are tables that nodes of the graph fill.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite.calling.structures import TensorArgument
from tf2jax_lite.frontend.graphdef.op_defs import op_def
from tf2jax_lite.frontend.safety.raw_protos import reached_functions
from tf2jax_lite.frontend.safety.unsafe_ops import reject_files, reject_setup, reject_unsafe_graph
from tf2jax_lite.support.errors import ExportError, UnsupportedError
from tf2jax_lite.support.limits import reading

_FIND = ("LookupTableFind", "LookupTableFindV2")
_TABLES = ("HashTableV2", "MutableHashTableV2")


@dataclasses.dataclass(frozen=True)
class HostGraph:
    """A graph with placeholders for the arguments and the captures of a prefix.

    Attributes:
      proto: the ``GraphDef``.
      feeds: names of the placeholders.
      results: names of tensors.
      effects: names of nodes that run although no node reads them (assertions).
      setup: names of nodes that run once, before all others: they fill tables.
    """

    proto: Any
    feeds: tuple[str, ...]
    results: tuple[str, ...]
    effects: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()

    def build(self) -> tuple[Callable[..., list[Any]], list[Any], Callable[[str], Any]]:
        """Return the function, the results in its graph, and a reader of resources.

        The reader returns the handle that a node of the graph has, by the node's name.
        """
        wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(self.proto, name=""), [])
        graph = wrapped.graph
        fetches = [graph.get_tensor_by_name(text) for text in self.results]
        effects = [graph.get_operation_by_name(text) for text in self.effects]
        if self.setup:
            wrapped.prune([], [graph.get_operation_by_name(text) for text in self.setup])()
        pruned = wrapped.prune([graph.get_tensor_by_name(f"{text}:0") for text in self.feeds], [fetches, effects])

        def handle(node: str) -> Any:
            return wrapped.prune([], [graph.get_tensor_by_name(f"{node}:0")])()[0]

        return (lambda *inputs: pruned(*inputs)[0]), fetches, handle

    def frozen(self, values: Sequence[Any]) -> HostGraph:
        """Return the graph without captures, for a file.

        Args:
          values: of the feeds: a `TensorArgument`, or the captured tensor.

        Raises:
          UnsupportedError: it reads a resource whose contents cannot be stored.
        """
        proto = tf.compat.v1.GraphDef()
        proto.CopyFrom(self.proto)
        nodes = {node.name: node for node in proto.node}
        used = reached_functions(proto.node, proto.library)
        functions = [function for function in self.proto.library.function if function.signature.name in used]
        del proto.library.function[:]
        proto.library.function.extend(functions)
        freezer = _Freezer(proto)
        _, _, handle = self.build()
        feeds = []
        for name, value in zip(self.feeds, values, strict=True):
            if isinstance(value, TensorArgument):
                feeds.append(name)
            elif value.dtype == tf.resource:
                freezer.replace_table(nodes[name], value)
            else:
                _make_constant(nodes[name], value)
        for node in self.proto.node:
            if node.op in _TABLES:
                freezer.replace_table(nodes[node.name], handle(node.name))
        freezer.check()
        return HostGraph(proto, tuple(feeds), self.results, self.effects, tuple(freezer.setup))

    def serialized(self) -> bytes:
        """Return the graph as the bytes of a ``GraphDef``, the same for the same graph."""
        return self.proto.SerializeToString(deterministic=True)


def read_host_graph(content: bytes, where: str, **parts: Sequence[str]) -> HostGraph:
    """Return the graph that bytes hold.

    Args:
      content: a ``GraphDef``, not trusted.
      where: the file, for messages.
      **parts: of `HostGraph`.

    Raises:
      ExportError: it is none.
      UntrustedError: its nodes run code or touch files.
    """
    with reading(where, ExportError):
        found = HostGraph(tf.compat.v1.GraphDef.FromString(content), **{name: tuple(v) for name, v in parts.items()})
        ends = [*found.effects, *found.setup, *(text.split(":")[0] for text in found.results)]
        reject_unsafe_graph(found.proto, where, ends)
        reject_setup(found.proto, found.setup, where)
        for nodes in (found.proto.node, *(function.node_def for function in found.proto.library.function)):
            reject_files(nodes, (), where, lambda node: True)
    return found


class _Freezer:
    """Replaces the tables of a graph by tables with the same contents."""

    def __init__(self, proto: Any):
        self._proto = proto
        self.setup: list[str] = []
        nodes = [*proto.node, *(node for function in proto.library.function for node in function.node_def)]
        self._kinds = sorted({(n.attr["Tin"].type, n.attr["Tout"].type) for n in nodes if n.op in _FIND})

    def replace_table(self, node: Any, handle: Any) -> None:
        """Make a node a table, with the contents of the one that a handle refers to."""
        keys, values = self._contents(node.name, handle)
        identity = hashlib.sha256()
        constants = []
        for part, tensor in (("keys", keys), ("values", values)):
            constant = self._proto.node.add(name=f"{node.name}/{part}")
            _make_constant(constant, tensor)
            identity.update(constant.attr["value"].SerializeToString(deterministic=True))
            constants.append(constant.name)
        node.Clear()
        # Loaded tables are shared by name in a process: those with the same contents are.
        node.name, node.op = constants[0].removesuffix("/keys"), "HashTableV2"
        node.attr["shared_name"].s = identity.hexdigest().encode()
        node.attr["key_dtype"].type = keys.dtype.as_datatype_enum
        node.attr["value_dtype"].type = values.dtype.as_datatype_enum
        fill = self._proto.node.add(name=f"{node.name}/fill", op="InitializeTableV2", input=[node.name, *constants])
        fill.attr["Tkey"].type = keys.dtype.as_datatype_enum
        fill.attr["Tval"].type = values.dtype.as_datatype_enum
        self.setup.append(fill.name)

    def _contents(self, name: str, handle: Any) -> tuple[Any, Any]:
        for kinds in self._kinds:
            key, value = map(tf.dtypes.as_dtype, kinds)
            try:
                keys, values = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=key, Tvalues=value)
            except (tf.errors.OpError, ValueError, TypeError):  # no table, or one of other types
                continue
            if keys.shape.rank != 1 or values.shape.rank != 1:
                break
            order = np.argsort(keys.numpy(), kind="stable")  # tables return keys in any order
            return tf.gather(keys, order), tf.gather(values, order)
        raise UnsupportedError(f"{name!r} is a resource whose contents cannot be stored.")

    def check(self) -> None:
        """Raise `UnsupportedError` for nodes that make resources that are not stored."""
        known = {text.removesuffix("/fill") for text in self.setup}
        for name, op in self._resources():
            if name not in known:
                raise UnsupportedError(f"{name!r} ({op}) is a resource whose contents cannot be stored.")

    def _resources(self) -> Iterator[tuple[str, str]]:
        yield from ((node.name, node.op) for node in self._proto.node if _makes_resource(node.op))
        for function in self._proto.library.function:
            yield from ((node.name, node.op) for node in function.node_def if _makes_resource(node.op))


_OF_A_CALL = ("TensorArray", "Stack")  # resources that a call makes for itself


def _makes_resource(op: str) -> bool:
    found = op_def(op)
    if found is None or not found.is_stateful or op.startswith(_OF_A_CALL):
        return False
    return any(arg.is_ref or arg.type == tf.resource.as_datatype_enum for arg in found.output_arg)


def _make_constant(node: Any, value: Any) -> None:
    name = node.name
    node.Clear()
    node.name, node.op = name, "Const"
    node.attr["dtype"].type = value.dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
