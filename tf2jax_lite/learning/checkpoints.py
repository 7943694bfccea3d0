"""Store training states on disk; a restored state has the same bits.

`CheckpointFile` keeps the newest in one file, and needs nothing beside this library. `Checkpoints` keeps the newest few
in a directory, by Orbax: item ``state`` is the state as a tree of arrays, item ``record`` JSON. `ShardedCheckpoints`,
by Orbax as well, writes arrays of several devices while training goes on. Each checkpoint appears whole or not at all.
"""

from __future__ import annotations

import abc
import collections
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.export.plain_dtypes import from_plain, to_plain
from tf2jax_lite.learning.process import PyTree
from tf2jax_lite.learning.states import SEPARATOR, placed, restored_state, state_arrays, state_names
from tf2jax_lite.support.errors import CheckpointError, InputError, Tf2JaxError
from tf2jax_lite.support.limits import regular

_RECORD = "__record__"
Arrays = dict[str, np.ndarray]
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Checkpoint(NamedTuple):
    """A saved checkpoint.

    Attributes:
      number: rounds or epochs that were done.
      state: the training's state.
      record: the record saved with it, as read from JSON.
    """

    number: int
    state: Any
    record: dict[str, Any]


class CheckpointStore(abc.ABC):
    """Where a training keeps its state.

    Args:
      identity: values that identify this training, JSON by name; a checkpoint with others is refused.
    """

    def __init__(self, identity: Mapping[str, Any] | None = None):
        self._identity = json.loads(json.dumps(dict(identity or {})))

    @abc.abstractmethod
    def latest(self) -> int | None:
        """Return the newest checkpoint's number, or None."""

    @abc.abstractmethod
    def _name(self) -> str: ...

    @abc.abstractmethod
    def save(self, number: int, state: Any, record: Mapping[str, Any] | None = None) -> None:
        """Write a state.

        Args:
          number: rounds or epochs that are done.
          state: pytree of arrays, JAX keys and `ByClient`.
          record: JSON values to keep beside it.

        Raises:
          CheckpointError: it cannot be written.
        """

    @abc.abstractmethod
    def restore(self, template: Any) -> Checkpoint:
        """Return the newest checkpoint.

        Args:
          template: a new state of the same training (``process.initialize()``).

        Raises:
          CheckpointError: there is none, it is damaged, or it is of another training; the message names the difference.
        """

    def check(self, state: Any) -> None:  # noqa: B027  (not all have rules of their own)
        """Refuse a state that cannot be stored, before rounds are lost for it.

        Raises:
          InputError: two leaves would have one name, or one has no storable dtype.
        """

    def _check_identity(self, before: Mapping[str, Any]) -> None:
        """Raise `CheckpointError` for a checkpoint of another training."""
        now = self._identity
        differ = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        if differ:
            why = ", ".join(f"{n}: {before.get(n)!r} then, {now.get(n)!r} now" for n in differ)
            raise CheckpointError(
                f"{self._name()} is of another training ({why}). Choose another directory, or the same options."
            )

    def close(self) -> None:  # noqa: B027  (most have nothing to free)
        """Release the held memory."""


def _orbax(what: str) -> Any:
    """Return the library.

    Raises:
      InputError: it is not installed.
    """
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise InputError(f"{what} need Orbax: pip install 'tf2jax-lite[checkpoint]' ({error})") from error
    return ocp


class _HostStore(CheckpointStore):
    """A store of arrays of the host, by name."""

    @abc.abstractmethod
    def _write(self, number: int, arrays: Arrays, record: dict[str, Any]) -> None: ...

    @abc.abstractmethod
    def _read(self, number: int) -> tuple[Arrays, dict[str, Any]]: ...

    def _is_native(self, dtype: np.dtype) -> bool:
        """Return whether the format has the dtype; others are stored as bytes."""
        return False

    def save(self, number: int, state: Any, record: Mapping[str, Any] | None = None) -> None:
        """See `CheckpointStore.save`."""
        arrays: Arrays = {}
        dtypes: dict[str, str] = {}  # of arrays that are stored as bytes: float8, int4 and their like
        try:
            for name, value in state_arrays(state).items():
                arrays[name], kind = (value, None) if self._is_native(value.dtype) else to_plain(value)
                dtypes |= {} if kind is None else {name: kind}
            found = {"number": number, "identity": self._identity, "record": dict(record or {}), "dtypes": dtypes}
            self._write(number, arrays, found)
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            if isinstance(error, InputError):
                raise
            raise CheckpointError(f"cannot write a checkpoint in {self._name()}: {error}") from error

    def check(self, state: Any) -> None:
        """See `CheckpointStore.check`."""
        self._check_names(state_names(state))

    def _check_names(self, names: Iterable[str]) -> None:
        """Raise `InputError` for names that the format cannot tell apart."""

    def restore(self, template: Any) -> Checkpoint:
        """See `CheckpointStore.restore`."""
        number = self.latest()
        if number is None:
            raise CheckpointError(f"{self._name()}: there is no checkpoint")
        try:
            arrays, found = self._read(number)
            number, before, record = int(found["number"]), dict(found["identity"]), dict(found["record"])
            arrays |= {name: from_plain(arrays[name], kind) for name, kind in found.get("dtypes", {}).items()}
        except Exception as error:  # Orbax, TensorStore and damaged headers fail in many ways
            raise CheckpointError(f"{self._name()} cannot be read: {type(error).__name__}: {error}") from error
        self._check_identity(before)
        try:
            return Checkpoint(number, restored_state(template, self._upgraded(arrays)), record)
        except CheckpointError as error:
            raise CheckpointError(f"{self._name()}: {error}") from error

    def _upgraded(self, arrays: Arrays) -> Arrays:
        """Return arrays that an earlier version saved as today's template has them."""
        return arrays


class Checkpoints(_HostStore):
    """Checkpoints in a directory, by Orbax (extra: checkpoint).

    Args:
      directory: where they are; made if it is not there.
      max_to_keep: how many of the newest are kept.
      identity: see `CheckpointStore`.

    Raises:
      InputError: Orbax is not installed.
    """

    def __init__(self, directory: str | Path, max_to_keep: int = 2, identity: Mapping[str, Any] | None = None):
        super().__init__(identity)
        self._ocp = ocp = _orbax("checkpoints")
        self._directory = Path(directory).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=max_to_keep, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(self._directory, options=options)

    def latest(self) -> int | None:
        """Return the newest checkpoint's number, or None."""
        return self._manager.latest_step()

    def _name(self) -> str:
        return f"the checkpoint in {self._directory}"

    def _is_native(self, dtype: np.dtype) -> bool:
        return dtype.kind in "biufc" or dtype == _BFLOAT16

    def _write(self, number: int, arrays: Arrays, record: dict[str, Any]) -> None:
        if number in self._manager.all_steps():  # it holds the same
            return
        self._check_names(arrays)
        tree: dict[str, Any] = {}
        for name, value in arrays.items():
            *path, last = name.split(SEPARATOR)
            inner = tree
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = value
        # Orbax writes no arrays without elements.
        empty = {name: [list(v.shape), str(v.dtype)] for name, v in arrays.items() if not v.size}
        tree = jax.tree.map(lambda leaf: leaf if leaf.size else None, tree)
        args = self._ocp.args
        items: dict[str, Any] = {"record": args.JsonSave({**record, "empty": empty})}
        if len(empty) < len(arrays):
            items["state"] = args.StandardSave(tree)
        self._manager.save(number, args=args.Composite(**items))
        self._manager.wait_until_finished()

    def _check_names(self, names: Iterable[str]) -> None:
        # Orbax names leaves by their paths with dots.
        dotted = [name.replace(SEPARATOR, ".") for name in names]
        parents = {parent for name in dotted for parent in itertools.accumulate(name.split(".")[:-1], "{}.{}".format)}
        twice = [name for name, count in collections.Counter(dotted).items() if count > 1 or name in parents]
        if twice:
            raise InputError(f"the state has two leaves named {twice[0]!r} in Orbax's names; rename one")

    def _read(self, number: int) -> tuple[Arrays, dict[str, Any]]:
        folder, checkpointer = self._directory / str(number), self._ocp.StandardCheckpointer()
        if (folder / "default").is_dir():  # of an earlier version: one item, with the record as bytes
            state = checkpointer.restore(folder / "default")
            empty = json.loads(np.asarray(state.pop("__empty__")).tobytes())
            record = json.loads(np.asarray(state.pop(_RECORD)).tobytes())
        else:
            record = json.loads((folder / "record" / "metadata").read_text())
            empty = record["empty"]
            state = checkpointer.restore(folder / "state") if (folder / "state").is_dir() else {}
        arrays = {
            jax.tree_util.keystr(path, simple=True, separator=SEPARATOR): np.asarray(leaf)
            for path, leaf in jax.tree.leaves_with_path(state)
        }
        return arrays | {name: np.zeros(shape, dtype) for name, (shape, dtype) in empty.items()}, record

    def close(self) -> None:
        """Release the manager's resources."""
        self._manager.close()


class CheckpointFile(_HostStore):
    """Keeps only the newest checkpoint, in ``training.safetensors``.

    Args:
      directory: where it is; made if it is not there.
      identity: see `CheckpointStore`.
    """

    def __init__(self, directory: str | Path, identity: Mapping[str, Any] | None = None):
        super().__init__(identity)
        self._path = Path(directory) / "training.safetensors"

    def latest(self) -> int | None:
        """Return the checkpoint's number (0 if not yet readable), or None.

        Raises:
          CheckpointError: it is not a regular file, or is missing and the directory cannot be made; known before
            training starts.
        """
        try:
            if regular(self._path, CheckpointError).exists():
                return 0
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot write a checkpoint in {self._path.parent}: {error.strerror}") from error
        return None

    def _name(self) -> str:
        return str(self._path)

    def _write(self, number: int, arrays: Arrays, record: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)  # it may have gone since
        content = {**arrays, _RECORD: np.frombuffer(json.dumps(record).encode(), np.uint8)}
        try:
            write_file(self._path, safetensors.numpy.save(content))
        except Tf2JaxError as error:
            raise OSError(str(error)) from error

    def _read(self, number: int) -> tuple[Arrays, dict[str, Any]]:
        arrays = dict(safetensors.numpy.load(self._path.read_bytes()))
        return arrays, json.loads(np.asarray(arrays.pop(_RECORD)).tobytes())


def open_store(place: str | Path | CheckpointStore) -> CheckpointStore:
    """Return a store: the given one, or Orbax's checkpoints in a directory.

    Raises:
      CheckpointError: the directory cannot be made.
      InputError: Orbax is not installed.
    """
    if isinstance(place, CheckpointStore):
        return place
    try:
        return Checkpoints(place)
    except OSError as error:
        raise CheckpointError(f"{place}: cannot be written ({error.strerror or error})") from error


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
        self._ocp = ocp = _orbax("checkpoints on a mesh")
        self._path = Path(directory).absolute()
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

    def save(self, number: int, state: PyTree, record: Mapping[str, Any] | None = None) -> None:
        """See `CheckpointStore.save`."""
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
