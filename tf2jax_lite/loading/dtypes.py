"""TensorFlow dtypes as numpy dtypes or opaque types."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.errors import UnsupportedError

# Quantized types hold plain integers; the ops that give them a meaning take scales and zero points explicitly.
_QUANTIZED = {"qint8": np.int8, "quint8": np.uint8, "qint16": np.int16, "quint16": np.uint16, "qint32": np.int32}
_OPAQUE = {"resource": ir.RESOURCE, "variant": ir.VARIANT, "string": ir.STRING}


@functools.cache
def from_tf(dtype: Any) -> ir.DType:
    """Returns the ir dtype of a ``tf.DType`` or a ``types_pb2.DataType`` number.

    Raises:
      UnsupportedError: there is no such type in numpy or ml_dtypes.
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
    """Returns TensorFlow's dtype."""
    return tf.dtypes.as_dtype(dtype if isinstance(dtype, np.dtype) else dtype.name)
