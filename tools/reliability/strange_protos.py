"""Build GraphDefs that TensorFlow would not write."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2

FLOAT, INT, LONG, STRING, BOOL = tf.float32, tf.int32, tf.int64, tf.string, tf.bool


def attribute(value):
    found = attr_value_pb2.AttrValue()
    if isinstance(value, tf.DType):
        found.type = value.as_datatype_enum
    elif isinstance(value, bool):
        found.b = value
    elif isinstance(value, int):
        found.i = value
    elif isinstance(value, float):
        found.f = value
    elif isinstance(value, str):
        found.func.name = value
    elif isinstance(value, tf.TensorShape):
        found.shape.CopyFrom(value.as_proto())
    elif isinstance(value, list):
        found.list.type.extend(v.as_datatype_enum for v in value)
    else:
        found.tensor.CopyFrom(value if not isinstance(value, np.ndarray) else tf.make_tensor_proto(value))
    return found


def node(name, op, *inputs, **attrs):
    found = node_def_pb2.NodeDef(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        found.attr[key].CopyFrom(attribute(value))
    return found


def const(name, value, dtype=None):
    value = np.asarray(value) if dtype is None else np.asarray(value, dtype.as_numpy_dtype)
    return node(name, "Const", dtype=tf.as_dtype(value.dtype), value=value)


X = node("x", "Placeholder", dtype=FLOAT, shape=tf.TensorShape([2]))


def function(name, args, result, nodes):
    """Return a function of ``args`` (name to dtype) with the one ``result``."""
    found = function_pb2.FunctionDef()
    found.signature.name = name
    for arg, dtype in args.items():
        found.signature.input_arg.add(name=arg, type=dtype.as_datatype_enum)
    wire, dtype = result
    found.signature.output_arg.add(name="out", type=dtype.as_datatype_enum)
    found.node_def.extend(nodes)
    found.ret["out"] = wire
    return found


def graph(*nodes, functions=()):
    found = graph_pb2.GraphDef(node=[X, *nodes])
    found.library.function.extend(functions)
    found.versions.producer = 1882
    return found


def oversized(op, *inputs, **attrs):
    """Return a node that makes much of constants, and a use of the argument."""
    made = node("much", op, *(f"in{i}" for i in range(len(inputs))), **attrs)
    return graph(
        *(
            value if isinstance(value, node_def_pb2.NodeDef) else const(f"in{i}", value)
            for i, value in enumerate(inputs)
        ),
        made,
        node("zero", "Const", dtype=INT, value=np.int32([0])),
        node("flat", "Reshape", "much", "minus", T=FLOAT, Tshape=INT),
        const("minus", np.int32([-1])),
        node("first", "GatherV2", "flat", "zero", "axis", Tparams=FLOAT, Tindices=INT, Taxis=INT),
        const("axis", np.int32(0)),
        node("y", "AddV2", "x", "first", T=FLOAT),
    )
