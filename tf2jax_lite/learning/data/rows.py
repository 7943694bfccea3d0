"""Examples in files, by index.

Files are shards of arrays, ArrayRecord, TFRecord and Parquet. Memory does not grow with the files, except for 8 bytes a
record of TFRecord files, which have no index of their own.
"""

from __future__ import annotations

import abc
import array
import bisect
import itertools
import math
import os
import struct
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tf2jax_lite.learning.data.example_proto import ExampleParser, element_spec_of
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import DataError, MissingLibraryError
from tf2jax_lite.support.limits import reading, regular
from tf2jax_lite.support.npz import read_header, read_npz, shapes_in_npz

Example = dict[str, np.ndarray]


class Rows(abc.ABC):
    """Examples by index."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of examples."""

    @abc.abstractmethod
    def __getitem__(self, index: int) -> Example:
        """Return an example, without a batch dimension; threads may call it.

        Raises:
          DataError: it cannot be read.
        """

    def blocks(self) -> list[int] | None:
        """Return the sizes of blocks that are read as a whole, in order.

        None if any example is read by itself.
        """
        return None

    def identity(self) -> Any:
        """Return JSON that identifies the examples, for checkpoints."""
        return [type(self).__name__, len(self)]


def open_rows(path: str | Path) -> Rows:
    """Open a file, or a folder of files of one kind.

    The suffix tells the kind: .npz, .array_record, .tfrecord or .parquet.

    Args:
      path: the file or the folder.

    Raises:
      DataError: there are no such files, or of several kinds, or one is damaged.
    """
    path = Path(path)
    with reading(str(path), DataError):
        files = sorted(p for p in path.iterdir() if not p.name.startswith(".")) if path.is_dir() else [path]
    kinds = {file_kind(file) for file in files}
    if len(kinds) != 1 or not kinds <= _READERS.keys():
        raise DataError(
            f"{path} is not training data: expected files of one of the kinds {', '.join(_READERS)}, and found "
            f"{sorted(kinds) or 'none'}."
        )
    for file in files:
        regular(file, DataError)
    with reading(str(path), DataError):
        return _READERS[kinds.pop()](files)


def file_kind(file: Path) -> str:
    """Return a file's kind.

    Shards may be named as in ``train.tfrecord-00000-of-00010``.
    """
    return next((kind for kind in _READERS if f"{kind}-" in file.name or file.name.endswith(kind)), file.suffix)


class _Files(Rows):
    """Rows of several files, in order.

    A subclass reads a row in ``_row``, from one of the files or of their blocks, whose numbers of rows are ``counts``.
    """

    def __init__(self, files: Sequence[Path], counts: Sequence[int]):
        self._files = list(files)
        self._ends = list(itertools.accumulate(counts))
        with reading(str(files[0].parent), DataError):
            self._sizes = [file.stat().st_size for file in files]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Example:
        number, row = self._find(index)
        with reading(f"{self._path(number)}, row {row}", DataError):
            return self._row(number, row)

    @abc.abstractmethod
    def _row(self, number: int, row: int) -> Example:
        """Return a row of a file or block."""

    def _path(self, number: int) -> Path:
        return self._files[number]

    def _find(self, index: int) -> tuple[int, int]:
        """Return the file of a row, and the row's index in it."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        file = bisect.bisect_right(self._ends, index)
        return file, index - (self._ends[file - 1] if file else 0)

    def identity(self) -> Any:
        """See `Rows.identity`: names and sizes of files."""
        return [[file.name, size] for file, size in zip(self._files, self._sizes, strict=True)]


class _Handles:
    """Open files, the last used few; reads name their offset, so threads share them."""

    def __init__(self, files: Sequence[Path], most: int = 64):
        self._files, self._most = files, most
        self._open: OrderedDict[int, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": self._files, "_most": self._most}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_files"], state["_most"])

    def read(self, number: int, size: int, offset: int) -> bytes:
        """Return ``size`` bytes of a file."""
        with self._lock:
            file = self._open.pop(number, None) or self._files[number].open("rb", buffering=0)
            self._open[number] = file
            if len(self._open) > self._most:
                self._open.popitem(last=False)
        found = os.pread(file.fileno(), size, offset)
        if len(found) != size:
            raise DataError(f"{self._files[number]} is cut short.")
        return found


class _Stored(NamedTuple):
    """An array in a file: its dtype, shape and first byte."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int


class NpzShards(_Files):
    """Rows of .npz files as ``np.savez`` writes them, without compression.

    Each file holds the same arrays, (n, ...), with its own n.

    Args:
      files: the files.

    Raises:
      DataError: a file is damaged, or differs from the first in names, dtypes or shapes of rows.
    """

    def __init__(self, files: Sequence[Path]):
        self._arrays = [_stored_arrays(file) for file in files]
        counts = []
        for file, arrays in zip(files, self._arrays, strict=True):
            counts.append(_count(file, [stored.shape for stored in arrays.values()]))
            first = {name: (s.dtype, s.shape[1:]) for name, s in self._arrays[0].items()}
            if {name: (s.dtype, s.shape[1:]) for name, s in arrays.items()} != first:
                raise DataError(f"{file}: names, dtypes or shapes differ from those of {files[0]}.")
        super().__init__(files, counts)
        self._handles = _Handles(files)

    def _row(self, number: int, row: int) -> Example:
        found = {}
        for name, (dtype, shape, offset) in self._arrays[number].items():
            size = dtype.itemsize * int(np.prod(shape[1:]))
            content = self._handles.read(number, size, offset + row * size)
            found[name] = np.frombuffer(content, dtype).reshape(shape[1:])
        return found


def _count(file: Path, shapes: Sequence[tuple[int, ...]]) -> int:
    """Return the number of rows of arrays of such shapes."""
    counts = {shape[:1] for shape in shapes}
    if len(counts) != 1 or () in counts:
        raise DataError(f"{file}: arrays differ in the number of examples.")
    if not any(math.prod(shape[1:]) for shape in shapes):
        raise DataError(f"{file}: its examples have no values.")
    return counts.pop()[0]


def _stored_arrays(path: Path) -> dict[str, _Stored]:
    found = {}
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            end = os.fstat(raw.fileno()).st_size
            for member in archive.infolist():
                raw.seek(member.header_offset)
                header = raw.read(30)
                begin = member.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
                raw.seek(begin)
                shape, fortran, dtype = read_header(raw)
                size = dtype.itemsize * int(np.prod(shape, dtype=object))
                if dtype.hasobject or (fortran and len(shape) > 1) or raw.tell() - begin + size != member.file_size:
                    raise DataError(f"{path}: {member.filename} is not an array of numbers in C order.")
                if raw.tell() + size > end:
                    raise DataError(f"{path}: {member.filename} announces {size} bytes, which the file does not have.")
                found[member.filename.removesuffix(".npy")] = _Stored(dtype, shape, raw.tell())
    except DataError:
        raise
    except Exception as error:  # zipfile, struct and NumPy each have their own errors
        raise DataError(f"{path}: not a readable .npz of arrays ({error or type(error).__name__}).") from error
    if not found:
        raise DataError(f"{path} has no arrays.")
    return found


class _Examples(_Files):
    """Rows that are serialized ``tf.train.Example`` messages.

    Features are those of the first.
    """

    def _parse(self, content: bytes, where: str) -> Example:
        if not hasattr(self, "_parser"):
            spec = element_spec_of(content, where)
            text = [name for name, feature in spec.items() if feature.dtype == object]
            if text:
                raise DataError(f"{where}: the features {text} are bytes; a model takes numbers. Decode them first.")
            self._parser = ExampleParser(spec)
        return {name: value[0] for name, value in self._parser([content], where).items()}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_parser"}  # its message has no pickle


class TFRecords(_Examples):
    """Rows of TFRecord files of ``tf.train.Example``, read without TensorFlow.

    Args:
      files: the files, not compressed.

    Raises:
      DataError: a file is damaged.
    """

    def __init__(self, files: Sequence[Path]):
        self._offsets = [_record_offsets(file) for file in files]
        super().__init__(files, [len(offsets) - 1 for offsets in self._offsets])
        self._handles = _Handles(files)
        if len(self):
            self[0]  # the first record has the features of all

    def _row(self, number: int, row: int) -> Example:
        begin, end = self._offsets[number][row : row + 2]
        return self._parse(self._handles.read(number, end - begin - 16, begin + 12), f"{self._files[number]}, {row}")


def _record_offsets(path: Path) -> array.array[int]:
    """Return where each record of a TFRecord file begins, and where the last ends.

    A record is the length of its data (8 bytes), a checksum (4), the data, and a checksum (4).
    """
    offsets = array.array("q", [0])
    with reading(str(path), DataError), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while offsets[-1] < size:
            file.seek(offsets[-1])
            header = file.read(12)
            length = int.from_bytes(header[:8], "little")
            end = offsets[-1] + 16 + length
            if len(header) < 12 or end > size:
                raise DataError(
                    f"{path} is not a TFRecord file, compressed or cut short: see record {len(offsets) - 1}."
                )
            offsets.append(end)
    return offsets


class ArrayRecords(_Examples):
    """Rows of ArrayRecord files of ``tf.train.Example``.

    Args:
      files: the files.

    Raises:
      DataError: a file is damaged.
    """

    def __init__(self, files: Sequence[Path]):
        try:
            from grain.sources import ArrayRecordDataSource
        except ImportError as error:
            raise _missing("grain", error) from error
        try:
            self._source: Any = ArrayRecordDataSource([str(file) for file in files])
            count = len(self._source)
        except Exception as error:  # the library's errors are of many kinds
            raise DataError(f"{files[0].parent}: not readable ArrayRecord files: {error}") from error
        super().__init__(files, [0] * (len(files) - 1) + [count])
        if count:
            self[0]

    def _row(self, number: int, row: int) -> Example:
        return self._parse(self._source[row], f"{self._files[0].parent}, record {row}")


class _Blocks(_Files):
    """Rows of files that are read block by block.

    The two blocks that were used last stay in memory.
    """

    def __init__(self, files: Sequence[Path], counts: Sequence[int]):
        super().__init__(files, [])
        self._counts = list(counts)
        self._ends = list(itertools.accumulate(counts))
        self._cache: OrderedDict[int, Example] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cache": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def blocks(self) -> list[int]:
        """See `Rows.blocks`."""
        return list(self._counts)

    def _row(self, number: int, row: int) -> Example:
        with self._lock:
            found = self._cache.pop(number, None) or self._read(number)
            self._cache[number] = found
            if len(self._cache) > 2:
                self._cache.popitem(last=False)
        return {name: column[row] for name, column in found.items()}

    @abc.abstractmethod
    def _read(self, block: int) -> Example:
        """Return a block's arrays, (rows, ...)."""


class CompressedShards(_Blocks):
    """Rows of compressed .npz files; a block is a file.

    Args:
      files: the files.

    Raises:
      DataError: a file is damaged, or differs from the first in names or shapes of rows.
    """

    def __init__(self, files: Sequence[Path]):
        found = [shapes_in_npz(file, DataError, limit=None) for file in files]  # they are read whole
        counts = []
        for file, shapes in zip(files, found, strict=True):
            counts.append(_count(file, list(shapes.values())))
            if {n: s[1:] for n, s in shapes.items()} != {n: s[1:] for n, s in found[0].items()}:
                raise DataError(f"{file}: names or shapes differ from those of {files[0]}.")
        super().__init__(files, counts)

    def _read(self, block: int) -> Example:
        return read_npz(self._files[block], DataError)


class ParquetRows(_Blocks):
    """Rows of Parquet files whose columns are numbers or lists of equal lengths.

    A block is a row group.

    Args:
      files: the files.

    Raises:
      DataError: a file is damaged, or a column holds something else.
    """

    def __init__(self, files: Sequence[Path]):
        try:
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise _missing("parquet", error) from error
        self._groups: list[tuple[int, int]] = []
        counts: list[int] = []
        for number, file in enumerate(files):
            with reading(str(file), DataError), parquet.ParquetFile(file) as opened:
                for field in opened.schema_arrow:
                    if not _is_numeric(field.type):
                        raise DataError(
                            f"{file}: the column {field.name!r} is not numbers or equally long lists, but {field.type}."
                        )
                for group in range(opened.metadata.num_row_groups):
                    found = opened.metadata.row_group(group)
                    size = max(8 * found.num_rows * found.num_columns, found.total_byte_size)
                    if found.num_rows < 0 or size > current_config().max_input_bytes:
                        raise DataError(
                            f"{file}: row group {group} takes more than max_input_bytes; write smaller ones."
                        )
                    self._groups.append((number, group))
                    counts.append(found.num_rows)
        super().__init__(files, counts)

    def _path(self, number: int) -> Path:
        return self._files[self._groups[number][0]]

    def _read(self, block: int) -> Example:
        import pyarrow.parquet as parquet

        number, group = self._groups[block]
        path = self._files[number]
        with parquet.ParquetFile(path) as file:
            table = file.read_row_group(group)
        if table.num_rows != self._counts[block]:
            raise DataError(
                f"{path}: row group {group} does not have the {self._counts[block]} rows that it announces."
            )
        found = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            values = column.to_numpy()
            try:
                array = np.stack(values) if values.dtype == object else values
                if array.dtype.kind not in "biuf":
                    raise ValueError(f"its values are {array.dtype}")
            except ValueError as error:
                raise DataError(
                    f"{path}: the column {name!r} is not numbers or equally long lists: {error}."
                ) from error
            found[name] = array
        return found


def _is_numeric(kind: Any) -> bool:
    """Return whether an Arrow type is numbers, booleans, or lists of these."""
    from pyarrow import types

    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _missing(extra: str, error: ImportError) -> MissingLibraryError:
    return MissingLibraryError(f"this data needs an extra: pip install 'tf2jax-lite[{extra}]' ({error})")


def _npz_rows(files: Sequence[Path]) -> Rows:
    """Return the rows of .npz files, of which some or all may be compressed."""
    try:
        compressed = [any(m.compress_type != zipfile.ZIP_STORED for m in _members(file)) for file in files]
    except Exception as error:  # zipfile has errors of many kinds
        raise DataError(f"{files[0].parent}: not readable .npz files ({error or type(error).__name__}).") from error
    return CompressedShards(files) if any(compressed) else NpzShards(files)


def _members(path: Path) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(path) as archive:
        return archive.infolist()


_READERS: dict[str, Any] = {
    ".npz": _npz_rows,
    ".array_record": ArrayRecords,
    ".tfrecord": TFRecords,
    ".parquet": ParquetRows,
}
ROW_KINDS = _READERS.keys()
"""Suffixes of the files that `open_rows` opens."""
