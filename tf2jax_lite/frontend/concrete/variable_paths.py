"""Attribute paths of variables (``kernel/lengthscales``), as names of params.

Params have them if their variables have equal names.
"""

from __future__ import annotations

import collections
import inspect
from collections.abc import Iterator
from typing import Any

from tensorflow.python.util import tf_decorator

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
