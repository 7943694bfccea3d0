"""TensorFlow dtypes as numpy dtypes or opaque types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.support.errors import UnsupportedError

# Quantized types are plain integers; ops on them take scales and zero points explicitly.
_QUANTIZED = {"qint8": np.int8, "quint8": np.uint8, "qint16": np.int16, "quint16": np.uint16, "qint32": np.int32}
_OPAQUE = {"resource": ir.RESOURCE, "variant": ir.VARIANT, "string": ir.STRING}


_Found = TypeVar("_Found")

# TensorFlow's dtype objects, by ``id``; they live as long as the process. Hashing or comparing one is slow.
_LASTING = {id(dtype): dtype for dtype in vars(tf.dtypes).values() if isinstance(dtype, tf.DType)}


def per_dtype(fn: Callable[[Any], _Found]) -> Callable[[Any], _Found]:
    """Return ``fn``, a function of a ``tf.DType`` or its number, with cached results."""
    known: dict[int, _Found] = {}
    computed = functools.cache(fn)

    @functools.wraps(fn)
    def found(dtype: Any) -> _Found:
        result = known.get(id(dtype))
        if result is None:
            result = computed(dtype)
            if id(dtype) in _LASTING:
                known[id(dtype)] = result
        return result

    return found


@per_dtype
def from_tf(dtype: Any) -> ir.DType:
    """Return the IR dtype of a ``tf.DType`` or a ``types_pb2.DataType`` number.

    Raises:
      UnsupportedError: NumPy and ml_dtypes have no such type.
    """
    try:
        dtype = tf.dtypes.as_dtype(dtype).base_dtype
    except TypeError as error:
        raise UnsupportedError(f"unknown TensorFlow dtype {dtype!r}.") from error
    if dtype.name in _OPAQUE:
        return _OPAQUE[dtype.name]
    if dtype.name in _QUANTIZED:
        return np.dtype(_QUANTIZED[dtype.name])
    return np.dtype(dtype.as_numpy_dtype)


def to_tf(dtype: ir.DType) -> Any:
    """Return TensorFlow's dtype."""
    return tf.dtypes.as_dtype(dtype if isinstance(dtype, np.dtype) else dtype.name)
