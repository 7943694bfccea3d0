"""The HDF5 files of TensorFlow Federated.

Source: tff.simulation.datasets (HDF5ClientData); needs h5py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.federated.data.examples import check_examples
from tf2jax_lite.federated.data.federated_data import ClientId, FederatedData
from tf2jax_lite.federated.data.npz_folder import MAX_CLIENT_BYTES
from tf2jax_lite.federated.data.preprocessor import Examples
from tf2jax_lite.support.errors import DataError, MissingLibraryError, UnknownClientError
from tf2jax_lite.support.hdf5 import memory_bytes
from tf2jax_lite.support.limits import regular

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
