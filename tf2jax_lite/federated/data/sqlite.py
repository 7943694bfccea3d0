"""Clients in one SQLite file, read one at a time.

Source: fedjax.SQLiteFederatedData, without its pickles.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tf2jax_lite.export.atomic_dir import move_file
from tf2jax_lite.federated.data.examples import check_examples, num_examples
from tf2jax_lite.federated.data.federated_data import ClientId, FederatedData
from tf2jax_lite.federated.data.preprocessor import Examples
from tf2jax_lite.federated.data.records import decode_examples, encode_examples
from tf2jax_lite.federated.data.sqlite_file import SQLiteFile
from tf2jax_lite.support.errors import DataError, UnknownClientError

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
        from tf2jax_lite.federated.data.fedjax_sqlite import FedJAXSQLiteFederatedData

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
