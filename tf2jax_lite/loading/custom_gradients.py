"""tf.custom_gradient as nodes.

TensorFlow records a custom gradient as an IdentityN over (results, arguments, variables read) whose gradient function
is looked up by name in a registry of the process. The gradient function is a Python closure over tensors of the graph
being built. Here it is traced once into a function of (upstream gradients, captured tensors), and the IdentityN becomes
a ``_CustomGradient`` node that has the captured tensors as further inputs.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph as tf_func_graph
from tensorflow.python.framework import ops as tf_ops

from tf2jax_lite import ir

from . import dtypes, graph_def

__all__ = ["rewrite_custom_gradients"]

_ATTRIBUTE = "_gradient_op_type"
_log = logging.getLogger(__name__)


class _Skip(Exception):
    """The node keeps the gradient of its forward code; the text says why."""


def rewrite_custom_gradients(graph: ir.Graph, func_graph: Any, captures: dict[int, int]) -> ir.Graph:
    """Returns the graph with each custom gradient as a node.

    Args:
      graph: the graph as loaded.
      func_graph: TensorFlow's graph of the main function.
      captures: ``id`` of each tensor that the main function captures, to its position among the arguments.
    """
    functions = dict(graph.functions)
    main = _rewrite(graph.main, func_graph, captures, functions)
    for name, function in list(graph.functions.items()):
        if any(_is_marked(node) for node in function.nodes):
            functions[name] = _rewrite(function, _inner_graph(func_graph, name), {}, functions)
    return dataclasses.replace(graph, main=main, functions=functions)


def _is_marked(node: ir.Node) -> bool:
    return node.op == "IdentityN" and _ATTRIBUTE in node.attrs


def _inner_graph(func_graph: Any, name: str) -> Any:
    """Returns TensorFlow's graph of a library function, searched through the functions that call it; or None."""
    pending, seen = [func_graph], set()
    while pending:
        current = pending.pop()
        for known, function in getattr(current, "_functions", {}).items():
            key = known.decode() if isinstance(known, bytes) else known
            if key in seen:
                continue
            seen.add(key)
            inner = getattr(function, "graph", None)
            if key == name:
                return inner
            if inner is not None:
                pending.append(inner)
    return None


def _rewrite(
    function: ir.Function, func_graph: Any, captures: dict[int, int], functions: dict[str, ir.Function]
) -> ir.Function:
    nodes: list[ir.Node] = []
    for node in function.nodes:
        if _is_marked(node):
            try:
                node = _node(node, function, func_graph, captures, functions)
            except _Skip as reason:
                _log.warning(
                    "node %r in %r: its custom gradient is not available (%s); that of the forward code is used.",
                    node.name,
                    function.name,
                    reason,
                )
        nodes.append(node)
    return dataclasses.replace(function, nodes=graph_def.ordered(function.name, nodes))


def _node(
    node: ir.Node,
    function: ir.Function,
    func_graph: Any,
    captures: dict[int, int],
    functions: dict[str, ir.Function],
) -> ir.Node:
    if func_graph is None:
        raise _Skip("the graph that it was traced in is gone")
    try:
        gradient = tf_ops.gradient_registry.lookup(node.attrs[_ATTRIBUTE])
    except LookupError:
        raise _Skip("it is not saved with the model; save with experimental_custom_gradients=True") from None
    try:
        operation = func_graph.get_operation_by_name(node.name)
    except (KeyError, ValueError):
        raise _Skip("the graph that it was traced in has another form") from None
    traced, positions = _trace(gradient, operation, func_graph, f"{node.name}_gradient")
    name = f"{function.name}/{node.name}/gradient"
    upstream = len(node.inputs)
    args = [ir.Argument(t.op.name, dtypes.from_tf(t.dtype)) for t in traced.inputs]
    proto = traced.as_graph_def()
    for inner, body in graph_def.load_library(proto.library).items():
        functions.setdefault(inner, body)
    functions[name] = graph_def.load_main(proto, name, args, [t.name for t in traced.outputs])
    captured = [_reference(t, function, func_graph, captures) for t in traced.inputs[upstream:]]
    return dataclasses.replace(
        node,
        op="_CustomGradient",
        inputs=(*node.inputs, *captured),
        groups=(upstream, len(captured)),
        attrs={"gradient": ir.FunctionRef(name), "positions": positions},
        implied=frozenset(),
        input_types=("", ""),
    )


def _trace(gradient: Any, operation: Any, func_graph: Any, name: str) -> tuple[Any, list[int]]:
    """Traces a gradient function inside the graph it belongs to; tells which inputs get a gradient."""
    try:
        with func_graph.as_default():
            inner = tf_func_graph.FuncGraph(name)
            with inner.as_default():
                upstream = [
                    tf.compat.v1.placeholder(t.dtype, t.shape, f"upstream_{i}") for i, t in enumerate(operation.outputs)
                ]
                grads = gradient(operation, *upstream)
                grads = list(grads) if isinstance(grads, (list, tuple)) else [grads]
                positions = [i for i, g in enumerate(grads) if g is not None]
                outputs = [inner.capture(tf.convert_to_tensor(grads[i])) for i in positions]
                outputs = [tf.identity(t) for t in outputs]
    except Exception as error:
        raise _Skip(f"its gradient function fails: {type(error).__name__}: {error}") from error
    if len(grads) > len(operation.outputs):
        raise _Skip(f"it returns {len(grads)} gradients for {len(operation.outputs)} tensors")
    inner.inputs = [*upstream, *inner.internal_captures]
    inner.outputs = outputs
    return _WithExternal(inner), positions


class _WithExternal:
    """A traced gradient: its graph, and its inputs with captured ones given by the outer tensors they stand for."""

    def __init__(self, graph: Any):
        self._graph = graph
        self.outputs = graph.outputs
        external = dict(zip(map(id, graph.internal_captures), graph.external_captures, strict=True))
        self.inputs = [_Input(t, external.get(id(t))) for t in graph.inputs]

    def as_graph_def(self) -> Any:
        return self._graph.as_graph_def()


@dataclasses.dataclass(frozen=True)
class _Input:
    inner: Any
    external: Any

    @property
    def op(self) -> Any:
        return self.inner.op

    @property
    def dtype(self) -> Any:
        return self.inner.dtype


def _reference(tensor: _Input, function: ir.Function, func_graph: Any, captures: dict[int, int]) -> ir.TensorRef:
    """Returns what the outer tensor that a gradient function captured is called in the ir."""
    outer = tensor.external
    if id(outer) in captures:
        return ir.TensorRef(function.args[captures[id(outer)]].name)
    if getattr(outer, "graph", None) is func_graph:
        for index, placeholder in enumerate(func_graph.inputs):
            if placeholder is outer and index < len(function.args):
                return ir.TensorRef(function.args[index].name)
        return ir.TensorRef(outer.op.name, outer.value_index)
    for external, internal in getattr(func_graph, "captures", ()):
        if external is outer:
            for index, placeholder in enumerate(func_graph.inputs):
                if placeholder is internal:
                    return ir.TensorRef(function.args[index].name)
    raise _Skip("its gradient function uses a tensor or variable from outside that the function itself does not")
