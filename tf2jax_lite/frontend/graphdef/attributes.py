"""AttrValue protos to Python values and back."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError

from . import dtypes
from .size_limits import tensor_bytes

_MAX_DIMENSIONS = 254


def shape_of(proto: Any) -> ir.Shape:
    """Return a TensorShapeProto as a tuple; None for unknown dimensions or rank.

    Raises:
      InvalidModelError: the shape has more dimensions than TensorFlow allows.
    """
    if proto.unknown_rank:
        return None
    if len(proto.dim) > _MAX_DIMENSIONS:
        raise InvalidModelError(f"a shape of {len(proto.dim)} dimensions; TensorFlow has up to {_MAX_DIMENSIONS}.")
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)


def text_of(value: bytes) -> str:
    """Return a bytes attribute as text; bytes that are not UTF-8 become surrogates."""
    return value.decode("utf-8", "surrogateescape")


# Types whose bytes are NumPy's.
_PLAIN = {
    dtype.as_datatype_enum: np.dtype(dtype.as_numpy_dtype).newbyteorder("<")
    for dtype in (tf.float32, tf.float64, tf.int32, tf.int64, tf.uint8, tf.int8, tf.int16, tf.uint16, tf.float16)
}


# Fields that hold values of these types if they are not given as bytes.
_SCALARS = {
    tf.float32.as_datatype_enum: "float_val",
    tf.float64.as_datatype_enum: "double_val",
    tf.int32.as_datatype_enum: "int_val",
    tf.int64.as_datatype_enum: "int64_val",
}


def tensor_of(proto: Any) -> np.ndarray:
    """Return a TensorProto as a numpy array (strings as an object array of bytes).

    Raises:
      InvalidModelError: the proto's contents do not fit its declared dtype and shape.
    """
    tensor_bytes(proto, "a constant")
    plain = _PLAIN.get(proto.dtype)
    content = proto.tensor_content if plain is not None else b""
    try:
        if content:
            return np.frombuffer(content, plain).reshape([dim.size for dim in proto.tensor_shape.dim])
        if proto.dtype in _SCALARS and not proto.tensor_shape.dim:
            numbers = getattr(proto, _SCALARS[proto.dtype])
            if len(numbers) == 1:
                return np.array(numbers[0], plain)
        if proto.dtype == tf.string.as_datatype_enum and any(dim.size == 0 for dim in proto.tensor_shape.dim):
            # TensorFlow sometimes writes them as one string, which only its C++ code reads.
            return np.zeros([dim.size for dim in proto.tensor_shape.dim], object)
        value = tf.make_ndarray(proto)
    except (ValueError, TypeError, IndexError, OverflowError, KeyError, AttributeError) as error:
        raise InvalidModelError(f"a constant's contents do not fit its dtype and shape: {error}") from error
    if value.dtype.names is not None:  # a quantized type: TensorFlow wraps the integer in a one-field struct
        value = value[value.dtype.names[0]]
    return value


def function_of(proto: Any, depth: int = 0) -> ir.FunctionRef:
    """Return a NameAttrList as a reference to a library function."""
    return ir.FunctionRef(proto.name, MappingProxyType({k: value_of(v, depth + 1) for k, v in proto.attr.items()}))


# Functions in attributes of functions: TensorFlow writes one level.
_MAX_DEPTH = 32


def value_of(proto: Any, depth: int = 0) -> Any:
    """Return an AttrValue as a Python value.

    Args:
      proto: the AttrValue.
      depth: number of enclosing references to functions.

    Raises:
      InvalidModelError: the proto is damaged, or nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise InvalidModelError(f"an attribute nests functions more than {_MAX_DEPTH} deep.")
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    value = getattr(proto, kind)
    if kind == "func":
        return function_of(value, depth)
    if kind == "list":
        return _list_of(value, depth)
    read = _READERS.get(kind)
    return value if read is None else read(value)


def _dtype_of(number: int) -> ir.DType | None:
    return dtypes.from_tf(number) if number else None


def _list_of(proto: Any, depth: int) -> list[Any]:
    for field, values in proto.ListFields():
        if field.name == "func":
            return [function_of(value, depth) for value in values]
        if values:
            read = dtypes.from_tf if field.name == "type" else _READERS.get(field.name)
            return list(values) if read is None else [read(value) for value in values]
    return []


# Numbers, booleans and placeholders' names are Python values already.
_READERS = {"s": text_of, "type": _dtype_of, "shape": shape_of, "tensor": tensor_of}


def proto_of(value: Any, kind: str, allowed: frozenset[Any] = frozenset()) -> Any:
    """Return the AttrValue that `value_of` reads as ``value``.

    Args:
      value: the Python value.
      kind: the attribute's type in its OpDef, such as ``"list(int)"``.
      allowed: numbers of the dtypes that the OpDef allows; empty for any.

    Raises:
      UnsupportedError: no proto has this value; quantized types, for example, are plain integers in the IR.
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
