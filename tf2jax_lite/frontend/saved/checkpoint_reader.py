"""Values of a graph's variables, read from a checkpoint without running the graph."""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.frontend.graphdef import attributes, dtypes
from tf2jax_lite.frontend.safety.checkpoint_index import check_lengths, read_index
from tf2jax_lite.frontend.safety.raw_protos import ancestors
from tf2jax_lite.support import crc32c
from tf2jax_lite.support.errors import ExportError, InvalidModelError
from tf2jax_lite.support.limits import read_bytes, regular
from tf2jax_lite.support.stored_array import StoredArray

Key = tuple[str, str]
"""The key of a variable in a checkpoint: the tensor's name, and the slice of it (empty for all)."""


@contextlib.contextmanager
def copying(name: str) -> Iterator[None]:
    """Raise `ExportError` where a file's copy for TensorFlow cannot be written."""
    try:
        yield
    except OSError as error:
        raise ExportError(
            f"{name}: the copy that TensorFlow reads cannot be written to {tempfile.gettempdir()} ({error}). Free "
            "space there, or set TMPDIR to another folder."
        ) from error


class Checkpoint:
    """A checkpoint, given by the prefix of its files or by its folder.

    The file ``checkpoint`` of a folder names the newest one. Variables of real numbers are read from the files of a
    checkpoint of the present format; TensorFlow reads others, strings, and parts of variables that are stored as such.
    """

    def __init__(self, prefix: str | os.PathLike[str]):
        self._prefix = os.fspath(prefix)
        self._entries: dict[str, Any] = {}
        self._index: bytes | None = None
        try:
            if os.path.isdir(self._prefix) and not os.path.exists(f"{self._prefix}.index"):
                self._prefix = _newest(self._prefix)
            for file in self._files():
                regular(file)
            if os.path.exists(f"{self._prefix}.index"):
                file = Path(f"{self._prefix}.index")
                self._index = read_bytes(file)
                self._header, self._entries = read_index(file, self._index)
                self._check_entries()
                is_plain = not any(entry.slices for entry in self._entries.values())
                if is_plain and self._header.endianness == _LITTLE:
                    self._names = set(self._entries)
                    return
                self._entries = {}
            shapes = self.reader.get_variable_to_shape_map()
            self._names = set(shapes)
            self._check_sizes(shapes, self.reader.get_variable_to_dtype_map())
        except InvalidModelError:
            raise
        except Exception as error:  # TensorFlow's readers raise various errors
            raise InvalidModelError(f"{self._prefix}: not a checkpoint that TensorFlow reads ({error}).") from error

    @functools.cached_property
    def reader(self) -> Any:
        """TensorFlow's reader of the index that was checked."""
        import tensorflow as tf

        if self._index is None:
            return tf.train.load_checkpoint(self._prefix)
        return tf.compat.v1.train.NewCheckpointReader(self.checked_prefix)

    @functools.cached_property
    def checked_prefix(self) -> str:
        """The prefix of a copy of the checked index, beside links to the data.

        TensorFlow reads these: the original could be exchanged after the check. They exist as long as this object.
        """
        with copying(f"{self._prefix}.index"):
            root = tempfile.mkdtemp(prefix="tf2jax_lite")
            weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
            folder = Path(root, "variables")
            folder.mkdir()
            (folder / "variables.index").write_bytes(self._index or b"")
            for number in range(self._header.num_shards):
                name = f"data-{number:05d}-of-{self._header.num_shards:05d}"
                (folder / f"variables.{name}").symlink_to(os.path.abspath(f"{self._prefix}.{name}"))
        return str(folder / "variables")

    def _files(self) -> list[Path]:
        folder, name = os.path.split(self._prefix)
        folder = folder or "."
        names = os.listdir(folder) if os.path.isdir(folder) else []
        files = [Path(folder, file) for file in names if file == name or file.startswith(f"{name}.")]
        return [file for file in files if not file.is_dir()]

    def _check_entries(self) -> None:
        """Raise an error for tensors that do not fit their file, or their entry."""
        sizes = {file.name: file.stat().st_size for file in self._files()}
        for name, entry in self._entries.items():
            if entry.slices:  # its parts are entries, too
                continue
            there = sizes.get(self._shard(entry).name)
            if there is None:
                raise InvalidModelError(f"{self._shard(entry)}: the file is missing, which holds {name!r}.")
            dtype = _dtype(entry)
            shape = [dim.size for dim in entry.shape.dim]
            count = math.prod(shape)
            fits = entry.size == count * dtype.itemsize if dtype is not None else entry.size >= count
            if not fits or not 0 <= entry.offset <= there - entry.size or entry.size < 0:
                raise InvalidModelError(
                    f"{self._prefix}: {name!r} of shape {shape} takes more than the {there} bytes of the files, or "
                    "another number of bytes than its entry states."
                )
            if entry.dtype in (_STRING, _VARIANT) and count:
                self._check_lengths(name, entry, count)

    def _check_lengths(self, name: str, entry: Any, count: int) -> None:
        try:
            with (
                self._shard(entry).open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
                memoryview(content)[entry.offset : entry.offset + entry.size] as data,
            ):
                check_lengths(data, count, entry.dtype == _STRING)
        except (ValueError, IndexError, OSError) as error:
            raise InvalidModelError(f"{self._shard(entry)}: {name!r} cannot be read ({error}).") from error

    def _check_sizes(self, shapes: Mapping[str, Any], types: Mapping[str, Any]) -> None:
        """Raise an error for tensors larger than the files."""
        # TensorFlow would allocate them before it reads.
        there = sum(file.stat().st_size for file in self._files())
        for tensor, shape in shapes.items():
            size = getattr(types[tensor].base_dtype, "size", 0) or 1
            needed = math.prod(int(d) for d in shape) * size
            if any(int(d) < 0 for d in shape) or needed > there:
                raise InvalidModelError(
                    f"{self._prefix}: {tensor!r} of shape {list(shape)} takes more than the {there} bytes of the files."
                )

    def _shard(self, entry: Any) -> Path:
        return Path(f"{self._prefix}.data-{entry.shard_id:05d}-of-{self._header.num_shards:05d}")

    def __contains__(self, key: Key) -> bool:
        return key[0] in self._names

    def stored(self, key: Key) -> StoredArray | None:
        """Return a variable of real numbers without reading it; None for others."""
        name, part = key
        entry = self._entries.get(name)
        dtype = None if entry is None else _dtype(entry)
        if entry is None or dtype is None or part or dtype.kind in "biuc":
            return None
        shape = tuple(dim.size for dim in entry.shape.dim)
        stored = crc32c.unmasked(entry.crc32c)
        return StoredArray(self._shard(entry), entry.offset, shape, dtype, checksum=stored, name=name)

    def read(self, key: Key) -> np.ndarray:
        """Return a variable's value."""
        name, part = key
        found = self.stored((name, ""))
        try:
            value = np.asarray(self.reader.get_tensor(name) if found is None else found)
        except InvalidModelError:
            raise
        except Exception as error:
            raise InvalidModelError(f"{self._prefix}: {name!r} cannot be read ({error}).") from error
        return value if not part else value[part_slices(part, value.shape, name)]

    def object_graph(self) -> bytes | None:
        """Return the serialized TrackableObjectGraph; None if there is none."""
        return self.reader.get_tensor(_OBJECT_GRAPH) if _OBJECT_GRAPH in self._names else None


_LITTLE = 0
_STRING, _VARIANT = 7, 21
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_OTHERS = (_STRING, 20, _VARIANT, 29, 30, 31, 32, 33)  # strings, resources, variants, and types of less than a byte


def _dtype(entry: Any) -> np.dtype | None:
    """Return the dtype of an entry whose bytes are the values; else None."""
    found = None if entry.dtype in _OTHERS else dtypes.from_tf(entry.dtype)
    return found if isinstance(found, np.dtype) else None


def _newest(folder: str) -> str:
    """Return the prefix of a folder's newest checkpoint, according to its state file."""
    # The state may contain the path of the folder at the time of writing; only the file name counts.
    import tensorflow as tf

    read_bytes(Path(folder, "checkpoint"))  # a regular file of limited size
    state = tf.train.get_checkpoint_state(folder)
    name = "" if state is None else os.path.basename(state.model_checkpoint_path)
    if not name:
        raise InvalidModelError(f"{folder}: its file 'checkpoint' names no checkpoint.")
    return os.path.join(folder, name)


def part_slices(part: str, shape: tuple[int, ...], name: str) -> tuple[slice, ...]:
    """Parse a slice of a partitioned variable.

    The text has the whole shape, then ``start,length`` or ``-`` for each axis.
    """
    *whole, pieces = part.split(" ")
    try:
        if [int(d) for d in whole] != list(shape):
            raise ValueError(f"the whole has shape {list(shape)}")
        found = []
        for piece in pieces.split(":"):
            start, _, length = piece.partition(",")
            found.append(slice(None) if piece == "-" else slice(int(start), int(start) + int(length)))
        return tuple(found)
    except ValueError as error:
        raise InvalidModelError(f"the part {part!r} of {name!r} cannot be taken ({error}).") from error


def restored_from(graph_def: Any, checkpoint: Checkpoint, restore_op: str = "") -> dict[str, Key]:
    """Return the key in a checkpoint from which a graph restores each variable's node.

    Savers write RestoreV2 nodes whose results are assigned to variables. They contain the name under which a variable
    was saved, and the slice of a partitioned one. Nothing runs.
    """
    nodes = {node.name: node for node in graph_def.node}
    own = ancestors(graph_def, [restore_op])
    found: dict[str, Key] = {}
    for node in sorted(nodes.values(), key=lambda node: node.name not in own):
        if node.op in ("Assign", "AssignVariableOp") and len(node.input) >= 2:
            source, index = _source(nodes, node.input[1], ("Identity", "Cast"))
            if source is not None and source.op == "RestoreV2" and len(source.input) >= 3:
                variable, _ = _source(nodes, node.input[0], ("Identity", "RefIdentity"))
                names, parts = (_strings(nodes, source.input[i]) for i in (1, 2))
                if variable is not None and names and parts and index < len(names) and index < len(parts):
                    key = (names[index], parts[index])
                    if key in checkpoint:
                        found.setdefault(variable.name, key)
    return found


def _source(nodes: Mapping[str, Any], text: str, through: Iterable[str]) -> tuple[Any, int]:
    seen: set[str] = set()
    while True:
        name, _, index = text.lstrip("^").partition(":")
        node = nodes.get(name)
        if node is None or node.op not in through or not node.input or name in seen:
            return node, int(index) if index.isdecimal() else 0
        seen.add(name)
        text = node.input[0]


def _strings(nodes: Mapping[str, Any], text: str) -> list[str] | None:
    node, _ = _source(nodes, text, ("Identity",))
    if node is None or node.op != "Const":
        return None
    values = attributes.tensor_of(node.attr["value"].tensor)
    return [attributes.text_of(value) for value in values.reshape(-1)] if values.dtype == object else None
