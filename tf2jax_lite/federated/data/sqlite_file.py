"""Read-only access to SQLite files of other programs."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.support.errors import DataError


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
