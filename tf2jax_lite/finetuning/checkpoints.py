"""Checkpoints of trainings.

That of one device is a file. Orbax (extra: checkpoint) writes those of sharded trainings, while training goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning.checkpoints import Arrays, Checkpoint, CheckpointFile, CheckpointStore
from tf2jax_lite.learning.process import PyTree
from tf2jax_lite.support.errors import CheckpointError, InputError

from .sharding import placed


class ShardedCheckpoints(CheckpointStore):
    """Keeps the newest two checkpoints of a state in a directory.

    A state that was saved on one mesh is restored on another. Saving copies the state, and writes it in the background.

    Args:
      directory: where they are; of several processes, all must see it.
      identity: see `CheckpointStore`.

    Raises:
      InputError: Orbax is not installed.
      CheckpointError: the directory cannot be made.
    """

    def __init__(self, directory: str | Path, identity: Mapping[str, Any] | None = None):
        super().__init__(identity)
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise InputError(
                f"checkpoints on a mesh need Orbax: pip install 'tf2jax-lite[checkpoint]' ({error})"
            ) from error
        self._ocp, self._path = ocp, Path(directory).absolute()
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot write a checkpoint in {self._path}: {error.strerror}") from error
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=True)
        self._manager = ocp.CheckpointManager(self._path, options=options)
        self._file = _TrainingFile(directory, identity)
        newest = self._manager.latest_step()
        self._next = 0 if newest is None else newest + 1

    def latest(self) -> int | None:
        """Return the newest checkpoint's number, or None."""
        newest = self._manager.latest_step()
        return self._file.latest() if newest is None else newest

    def _name(self) -> str:
        return f"the checkpoint in {self._path}"

    def check(self, state: PyTree) -> None:
        """See `CheckpointStore.check`; leaves are stored by number."""

    def save(self, number: int, state: PyTree, record: Mapping[str, Any] | None = None) -> None:
        """See `CheckpointStore.save`.

        Args:
          number: epochs that are done.
          state: pytree of arrays.
          record: JSON values to keep beside it.

        Raises:
          CheckpointError: it cannot be written.
        """
        record = dict(record or {})
        found = {"number": number, "identity": self._identity, "record": record, "names": _names(state)}
        # Arrays of the CPU share their memory with NumPy, and the next step would write into it.
        copy = jax.default_backend() == "cpu"
        leaves = [jnp.copy(leaf) if copy else leaf for leaf in jax.tree.leaves(state)]
        try:
            self._manager.save(
                self._next,
                args=self._ocp.args.Composite(
                    state=self._ocp.args.StandardSave({f"{i:06d}": leaf for i, leaf in enumerate(leaves)}),
                    record=self._ocp.args.JsonSave(json.loads(json.dumps(found))),
                ),
            )
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot write a checkpoint in {self._path}: {error}") from error
        self._next += 1

    def restore(self, template: PyTree) -> Checkpoint:
        """See `CheckpointStore.restore`; arrays get the shardings of the template's.

        Without a checkpoint of a mesh, that of one device is restored.
        """
        at = self._manager.latest_step()
        if at is None:
            found = self._file.restore(template)
            return found._replace(state=placed(found.state, jax.tree.map(lambda leaf: leaf.sharding, template)))
        args = self._ocp.args
        try:
            found = self._manager.restore(at, args=args.Composite(record=args.JsonRestore())).record
            number, before, record = int(found["number"]), dict(found["identity"]), dict(found["record"])
            names = list(found["names"])
        except Exception as error:  # Orbax fails in many ways
            raise CheckpointError(f"{self._name()} cannot be read: {type(error).__name__}: {error}") from error
        self._check_identity(before)
        if names != _names(template):
            raise CheckpointError(f"{self._name()} is of another model, or of other options: its arrays differ.")
        shapes = {
            f"{i:06d}": jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
            for i, leaf in enumerate(jax.tree.leaves(template))
        }
        try:
            arrays = self._manager.restore(at, args=args.Composite(state=args.StandardRestore(shapes))).state
        except Exception as error:
            raise CheckpointError(f"{self._name()} cannot be read: {type(error).__name__}: {error}") from error
        leaves = [arrays[name] for name in sorted(arrays)]
        return Checkpoint(number, jax.tree.unflatten(jax.tree.structure(template), leaves), record)

    def close(self) -> None:
        """Wait until everything is written.

        Raises:
          CheckpointError: it cannot be written.
        """
        try:
            self._manager.wait_until_finished()
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot write a checkpoint in {self._path}: {error}") from error
        finally:
            self._manager.close()

    def _write(self, number: int, arrays: Any) -> None:
        raise NotImplementedError  # `save` writes sharded arrays

    def _read(self, number: int) -> Any:
        raise NotImplementedError


class _TrainingFile(CheckpointFile):
    """A file that may be of an earlier version."""

    def _upgraded(self, arrays: Arrays) -> Arrays:
        """Add the sums that files of whole epochs lacked.

        They held weights and optimizer, without a prefix.
        """
        if any(name.startswith("state/") for name in arrays):
            return arrays
        sums = {"state/loss_sum": np.asarray(jnp.zeros(())), "state/num_examples": np.zeros((), np.int32)}
        return {f"state/{name}": value for name, value in arrays.items()} | sums


def _names(state: PyTree) -> list[str]:
    """Return path, dtype and shape of each array."""
    return [
        f"{jax.tree_util.keystr(path, simple=True, separator='/')}: {leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree.leaves_with_path(state)
    ]


def open_checkpoints(directory: str | Path, identity: Mapping[str, Any], sharded: bool) -> CheckpointStore:
    """Return the checkpoints of a training.

    Args:
      directory: where they are.
      identity: see `CheckpointStore`.
      sharded: whether the training is on a mesh: Orbax writes its checkpoints. Otherwise they are one file, unless the
        directory has checkpoints of a training on a mesh. Either goes on where the other ended.
    """
    folder = Path(directory)
    try:
        on_mesh = any(child.name.isdecimal() for child in folder.iterdir())
    except OSError:  # there is no such directory, or it cannot be read
        on_mesh = False
    return ShardedCheckpoints(folder, identity) if sharded or on_mesh else _TrainingFile(folder, identity)
