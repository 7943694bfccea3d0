"""Values of variables, read from TensorFlow without a copy where possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.ops import gen_resource_variable_ops as resource_ops

from tf2jax_lite.frontend.graphdef.dtypes import per_dtype
from tf2jax_lite.support.errors import UnsupportedError


def read_values(handles: Sequence[Any], types: Sequence[Any]) -> list[np.ndarray] | None:
    """Read many variables with one op; see `read_value`.

    Returns:
      The values; None if TensorFlow cannot read all of them together (one is uninitialized, or they are on several
      devices): reading each on its own then raises the specific error.
    """
    if not handles:
        return []
    if not tf.executing_eagerly():
        return None
    attrs = ("N", len(handles), "dtypes", [dtype.as_datatype_enum for dtype in types])
    try:
        found = execute.quick_execute("_ReadVariablesOp", len(handles), list(handles), attrs, context.context())
    except tf.errors.OpError:
        return None
    return [_array(value, dtype) for value, dtype in zip(found, types, strict=True)]


@per_dtype
def is_numeric(dtype: Any) -> bool:
    """Return whether a ``tf.DType`` is numeric or bool."""
    return _is_inexact(dtype) or dtype.is_integer or dtype.is_bool


@per_dtype
def _is_inexact(dtype: Any) -> bool:
    return dtype.is_floating or dtype.is_complex


def read_value(handle: Any, dtype: Any) -> np.ndarray:
    """Return a variable's value.

    Floats are read-only and not copied if NumPy has their dtype. Called under ``tf.init_scope``.
    """
    if not tf.executing_eagerly():
        raise UnsupportedError(
            "variables have no values inside of `with tf.Graph().as_default()`, nor without eager execution: convert "
            "outside of it (TensorFlow 1's graphs: convert_graph_def, convert_saved_model)."
        )
    return _array(resource_ops.read_variable_op(handle, dtype), dtype)


def _array(value: Any, dtype: Any) -> np.ndarray:
    """Return an eager tensor as an array."""
    # An assignment in TensorFlow makes a new buffer if the old one has other references. Some kernels that advance the
    # integer state of a random generator (StatefulRandomBinomial) write in place: integers are copied.
    if not _is_inexact(dtype):
        return value.numpy()
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError):  # bfloat16 and other types beyond the buffer protocol
        return value.numpy()
