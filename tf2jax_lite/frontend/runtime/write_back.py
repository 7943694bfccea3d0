"""Values written to TensorFlow's variables and to copied SavedModels' checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tf2jax_lite.frontend.concrete.concrete_function import variables_by_name
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint, Key, part_slices
from tf2jax_lite.frontend.saved.saved_model import checkpointed
from tf2jax_lite.support.errors import ExportError


def function_variables(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of ConcreteFunctions by their names in params."""
    found: dict[str, Any] = {}
    for function in functions.values():
        for name, variable in variables_by_name(function).items():
            if found.setdefault(name, variable) is not variable:
                raise ExportError(f"two functions of the model have different variables {name!r}; rename one of them")
    return found


def fitting(variable: Any, value: np.ndarray, name: str) -> np.ndarray:
    """Return a value in the dtype of a variable, or of its value."""
    if not tf.TensorShape(variable.shape).is_compatible_with(value.shape):
        raise ExportError(
            f"variable {name!r} has shape {variable.shape} in TensorFlow and {value.shape} in the artifact"
        )
    return value.astype(tf.as_dtype(variable.dtype).as_numpy_dtype)


def checkpoint_keys(path: Path, restored: Any, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the key of each variable in a SavedModel's checkpoint.

    Args:
      variables: name to ``tf.Variable`` of the loaded model.
    """
    there = Checkpoint(path / "variables" / "variables")
    written = there.object_graph()
    keys: dict[int, str] = {}
    if written is not None:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(written)
        keys = {id(item): str(key) for item, key in checkpointed(graph, restored)}
    found = {}
    for name, variable in variables.items():
        key = keys.get(id(variable)) or variable.name.split(":")[0]
        if (key, "") not in there:
            raise ExportError(f"{path}: its checkpoint holds no variable {name!r} (looked for {key!r})")
        found[name] = key
    return found


def whole_values(path: Path, values: Mapping[Key, np.ndarray]) -> dict[str, np.ndarray]:
    """Return whole tensors of a SavedModel's checkpoint with other values."""
    checkpoint = Checkpoint(path / "variables" / "variables")
    found: dict[str, np.ndarray] = {}
    for (name, part), value in values.items():
        whole = found.setdefault(name, np.array(checkpoint.read((name, ""))))
        whole[part_slices(part, whole.shape, name) if part else ...] = value
    return found


def copy_saved_model(path: Path, out: Path, values: Mapping[str, np.ndarray]) -> None:
    """Copy a SavedModel with other values in its checkpoint.

    Graphs and assets are copied byte for byte.

    Args:
      values: checkpoint key to value, with the shape and dtype of the checkpoint.
    """
    # The fingerprint is of the original checkpoint; a model without one loads as well.
    skipped = shutil.ignore_patterns("variables", "fingerprint.pb")
    shutil.copytree(path, out, ignore=skipped, dirs_exist_ok=True)
    prefix = path / "variables" / "variables"
    try:
        checkpoint = Checkpoint(prefix)
        reader = checkpoint.reader
        dtypes = reader.get_variable_to_dtype_map()
        names = sorted(dtypes)
        (out / "variables").mkdir()
        tf.raw_ops.SaveV2(
            prefix=str(out / "variables" / "variables"),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[
                tf.constant(values[name] if name in values else reader.get_tensor(name), dtype=dtypes[name])
                for name in names
            ],
        )
    except (tf.errors.OpError, OSError, ValueError, TypeError) as error:
        raise ExportError(f"{path}: its checkpoint cannot be written with other values ({error})") from error
