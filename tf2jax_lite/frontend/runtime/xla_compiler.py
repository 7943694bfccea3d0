"""TensorFlow's XLA bridge as a compiler of nodes whose ops are not implemented."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import dtypes, op_defs
from tf2jax_lite.ir.providers import CompiledNode, InputSpec
from tf2jax_lite.support.errors import UnsupportedError

# Number of elements. Inputs that a kernel may need as constants (axes, shapes, paddings, seeds) are short.
_MAX_CONSTANT = 4096


class BridgeCompiler:
    """Compiles nodes to StableHLO, each combination of shapes and constants once."""

    def accepts(self, node: ir.Node) -> bool:
        """Return whether the bridge has a kernel for a node: a pure op of numeric tensors."""
        definition = op_defs.definition(node.op)
        if definition is None or definition.stateful or node.op not in _kernels():
            return False
        types = [*_input_types(definition, node), *node.output_dtypes]
        if not all(isinstance(t, np.dtype) for t in types):
            return False
        try:
            _node_def(node)
        except UnsupportedError:
            return False
        return True

    def compile(self, node: ir.Node, inputs: Sequence[InputSpec]) -> CompiledNode:
        """Compile a node for the shapes of its inputs.

        A static input that could be an axis or a shape becomes a constant. If the bridge needs more constants, every
        input that is known in this call becomes one.

        Returns:
          The module, and the positions of the inputs that are its arguments.
        """
        definition = op_defs.definition(node.op)
        assert definition is not None  # it was accepted
        types = _input_types(definition, node)
        proto = _node_def(node).SerializeToString(deterministic=True)
        known = [v.value is not None for v in inputs]
        short = [
            v.static and math.prod(v.shape) <= _MAX_CONSTANT and np.dtype(t).kind in "iub"
            for v, t in zip(inputs, types, strict=True)
        ]
        try:
            return _compiled(proto, inputs, types, short)
        except UnsupportedError:
            if short == known:
                raise
        return _compiled(proto, inputs, types, known)


def _compiled(
    proto: bytes, inputs: Sequence[InputSpec], types: Sequence[Any], constant: Sequence[bool]
) -> CompiledNode:
    described = tuple(
        (v.shape, t, np.asarray(v.value, t).tobytes() if c else None)
        for v, t, c in zip(inputs, types, constant, strict=True)
    )
    return CompiledNode(_compile(proto, described), tuple(i for i, c in enumerate(constant) if not c))


@functools.cache
def _kernels() -> frozenset[str]:
    """Return the ops that the bridge has kernels for."""
    # No public API lists them; tf.function(jit_compile=True) would only fail later.
    from tensorflow.python.util import pywrap_xla_ops

    return frozenset(pywrap_xla_ops.get_cpu_kernel_names())


def _input_types(definition: op_defs.Definition, node: ir.Node) -> list[Any]:
    where = f"node {node.name!r} ({node.op})"
    return [t for arg in definition.inputs for t in arg.types(node.attrs, where)]


def _node_def(node: ir.Node) -> Any:
    """Return a node as a NodeDef called "node", with inputs "input0", "input1", ..."""
    proto = node_def_pb2.NodeDef(name="node", op=node.op, input=[f"input{i}" for i in range(len(node.inputs))])
    for name, kind, allowed in op_defs.attribute_kinds(node.op):
        if name in node.attrs:
            proto.attr[name].CopyFrom(proto_of(node.attrs[name], kind, allowed))
    return proto


@functools.lru_cache(maxsize=256)
def _compile(proto: bytes, inputs: tuple[tuple[tuple[int, ...], np.dtype, bytes | None], ...]) -> str:
    """Return a node as StableHLO."""
    # Each input is a shape, a dtype, and its contents if it is a constant.
    graph = graph_pb2.GraphDef(node=[node_def_pb2.NodeDef.FromString(proto)])

    def run(*tensors: Any) -> Any:
        arguments = iter(tensors)
        fed = {}
        for i, (shape, dtype, contents) in enumerate(inputs):
            if contents is None:
                fed[f"input{i}"] = next(arguments)
            else:
                fed[f"input{i}"] = tf.constant(np.frombuffer(contents, dtype).reshape(shape), dtypes.to_tf(dtype))
        (made,) = tf.graph_util.import_graph_def(graph, input_map=fed, return_elements=["node"])
        return list(made.outputs)

    specs = [tf.TensorSpec(shape, dtypes.to_tf(dtype)) for shape, dtype, contents in inputs if contents is None]
    try:
        with tf.init_scope(), tf.device("CPU:0"):
            compiled = tf.function(run, jit_compile=True, autograph=False)
            return compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    except (tf.errors.OpError, ValueError, TypeError) as error:
        reason = str(getattr(error, "message", error)).strip().splitlines()
        raise UnsupportedError(
            f"TensorFlow's XLA bridge cannot compile this node for its inputs: {' '.join(reason[:2])[:300]}"
        ) from error


def proto_of(value: Any, kind: str, allowed: frozenset[Any] = frozenset()) -> Any:
    """Return the AttrValue that `attributes.value_of` reads as ``value``.

    Args:
      kind: the attribute's type in its OpDef, such as ``"list(int)"``.
      allowed: numbers of the dtypes that the OpDef allows; empty for any.
    """
    proto = attr_value_pb2.AttrValue()
    if kind.startswith("list("):
        proto.list.SetInParent()
        for item in value:
            _put(proto.list, kind[5:-1], item, allowed, many=True)
    else:
        _put(proto, kind, value, allowed, many=False)
    return proto


_FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "shape": "shape", "tensor": "tensor"}


def _put(proto: Any, kind: str, value: Any, allowed: frozenset[Any], *, many: bool) -> None:
    if kind == "shape":
        value = tf.TensorShape(value).as_proto()
    elif kind not in _FIELDS or value is None:
        raise UnsupportedError(f"an attribute of type {kind} cannot be written.")
    elif kind == "type":
        value = dtypes.to_tf(value).as_datatype_enum
        if allowed and value not in allowed:
            raise UnsupportedError("an attribute is a quantized type.")
    elif kind == "string":
        value = value.encode("utf-8", "surrogateescape")
    elif kind == "tensor":
        value = tf.make_tensor_proto(value)
    field = _FIELDS[kind]
    if many:
        getattr(proto, field).append(value)
    elif kind in ("shape", "tensor"):
        getattr(proto, field).CopyFrom(value)
    else:
        setattr(proto, field, value)
