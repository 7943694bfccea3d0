"""Values of variables, and the variables that the source framework trains.

Values are read from TensorFlow without a copy where possible.

A ``tf.Variable`` has a flag, which Keras does not change when a layer is frozen: for Keras models, the list
``trainable_variables`` of the model counts. SavedModels written by Keras record that list: see `trainable_nodes`.
"""

from __future__ import annotations

import collections
import gc
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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


Trains = Callable[[Any], bool]


def trained_variables(variables: Sequence[Any], model: Any = None) -> Trains:
    """Return a predicate of a ``tf.Variable``: whether the source framework trains it.

    A Keras model, and a restored model that records its ``trainable_variables``, trains only those. In other functions
    and modules, a variable of a Keras layer trains if the layer trains it; for other variables the flag counts. Layers
    that a function's closure names count alone if they hold all its variables; else all layers that exist.

    Args:
      model: the function, model or layer that is converted, if it is known.
    """
    if _is_complete(model):
        trained = _handles(model.trainable_variables)
        return lambda variable: id(variable.handle) in trained
    wanted = _handles(variables)
    trained, frozen = set[int](), set[int]()
    holders = [(layer, _held(layer)) for layer in _closed_over_layers(model)]
    if not wanted <= set[int]().union(*[held for _, held in holders]):
        found = [model] if isinstance(model, tf.Module) else []
        holders = [(holder, _held(holder)) for holder in [*found, *_live_holders()]]
    for holder, held in holders:
        held &= wanted
        if held:
            listed = _handles(_listed(holder, "trainable_variables") or ())
            trained |= held & listed
            frozen |= held - listed

    def trains(variable: Any) -> bool:
        handle = id(variable.handle)
        return handle not in frozen and (handle in trained or bool(variable.trainable))

    return trains


def _is_complete(model: Any) -> bool:
    """Return whether only a model's ``trainable_variables`` train."""
    if _is_restored(type(model)):  # TensorFlow's interface of reusable SavedModels
        return _listed(model, "trainable_variables") is not None
    return isinstance(model, tuple(_keras_layers()))


def _is_restored(kind: type) -> bool:
    return kind.__module__ == "tensorflow.python.saved_model.load" and kind.__name__ == "_UserObject"


def _keras_layers() -> list[type]:
    """Return the base classes of layers of the Keras versions that are imported."""
    layers = [getattr(sys.modules.get(name), "layers", None) for name in ("keras", "tf_keras")]
    return [getattr(found, "Layer") for found in layers if hasattr(found, "Layer")]  # noqa: B009


def _closed_over_layers(function: Any) -> list[Any]:
    """Return the Keras layers that a function's closure or its globals name."""
    function = getattr(function, "python_function", function)  # of a tf.function
    kinds = tuple(_keras_layers())
    if not (kinds and inspect.isfunction(function)):
        return []
    try:
        names = inspect.getclosurevars(function)
    except ValueError:  # a variable of the closure has no value
        return []
    return [value for value in (*names.nonlocals.values(), *names.globals.values()) if isinstance(value, kinds)]


def _live_holders() -> list[Any]:
    """Return the Keras layers and restored objects that exist."""
    # A ConcreteFunction does not know the Python objects whose variables it captures, nor does a variable.
    kinds: set[type] = set()
    pending = _keras_layers()
    while pending:
        kind = pending.pop()
        if kind not in kinds:
            kinds.add(kind)
            pending += kind.__subclasses__()
    kinds |= {kind for kind in tf.__internal__.tracking.AutoTrackable.__subclasses__() if _is_restored(kind)}
    if not kinds:
        return []
    # gc.get_objects takes half the time, but its list refers to tuples that other threads are filling, and CPython then
    # raises SystemError there (_PyTuple_Resize asks for a single reference). Instances refer to their class.
    alone = len(sys._current_frames()) == 1
    objects = gc.get_objects() if alone else gc.get_referrers(*kinds)
    return list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))


def _listed(holder: Any, name: str) -> Sequence[Any] | None:
    """Return an object's attribute of that name if it is a list; else None."""
    try:
        found = getattr(holder, name, None)
    except Exception:  # properties of layers that are not built yet may raise any error
        return None
    return found if isinstance(found, (list, tuple)) else None


def _held(holder: Any) -> set[int]:
    """Return the handles of the variables that an object holds."""
    # tf_keras does not list the states of stateful RNNs.
    if not hasattr(type(holder), "trainable_variables") and _listed(holder, "trainable_variables") is None:
        return set()
    states = _listed(holder, "states") or _listed(getattr(holder, "keras_api", None), "states")
    return _handles(_listed(holder, "variables") or ()) | _handles(tf.nest.flatten(states or ()))


def _handles(variables: Iterable[Any]) -> set[int]:
    """Return the ids of variables' handles: Keras wraps variables but not handles."""
    found = (getattr(variable, "handle", None) for variable in variables)
    return {id(handle) for handle in found if handle is not None}
