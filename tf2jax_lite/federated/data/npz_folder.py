"""A folder with one ``.npz`` file for each client."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from tf2jax_lite.errors import DataError, UnknownClientError
from tf2jax_lite.federated.data.examples import check_examples
from tf2jax_lite.federated.data.federated_data import ClientId, FederatedData
from tf2jax_lite.federated.data.preprocessor import Examples

__all__ = ["MAX_CLIENT_BYTES", "NpzFolderFederatedData", "npz_file_name"]

MAX_CLIENT_BYTES = 1 << 32


def npz_file_name(client_id: str) -> str:
    """Returns the file's name for a client: its id with ``/`` and the like as ``%2F``, and ``.npz``."""
    return quote(client_id, safe=" ") + ".npz"


class NpzFolderFederatedData(FederatedData):
    """Clients in files that ``np.savez`` or ``np.savez_compressed`` wrote, the client's id in the file's name.

    Files are listed when the folder is opened, and read when a client is asked for. Nothing in them is unpickled.

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
        headers = self._open(client_id, data=False)
        sizes = {shape[:1] for shape in headers.values()}
        if len(sizes) != 1 or () in sizes:
            raise DataError(f"{self._where(client_id)}: the leading sizes of the arrays differ: {headers}")
        return sizes.pop()[0]

    def _read(self, client_id: ClientId) -> Examples:
        return check_examples(self._open(client_id, data=True), self._where(client_id))

    def _where(self, client_id: ClientId) -> str:
        return f"{self.path / self._names[client_id]}"

    def _open(self, client_id: ClientId, data: bool) -> dict[str, Any]:
        """Returns the arrays, or only their shapes."""
        if client_id not in self._names:
            raise UnknownClientError(f"{self!r} has no client {client_id!r}")
        where = self._where(client_id)
        result: dict[str, Any] = {}
        left = self._max_bytes
        try:
            with zipfile.ZipFile(self.path / self._names[client_id]) as archive:
                for member in archive.infolist():
                    with archive.open(member) as file:
                        shape, fortran, dtype = _header(file)
                        count = int(np.prod(shape, dtype=object))
                        # Only a header that tells the member's true size may decide how much memory is taken.
                        if dtype.hasobject or file.tell() + count * dtype.itemsize != member.file_size:
                            raise ValueError(f"{member.filename} is no plain array of the size that it announces")
                        left -= count * dtype.itemsize
                        if left < 0:
                            raise ValueError(f"more than max_client_bytes={self._max_bytes}; raise it if you trust it")
                        name = member.filename.removesuffix(".npy")
                        result[name] = shape
                        if data:
                            flat = np.frombuffer(file.read(), dtype, count)
                            result[name] = flat.reshape(shape, order="F" if fortran else "C")
        except (
            OSError,
            ValueError,
            zipfile.BadZipFile,
            zlib.error,
            RuntimeError,
            EOFError,
            NotImplementedError,
        ) as error:
            raise DataError(f"{where} cannot be read as a client's arrays: {error}") from error
        return result


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"npy format {version} is unknown")
