"""AttrValue protos as Python values: the one place where attribute protos are read."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tf2jax_lite import ir
from tf2jax_lite.errors import InvalidModelError, UnsupportedError

from . import dtypes


def shape_of(proto: Any) -> ir.Shape:
    """Returns a TensorShapeProto as a tuple with None for unknown dimensions, or None for unknown rank."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)


def text_of(value: bytes) -> str:
    """Returns a bytes attribute as text; bytes that are not UTF-8 survive as surrogates."""
    return value.decode("utf-8", "surrogateescape")


def tensor_of(proto: Any) -> np.ndarray:
    """Returns a TensorProto as a numpy array (strings as an object array of bytes).

    Raises:
      InvalidModelError: the proto's contents do not fit its declared dtype and shape.
    """
    try:
        value = tf.make_ndarray(proto)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise InvalidModelError(f"a constant's contents do not fit its dtype and shape: {error}") from error
    if value.dtype.names is not None:  # a quantized type: TensorFlow wraps the integer in a one-field struct
        value = value[value.dtype.names[0]]
    return value


def function_of(proto: Any) -> ir.FunctionRef:
    """Returns a NameAttrList as a reference to a library function."""
    return ir.FunctionRef(proto.name, MappingProxyType({k: value_of(v) for k, v in proto.attr.items()}))


def value_of(proto: Any) -> Any:
    """Returns an AttrValue as a Python value."""
    kind = proto.WhichOneof("value")
    match kind:
        case "s":
            return text_of(proto.s)
        case "i":
            return int(proto.i)
        case "f":
            return float(proto.f)
        case "b":
            return bool(proto.b)
        case "type":
            return dtypes.from_tf(proto.type) if proto.type else None
        case "shape":
            return shape_of(proto.shape)
        case "tensor":
            return tensor_of(proto.tensor)
        case "func":
            return function_of(proto.func)
        case "list":
            return _list_of(proto.list)
        case "placeholder":
            return proto.placeholder
        case _:
            return None


def _list_of(proto: Any) -> list[Any]:
    readers = {
        "s": text_of,
        "i": int,
        "f": float,
        "b": bool,
        "type": dtypes.from_tf,
        "shape": shape_of,
        "tensor": tensor_of,
        "func": function_of,
    }
    for field, read in readers.items():
        values = getattr(proto, field)
        if values:
            return [read(value) for value in values]
    return []


def proto_of(value: Any, kind: str, allowed: frozenset[Any] = frozenset()) -> Any:
    """Returns the AttrValue that `value_of` reads as ``value``.

    Args:
      value: the Python value.
      kind: the attribute's type in its OpDef, such as ``"list(int)"``.
      allowed: numbers of the dtypes that the OpDef allows; empty for any.

    Raises:
      UnsupportedError: there is no such proto; quantized types, for example, are plain integers in the ir.
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
