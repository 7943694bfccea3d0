"""TensorFlow dtypes as numpy dtypes or opaque types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.errors import UnsupportedError

# The numbers of types_pb2.DataType. Quantized types (11 to 13, 15, 16) are plain integers; ops on them take scales and
# zero points explicitly.
_NUMBERS: dict[int, ir.DType] = {
    7: ir.STRING,
    20: ir.RESOURCE,
    21: ir.VARIANT,
    **{
        number: np.dtype(kind)
        for number, kind in {
            1: np.float32,
            2: np.float64,
            3: np.int32,
            4: np.uint8,
            5: np.int16,
            6: np.int8,
            8: np.complex64,
            9: np.int64,
            10: np.bool_,
            11: np.int8,
            12: np.uint8,
            13: np.int32,
            14: ml_dtypes.bfloat16,
            15: np.int16,
            16: np.uint16,
            17: np.uint16,
            18: np.complex128,
            19: np.float16,
            22: np.uint32,
            23: np.uint64,
            24: ml_dtypes.float8_e5m2,
            25: ml_dtypes.float8_e4m3fn,
            26: ml_dtypes.float8_e4m3fnuz,
            27: ml_dtypes.float8_e4m3b11fnuz,
            28: ml_dtypes.float8_e5m2fnuz,
            29: ml_dtypes.int4,
            30: ml_dtypes.uint4,
            31: ml_dtypes.int2,
            32: ml_dtypes.uint2,
            33: ml_dtypes.float4_e2m1fn,
        }.items()
    },
}
_REFERENCES = 100  # the number of a reference type is larger by this

_Found = TypeVar("_Found")


@functools.cache
def _lasting() -> dict[int, Any]:
    """Return TensorFlow's dtype objects by ``id``; they live as long as the process."""
    # Hashing or comparing one is slow.
    import tensorflow as tf

    return {id(dtype): dtype for dtype in vars(tf.dtypes).values() if isinstance(dtype, tf.DType)}


def per_dtype(fn: Callable[[Any], _Found]) -> Callable[[Any], _Found]:
    """Return ``fn``, a function of a ``tf.DType`` or its number, with cached results."""
    known: dict[int, _Found] = {}
    computed = functools.cache(fn)

    @functools.wraps(fn)
    def found(dtype: Any) -> _Found:
        result = known.get(id(dtype))
        if result is None:
            result = computed(dtype)
            if not isinstance(dtype, int) and id(dtype) in _lasting():
                known[id(dtype)] = result
        return result

    return found


@per_dtype
def from_tf(dtype: Any) -> ir.DType:
    """Return the IR dtype of a ``tf.DType`` or a ``types_pb2.DataType`` number."""
    number = dtype if isinstance(dtype, int) else dtype.as_datatype_enum
    found = _NUMBERS.get(number - _REFERENCES if number > _REFERENCES else number)
    if found is None:
        raise UnsupportedError(f"unknown TensorFlow dtype {dtype!r}.")
    return found


def to_tf(dtype: ir.DType) -> Any:
    """Return TensorFlow's dtype."""
    import tensorflow as tf

    return tf.dtypes.as_dtype(dtype if isinstance(dtype, np.dtype) else dtype.name)
