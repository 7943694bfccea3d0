"""The prefix of a split model that TensorFlow runs: strings, decoders, tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import ImportedFunction, Interface
from tf2jax_lite.calling.structures import TensorArgument, iter_arguments
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import InputError, UnsupportedError

from .host_graph import HostGraph, read_host_graph


@dataclasses.dataclass(frozen=True)
class BoundaryTensor:
    """An argument of the core.

    Attributes:
      tensor: its name in TensorFlow, ``node:index``; of an argument of the model, its position.
      shape: with None for unknown dimensions; None for unknown rank.
    """

    name: str
    tensor: str
    op: str
    dtype: np.dtype
    shape: tuple[int | None, ...] | None


class HostFunction:
    """The arguments of a converted core, computed in TensorFlow from the model's.

    ``core_inputs = host_fn(*args, **kwargs)`` is a dict; ``jax_fn(params, **core_inputs)`` computes the results.

    Attributes:
      cut: the tensors at the partition boundary, in the order of the core's arguments.
      reasons: for each node that requires TensorFlow, its op and the reason.
      captured: positions, among the model's captures, of those that the core captures, in its order.
      dropped: paths of the model's results that the core does not return, as they are strings.
    """

    def __init__(
        self,
        interface: Interface,
        cut: Sequence[BoundaryTensor],
        function: Any,
        feeds: Sequence[Any],
        reasons: Mapping[str, tuple[str, str]],
        nodes: int,
        captured: Sequence[int],
        dropped: Sequence[str],
        graph: HostGraph | None = None,
    ):
        self.name = interface.name
        self.signature = interface.signature
        self.cut = tuple(cut)
        self.reasons = dict(reasons)
        self.nodes = nodes
        self.dropped = tuple(dropped)
        self.interface = interface
        self.captured = tuple(captured)
        self._graph = graph
        self._function = function
        self._feeds = tuple(feeds)
        self.__signature__ = interface.signature
        self.__name__ = interface.name

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """Run the prefix.

        Args:
          *args: the model's arguments: arrays, tensors, strings (bytes or str) or arrays of them.

        Returns:
          The core's arguments by name, as numpy arrays.
        """
        names = list(self.signature.parameters)
        given = [self._plain(names[i] if i < len(names) else "", a) for i, a in enumerate(args)]
        named = {name: self._plain(name, a) for name, a in kwargs.items()}
        flat = self.interface.bind(given, named, _CHECKED).flat
        found = {}
        inputs = []
        for feed in self._feeds:
            inputs.append(feed if not isinstance(feed, TensorArgument) else self._tensor(flat, feed))
        if self._function is not None:
            try:
                found = dict(zip(self._computed(), self._function(*inputs), strict=False))
            except (tf.errors.OpError, ValueError, TypeError) as error:
                raise InputError(f"{self.name}: TensorFlow rejects the inputs: {_first_line(error)}") from error
        out = {}
        for tensor in self.cut:
            value = found[tensor.name] if tensor.op else flat[int(tensor.tensor)]
            out[tensor.name] = np.asarray(value)
        return out

    def frozen(self) -> tuple[HostGraph, list[TensorArgument]]:
        """Return the prefix as a graph for a file, and the arguments that feed it."""
        if self._graph is None:
            return HostGraph(tf.compat.v1.GraphDef(), (), ()), []
        return self._graph.frozen(self._feeds), [feed for feed in self._feeds if isinstance(feed, TensorArgument)]

    def _plain(self, name: str, value: Any) -> Any:
        """Return an argument with TensorFlow's tensors as arrays."""
        # Lists become arrays, too, if the argument is a tensor.
        names = list(self.signature.parameters)
        position = names.index(name) if name in names else -1
        spec = self.interface.kwargs.get(name)
        if spec is None and 0 <= position < len(self.interface.args):
            spec = self.interface.args[position]
        if isinstance(spec, TensorArgument) and isinstance(value, (list, tuple)):
            return np.asarray(value, object if spec.dtype is None else spec.dtype)
        return tf.nest.map_structure(lambda leaf: leaf.numpy() if isinstance(leaf, tf.Tensor) else leaf, value)

    def _computed(self) -> list[str]:
        return [t.name for t in self.cut if t.op]

    def _tensor(self, flat: Sequence[Any], spec: TensorArgument) -> Any:
        value = flat[spec.index]
        return tf.convert_to_tensor(value if spec.dtype is None else np.asarray(value).astype(spec.dtype))

    def __repr__(self) -> str:
        return f"HostFunction({self.name}{self.signature} -> {{{', '.join(t.name for t in self.cut)}}})"


def stored_host(
    content: bytes,
    where: str,
    interface: Interface,
    feeds: Sequence[tuple[str, TensorArgument]],
    cut: Sequence[BoundaryTensor],
    **parts: Sequence[str],
) -> HostFunction:
    """Return the prefix that `HostFunction.frozen` stored.

    Args:
      content: of the file, not trusted.
      where: its name, for messages.
      interface: of the model.
      feeds: placeholders of the graph, and the arguments that they get.
      cut: the arguments of the core.
      **parts: of `HostGraph`.
    """
    graph = read_host_graph(content, where, feeds=[name for name, _ in feeds], **parts)
    function = graph.build()[0] if graph.results else None
    return HostFunction(interface, cut, function, [spec for _, spec in feeds], {}, len(graph.proto.node), (), (), graph)


_CHECKED = Config()


def _first_line(error: Exception) -> str:
    """Return the first line of a TensorFlow error that is not a stack frame."""
    lines = [line.strip() for line in str(getattr(error, "message", "") or error).splitlines()]
    frames = ("Graph execution error", "Detected at node", 'File "', "[", "<")
    telling = [line for line in lines if line and not line.startswith(frames)]
    return telling[0] if telling else type(error).__name__


@dataclasses.dataclass(frozen=True)
class Prefix:
    """The nodes of a prefix.

    Attributes:
      origins: for each node of the inlined function, the function it comes from and its name there.
      results: the tensors that the core reads.
      effects: names of nodes that must run although no node reads them (assertions).
    """

    nodes: tuple[ir.Node, ...]
    origins: Mapping[str, tuple[str, str]]
    results: tuple[ir.TensorRef, ...]
    effects: tuple[str, ...]


def build_prefix(
    concrete: Any, imported: ImportedFunction, main: ir.Function, prefix: Prefix
) -> tuple[HostGraph | None, Any, list[Any], list[ir.Shape]]:
    """Build a TensorFlow function of the nodes of a prefix.

    Returns:
      The graph and the function (None for an empty prefix), its feeds, and the shapes of its results. A feed is a
      `TensorArgument`, a tensor that the function captures, or the value of a variable of its graph, which does not
      change.
    """
    if not prefix.nodes:
        return None, None, [], []
    nodes = {node.name: node for node in prefix.nodes}
    used = {ref.node for node in prefix.nodes for ref in node.inputs if ref.node not in nodes}
    interface = imported.interface
    count = interface.count
    arguments = {arg.index: arg for arg in iter_arguments((interface.args, interface.kwargs))}
    held = {c.index: c.value.value for c in imported.graph.captures
            if c.index >= len(concrete.inputs) and isinstance(c.value, ir.Variable)}  # fmt: skip
    feeds: list[Any] = []
    names: list[str] = []
    proto = tf.compat.v1.GraphDef()
    source = concrete.graph.as_graph_def()
    proto.versions.CopyFrom(source.versions)
    proto.library.CopyFrom(source.library)
    for position, arg in enumerate(main.args):
        if arg.name not in used:
            continue
        tensor = tf.constant(held[position]) if position in held else concrete.inputs[position]
        node = proto.node.add(name=arg.name, op="Placeholder")
        node.attr["dtype"].type = tensor.dtype.as_datatype_enum
        if tensor.shape.rank is not None:
            node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
        names.append(arg.name)
        if position in held:
            feeds.append(tensor)
        else:
            feeds.append(arguments[position] if position < count else concrete.captured_inputs[position - count])
    values = {main.args[position].name for position in held}
    protos = {(function.signature.name, n.name): n for function in source.library.function for n in function.node_def}
    protos.update(((main.name, n.name), n) for n in source.node)
    for node in prefix.nodes:
        if node.op == "ReadVariableOp" and node.inputs[0].node in values:
            copy = proto.node.add(name=node.name, op="Identity", input=[str(node.inputs[0])])
            copy.attr["T"].type = tf.dtypes.as_dtype(node.output_dtypes[0]).as_datatype_enum
            continue
        original = protos.get(prefix.origins[node.name])
        if original is None:
            raise UnsupportedError(
                f"node {node.name!r} ({node.op}) must run in TensorFlow and is control flow of TF1, which cannot be "
                "split off."
            )
        copy = proto.node.add()
        copy.CopyFrom(original)
        copy.name = node.name
        del copy.input[:]
        own = sum(not text.startswith("^") for text in original.input)  # without the captures of a custom gradient
        copy.input.extend(str(ref) for ref in node.inputs[:own])
        copy.input.extend(f"^{c}" for c in node.control if c in nodes)
        for attr in ("_class", "_output_shapes"):
            if attr in copy.attr:
                del copy.attr[attr]
    graph = HostGraph(proto, tuple(names), tuple(map(str, prefix.results)), prefix.effects)
    function, fetches, _ = graph.build()
    tables = {
        arg.name: concrete.captured_inputs[position - count]
        for position, arg in enumerate(main.args)
        if count <= position < len(concrete.inputs) and arg.name in used
    }
    shapes = [_shape(t, tables) for t in fetches]
    return graph, function, feeds, shapes


def _shape(tensor: Any, tables: Mapping[str, Any]) -> ir.Shape:
    """Return the shape of a tensor; None for unknown rank."""
    # A lookup in a table of scalars has the shape of the keys. TensorFlow infers that from the table's Python object,
    # which a SavedModel does not have.
    if tensor.shape.rank is not None:
        return tuple(tensor.shape.as_list())
    op = tensor.op
    if op.type not in ("LookupTableFind", "LookupTableFindV2") or op.inputs[2].shape.rank != 0:
        return None
    table, keys = op.inputs[0].op, op.inputs[1]
    if table.type in _SCALAR_TABLES or (table.name in tables and _takes_scalars(tables[table.name], keys, tensor)):
        return _shape(keys, tables)
    return None


_SCALAR_TABLES = ("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2")


def _takes_scalars(table: Any, keys: Any, found: Any) -> bool:
    """Return whether a table's keys are scalars."""
    # A lookup of an empty vector of keys then succeeds.
    try:
        empty = tf.zeros([0], keys.dtype)
        tf.raw_ops.LookupTableFindV2(table_handle=table, keys=empty, default_value=tf.zeros([], found.dtype))
    except (tf.errors.OpError, ValueError, TypeError):
        return False
    return True
