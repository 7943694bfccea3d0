"""Clients in folders of .npz files and in TFF's files; any of them by path.

Sources: HDF5ClientData (needs h5py) and SqlClientData of tff.simulation.datasets.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from tf2jax_lite.learning.data.client_dataset import ClientDataset
from tf2jax_lite.learning.data.example_proto import ExampleParser, element_spec_of
from tf2jax_lite.learning.data.examples import Examples, check_examples
from tf2jax_lite.learning.data.federated_data import ClientId, FederatedData, InMemoryFederatedData
from tf2jax_lite.learning.data.sqlite import SQLiteFederatedData, SQLiteFile
from tf2jax_lite.support.errors import DataError, MissingLibraryError, UnknownClientError
from tf2jax_lite.support.hdf5 import memory_bytes
from tf2jax_lite.support.limits import regular
from tf2jax_lite.support.npz import read_npz, shapes_in_npz

MAX_CLIENT_BYTES = 1 << 32


def npz_file_name(client_id: str) -> str:
    """Return a client's file name: its id, percent-encoded, and ``.npz``.

    Args:
      client_id: text or bytes.
    """
    return quote(client_id, safe=" ") + ".npz"


class NpzFolderFederatedData(FederatedData):
    """Clients in ``.npz`` files, named by the client's id.

    ``np.savez`` or ``np.savez_compressed`` wrote them. Files are listed when the folder is opened, and read when a
    client is asked for. Nothing in them is unpickled.

    Args:
      path: the folder; its files are named as `npz_file_name` does.
      max_client_bytes: a client whose arrays take more is refused (a small file can hold very much zeros).

    Raises:
      DataError: there is no such folder, or two files stand for the same client.
    """

    def __init__(self, path: str | os.PathLike, max_client_bytes: int = MAX_CLIENT_BYTES):
        super().__init__()
        self.path = Path(os.path.abspath(path))
        self._max_bytes = max_client_bytes
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(".npz") and entry.is_file()]
        except OSError as error:
            raise DataError(f"{self.path} cannot be read as a folder: {error.strerror}") from error
        self._names: dict[str, str] = {}
        for name in sorted(names, key=lambda name: unquote(name.removesuffix(".npz"))):
            client_id = unquote(name.removesuffix(".npz"))
            if client_id in self._names:
                raise DataError(f"{self.path}: {self._names[client_id]} and {name} are the same client, {client_id!r}")
            self._names[client_id] = name

    def __repr__(self) -> str:
        return f"NpzFolderFederatedData({str(self.path)!r})"

    def _ids(self) -> Iterator[ClientId]:
        return (client_id for client_id in self._names if self._contains(client_id))

    def _size(self, client_id: ClientId) -> int:
        headers = shapes_in_npz(self._path(client_id), DataError)
        sizes = {shape[:1] for shape in headers.values()}
        if len(sizes) != 1 or () in sizes:
            raise DataError(f"{self._path(client_id)}: the leading sizes of the arrays differ: {headers}")
        return sizes.pop()[0]

    def _read(self, client_id: ClientId) -> Examples:
        path = self._path(client_id)
        arrays = read_npz(path, DataError, limit=self._max_bytes, option="max_client_bytes")
        return check_examples(arrays, str(path))

    def _path(self, client_id: ClientId) -> Path:
        if client_id not in self._names:
            raise UnknownClientError(f"{self!r} has no client {client_id!r}")
        return self.path / self._names[client_id]


_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError)  # raised by h5py for damaged files


class TFFHDF5FederatedData(FederatedData):
    """Clients in a file of HDF5 groups ``examples/<client>/<feature>``.

    EMNIST, Shakespeare and Stack Overflow of TFF have this layout. Strings come as objects of type bytes. Links and
    datasets that lead out of the file are refused.

    Args:
      path: the file.
      max_client_bytes: a client whose arrays take more is refused (a small file can announce huge arrays).

    Raises:
      DataError: there is no such file, it is something else.
      MissingLibraryError: h5py is not installed.
    """

    def __init__(self, path: str | os.PathLike, max_client_bytes: int = MAX_CLIENT_BYTES):
        super().__init__()
        try:
            import h5py
        except ImportError as error:
            raise MissingLibraryError("HDF5 files need h5py: pip install 'tf2jax-lite[hdf5]'") from error
        self._h5py: Any = h5py
        self.path = Path(os.path.abspath(path))
        self._max_bytes = max_client_bytes
        self._file, self._pid = None, None
        try:
            regular(self.path, DataError)
            self._names = sorted(self._group().keys())
        except _ERRORS as error:
            raise DataError(f"{self.path} cannot be read as HDF5 with a group 'examples': {error}") from error
        self._known = frozenset(self._names)

    def __repr__(self) -> str:
        return f"TFFHDF5FederatedData({str(self.path)!r})"

    def _group(self) -> Any:
        if self._pid != os.getpid():  # an open file must not be carried into a forked process
            self._file, self._pid = self._h5py.File(self.path, "r"), os.getpid()
        return self._inside(self._file, "examples", self._h5py.Group)

    def _inside(self, parent: Any, name: str, kind: Any) -> Any:
        if not isinstance(parent.get(name, getlink=True), self._h5py.HardLink):
            raise ValueError(f"{name!r} in {parent.name} is absent, or a link")
        child = parent[name]
        if not isinstance(child, kind):
            raise ValueError(f"{child.name} is no {kind.__name__.lower()}")
        return child

    def _ids(self) -> Iterator[ClientId]:
        return (client_id for client_id in self._names if self._contains(client_id))

    def _datasets(self, client_id: ClientId) -> dict[str, Any]:
        if client_id not in self._known:
            raise UnknownClientError(f"{self!r} has no client {client_id!r}")
        group = self._inside(self._group(), client_id, self._h5py.Group)
        datasets = {name: self._inside(group, name, self._h5py.Dataset) for name in sorted(group)}
        for name, dataset in datasets.items():
            if dataset.external or dataset.is_virtual:
                raise ValueError(f"{dataset.name} lies in another file")
            string = self._h5py.check_string_dtype(dataset.dtype)
            if dataset.dtype.names or (dataset.dtype.hasobject and string is None):
                raise ValueError(f"{dataset.name} has dtype {dataset.dtype}, which is neither numbers nor strings")
            if not dataset.shape:
                raise ValueError(f"feature {name!r} is a scalar; its first dimension must run over the examples")
        if sum(dataset.nbytes for dataset in datasets.values()) > self._max_bytes:
            raise ValueError(f"client {client_id!r} takes more than max_client_bytes={self._max_bytes}")
        return datasets

    def _size(self, client_id: ClientId) -> int:
        try:
            sizes = {dataset.shape[0] for dataset in self._datasets(client_id).values()}
        except UnknownClientError:
            raise
        except _ERRORS as error:
            raise DataError(f"{self.path}, client {client_id!r}: {error}") from error
        if len(sizes) != 1:
            raise DataError(f"{self.path}, client {client_id!r}: the leading sizes differ: {sorted(sizes)}")
        return int(sizes.pop())

    def _read(self, client_id: ClientId) -> Examples:
        where = f"{self.path}, client {client_id!r}"
        try:
            datasets, left = self._datasets(client_id), self._max_bytes
            for dataset in datasets.values():
                left -= memory_bytes(dataset, left)
                if left < 0:
                    raise ValueError(f"its arrays take more than max_client_bytes={self._max_bytes}")
            arrays = {name: np.asarray(dataset[()]) for name, dataset in datasets.items()}
        except UnknownClientError:
            raise
        except _ERRORS as error:
            raise DataError(f"{where}: {error}") from error
        return check_examples(arrays, where)


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
      element_spec: the features of one example, see `ExampleParser`; or a function from a client's serialized examples
        to its examples, as FedJAX's ``parse_examples``.
      split_name: keep the clients and examples of this split; None keeps all.

    Raises:
      DataError: there is no such file, it is something else, or ``element_spec`` cannot be read.
    """

    def __init__(self, path: str | os.PathLike, element_spec: Any, split_name: str | None = None):
        super().__init__()
        self._parse: Callable[[Sequence[bytes], str], Examples] = (
            (lambda rows, where: element_spec(rows)) if callable(element_spec) else ExampleParser(element_spec)
        )
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


class TFFSQLiteClientsIterator(Iterator[tuple[bytes, Examples]]):
    """Iterates over the clients of a file with TFF's tables.

    Builders take it. Source: fedjax.

    Args:
      path: the file.
      parse_examples: see `TFFSQLiteFederatedData`.
      split_name: the split.
    """

    def __init__(self, path: str | os.PathLike, parse_examples: Any, split_name: str | None):
        self._clients = TFFSQLiteFederatedData(path, parse_examples, split_name).clients()

    def __next__(self) -> tuple[bytes, Examples]:
        client_id, dataset = next(self._clients)
        return client_id.encode(), dataset.raw_examples


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Read an .npz of arrays, without pickle.

    Raises:
      DataError: it is not readable, or larger than ``config.max_input_bytes``.
    """
    return read_npz(path, DataError)


def open_clients(path: str | Path, client_key: str = "client_id", split: str | None = None) -> FederatedData:
    """Open federated data in the format of a path.

    Args:
      path: a SQLite file of `SQLiteFederatedDataBuilder` or with TFF's tables, a folder of .npz files (one for each
        client), a TFF HDF5 file (.h5, .hdf5), or one .npz with the client of each example in ``client_key``.
      client_key: that array's name.
      split: of a file with TFF's tables, the split to train on: ``train`` if there is one and this is None.

    Raises:
      DataError: it is none of these, or damaged.
    """
    path = Path(path)
    try:
        folder = path.is_dir()
    except OSError as error:  # a parent without permission
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    spec = None if folder or path.suffix in (".h5", ".hdf5", ".npz") else tff_element_spec(path)
    if split is not None and spec is None:
        raise DataError(f"{path}: only SQLite files with TFF's tables have splits; there is no {split!r} to train on")
    if folder:
        return NpzFolderFederatedData(path)
    if path.suffix in (".h5", ".hdf5"):
        return TFFHDF5FederatedData(path)
    if path.suffix != ".npz":
        if spec is None:
            return SQLiteFederatedData(path)
        splits = tff_splits(path)
        if split is not None and split not in splits:
            raise DataError(f"{path}: no split {split!r}; there are {splits}")
        return TFFSQLiteFederatedData(path, spec, "train" if split is None and "train" in splits else split)
    arrays = read_arrays(path)
    if client_key not in arrays:
        raise DataError(f"{path}: no array {client_key!r} with each example's client; there are {sorted(arrays)}.")
    owner = arrays.pop(client_key)
    if owner.ndim != 1 or owner.dtype.kind not in "iuUS":
        raise DataError(
            f"{path}: {client_key!r} holds each example's client, integers or text of shape (n,); "
            f"not {owner.dtype}{list(owner.shape)}"
        )
    if not len(owner):
        raise DataError(f"{path}: no client has any examples")
    for name, array in arrays.items():
        if array.shape[:1] != owner.shape:
            raise DataError(
                f"{path}: {client_key!r} is of {len(owner)} examples, and {name!r} has shape {list(array.shape)}"
            )
    order = np.argsort(owner, kind="stable")
    ids, begins = np.unique(owner[order], return_index=True)
    parts = np.split(order, begins[1:])
    return InMemoryFederatedData(
        {_plain(i): {n: a[part] for n, a in arrays.items()} for i, part in zip(ids, parts, strict=True)}
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def prepared(clients: FederatedData, prepare: Callable[[Mapping[str, Any], str], Any]) -> FederatedData:
    """Return the clients with examples renamed and cast; errors name the client."""
    return clients.preprocess_client(lambda client_id, examples: prepare(examples, f"client {client_id!r}"))


def first_examples(clients: FederatedData) -> dict[str, Any]:
    """Return the examples of the first client that has any.

    Raises:
      DataError: no client has examples.
    """
    for _, dataset in clients.clients():
        if len(dataset):
            return dataset.all_examples()
    raise DataError(f"{clients!r}: no client has any examples")
