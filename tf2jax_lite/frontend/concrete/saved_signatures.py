"""Signatures of a SavedModel, with values that stay in its checkpoint if possible.

TensorFlow loads a TF2 model without its checkpoint if that holds plain values of variables only; the values are read
from the checkpoint's files. Other models are restored by TensorFlow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf2jax_lite.calling.interface import ImportedFunction
from tf2jax_lite.frontend.graphdef import functions
from tf2jax_lite.frontend.saved import meta_graph, saved_model
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint, Key
from tf2jax_lite.frontend.saved.ref_variables import VARIABLE_OPS
from tf2jax_lite.frontend.saved.saved_model import checkpointed
from tf2jax_lite.support.errors import InvalidModelError

from . import concrete_function
from .variable_values import is_numeric

Loader = Callable[[str], ImportedFunction]


def signature_loader(
    path: str | os.PathLike[str],
    tags: Sequence[str] | str | None,
    initializer: meta_graph.Initializer,
    *,
    stored: bool = False,
) -> Loader:
    """Return a function that imports a signature by name; signatures share values.

    Args:
      initializer: evaluates initializers of a TF1 model's variables that the checkpoint does not hold.
      stored: leave real numbers in the checkpoint, as `StoredArray`s.
    """
    model = saved_model.SavedModel(path, tags)
    proto = model.meta_graph
    if meta_graph.is_tf1(proto):
        values = meta_graph.variable_values(path, proto, initializer, stored=stored)
        library = functools.cache(lambda: functions.load_library(proto.graph_def.library))
        return lambda name: meta_graph.load_signature(path, proto, name, values, library)
    return _Restored(model, stored)


class _Restored:
    """Imports signatures of a model that TensorFlow has loaded."""

    def __init__(self, model: saved_model.SavedModel, stored: bool):
        self._model = model
        found = _without_checkpoint(model, stored) if _holds_variables_only(model.meta_graph) else None
        self._restored, self._values = found or (model.load(), None)

    def __call__(self, name: str) -> ImportedFunction:
        function = saved_model.signature(self._restored, name, self._model.path)
        if self._values is not None and any(id(v.handle) not in self._values for v in function.graph.variables):
            self._restored, self._values = self._model.load(), None
            function = saved_model.signature(self._restored, name, self._model.path)
        return concrete_function.load_concrete(function, name=name, values=self._values)


def _holds_variables_only(proto: Any) -> bool:
    """Return whether a model's checkpoint holds plain values of variables only."""
    nodes = proto.object_graph_def.nodes
    if any(node.registered_saver or (node.saveable_objects and not _is_variable(node)) for node in nodes):
        return False
    made = {node.op for function in proto.graph_def.library.function for node in function.node_def}
    return made.isdisjoint(VARIABLE_OPS | {"VarHandleOp"})


def _is_variable(node: Any) -> bool:
    return node.WhichOneof("kind") == "variable" and set(node.saveable_objects) <= {"VARIABLE_VALUE"}


def _without_checkpoint(model: saved_model.SavedModel, stored: bool) -> tuple[Any, _Values] | None:
    """Load a model without its checkpoint."""
    # Returns the model, and the values of its variables by the ``id`` of their handles; None if TensorFlow must restore
    # them.
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    checkpoint = model.checkpoint
    written = None if checkpoint is None else checkpoint.object_graph()
    if checkpoint is None or written is None:
        return None
    try:
        restored = model.load(checkpoint=False)
    except InvalidModelError:  # TensorFlow runs initializers of resources, which may read variables
        return None
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(written)
    keys = {
        id(item.handle): (key, "")
        for item, key in checkpointed(graph, restored)
        if hasattr(item, "handle") and (key, "") in checkpoint and is_numeric(item.dtype)
    }
    return restored, _Values(checkpoint, keys, stored)


class _Values(Mapping[int, Any]):
    """Values of variables by the ``id`` of their handles, read once when asked for."""

    def __init__(self, checkpoint: Checkpoint, keys: Mapping[int, Key], stored: bool):
        self._checkpoint = checkpoint
        self._keys = keys
        self._stored = stored
        self._read: dict[int, Any] = {}

    def __getitem__(self, handle: int) -> Any:
        if handle not in self._read:
            key = self._keys[handle]
            found = self._checkpoint.stored(key) if self._stored else None
            self._read[handle] = self._checkpoint.read(key) if found is None else found
        return self._read[handle]

    def __contains__(self, handle: object) -> bool:
        return handle in self._keys

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
