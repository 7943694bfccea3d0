"""The part of a model that stays in TensorFlow: strings, decoders, tables in front of the numeric core."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import Interface, OutputRef, TensorArgument, parameter_name
from tf2jax_lite.frontend.concrete.concrete_function import Loaded, load_concrete
from tf2jax_lite.frontend.safety.unsafe_ops import refuse_unsafe_ops, unsafe_reason
from tf2jax_lite.passes.canonicalize.inline_calls import Inlined, inline_calls
from tf2jax_lite.passes.control_flow_v1.functionalize import functionalize
from tf2jax_lite.passes.partition_host import HostCut, split_host
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import InputError, UnsupportedError

__all__ = ["CutTensor", "HostFunction", "load_split"]


@dataclasses.dataclass(frozen=True)
class CutTensor:
    """A tensor that the core takes.

    Attributes:
      name: the core's name for it.
      tensor: TensorFlow's, ``node:index``.
      op: the op that makes it; "" if it is an argument of the model that is passed on as it is.
      dtype: its dtype.
      shape: with None for unknown dimensions; None for unknown rank.
    """

    name: str
    tensor: str
    op: str
    dtype: np.dtype
    shape: tuple[int | None, ...] | None


class HostFunction:
    """What runs in TensorFlow before a converted core: takes the model's inputs, gives the core's.

    ``core_inputs = host_fn(*args, **kwargs)`` is a dict; ``jax_fn(params, **core_inputs)`` does the rest.

    Attributes:
      name: the model function's name.
      signature: the ``inspect.Signature`` by which arguments bind: the model's.
      cut: the tensors that go over, in the order of the core's arguments.
      reasons: for each node that made the cut necessary, its op and why it stays in TensorFlow.
      nodes: how many nodes the prefix has.
      interface: the model's interface.
      captured: which of the tensors that the model captures the core captures, in its order.
      dropped: paths of the model's results that are left out, since they are strings.
    """

    def __init__(
        self,
        interface: Interface,
        cut: Sequence[CutTensor],
        function: Any,
        feeds: Sequence[Any],
        reasons: Mapping[str, tuple[str, str]],
        nodes: int,
        captured: Sequence[int],
        dropped: Sequence[str],
    ):
        self.name = interface.name
        self.signature = interface.signature
        self.cut = tuple(cut)
        self.reasons = dict(reasons)
        self.nodes = nodes
        self.dropped = tuple(dropped)
        self.interface = interface
        self.captured = tuple(captured)
        self._function = function
        self._feeds = tuple(feeds)
        self.__signature__ = interface.signature
        self.__name__ = interface.name

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """Runs the prefix.

        Args:
          *args: the model's arguments: arrays, tensors, strings (bytes or text) or arrays of them.
          **kwargs: the same by name.

        Returns:
          The core's arguments by name, as numpy arrays.

        Raises:
          InputError: the arguments do not fit, or TensorFlow refuses what they hold; the message says why.
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
                found = dict(zip(self._crossing(), self._function(*inputs), strict=False))
            except (tf.errors.OpError, ValueError, TypeError) as error:
                raise InputError(f"{self.name}: TensorFlow refuses the inputs: {_first_line(error)}") from error
        out = {}
        for tensor in self.cut:
            value = found[tensor.name] if tensor.op else flat[int(tensor.tensor)]
            out[tensor.name] = np.asarray(value)
        return out

    def _plain(self, name: str, value: Any) -> Any:
        """Returns an argument without TensorFlow's tensors; lists of strings become arrays where one is expected."""
        names = list(self.signature.parameters)
        position = names.index(name) if name in names else -1
        spec = self.interface.kwargs.get(name)
        if spec is None and 0 <= position < len(self.interface.args):
            spec = self.interface.args[position]
        if isinstance(spec, TensorArgument) and isinstance(value, (list, tuple)):
            return np.asarray(value, object if spec.dtype is None else spec.dtype)
        return tf.nest.map_structure(lambda leaf: leaf.numpy() if isinstance(leaf, tf.Tensor) else leaf, value)

    def _crossing(self) -> list[str]:
        return [t.name for t in self.cut if t.op]

    def _tensor(self, flat: Sequence[Any], spec: TensorArgument) -> Any:
        value = flat[spec.index]
        return tf.convert_to_tensor(value if spec.dtype is None else np.asarray(value).astype(spec.dtype))

    def __repr__(self) -> str:
        return f"HostFunction({self.name}{self.signature} -> {{{', '.join(t.name for t in self.cut)}}})"


_CHECKED = Config()


def _first_line(error: Exception) -> str:
    """Returns the line of a TensorFlow error that says what is wrong."""
    lines = [line.strip() for line in str(getattr(error, "message", "") or error).splitlines()]
    frames = ("Graph execution error", "Detected at node", 'File "', "[", "<")
    telling = [line for line in lines if line and not line.startswith(frames)]
    return telling[0] if telling else type(error).__name__


def load_split(
    concrete: Any, *, signature: inspect.Signature | None = None, name: str = ""
) -> tuple[HostFunction, Loaded]:
    """Loads a ConcreteFunction in two parts: the prefix that stays in TensorFlow, and the core.

    Args:
      concrete: the ``tf.types.experimental.ConcreteFunction``.
      signature: how its arguments bind; by default what the function itself knows.
      name: the function's name, for messages.

    Returns:
      The prefix as a function, and the core as loaded: its arguments are those that the prefix returns, by name.

    Raises:
      UnsupportedError: the graph cannot be split: the prefix would need a trained variable, or the core would not
        return anything.
    """
    loaded = load_concrete(concrete, signature=signature, name=name, opaque=True)
    loaded = dataclasses.replace(loaded, graph=functionalize(loaded.graph))
    inlined = inline_calls(loaded.graph)
    cut = split_host(inlined.main, loaded.graph)
    where = loaded.interface.name
    nodes = [(where, node) for node in cut.host] + [(function.name, node) for function, node in loaded.graph.walk()]
    refuse_unsafe_ops([(n.op, n.name, name, unsafe_reason(n.op, n.attrs.get)) for name, n in nodes], where)
    if not cut.core.outputs:
        raise UnsupportedError(
            f"{loaded.interface.name}: every result is a string; there is no numeric core to convert."
        )
    function, feeds, shapes = _prefix(concrete, loaded, inlined, cut)
    tensors = _cut_tensors(cut, inlined.main, shapes)
    core = _core(loaded, cut, tensors)
    dropped = _paths(loaded.interface.outputs, set(cut.dropped))
    if dropped:
        warnings.warn(
            f"{loaded.interface.name}: result(s) {', '.join(dropped)} are strings, which JAX cannot hold; the core "
            "returns the others.",
            stacklevel=4,
        )
    captured = [position - loaded.interface.count for position in cut.captured]
    reasons = {n.name: (n.op, cut.reasons[n.name]) for n in cut.host if n.name in cut.reasons}
    return HostFunction(loaded.interface, tensors, function, feeds, reasons, len(cut.host), captured, dropped), core


def _cut_tensors(cut: HostCut, main: ir.Function, shapes: Sequence[ir.Shape]) -> list[CutTensor]:
    taken: set[str] = set()
    by_name = {n.name: n for n in cut.host}
    found = []
    for position in cut.passed:
        arg = main.args[position]
        found.append(CutTensor(_identifier(arg.name, taken), str(position), "", _dtype(arg), arg.shape))
    for (ref, dtype), shape in zip(cut.crossing, shapes, strict=True):
        last = ref.node.split("/")[-1]
        base = last if ref.index == 0 else f"{last}_{ref.index}"
        found.append(CutTensor(_identifier(base, taken), str(ref), by_name[ref.node].op, dtype, shape))
    return found


def _dtype(arg: ir.Argument) -> np.dtype:
    if not isinstance(arg.dtype, np.dtype):
        raise UnsupportedError(f"argument {arg.name!r} is a {arg.dtype}, which the core cannot take.")
    return arg.dtype


def _identifier(text: str, taken: set[str]) -> str:
    base = parameter_name("".join(c if c.isalnum() else "_" for c in text).strip("_") or "tensor")
    name, number = base, 1
    while name in taken or name in ("params", "rng"):
        name = f"{base}_{number}"
        number += 1
    taken.add(name)
    return name


def _core(loaded: Loaded, cut: HostCut, tensors: Sequence[CutTensor]) -> Loaded:
    values = {c.index: c.value for c in loaded.graph.captures}
    first = len(tensors)
    captures = tuple(ir.Capture(first + i, values[position]) for i, position in enumerate(cut.captured))
    kinds = inspect.Parameter
    parameters = [kinds(t.name, kinds.POSITIONAL_OR_KEYWORD) for t in tensors]
    args = tuple(TensorArgument(i, t.name, t.dtype, t.shape) for i, t in enumerate(tensors))
    formal = [dataclasses.replace(arg, shape=tensor.shape) for arg, tensor in zip(cut.core.args, tensors, strict=False)]
    main = dataclasses.replace(cut.core, args=(*formal, *cut.core.args[first:]))
    kept = [i for i in range(len(cut.dropped) + len(cut.core.outputs)) if i not in cut.dropped]
    renumbered = {old: new for new, old in enumerate(kept)}
    interface = Interface(
        loaded.interface.name,
        inspect.Signature(parameters),
        args,
        {},
        len(args),
        _without(loaded.interface.outputs, renumbered),
    )
    specs = tuple(tf.TensorSpec(_tensor_shape(t.shape), tf.dtypes.as_dtype(t.dtype), t.name) for t in tensors)
    graph = ir.Graph(main, loaded.graph.functions, captures)
    outputs = tf.nest.map_structure(
        lambda spec: None if isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string else spec,
        loaded.structured_outputs,
    )
    return Loaded(graph, interface, (specs, {}), outputs)


def _tensor_shape(shape: Any) -> Any:
    return tf.TensorShape(shape)


def _without(structure: Any, renumbered: Mapping[int, int]) -> Any:
    """Returns a result structure without the results that are dropped: no key in dicts, None in sequences."""
    if isinstance(structure, OutputRef):
        return OutputRef(renumbered[structure.index]) if structure.index in renumbered else None
    if isinstance(structure, Mapping):
        found = {key: _without(item, renumbered) for key, item in structure.items()}
        return {k: v for k, v in found.items() if v is not None or structure[k] is None}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*[_without(item, renumbered) for item in structure])
    if isinstance(structure, (list, tuple)):
        return type(structure)([_without(item, renumbered) for item in structure])
    return structure


def _paths(structure: Any, wanted: set[int], path: str = "") -> list[str]:
    if isinstance(structure, OutputRef):
        return [path or "result"] if structure.index in wanted else []
    items: Any = ()
    if isinstance(structure, Mapping):
        items = structure.items()
    elif isinstance(structure, (list, tuple)):
        items = enumerate(structure)
    return [p for key, item in items for p in _paths(item, wanted, f"{path}[{key!r}]" if path else str(key))]


def _prefix(concrete: Any, loaded: Loaded, inlined: Inlined, cut: HostCut) -> tuple[Any, list[Any], list[ir.Shape]]:
    """Returns the prefix as a TensorFlow function of its feeds, those feeds, and the shapes of its results.

    A feed is a `TensorArgument`, the tensor that the function captures, or the value of a variable of its graph: the
    prefix reads only variables that do not change.
    """
    if not cut.host:
        return None, [], []
    main = inlined.main
    nodes = {node.name for node in cut.host}
    used = {ref.node for node in cut.host for ref in node.inputs if ref.node not in nodes}
    count = loaded.interface.count
    arguments = {a.index: a for a in _tensor_arguments(loaded.interface)}
    held = {c.index: c.value.value for c in loaded.graph.captures
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
    for node in cut.host:
        if node.op == "ReadVariableOp" and node.inputs[0].node in values:
            copy = proto.node.add(name=node.name, op="Identity", input=[str(node.inputs[0])])
            copy.attr["T"].type = tf.dtypes.as_dtype(node.output_dtypes[0]).as_datatype_enum
            continue
        original = protos.get(inlined.origins[node.name])
        if original is None:
            raise UnsupportedError(
                f"node {node.name!r} ({node.op}) belongs in front of the cut and is control flow of TF1, which cannot "
                "be split off."
            )
        copy = proto.node.add()
        copy.CopyFrom(original)
        copy.name = node.name
        del copy.input[:]
        own = sum(not text.startswith("^") for text in original.input)  # a custom gradient's captures are not its own
        copy.input.extend(str(ref) for ref in node.inputs[:own])
        copy.input.extend(f"^{c}" for c in node.control if c in nodes)
        for attr in ("_class", "_output_shapes"):
            if attr in copy.attr:
                del copy.attr[attr]
    crossing = [str(ref) for ref, _ in cut.crossing]
    wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(proto, name=""), [])
    graph = wrapped.graph
    fetches = [graph.get_tensor_by_name(text) for text in crossing]
    effects = [graph.get_operation_by_name(text) for text in cut.host_effects]
    pruned = wrapped.prune([graph.get_tensor_by_name(f"{text}:0") for text in names], [fetches, effects])
    tables = {
        arg.name: concrete.captured_inputs[position - count]
        for position, arg in enumerate(main.args)
        if count <= position < len(concrete.inputs) and arg.name in used
    }
    shapes = [_shape(t, tables) for t in fetches]
    return (lambda *inputs: pruned(*inputs)[0]), feeds, shapes


def _shape(tensor: Any, tables: Mapping[str, Any]) -> ir.Shape:
    """Returns what is known of a tensor's shape: what is looked up by scalars, giving scalars, has the keys' shape.

    TensorFlow knows that from the table's Python object, which is gone in a SavedModel.

    Args:
      tensor: in the prefix's graph.
      tables: what the function captures, by the names of the graph's placeholders.
    """
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
    """Whether a table's keys are scalars: it then takes a vector of none."""
    try:
        none = tf.zeros([0], keys.dtype)
        tf.raw_ops.LookupTableFindV2(table_handle=table, keys=none, default_value=tf.zeros([], found.dtype))
    except (tf.errors.OpError, ValueError, TypeError):
        return False
    return True


def _tensor_arguments(interface: Interface) -> list[TensorArgument]:
    found: list[TensorArgument] = []

    def visit(structure: Any) -> None:
        if isinstance(structure, TensorArgument):
            found.append(structure)
        elif isinstance(structure, Mapping):
            for item in structure.values():
                visit(item)
        elif isinstance(structure, (list, tuple)):
            for item in structure:
                visit(item)

    visit(interface.args)
    visit(interface.kwargs)
    return found
