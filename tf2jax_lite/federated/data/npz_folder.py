"""A folder with one ``.npz`` file for each client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from tf2jax_lite.federated.data.examples import check_examples
from tf2jax_lite.federated.data.federated_data import ClientId, FederatedData
from tf2jax_lite.federated.data.preprocessor import Examples
from tf2jax_lite.support.errors import DataError, UnknownClientError
from tf2jax_lite.support.npz import read_npz, shapes_in_npz

MAX_CLIENT_BYTES = 1 << 32


def npz_file_name(client_id: str) -> str:
    """Return a client's file name: its id, percent-encoded, and ``.npz``."""
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
