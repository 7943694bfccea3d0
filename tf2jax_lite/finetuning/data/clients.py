"""Read training data: arrays from .npz, and clients from several formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.federated.data import (
    FederatedData,
    InMemoryFederatedData,
    NpzFolderFederatedData,
    SQLiteFederatedData,
    TFFHDF5FederatedData,
    TFFSQLiteFederatedData,
)
from tf2jax_lite.federated.data.tff_sqlite import tff_element_spec, tff_splits
from tf2jax_lite.support.errors import DataError
from tf2jax_lite.support.npz import read_npz


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
