"""The state of a training in one file, written whole or not at all, from which it goes on exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.errors import CheckpointError
from tf2jax_lite.export.files import write_file

from .history import History

__all__ = ["FILE", "read_checkpoint", "write_checkpoint"]

FILE = "training.safetensors"
_FORMAT = "tf2jax_lite training 1"


def write_checkpoint(
    folder: Path, state: Any, number: int, history: History, identity: Mapping[str, Any], *, progress: int
) -> None:
    """Writes a training's state to ``folder``, in place of the one before.

    Args:
      folder: a directory, made if it is not there.
      state: pytree of arrays and JAX keys.
      number: how many epochs or rounds are done.
      history: the records so far.
      identity: what makes this training the one it is; see `read_checkpoint`.
      progress: how many steps are done.

    Raises:
      CheckpointError: it cannot be written.
    """
    leaves = {f"{i:06d}": _data(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    record = {
        "format": _FORMAT,
        "number": number,
        "progress": progress,
        "unit": history.unit,
        "records": history.records,
        "identity": dict(identity),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / FILE, safetensors.numpy.save(leaves, {"record": json.dumps(record)}))
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"cannot write a checkpoint in {folder}: {error}") from error


def read_checkpoint(
    folder: Path, like: Any, unit: str, identity: Mapping[str, Any]
) -> tuple[Any, int, int, History] | None:
    """Reads what `write_checkpoint` wrote.

    Args:
      folder: the directory.
      like: a state of the same structure, shapes and dtypes.
      unit: "epoch" or "round".
      identity: must equal what was written; a training with other data or options would not be the same.

    Returns:
      ``(state, number, progress, history)``, or None if there is no checkpoint yet.

    Raises:
      CheckpointError: the file is damaged, or of another training; the message says what differs.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            record = json.loads((file.metadata() or {})["record"])
            arrays = [file.get_tensor(name) for name in sorted(file.keys())]
        number, progress = int(record["number"]), int(record["progress"])
        history = History(str(record["unit"]), list(record["records"]))
        before = dict(record["identity"])
        known = record["format"] == _FORMAT
    except Exception as error:  # SafetensorError, and what damaged headers lead to
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    now = json.loads(json.dumps(dict(identity)))
    differ = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    if not known or history.unit != unit or differ:
        why = ", ".join(f"{n}: {before.get(n)!r} then, {now.get(n)!r} now" for n in differ) or "another format"
        raise CheckpointError(f"{path} is of another training ({why}). Choose another directory, or the same options.")
    leaves, form = jax.tree.flatten(like)
    if len(leaves) != len(arrays):
        raise CheckpointError(f"{path} holds {len(arrays)} arrays; this training has {len(leaves)}.")
    restored = [_like(array, leaf, path) for array, leaf in zip(arrays, leaves, strict=True)]
    return jax.tree.unflatten(form, restored), number, progress, history


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf: Any) -> np.ndarray:
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return np.ascontiguousarray(array).reshape(array.shape)


def _like(array: np.ndarray, leaf: Any, path: Path) -> Any:
    expected = _data(leaf)
    if array.shape != expected.shape or array.dtype != expected.dtype:
        raise CheckpointError(
            f"{path} holds {array.dtype}{list(array.shape)} where this training has "
            f"{expected.dtype}{list(expected.shape)}."
        )
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array)
