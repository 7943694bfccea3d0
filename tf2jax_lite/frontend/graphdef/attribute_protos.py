"""Python values to AttrValue protos, for TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tf2jax_lite.support.errors import UnsupportedError

from . import dtypes


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
