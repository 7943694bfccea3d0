"""Run single nodes of the IR eagerly in TensorFlow, the reference for one node."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as tf_context
from tensorflow.python.eager import execute as tf_execute
from tensorflow.python.eager import record as tf_record
from tensorflow.python.framework import op_def_registry

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import op_defs


class CannotRun(Exception):
    """TensorFlow has no eager form of this node; the text says why."""


def tf_dtype(dtype: ir.DType) -> Any:
    """Return TensorFlow's dtype."""
    return tf.dtypes.as_dtype(dtype if isinstance(dtype, np.dtype) else dtype.name)


@functools.cache
def _attribute_names(op: str) -> tuple[str, ...]:
    proto = op_def_registry.get(op)
    if proto is None:
        raise CannotRun(f"this TensorFlow has no op {op}")
    return tuple(attr.name for attr in proto.attr)


def run_node(node: ir.Node, inputs: Sequence[Any]) -> list[Any]:
    """Return the results of one node; an active ``tf.GradientTape`` sees it.

    Raises:
      CannotRun: there is no such op, or an attribute names a function.
    """
    if node.op == "_CustomGradient":  # an IdentityN in TensorFlow; the other inputs are for its gradient
        return list(inputs[: node.groups[0]])
    if node.op == "Const":
        value = node.attrs["value"]
        return [tf.constant(value, tf_dtype(node.output_dtypes[0]), shape=np.shape(value))]
    if node.op == "_Undefined":  # unused
        return [tf.zeros([])]
    attrs: list[Any] = []
    for name in _attribute_names(node.op):
        if name in node.attrs:
            attrs += [name, _attribute(node.attrs[name])]
    context: Any = tf_context.context()
    context.ensure_initialized()
    with tf.device("CPU:0"):
        results = tf_execute.quick_execute(node.op, len(node.output_dtypes), list(inputs), tuple(attrs), context)
    results = list(results or [])
    if tf_record.could_possibly_record():
        tf_execute.record_gradient(node.op, list(inputs), tuple(attrs), results)
    return results


def _attribute(value: Any) -> Any:
    if isinstance(value, list):
        return [_attribute(v) for v in value]
    if isinstance(value, (ir.FunctionRef, Mapping)):
        raise CannotRun("an attribute is a function")
    if isinstance(value, (np.dtype, ir.OpaqueType)):
        return tf_dtype(value).as_datatype_enum
    if isinstance(value, np.ndarray):
        return tf.make_tensor_proto(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str):  # may hold arbitrary bytes, such as a serialized module
        return value.encode("utf-8", "surrogateescape")
    return value


def single_call(node: ir.Node) -> tuple[list[tuple[str, int | None]], dict[str, Any]]:
    """Return a node's input names in ``tf.raw_ops``, and its attributes.

    Names of lists come with their lengths.

    Raises:
      CannotRun: there is no such raw op, or an attribute names a function.
    """
    definition = op_defs.definition(node.op)
    if definition is None or not hasattr(tf.raw_ops, node.op):
        raise CannotRun(f"tf.raw_ops has no {node.op}")
    parameters = [p for p in inspect.signature(getattr(tf.raw_ops, node.op)).parameters if p != "name"]
    attributes = set(_attribute_names(node.op))
    names = [arg.name for arg in definition.inputs]
    # A few inputs have another name in Python than in the OpDef.
    renamed = iter([p for p in parameters if p not in attributes and p not in names])
    inputs = [
        (name if name in parameters else next(renamed), group) for name, group in zip(names, node.groups, strict=True)
    ]
    found = {}
    for name, value in node.attrs.items():
        if name in parameters and name in attributes and name not in node.implied:
            if isinstance(value, ir.FunctionRef):
                raise CannotRun(f"attribute {name} is a function")
            found[name] = value
    return inputs, found
