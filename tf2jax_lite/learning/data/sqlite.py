"""Clients in SQLite files, of this package and of FedJAX.

Dtypes that safetensors lacks are kept as bytes, with the dtype in the metadata: strings (fixed-width, and objects of
varying length), bfloat16 and other dtypes of ml_dtypes, complex128, dates.

Source: fedjax.SQLiteFederatedData, without its pickles. FedJAX's own records need msgpack (extra: fedjax).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.export.atomic_dir import move_file
from tf2jax_lite.export.plain_dtypes import from_plain, to_plain
from tf2jax_lite.learning.data.examples import Examples, check_examples, num_examples
from tf2jax_lite.learning.data.federated_data import ClientId, FederatedData
from tf2jax_lite.support.errors import DataError, MissingLibraryError, UnknownClientError


class SQLiteFile:
    """Read-only queries, with a connection for each thread and process.

    Args:
      path: the file.
      tables: the tables it must have, each with the columns that are needed.

    Raises:
      DataError: there is no such file, it is no SQLite database, or it lacks a table or a column.
    """

    def __init__(self, path: str | os.PathLike, tables: Mapping[str, Collection[str]]):
        self.path = Path(os.path.abspath(path))
        self._local = threading.local()
        if not self.path.is_file():
            raise DataError(f"{self.path}: there is no such file")
        schema = list(self.rows("SELECT name, type, rootpage FROM sqlite_master"))
        stored = {name for name, kind, page in schema if kind == "table" and page}
        for table, columns in tables.items():
            # A view, or a virtual table (which has no pages), could hide anything behind the table's name.
            if table not in stored:
                raise DataError(f"{self.path} has no table {table!r}; it has {sorted(str(row[0]) for row in schema)}")
            there = {row[1] for row in self.rows(f"PRAGMA table_info({table})")}
            if missing := set(columns) - there:
                raise DataError(f"{self.path}: table {table!r} lacks {sorted(missing)}; it has {sorted(there)}")

    def rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Yield the rows of a query.

        Raises:
          DataError: the file is damaged.
        """
        try:
            yield from self._connection().execute(query, values)
        except (sqlite3.Error, OverflowError, OSError, ValueError) as error:
            raise DataError(f"{self.path} cannot be read as a SQLite database of clients: {error}") from error

    def row(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Return a query's first row, or None. Raises as `rows` does."""
        return next(self.rows(query, values), None)

    def _connection(self) -> sqlite3.Connection:
        # A connection must not be used across threads, nor carried into a forked process.
        if getattr(self._local, "pid", None) != os.getpid():
            connection = sqlite3.connect(f"{self.path.as_uri()}?mode=ro{self._unwritten()}", uri=True)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            self._local.connection, self._local.pid = connection, os.getpid()
        return self._local.connection

    def _unwritten(self) -> str:
        """Return URI options that prevent a WAL file beside a closed WAL database."""
        with open(self.path, "rb") as file:
            header = file.read(20)
        log = self.path.with_name(f"{self.path.name}-wal")
        return "&immutable=1" if header[18:20] == b"\2\2" and not log.exists() else ""


_DTYPES = "dtypes"  # the metadata's key
_LENGTHS = "#lengths"  # ends the name of the lengths of strings


def encode_examples(examples: Examples, where: str = "client data") -> bytes:
    """Return examples as one string of bytes.

    Args:
      examples: dict from feature to array. Arrays of objects hold bytes only, or str only.
      where: the location in error messages.

    Raises:
      DataError: a dtype that cannot be stored (objects other than strings, records).
    """
    tensors: dict[str, np.ndarray] = {}
    dtypes: dict[str, Any] = {}
    for name, array in check_examples(examples, where).items():
        if name == "__metadata__" or name.endswith(_LENGTHS):
            raise DataError(f"{where}: the name of feature {name!r} is reserved; rename it")
        if array.dtype == object:
            kind, tensors[name], tensors[name + _LENGTHS] = _pack_strings(array, f"{where}, feature {name!r}")
            dtypes[name] = kind
            continue
        try:
            tensors[name], kind = to_plain(array)
        except ValueError as error:
            raise DataError(f"{where}, feature {name!r}: {error}") from error
        if kind is not None:
            dtypes[name] = kind
    return safetensors.numpy.save(tensors, {_DTYPES: json.dumps(dtypes)} if dtypes else None)


def decode_examples(record: bytes, where: str = "client data") -> dict[str, np.ndarray]:
    """Return the examples that `encode_examples` was given.

    Raises:
      DataError: the bytes are damaged, or something else.
    """
    try:
        tensors = safetensors.numpy.load(record)
        header = json.loads(record[8 : 8 + int.from_bytes(record[:8], "little")])
        dtypes = json.loads(header.get("__metadata__", {}).get(_DTYPES, "{}"))
        examples = {}
        for name, array in tensors.items():
            if name.endswith(_LENGTHS):
                continue
            kind = dtypes.get(name)
            if kind in ("bytes", "str"):
                examples[name] = _unpack_strings(kind, array, tensors[name + _LENGTHS])
            else:
                examples[name] = from_plain(array, kind)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{where}: the record cannot be read: {error}") from error
    return check_examples(examples, where)


def _pack_strings(array: np.ndarray, where: str) -> tuple[str, np.ndarray, np.ndarray]:
    items = list(array.flat)
    kinds = {type(item) for item in items}
    if kinds <= {str}:
        kind, encoded = "str", [item.encode() for item in items]
    elif kinds <= {bytes, np.bytes_}:
        kind, encoded = "bytes", [bytes(item) for item in items]
    else:
        names = sorted(kind.__name__ for kind in kinds)
        raise DataError(f"{where}: an array of objects holds bytes only or str only to be stored, not {names}")
    lengths = np.array([len(item) for item in encoded], np.int64).reshape(array.shape)
    return kind, np.frombuffer(b"".join(encoded), np.uint8), lengths


def _unpack_strings(kind: str, data: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    if lengths.dtype != np.int64 or data.dtype != np.uint8 or (lengths < 0).any() or (lengths > data.size).any():
        raise ValueError("the lengths of strings do not fit")
    ends = np.cumsum(lengths.ravel())
    if (ends[-1] if ends.size else 0) != data.size:
        raise ValueError("the lengths of strings do not add up")
    content = data.tobytes()
    strings = np.empty(lengths.size, object)
    for index, end in enumerate(ends):
        item = content[end - lengths.flat[index] : end]
        strings[index] = item.decode() if kind == "str" else item
    return strings.reshape(lengths.shape)


_FORMAT = "tf2jax_lite federated data 1"


class SQLiteFederatedData(FederatedData):
    """Clients in a file that `SQLiteFederatedDataBuilder` wrote.

    Only the clients asked for are in memory. May be used from several threads, and in processes forked later. Each
    record has a checksum, which is looked at when it is read.

    Args:
      path: the file.

    Raises:
      DataError: there is no such file, or it is something else, or damaged.
    """

    _TABLE = "clients"
    _COLUMNS: tuple[str, ...] = ("num_examples", "crc32", "examples")

    def __init__(self, path: str | os.PathLike):
        super().__init__()
        own = self._TABLE == SQLiteFederatedData._TABLE
        tables = {self._TABLE: {"client_id", *self._COLUMNS}}
        self._file = SQLiteFile(path, tables | ({"format": {"name"}} if own else {}))
        if not own:
            return
        row = self._file.row("SELECT name FROM format")
        if row is None or row[0] != _FORMAT:
            raise DataError(f"{self._file.path} has format {row and row[0]!r}; this version reads {_FORMAT!r}")

    @staticmethod
    def new(path: str | os.PathLike, parse_examples: Callable[[bytes], Examples] | None = None) -> SQLiteFederatedData:
        """Open a file of ours, or of FedJAX. See fedjax.SQLiteFederatedData.new.

        Args:
          path: the file.
          parse_examples: ``(bytes) -> dict of arrays`` for FedJAX's tables with records of another format.

        Raises:
          DataError: there is no such file, it is something else, or damaged.
        """
        tables = {name for (name,) in SQLiteFile(path, {}).rows("SELECT name FROM sqlite_master")}
        if parse_examples is not None or FedJAXSQLiteFederatedData._TABLE in tables:
            return FedJAXSQLiteFederatedData(path, parse_examples)
        return SQLiteFederatedData(path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._file.path)!r})"

    def _where(self) -> tuple[str, list[ClientId]]:
        conditions, values = [], []
        if self._start is not None:
            conditions, values = ["client_id >= ?"], [self._start]
        if self._stop is not None:
            conditions, values = [*conditions, "client_id < ?"], [*values, self._stop]
        return (" WHERE " + " AND ".join(conditions) if conditions else ""), values

    def num_clients(self) -> int:
        """Return the number of clients."""
        where, values = self._where()
        row = self._file.row(f"SELECT COUNT(*) FROM {self._TABLE}{where}", values)
        return row[0] if row else 0

    def _ids(self) -> Iterator[ClientId]:
        where, values = self._where()
        for (client_id,) in self._file.rows(f"SELECT client_id FROM {self._TABLE}{where} ORDER BY client_id", values):
            yield client_id

    def client_sizes(self) -> Iterator[tuple[ClientId, int]]:
        """Yield (id, number of examples) of all clients. See `FederatedData.client_size`."""
        if self._client_fns:
            yield from super().client_sizes()
            return
        where, values = self._where()
        query = f"SELECT client_id, num_examples FROM {self._TABLE}{where} ORDER BY client_id"
        yield from self._file.rows(query, values)

    def clients(self) -> Iterator[tuple[ClientId, Any]]:
        """Yield (id, dataset) of all clients, one at a time, in the order of their ids."""
        where, values = self._where()
        columns = ", ".join(self._COLUMNS)
        query = f"SELECT client_id, {columns} FROM {self._TABLE}{where} ORDER BY client_id"
        for client_id, *record in self._file.rows(query, values):
            yield client_id, self._dataset(client_id, self._decode(client_id, record))

    def _size(self, client_id: ClientId) -> int:
        return self._one(client_id, "num_examples")[0]

    def _read(self, client_id: ClientId) -> Examples:
        return self._decode(client_id, self._one(client_id, ", ".join(self._COLUMNS)))

    def _one(self, client_id: ClientId, columns: str) -> Any:
        row = None
        if isinstance(client_id, str | bytes):
            query = f"SELECT {columns} FROM {self._TABLE} WHERE client_id = ?"
            row = self._file.row(query, [client_id])
        if row is None:
            raise UnknownClientError(f"{self!r} has no client {client_id!r}")
        return row

    def _decode(self, client_id: ClientId, record: Any) -> Examples:
        where = f"{self._file.path}, client {client_id!r}"
        examples = self._decoded(where, *record[1:])
        if num_examples(examples) != record[0]:
            raise DataError(f"{where}: {num_examples(examples)} examples where {record[0]} are announced")
        return examples

    def _decoded(self, where: str, *record: Any) -> Examples:
        """Return the examples of a record without its number of examples."""
        checksum, content = record
        if not isinstance(content, bytes) or zlib.crc32(content) != checksum:
            raise DataError(f"{where}: the record is damaged: its checksum differs")
        return decode_examples(content, where)


class SQLiteFederatedDataBuilder(contextlib.AbstractContextManager):
    """Writes a file for `SQLiteFederatedData` in a ``with`` block.

    The file appears at the end of the block, or not at all.

    Args:
      path: the file to make.
      overwrite: replace a file that is there.

    Raises:
      DataError: the file exists already, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike, overwrite: bool = False):
        self.path = Path(os.path.abspath(path))
        self._overwrite = overwrite
        self._partial = self.path.with_name(f".{secrets.token_hex(8)}.partial")
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> SQLiteFederatedDataBuilder:
        self._refuse_existing()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._partial, isolation_level=None)
            # The file is not read before it is complete, so it needs no journal; it is synced once, at the end.
            self._connection.executescript(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;"
                "CREATE TABLE format (name TEXT NOT NULL);"
                "CREATE TABLE clients (client_id PRIMARY KEY NOT NULL, num_examples INTEGER NOT NULL,"
                " crc32 INTEGER NOT NULL, examples BLOB NOT NULL);"
            )
            self._connection.execute("INSERT INTO format VALUES (?)", [_FORMAT])
        except (sqlite3.Error, OSError) as error:
            self._discard()
            raise DataError(f"cannot write {self.path}: {error}") from error
        return self

    def add(self, client_id: ClientId, examples: Examples) -> None:
        """Write one client.

        Args:
          client_id: str or bytes; not one that was added before.
          examples: dict from feature to array, all of equal leading size.

        Raises:
          DataError: the id is used already or is of another kind, the examples do not fit together or have a dtype that
            cannot be stored, or the disk is full.
        """
        if self._connection is None:
            raise DataError("use the builder in a with block: with SQLiteFederatedDataBuilder(path) as builder: ...")
        if not isinstance(client_id, str | bytes):
            raise DataError(f"a client id is str or bytes in a file, not {client_id!r}")
        examples = check_examples(examples, f"client {client_id!r}")
        record = encode_examples(examples, f"client {client_id!r}")
        row = [client_id, num_examples(examples), zlib.crc32(record), record]
        try:
            self._connection.execute("INSERT INTO clients VALUES (?, ?, ?, ?)", row)
        except sqlite3.IntegrityError as error:
            raise DataError(f"client {client_id!r} was added before") from error
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            raise DataError(f"cannot write client {client_id!r} to {self.path}: {error}") from error

    def add_many(self, clients: Iterable[tuple[ClientId, Examples]]) -> None:
        """Write many clients, pairs (id, examples), one at a time. See `add`."""
        for client_id, examples in clients:
            self.add(client_id, examples)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            if kind is None and self._connection is not None:
                self._connection.execute("COMMIT")
                self._connection.close()
                with open(self._partial, "rb+") as file:
                    os.fsync(file.fileno())
                self._refuse_existing()
                move_file(self._partial, self.path, overwrite=self._overwrite)
        except (sqlite3.Error, OSError) as error:
            raise DataError(f"cannot write {self.path}: {error}") from error
        finally:
            self._discard()

    def _refuse_existing(self) -> None:
        if self.path.exists() and not self._overwrite:
            raise DataError(f"{self.path} exists; choose another name, or pass overwrite=True")

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._partial.unlink(missing_ok=True)


# Kinds of msgpack's extension type in FedJAX's records.
_ARRAY, _SCALAR, _STRINGS = 1, 3, 4
_PER_STRING = 48  # bytes of a string in memory, beside its characters, and of its place in an array


class FedJAXSQLiteFederatedData(SQLiteFederatedData):
    """Clients in a file with FedJAX's table ``federated_data``.

    ``SQLiteFederatedData.new(path)`` opens such files as well. Reading runs no code of the file.

    Args:
      path: the file.
      parse_examples: ``(bytes) -> dict of arrays``, decodes a client's record; FedJAX's format by default.
      max_client_bytes: the largest size of a decompressed record, in FedJAX's format.

    Raises:
      DataError: there is no such file, it is something else, or damaged.
      MissingLibraryError: msgpack is not installed, and records have FedJAX's format.
    """

    _TABLE = "federated_data"
    _COLUMNS = ("num_examples", "data")

    def __init__(
        self,
        path: str | os.PathLike,
        parse_examples: Callable[[bytes], Examples] | None = None,
        *,
        max_client_bytes: int = 1 << 30,
    ):
        super().__init__(path)
        self._parse = parse_examples or functools.partial(decompress_and_deserialize, max_bytes=max_client_bytes)
        if parse_examples is None:
            _library()

    def _decoded(self, where: str, *record: Any) -> Examples:
        (content,) = record
        try:
            return check_examples(self._parse(content), where)
        except (zlib.error, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            raise DataError(f"{where}: the record cannot be decoded: {error}") from error


def _library() -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise MissingLibraryError("FedJAX's files need msgpack: pip install 'tf2jax-lite[fedjax]'.") from error
    return msgpack


def decompress_and_deserialize(data: bytes, *, max_bytes: int = 1 << 30) -> dict[str, np.ndarray]:
    """Decode a client's record of FedJAX: zlib around msgpack.

    Args:
      data: the record.
      max_bytes: the largest decompressed size.

    Raises:
      DataError: the record is larger, or is something else.
    """
    library = _library()
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(data, max_bytes)
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise DataError(f"a client's record is cut off, or has more than {max_bytes} bytes (max_client_bytes)")
    left = [max_bytes]
    try:
        return library.unpackb(content, ext_hook=functools.partial(_extension, left=left), raw=False)
    except (library.exceptions.UnpackException, RecursionError) as error:
        raise DataError(f"a client's record is not msgpack: {error}") from error


def _extension(code: int, data: bytes, left: list[int]) -> Any:
    library = _library()
    if code == _STRINGS:
        unpacker = library.Unpacker(raw=True, max_buffer_size=len(data) or 1)
        unpacker.feed(data)
        if unpacker.read_array_header() != 2:
            raise DataError("a client's record has strings without a shape")
        shape = unpacker.unpack()
        count = unpacker.read_array_header()
        left[0] -= _PER_STRING * count + len(data)
        if left[0] < 0:
            raise DataError("a client's strings take more bytes than max_client_bytes allows")
        flat = [unpacker.unpack() for _ in range(count)]
        if not all(isinstance(item, bytes) for item in flat):
            raise DataError("a client's record has strings that are something else")
        strings = np.empty(count, object)
        strings[:] = flat
        return strings.reshape(shape)
    if code not in (_ARRAY, _SCALAR):
        raise DataError(f"a client's record has a value of kind {code}, which is no array")
    shape, name, buffer = library.unpackb(data, raw=True)
    if not isinstance(name, bytes) or not isinstance(buffer, bytes):
        raise DataError("a client's record has an array without a dtype, or without values")
    dtype = _dtype(name.decode())
    return np.frombuffer(buffer, dtype).reshape(shape)


def _dtype(name: str) -> np.dtype:
    import ml_dtypes  # has bfloat16

    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)
