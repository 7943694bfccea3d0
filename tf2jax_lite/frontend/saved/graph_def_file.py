"""GraphDef files: frozen graphs, and graphs of TF1 checkpoints (``.meta`` files)."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from google.protobuf.message import DecodeError

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import ImportedFunction, Interface
from tf2jax_lite.calling.names import parameter_names
from tf2jax_lite.calling.params import Variable
from tf2jax_lite.calling.structures import OutputRef, TensorArgument
from tf2jax_lite.frontend.graphdef import dtypes, functions, op_defs, protos
from tf2jax_lite.frontend.graphdef.size_limits import check_graph_size
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import live_nodes, topological_order
from tf2jax_lite.support.config import get_config
from tf2jax_lite.support.errors import InputError, InvalidModelError
from tf2jax_lite.support.limits import read_bytes

from . import meta_graph as tf1
from .lookup_tables import Tables

_ITERATED = frozenset(
    {
        "DatasetToSingleElement",
        "IteratorGetNext",
        "IteratorGetNextSync",
        "QueueDequeue",
        "QueueDequeueMany",
        "QueueDequeueManyV2",
        "QueueDequeueUpTo",
        "QueueDequeueUpToV2",
        "QueueDequeueV2",
    }
)
_FORWARDS = frozenset({"Identity", "PlaceholderWithDefault", "StopGradient"})


def read_graph_def(source: Any) -> Any:
    """Return a GraphDef from a proto, its bytes, or a path."""
    if isinstance(source, (str, os.PathLike)):
        file = Path(source)
        if not file.is_file():
            raise InvalidModelError(f"{file}: there is no such file.")
        source = read_bytes(file)
        if not source:
            raise InvalidModelError(f"{file}: the file is empty.")
    if isinstance(source, (bytes, bytearray)):
        try:
            source = protos.message("GraphDef").FromString(bytes(source))
        except DecodeError as error:
            raise InvalidModelError(f"not a GraphDef proto, or cut short ({error}).") from error
    if hasattr(source, "as_graph_def"):  # a tf.Graph
        source = source.as_graph_def()
    if not hasattr(source, "node"):
        raise InvalidModelError(f"expected a GraphDef, its bytes or a path, got {type(source).__name__}.")
    if not source.node:
        raise InvalidModelError("the GraphDef has no nodes.")
    check_graph_size(source, "GraphDef")
    return source


def is_meta_graph(source: Any) -> bool:
    """Return whether a source is the path of a ``.meta`` file (of a TF1 checkpoint)."""
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".meta")


def load_frozen(
    source: Any,
    inputs: Sequence[str] | str,
    outputs: Sequence[str] | str,
    *,
    constants_as_params: bool,
    checkpoint: str | os.PathLike[str] | None = None,
) -> ImportedFunction:
    """Load a GraphDef as a function; see `tf2jax_lite.convert_graph_def`."""
    import tensorflow as tf

    from tf2jax_lite.frontend.gradients.rewrite import report_missing

    trainable, restore_op = None, ""
    if is_meta_graph(source):
        meta_graph = tf1.read_meta_graph(source)
        trainable = tf1.trainable_names(meta_graph)
        proto, restore_op = meta_graph.graph_def, meta_graph.saver_def.restore_op_name
        checkpoint = checkpoint or tf1.checkpoint_beside(source)
    else:
        proto = read_graph_def(source)
    single = isinstance(outputs, str)
    names, asked = _tensor_names(inputs, "inputs"), fetches(proto, _tensor_names(outputs, "outputs"))
    nodes = {node.name: node for node in proto.node}
    args = [argument(nodes, name) for name in names]
    if len({a.name for a in args}) != len(args):
        raise InvalidModelError(f"an input is named twice in {names}.")
    main = functions.load_main(proto, "graph", args, asked.tensors, asked.operations)
    values = tf1.checkpoint_values(proto, checkpoint, restore_op)
    main, captures = tf1.lift_state(main, values, trainable, Tables(proto))
    if constants_as_params:
        main, captures = _lift_constants(main, captures)
    tensors = tuple(
        TensorArgument(i, arg.name, arg.dtype if isinstance(arg.dtype, np.dtype) else None, arg.shape)
        for i, arg in enumerate(args)
    )
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in parameter_names([arg.name for arg in args])]
    refs = [None if index is None else OutputRef(index) for index in asked.positions]
    interface = Interface(
        "graph", inspect.Signature(parameters), tensors, {}, len(args), refs[0] if single else tuple(refs)
    )
    specs = tuple(tf.TensorSpec(_tensor_shape(a.shape), _tf_dtype(a.dtype), a.name) for a in args)
    found = [
        tf.TensorSpec(_tensor_shape(None), _tf_dtype(_output_dtype(main, ref)), text.replace(":", "_"))
        for ref, text in zip(main.outputs, asked.tensors, strict=True)
    ]
    described: Any = tuple(None if index is None else found[index] for index in asked.positions)
    graph = ir.Graph(main, functions.load_library(proto.library), tuple(captures))
    if get_config("convert_custom_gradient"):
        graph = _with_function_gradients(graph, proto.library)
        report_missing(graph)
    return ImportedFunction(graph, interface, (specs, {}), described[0] if single else described)


def _tensor_names(given: Any, what: str) -> list[str]:
    names = [given] if isinstance(given, str) else given
    names = list(names) if isinstance(names, Iterable) and not isinstance(names, (bytes, Mapping)) else None
    wrong = [given] if names is None else [name for name in names if not isinstance(name, str)]
    if wrong:
        raise InputError(f"{what} are names ('x', 'x:0') in a list, or one alone; got {wrong[0]!r}.")
    return names or []


def _tensor_shape(shape: Any) -> Any:
    import tensorflow as tf

    return tf.TensorShape(shape)


def _tf_dtype(dtype: ir.DType | None) -> Any:
    if dtype is None:
        raise InvalidModelError("an input or output of the graph has no dtype.")
    return dtypes.to_tf(dtype)


def _output_dtype(function: ir.Function, ref: ir.TensorRef) -> ir.DType:
    for arg in function.args:
        if arg.name == ref.node:
            return arg.dtype
    for node in function.nodes:
        if node.name == ref.node:
            if ref.index >= len(node.output_dtypes):
                count = len(node.output_dtypes)
                raise InvalidModelError(f"node {ref.node!r} has {count} output(s), but {ref} is asked for.")
            return node.output_dtypes[ref.index]
    raise InvalidModelError(f"there is no node {ref.node!r}.")


def argument(nodes: Mapping[str, Any], text: str) -> ir.Argument:
    """Return a tensor that is fed as an argument.

    Args:
      nodes: the graph's NodeDefs by name.
    """
    name, _, index = text.partition(":")
    if name not in nodes:
        close = [n for n, node in nodes.items() if node.op == "Placeholder"][:10]
        raise InvalidModelError(f"there is no node {name!r} to feed; the graph's placeholders are {close}.")
    if not (index or "0").isdecimal():
        raise InvalidModelError(f"{text!r} is not a tensor name: node, or node:index.")
    found = functions.fed(nodes[name], int(index or 0))
    return found if found.shape is not None else dataclasses.replace(found, shape=_declared_shape(nodes, text))


def _declared_shape(nodes: Mapping[str, Any], text: str) -> ir.Shape | None:
    """Return the shape that an iterator or queue declares for a tensor, or None."""
    seen: set[str] = set()
    while text not in seen:
        seen.add(text)
        name, _, index = text.partition(":")
        if name not in nodes:
            return None
        proto = nodes[name]
        if proto.op in _FORWARDS and proto.input:
            text = proto.input[0]
            continue
        if proto.op not in _ITERATED:
            return None
        position, is_queue = int(index or 0), proto.op.startswith("Queue")
        source = nodes.get(proto.input[0].split(":")[0]) if is_queue and proto.input else proto
        shapes = op_defs.read_attrs(source).get("shapes" if is_queue else "output_shapes") if source else None
        if not isinstance(shapes, list) or position >= len(shapes) or shapes[position] is None:
            return None
        is_batch = "Many" in proto.op or "UpTo" in proto.op
        return (None, *shapes[position]) if is_batch else shapes[position]
    return None


def _lift_constants(main: ir.Function, captures: Sequence[ir.Capture]) -> tuple[ir.Function, list[ir.Capture]]:
    """Replace float constants of several elements by reads of captured variables."""
    live = {node.name for node in live_nodes(main, ())}
    args = list(main.args)
    nodes: list[ir.Node] = []
    captures = list(captures)
    for node in main.nodes:
        value = node.attrs.get("value")
        if node.op == "Const" and node.name in live and isinstance(value, np.ndarray) and is_weight(value):
            handle = f"{node.name}/resource"
            captures.append(
                ir.Capture(
                    len(args), ir.Variable(node.name, value.dtype, value.shape, True, Variable(value, True, node.name))
                )
            )
            args.append(ir.Argument(handle, ir.RESOURCE))
            node = build.node("ReadVariableOp", handle, dtype=value.dtype, like=node)
        nodes.append(node)
    return dataclasses.replace(main, args=tuple(args), nodes=tuple(nodes)), captures


def is_weight(value: np.ndarray) -> bool:
    """Return whether a constant of a frozen graph becomes a param."""
    return value.size > 1 and jnp.issubdtype(value.dtype, jnp.inexact)


def default_ends(
    source: Any, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """Return the inputs and outputs of a frozen graph.

    Args:
      inputs: names of inputs; its placeholders if left out.
      outputs: names of outputs; the results that no node reads if left out, except for the filename of a saver.
    """
    if inputs and outputs:
        return list(inputs), list(outputs)
    proto = tf1.read_meta_graph(source).graph_def if is_meta_graph(source) else read_graph_def(source)
    nodes = {node.name: node for node in proto.node}
    if not outputs:
        fed = {name.split(":")[0] for name in inputs or ()}
        read = {name for node in proto.node for name in _reads(node)}
        unread = [n for n, node in nodes.items() if n not in read | fed and node.op not in ("Placeholder", "Const")]
        found = list(fetches(proto, unread).tensors)  # operations with side effects must be named
        outputs = [name for name in found if _is_numeric(nodes[name])] or found
    if not inputs:
        if candidates := _iterated(nodes, outputs):
            listed = " ".join(f"--input {name}" for name in candidates[:10])
            raise InvalidModelError(
                f"the graph reads its inputs from an iterator or a queue. Name the tensors that become arguments; the "
                f"candidates are {listed} (in Python: inputs=)."
            )
        inputs = [node.name for node in proto.node if node.op == "Placeholder"]
    if not inputs or not outputs:
        raise InvalidModelError("the graph has no placeholders or no results; name inputs and outputs")
    return list(inputs), list(outputs)


def _reads(node: Any) -> list[str]:
    return [ref.lstrip("^").split(":")[0] for ref in node.input]


def _iterated(nodes: Mapping[str, Any], outputs: Sequence[str]) -> list[str]:
    """Return the iterator and queue tensors that outputs need, and default inputs."""
    # Default inputs are placeholders with a default.
    #
    # A tensor that an ``Identity`` forwards has the name of the ``Identity``.
    pending, live = [name.split(":")[0] for name in outputs], set()
    while pending:
        name = pending.pop()
        if name in nodes and name not in live:
            live.add(name)
            pending.extend(_reads(nodes[name]))
    sources = {name for name in live if nodes[name].op in _ITERATED}
    if not sources:
        return []
    found: dict[str, None] = {}
    for name in (n for n in nodes if n in live):
        for ref in nodes[name].input:
            if ref.split(":")[0] in sources:
                found[name if nodes[name].op in ("Identity", "PlaceholderWithDefault") else ref] = None
    defaults = (name for name, node in nodes.items() if name in live and node.op == "PlaceholderWithDefault")
    return list(found | dict.fromkeys(defaults))


def _is_numeric(proto: Any) -> bool:
    """Return whether JAX can hold a node's first result, according to its OpDef."""
    definition = op_defs.definition(proto.op)
    if definition is None or not definition.outputs:
        return True
    types = definition.outputs[0].types(op_defs.read_attrs(proto), proto.name)
    return not types or isinstance(types[0], np.dtype)


@dataclasses.dataclass(frozen=True)
class Fetches:
    """The fetched tensors and operations.

    Attributes:
      operations: names of nodes that run for their side effects, without duplicates.
      positions: for each given name the index in ``tensors``, or None for an operation.
    """

    tensors: tuple[str, ...]
    operations: tuple[str, ...]
    positions: tuple[int | None, ...]


def fetches(graph: Any, names: Iterable[str]) -> Fetches:
    """Classify names as tensors and operations.

    Args:
      graph: the GraphDef.
      names: ``node:index``; ``node`` for its first result, or for the operation if it has none; ``^node`` for the
        operation. Missing nodes raise an error later, when the graph is read.
    """
    nodes = {node.name: node for node in graph.node}
    signatures = {function.signature.name: function.signature for function in graph.library.function}
    tensors: list[str] = []
    operations: dict[str, None] = {}
    positions: list[int | None] = []
    for name in names:
        if name.startswith("^") or (name in nodes and not _has_results(nodes[name], signatures)):
            operations[name.removeprefix("^")] = None
            positions.append(None)
        else:
            positions.append(len(tensors))
            tensors.append(name)
    return Fetches(tuple(tensors), tuple(operations), tuple(positions))


def _has_results(node: Any, signatures: Any) -> bool:
    """Return whether a node has a result."""
    # Unknown or damaged nodes have one: reading the graph raises an error for them.
    if node.op in signatures:
        return bool(signatures[node.op].output_arg)
    definition = op_defs.definition(node.op)
    if definition is None:
        return True
    try:
        attrs = op_defs.read_attrs(node)
        return any(arg.types(attrs, node.name) for arg in definition.outputs)
    except InvalidModelError:
        return True


def _with_function_gradients(graph: ir.Graph, library: Any) -> ir.Graph:
    """Add a ``_CustomGradient`` after calls of functions with registered gradients.

    A ``SymbolicGradient`` of such a function calls its gradient.

    Only legacy calls, by a node whose op is the function's name, use it, and only in a plain graph: inside a
    ``tf.function``, TensorFlow takes the gradient of the function's body.

    Args:
      library: TensorFlow's FunctionDefLibrary, whose GradientDefs name functions and their gradients.
    """
    named = {g.function_name: g.gradient_func for g in library.gradient}
    gradients = {f: g for f, g in named.items() if f in graph.functions and g in graph.functions}
    if not gradients:
        return graph
    functions = dict(graph.functions)
    for name, gradient in gradients.items():
        wrapped = _upstream_first(graph.functions[name], graph.functions[gradient])
        functions[wrapped.name] = wrapped
    for name, function in graph.functions.items():
        functions[name] = _with_gradients(function, gradients)
    return dataclasses.replace(graph, main=_with_gradients(graph.main, gradients), functions=functions)


def _wrapper(function: str) -> str:
    return f"{function}/registered_gradient"


def _upstream_first(function: ir.Function, gradient: ir.Function) -> ir.Function:
    """Return a gradient function with the gradients of the results as first arguments."""
    split = len(function.args)
    args = (*gradient.args[split:], *gradient.args[:split])
    call = build.node(
        "StatefulPartitionedCall",
        [arg.name for arg in gradient.args],
        name="call",
        f=ir.FunctionRef(gradient.name),
        dtypes=[arg.dtype for arg in function.args],
    )
    outputs = tuple(ir.TensorRef("call", i) for i in range(split))
    return ir.Function(_wrapper(function.name), args, (call,), outputs, tuple(f"grad_{i}" for i in range(split)))


def _with_gradients(function: ir.Function, gradients: Mapping[str, str]) -> ir.Function:
    nodes: list[ir.Node] = []
    for node in function.nodes:
        called = node.attrs.get("f")
        if node.op == "SymbolicGradient" and isinstance(called, ir.FunctionRef) and called.name in gradients:
            gradient = ir.FunctionRef(gradients[called.name])
            nodes.append(dataclasses.replace(node, op="StatefulPartitionedCall", attrs={"f": gradient}))
            continue
        if not isinstance(called, ir.FunctionRef) or called.name not in gradients or not node.attrs.get("_by_name"):
            nodes.append(node)
            continue
        original = dataclasses.replace(node, name=f"{node.name}/_original")
        results = tuple(ir.TensorRef(original.name, i) for i in range(len(node.output_dtypes)))
        count = len(node.inputs)
        marked = build.node(
            "_CustomGradient",
            results,
            node.inputs,
            node.inputs,
            gradient=ir.FunctionRef(_wrapper(called.name)),
            positions=list(range(count)),
            own=[-1] * count,
            dtypes=node.output_dtypes,
            like=node,
        )
        nodes += [original, marked]
    return dataclasses.replace(function, nodes=topological_order(function.name, nodes))
