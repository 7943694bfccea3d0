"""Values of variables, read from TensorFlow without a copy where possible."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.ops import gen_resource_variable_ops as resource_ops
from tensorflow.python.util import tf_decorator

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


# Lists that duplicate attributes in Keras, and attributes that only restored objects have.
_LISTS = frozenset({"variables", "trainable_variables", "non_trainable_variables", "keras_api", "signatures"})


def variable_paths(function: Any) -> dict[int, str]:
    """Return the shortest attribute path of each model variable, by handle ``id``.

    Paths start at the object that is called, at the object whose method it is, or at a name that the function closes
    over. TensorFlow tracks attributes, lists and dicts of its objects, under the keys that checkpoints have.

    Args:
      function: a ``tf.function``, method, plain function, or object with ``__call__``.
    """
    found: dict[int, str] = {}
    pending = collections.deque(_roots(function))
    seen: set[int] = set()
    while pending:
        path, item = pending.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        handle = getattr(item, "handle", None)
        if handle is not None:
            found.setdefault(id(handle), path)
        elif _is_tracked(item):
            pending += [
                (f"{path}/{name}" if path else name, child)
                for name, child in item._trackable_children().items()
                if name not in _LISTS
            ]
    return found


def _is_tracked(item: Any) -> bool:
    """Return whether TensorFlow tracks the attributes of an object."""
    # A ``tf.function`` has none.
    return hasattr(item, "_trackable_children") and not hasattr(item, "get_concrete_function")


def _roots(function: Any) -> Iterator[tuple[str, Any]]:
    model = getattr(function, "_tf2jax_lite_model", None)
    if model is not None:
        yield "", model
    elif _is_tracked(function):
        yield "", function
    else:
        _, python_function = tf_decorator.unwrap(getattr(function, "python_function", function))
        owner = getattr(python_function, "__self__", None)
        owner = getattr(owner, "target", owner)  # of a method that is a tf.function
        if owner is not None:
            yield "", owner
        elif inspect.isfunction(python_function):
            closed = inspect.getclosurevars(python_function)
            yield from {**closed.globals, **closed.nonlocals}.items()
