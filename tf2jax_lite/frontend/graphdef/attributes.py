"""AttrValue and TensorProto protos to Python values."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError

from . import dtypes
from .size_limits import tensor_bytes

_MAX_DIMENSIONS = 254


def shape_of(proto: Any) -> ir.Shape:
    """Return a TensorShapeProto as a tuple; None for unknown dimensions or rank."""
    if proto.unknown_rank:
        return None
    if len(proto.dim) > _MAX_DIMENSIONS:
        raise InvalidModelError(f"a shape of {len(proto.dim)} dimensions; TensorFlow has up to {_MAX_DIMENSIONS}.")
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)


def text_of(value: bytes) -> str:
    """Return a bytes attribute as text; bytes that are not UTF-8 become surrogates."""
    return value.decode("utf-8", "surrogateescape")


# Types whose bytes are NumPy's: float32, float64, int32, int64, uint8, int8, int16, uint16, float16.
_PLAIN = {n: cast("np.dtype", dtypes.from_tf(n)).newbyteorder("<") for n in (1, 2, 3, 9, 4, 6, 5, 17, 19)}
# Fields that hold values of these types if they are not given as bytes, and the dtype in the field if it is another.
_SCALARS = {1: "float_val", 2: "double_val", 3: "int_val", 9: "int64_val"}
_INTEGERS = (3, 4, 5, 6, 11, 12, 13, 15, 16, 17, 29, 30, 31, 32)
_FIELDS: dict[int, tuple[str, Any]] = {
    **{number: (field, None) for number, field in _SCALARS.items()},
    **dict.fromkeys(_INTEGERS, ("int_val", np.int64)),
    **dict.fromkeys((14, 19), ("half_val", np.uint16)),
    **dict.fromkeys((24, 25, 26, 27, 28, 33), ("float8_val", np.uint8)),
    8: ("scomplex_val", np.float32),
    10: ("bool_val", None),
    18: ("dcomplex_val", np.float64),
    22: ("uint32_val", None),
    23: ("uint64_val", None),
}
_STRING = 7


def tensor_of(proto: Any) -> np.ndarray:
    """Return a TensorProto as a numpy array (strings as an object array of bytes)."""
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
        return _values_of(proto)
    except (ValueError, TypeError, IndexError, OverflowError, KeyError, AttributeError) as error:
        raise InvalidModelError(f"a constant's contents do not fit its dtype and shape: {error}") from error


def _values_of(proto: Any) -> np.ndarray:
    """Return the value of any TensorProto; the last of too few numbers is repeated."""
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.dtype == _STRING:
        if proto.tensor_content:
            raise ValueError("strings are given as bytes")
        if any(size == 0 for size in shape):
            # TensorFlow sometimes writes them as one string, which only its C++ code reads.
            return np.zeros(shape, object)
        return _filled(np.array([*proto.string_val, b""], object)[: len(proto.string_val) or 1], shape)
    dtype = dtypes.from_tf(proto.dtype)
    if not isinstance(dtype, np.dtype):
        raise TypeError(f"a {dtype} has no value")
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    field, stored = _FIELDS[proto.dtype]
    written = getattr(proto, field)
    values = np.frombuffer(written, stored) if isinstance(written, bytes) else np.array(written, stored or dtype)
    if stored is not None:
        values = _narrowed(values, dtype) if field == "int_val" else values.view(dtype)
    return _filled(values, shape) if values.size else np.zeros(shape, dtype)


def _narrowed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    found = values.astype(dtype)
    if not np.array_equal(found.astype(values.dtype), values):
        raise OverflowError(f"a number is out of range of {dtype}")
    return found


def _filled(values: np.ndarray, shape: list[int]) -> np.ndarray:
    missing = math.prod(shape) - values.size
    if missing < 0:
        raise ValueError(f"{values.size} values for the shape {shape}")
    return np.concatenate([values, np.repeat(values[-1:], missing)]).reshape(shape)


def function_of(proto: Any, depth: int = 0) -> ir.FunctionRef:
    """Return a NameAttrList as a reference to a library function."""
    return ir.FunctionRef(proto.name, MappingProxyType({k: value_of(v, depth + 1) for k, v in proto.attr.items()}))


# Functions in attributes of functions: TensorFlow writes one level.
_MAX_DEPTH = 32


def value_of(proto: Any, depth: int = 0) -> Any:
    """Return an AttrValue as a Python value.

    Args:
      depth: number of enclosing references to functions.
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
