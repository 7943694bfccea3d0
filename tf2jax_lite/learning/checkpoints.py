"""Store training states on disk; a restored state has the same bits.

`CheckpointFile` is the store of all trainings: safetensors files, of one process or of several. A checkpoint appears
whole or not at all, so that a training that is killed resumes from the one before.
"""

from __future__ import annotations

import abc
import concurrent.futures
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.export.plain_dtypes import from_plain, to_plain
from tf2jax_lite.learning.states import restored_state, state_arrays, state_names, stored_shards
from tf2jax_lite.support.errors import CheckpointError, ExportError, InputError
from tf2jax_lite.support.limits import regular

_RECORD = "__record__"
_PART = re.compile(r"training-(\d+)-(\d+)-of-(\d+)\.safetensors")


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

    def close(self) -> None:  # noqa: B027  (most have nothing to free)
        """Release the held memory."""


class CheckpointFile(CheckpointStore):
    """Keeps only the newest checkpoint, in ``training.safetensors``.

    Of several processes, each writes a file with the shards of its devices,
    ``training-SERIAL-PROCESS-of-COUNT.safetensors``; a checkpoint is there when all of its files are. A state that was
    saved on one mesh is restored on another.

    Args:
      directory: where it is; made if it is not there. Of several processes, all must see it.
      identity: see `CheckpointStore`.
      background: whether `save` returns before the file is written; the next call of `save`, or `close`, waits for it.
    """

    def __init__(self, directory: str | Path, identity: Mapping[str, Any] | None = None, *, background: bool = False):
        super().__init__(identity)
        self._directory = Path(directory)
        # One thread: files appear in the order of their checkpoints.
        self._writer = concurrent.futures.ThreadPoolExecutor(1) if background else None
        self._pending: concurrent.futures.Future[None] | None = None
        # Here, not in `save`: other processes write only after a step of all processes, so all find the same number.
        self._serial = max(self._parts(), default=0)

    def _parts(self) -> dict[int, list[Path]]:
        """Return the files of several processes by serial number."""
        found: dict[int, list[Path]] = {}
        try:
            names = [path.name for path in self._directory.iterdir()]
        except OSError:  # there is no such directory, or it cannot be read
            names = []
        for name in sorted(names):
            if match := _PART.fullmatch(name):
                found.setdefault(int(match[1]), []).append(self._directory / name)
        return found

    def _newest(self) -> tuple[int, list[Path]]:
        """Return serial number and files of the newest checkpoint that is complete."""
        for serial, paths in sorted(self._parts().items(), reverse=True):
            if paths[0].name.endswith(f"-of-{len(paths)}.safetensors"):
                return serial, [regular(path, CheckpointError) for path in paths]
        file = regular(self._directory / "training.safetensors", CheckpointError)
        return 0, [file] if file.exists() else []

    def latest(self) -> int | None:
        """Return 0 if there is a checkpoint, or None.

        Raises:
          CheckpointError: it is not a regular file, or is missing and the directory cannot be made; known before
            training starts.
        """
        try:
            if self._newest()[1]:
                return 0
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot write a checkpoint in {self._directory}: {error.strerror}") from error
        return None

    def check(self, state: Any) -> None:
        """See `CheckpointStore.check`."""
        state_names(state)

    def save(self, number: int, state: Any, record: Mapping[str, Any] | None = None) -> None:
        """See `CheckpointStore.save`."""
        content: dict[str, np.ndarray] = {}
        dtypes: dict[str, str] = {}  # of arrays that are stored as bytes: bfloat16, float8, int4 and their like
        shards = stored_shards(state)
        try:
            for name, value in {**state_arrays(state), **{name: shard.value for name, shard in shards.items()}}.items():
                content[name], kind = to_plain(value)
                dtypes |= {} if kind is None else {name: kind}
            found = {"number": number, "identity": self._identity, "record": dict(record or {}), "dtypes": dtypes}
            if shards:
                found["shards"] = {name: shard[:-1] for name, shard in shards.items()}
            content[_RECORD] = np.frombuffer(json.dumps(found).encode(), np.uint8)
            # Bytes, as the next step may write into the state's memory.
            self._write(safetensors.numpy.save(content))
        except (OSError, ValueError, ExportError, safetensors.SafetensorError) as error:
            if isinstance(error, InputError):
                raise
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> CheckpointError:
        return CheckpointError(f"cannot write a checkpoint in {self._directory}: {error}")

    def _write(self, content: bytes) -> None:
        self._wait()
        self._serial += 1
        if self._writer is None:
            self._replace(self._serial, content)
        else:
            self._pending = self._writer.submit(self._replace, self._serial, content)

    def _replace(self, serial: int, content: bytes) -> None:
        """Write this process's file, and remove files of earlier checkpoints."""
        self._directory.mkdir(parents=True, exist_ok=True)  # it may have gone since
        several = jax.process_count() > 1
        part = f"-{serial}-{jax.process_index()}-of-{jax.process_count()}" if several else ""
        write_file(self._directory / f"training{part}.safetensors", content)
        # The process that writes last finds the checkpoint complete.
        complete = self._newest()[0] if several else serial + 1
        for paths in (paths for earlier, paths in self._parts().items() if earlier < complete):
            for path in paths:
                path.unlink(missing_ok=True)
        if several and complete:
            (self._directory / "training.safetensors").unlink(missing_ok=True)

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait until everything is written.

        Raises:
          CheckpointError: it cannot be written.
        """
        try:
            self._wait()
        except (OSError, ExportError) as error:
            raise self._unwritable(error) from error
        finally:
            if self._writer is not None:
                self._writer.shutdown()

    def restore(self, template: Any) -> Checkpoint:
        """See `CheckpointStore.restore`; arrays on a mesh get the template's shardings."""
        files = self._newest()[1]
        if not files:
            raise CheckpointError(f"{self._name()}: there is no checkpoint")
        try:
            arrays, found = _read(files)
            number, before, record = int(found["number"]), dict(found["identity"]), dict(found["record"])
        except Exception as error:  # damaged headers fail in many ways
            raise CheckpointError(f"{self._name()} cannot be read: {type(error).__name__}: {error}") from error
        self._check_identity(before)
        try:
            return Checkpoint(number, restored_state(template, arrays), record)
        except CheckpointError as error:
            raise CheckpointError(f"{self._name()}: {error}") from error

    def _check_identity(self, before: Mapping[str, Any]) -> None:
        """Raise `CheckpointError` for a checkpoint of another training."""
        now = self._identity
        differ = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        if differ:
            why = ", ".join(f"{n}: {before.get(n)!r} then, {now.get(n)!r} now" for n in differ)
            raise CheckpointError(
                f"{self._name()} is of another training ({why}). Choose another directory, or the same options."
            )

    def _name(self) -> str:
        return str(self._directory / "training.safetensors")


@dataclasses.dataclass(frozen=True)
class _Shards:
    """An array across processes, whose shards are read when they are needed.

    Attributes:
      shape: of the array.
      dtype: of the array.
      shards: ``(begin, end, read)`` of each, with positions by dimension.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    shards: list[tuple[Sequence[int], Sequence[int], Callable[[], np.ndarray]]]

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        """Return the array's part at an index of slices."""
        bounds = [part.indices(size)[:2] for part, size in zip(index, self.shape, strict=True)]
        first, last = np.asarray(bounds, np.int64).reshape(-1, 2).T
        found = np.zeros(last - first, self.dtype)
        missing = found.size
        for begin, end, read in self.shards:
            low, high = np.maximum(first, begin), np.minimum(last, end)
            if np.all(low < high):
                found[_region(low - first, high - first)] = read()[_region(low - begin, high - begin)]
                missing -= np.prod(high - low, dtype=np.int64)
        if missing:
            raise CheckpointError("the checkpoint lacks a shard of an array")
        return found


def _region(low: np.ndarray, high: np.ndarray) -> tuple[slice, ...]:
    return tuple(map(slice, low, high))


def _read(files: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arrays by name, those across processes as `_Shards`, and the record."""
    arrays, record = dict[str, Any](), dict[str, Any]()
    for path in files:
        file = safetensors.safe_open(path, "numpy")
        record = json.loads(file.get_tensor(_RECORD).tobytes())
        shards = record.get("shards", {})

        def read(name: str, file: Any = file, dtypes: Mapping[str, str] = record["dtypes"]) -> np.ndarray:
            return from_plain(file.get_tensor(name), dtypes.get(name))

        for name in file.keys():  # noqa: SIM118  (a file is no mapping)
            if name in shards:
                leaf, shape, dtype, begin, end = shards[name]
                whole = arrays.setdefault(leaf, _Shards(tuple(shape), np.dtype(dtype), []))
                whole.shards.append((begin, end, functools.partial(read, name)))
            elif name != _RECORD:
                arrays[name] = read(name)
    return arrays, record


def open_store(place: str | Path | CheckpointStore) -> CheckpointStore:
    """Return a store: the given one, or that of a directory."""
    return place if isinstance(place, CheckpointStore) else CheckpointFile(place)
