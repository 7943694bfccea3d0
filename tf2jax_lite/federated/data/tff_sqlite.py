"""The SQLite files of TensorFlow Federated.

Source: SqlClientData of tff.simulation.datasets.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

from tf2jax_lite.federated.data.client_dataset import ClientDataset
from tf2jax_lite.federated.data.example_proto import ExampleParser, element_spec_of
from tf2jax_lite.federated.data.federated_data import ClientId, FederatedData
from tf2jax_lite.federated.data.preprocessor import Examples
from tf2jax_lite.federated.data.sqlite_file import SQLiteFile
from tf2jax_lite.support.errors import DataError, UnknownClientError

# Python's order of ids, independent of the collation of the file's tables.
_BINARY = "COLLATE BINARY"
_SIZE = "CAST(SUM(CAST(num_examples AS INTEGER)) AS INTEGER)"

_TABLES = {
    "client_metadata": {"client_id", "split_name", "num_examples"},
    "examples": {"client_id", "split_name", "serialized_example_proto"},
}


def tff_element_spec(path: str | os.PathLike) -> dict[str, Any] | None:
    """Return the features of the first example in TFF's tables, or None.

    It is None for other tables. A message does not hold shapes: several values are flat, one is a scalar. Features
    without values are left out.

    Raises:
      DataError: there is no such file, it is no SQLite database, or the first example cannot be read.
    """
    file = SQLiteFile(path, {})
    there = {name for (name,) in file.rows("SELECT name FROM sqlite_master")}
    if not set(_TABLES) <= there:
        return None
    row = SQLiteFile(path, _TABLES).row("SELECT serialized_example_proto FROM examples LIMIT 1")
    if row is None:
        raise DataError(f"{file.path}: no client has any examples")
    return element_spec_of(row[0], f"{file.path}, the first example")


def tff_splits(path: str | os.PathLike) -> list[str]:
    """Return the names of the splits that a file with TFF's tables has."""
    return [str(name) for (name,) in SQLiteFile(path, _TABLES).rows("SELECT DISTINCT split_name FROM client_metadata")]


class TFFSQLiteFederatedData(FederatedData):
    """Clients in a file with TFF's tables.

    Each row holds one serialized ``tf.train.Example``. The tables are ``client_metadata(client_id, split_name,
    num_examples)`` and ``examples(client_id, split_name, serialized_example_proto)``. TensorFlow is not needed. A file
    without an index on ``examples.client_id`` is scanned once for each `get_client`; `clients` reads it once.

    Args:
      path: the file.
      element_spec: the features of one example, see `ExampleParser`.
      split_name: keep the clients and examples of this split; None keeps all.

    Raises:
      DataError: there is no such file, it is something else, or ``element_spec`` cannot be read.
    """

    def __init__(self, path: str | os.PathLike, element_spec: Any, split_name: str | None = None):
        super().__init__()
        self._parse = ExampleParser(element_spec)
        self._split = split_name
        self._file = SQLiteFile(path, _TABLES)

    def __repr__(self) -> str:
        split = f", split_name={self._split!r}" if self._split is not None else ""
        return f"TFFSQLiteFederatedData({str(self._file.path)!r}{split})"

    def _where(self, client_id: ClientId | None = None) -> tuple[str, list[Any]]:
        bounds = {"split_name =": self._split, "client_id =": client_id}
        bounds |= {"client_id >=": self._start, "client_id <": self._stop}
        given = {condition: value for condition, value in bounds.items() if value is not None}
        return " WHERE " + " AND ".join(["1", *(f"{condition} ?" for condition in given)]), list(given.values())

    def num_clients(self) -> int:
        """Return the number of clients."""
        where, values = self._where()
        return self._file.row(f"SELECT COUNT(DISTINCT client_id) FROM client_metadata{where}", values)[0]

    def _ids(self) -> Iterator[ClientId]:
        where, values = self._where()
        query = f"SELECT DISTINCT client_id {_BINARY} FROM client_metadata{where} ORDER BY 1"
        for (client_id,) in self._file.rows(query, values):
            if not isinstance(client_id, str):
                raise DataError(f"{self._file.path}: a client's id is {client_id!r} where text is needed")
            yield client_id

    def client_sizes(self) -> Iterator[tuple[ClientId, int]]:
        """Yield (id, number of examples) of all clients. See `FederatedData.client_size`."""
        if self._client_fns:
            yield from super().client_sizes()
            return
        where, values = self._where()
        query = f"SELECT client_id {_BINARY}, {_SIZE} FROM client_metadata{where} GROUP BY 1 ORDER BY 1"
        yield from self._file.rows(query, values)

    def clients(self) -> Iterator[tuple[ClientId, ClientDataset]]:
        """Yield (id, dataset) of all clients, one at a time, in the order of their ids."""
        where, values = self._where()
        query = (
            f"SELECT client_id, serialized_example_proto FROM examples{where} AND typeof(client_id) = 'text'"
            f" ORDER BY client_id {_BINARY}, rowid"
        )
        # Rows whose id is not text belong to no client.
        groups = itertools.groupby(self._file.rows(query, values), key=lambda row: row[0])
        group = next(groups, None)
        for client_id in self._ids():
            while group is not None and group[0] < client_id:  # examples of a client that the metadata lacks
                group = next(groups, None)
            rows = []
            if group is not None and group[0] == client_id:
                rows = [content for _, content in group[1]]
                group = next(groups, None)
            yield client_id, self._dataset(client_id, self._parse(rows, self._place(client_id)))

    def _size(self, client_id: ClientId) -> int:
        if isinstance(client_id, str):
            where, values = self._where(client_id)
            size = self._file.row(f"SELECT {_SIZE} FROM client_metadata{where}", values)[0]
            if size is not None:
                return size
        raise UnknownClientError(f"{self!r} has no client {client_id!r}")

    def _read(self, client_id: ClientId) -> Examples:
        self._size(client_id)  # says when there is no such client
        where, values = self._where(client_id)
        rows = self._file.rows(f"SELECT serialized_example_proto FROM examples{where} ORDER BY rowid", values)
        return self._parse([content for (content,) in rows], self._place(client_id))

    def _place(self, client_id: ClientId) -> str:
        return f"{self._file.path}, client {client_id!r}"
