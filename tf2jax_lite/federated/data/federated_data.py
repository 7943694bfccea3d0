"""Many clients' datasets behind one interface.

Source: fedjax.core.federated_data.FederatedData.
"""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from tf2jax_lite.federated.data.client_dataset import ClientDataset
from tf2jax_lite.federated.data.examples import check_examples, num_examples
from tf2jax_lite.federated.data.preprocessor import (
    BatchPreprocessor,
    ClientPreprocessor,
    Examples,
    NoOpBatchPreprocessor,
    NoOpClientPreprocessor,
)
from tf2jax_lite.federated.data.seeds import Seed, numpy_rng
from tf2jax_lite.support.errors import DataError, UnknownClientError

ClientId = Any  # str or bytes in files; anything hashable and ordered in memory
T = TypeVar("T")
D = TypeVar("D", bound="FederatedData")


class FederatedData(abc.ABC):
    """A federated dataset: client ids and their examples, read on demand.

    A kind of storage defines ``_ids``, ``_size`` and ``_read``. Instances are never changed: `slice`,
    `preprocess_client` and `preprocess_batch` return new ones that share the storage.
    """

    def __init__(
        self,
        preprocess_client: ClientPreprocessor = NoOpClientPreprocessor,
        preprocess_batch: BatchPreprocessor = NoOpBatchPreprocessor,
    ):
        self._client_fns, self._batch_fns = preprocess_client, preprocess_batch
        self._start: ClientId | None = None
        self._stop: ClientId | None = None

    @abc.abstractmethod
    def _ids(self) -> Iterator[ClientId]:
        """Return the ids from ``_start`` up to ``_stop``, always in the same order."""

    @abc.abstractmethod
    def _size(self, client_id: ClientId) -> int:
        """Return the number of stored examples, without reading them where possible."""

    @abc.abstractmethod
    def _read(self, client_id: ClientId) -> Examples:
        """Return the stored examples."""

    def _contains(self, client_id: ClientId) -> bool:
        """Return whether `slice` left the client in; ``_size`` says if it exists."""
        try:
            return (self._start is None or client_id >= self._start) and (self._stop is None or client_id < self._stop)
        except TypeError:
            return False

    def _check(self, client_id: ClientId) -> None:
        if not self._contains(client_id):
            raise UnknownClientError(f"{self!r} has no client {client_id!r}")

    def num_clients(self) -> int:
        """Return the number of clients."""
        return sum(1 for _ in self._ids())

    def client_ids(self) -> Iterator[ClientId]:
        """Yield all ids, always in the same order."""
        return self._ids()

    def client_sizes(self) -> Iterator[tuple[ClientId, int]]:
        """Yield (id, number of examples) of all clients. See `client_size`."""
        for client_id in self._ids():
            yield client_id, self.client_size(client_id)

    def client_size(self, client_id: ClientId) -> int:
        """Return a client's number of examples.

        With `preprocess_client` its examples are read for that.

        Raises:
          UnknownClientError: there is no such client.
        """
        if self._client_fns:
            return len(self.get_client(client_id))
        self._check(client_id)
        return self._size(client_id)

    def get_client(self, client_id: ClientId) -> ClientDataset:
        """Return one client's dataset.

        Raises:
          UnknownClientError: there is no such client.
          DataError: the stored data are damaged.
        """
        self._check(client_id)
        return self._dataset(client_id, self._read(client_id))

    def get_clients(self, client_ids: Iterable[ClientId]) -> Iterator[tuple[ClientId, ClientDataset]]:
        """Yield (id, dataset) of the clients asked for, in that order.

        Raises as `get_client` does.
        """
        for client_id in client_ids:
            yield client_id, self.get_client(client_id)

    def clients(self) -> Iterator[tuple[ClientId, ClientDataset]]:
        """Yield (id, dataset) of all clients, one at a time, always in the same order."""
        return self.get_clients(self._ids())

    def shuffled_clients(self, buffer_size: int, seed: Seed = None) -> ShuffledClients:
        """Return all clients endlessly, reshuffled for each pass.

        Args:
          buffer_size: of how many ids the next one is drawn, >= 1. As many as there are clients shuffles perfectly.
          seed: see `numpy_rng`; the same seed, the same order. None draws another order each time.

        Returns:
          Endless iterator of (id, dataset). Only ids are buffered: a dataset is read when its turn comes.

        Raises:
          DataError: ``buffer_size`` < 1, or ``seed`` is none.
        """
        return ShuffledClients(self, buffer_size, seed)

    def slice(self: D, start: ClientId | None = None, stop: ClientId | None = None) -> D:
        """Return the clients whose ids are >= ``start`` and < ``stop`` (None: no bound)."""
        new = copy.copy(self)
        try:
            if start is not None:
                new._start = start if self._start is None else max(start, self._start)
            if stop is not None:
                new._stop = stop if self._stop is None else min(stop, self._stop)
        except TypeError as error:
            raise DataError(f"the bounds of a slice are client ids: {error}") from error
        return new

    def preprocess_client(self: D, fn: Callable[[ClientId, Examples], Examples]) -> D:
        """Return clients with ``fn(client_id, examples)`` applied at each read."""
        new = copy.copy(self)
        new._client_fns = self._client_fns.append(fn)
        return new

    def preprocess_batch(self: D, fn: Callable[[Examples], Examples]) -> D:
        """Return clients with ``fn(examples)`` applied to each batch when made."""
        new = copy.copy(self)
        new._batch_fns = self._batch_fns.append(fn)
        return new

    def _dataset(self, client_id: ClientId, examples: Examples) -> ClientDataset:
        if self._client_fns:
            where = f"client {client_id!r} after preprocess_client"
            examples = check_examples(self._client_fns(client_id, examples), where)
        return ClientDataset(examples, self._batch_preprocessor())

    def _batch_preprocessor(self) -> BatchPreprocessor:
        """Return the functions of batches, those of other data that this one reads first."""
        return self._batch_fns


class ShuffledClients(Iterator[tuple[ClientId, ClientDataset]]):
    """The iterator of `FederatedData.shuffled_clients`.

    It can also skip clients without reading them.

    Args:
      federated_data: the clients.
      buffer_size: of how many ids the next one is drawn.
      seed: see `numpy_rng`.
    """

    def __init__(self, federated_data: FederatedData, buffer_size: int, seed: Seed = None):
        if not isinstance(buffer_size, int | np.integer) or buffer_size < 1:
            raise DataError(f"buffer_size is an int >= 1, not {buffer_size!r}")
        self._data = federated_data
        self._ids = self._passes(int(buffer_size), numpy_rng(seed))

    def _passes(self, buffer_size: int, rng: np.random.Generator) -> Iterator[ClientId]:
        while True:
            client_id = none = object()
            for client_id in buffered_shuffle(self._data.client_ids(), buffer_size, rng):
                yield client_id
            if client_id is none:
                return

    def __next__(self) -> tuple[ClientId, ClientDataset]:
        client_id = next(self._ids)
        return client_id, self._data.get_client(client_id)

    def skip(self, count: int) -> None:
        """Pass ``count`` clients over without reading them."""
        next(itertools.islice(self._ids, count, count), None)


def buffered_shuffle(items: Iterable[T], buffer_size: int, rng: np.random.Generator) -> Iterator[T]:
    """Yield items in random order, holding ``buffer_size`` of them at most.

    An item comes at most ``buffer_size - 1`` positions early, and may come arbitrarily late. With a buffer for
    all of them every order is equally likely.
    """
    items = iter(items)
    buffer = list(itertools.islice(items, buffer_size))
    for item in items:
        index = int(rng.integers(len(buffer)))
        drawn, buffer[index] = buffer[index], item
        yield drawn
    for index in rng.permutation(len(buffer)):
        yield buffer[index]


class SubsetFederatedData(FederatedData):
    """Some clients of a federated dataset. Source: fedjax.SubsetFederatedData.

    Args:
      base: the federated dataset; its preprocessors stay in force.
      client_ids: which clients, each of them in ``base``.
      validate: look all of them up in ``base``.

    Raises:
      UnknownClientError: ``base`` lacks some of them.
    """

    def __init__(self, base: FederatedData, client_ids: Iterable[ClientId], validate: bool = True):
        super().__init__()
        self._base, self._members = base, frozenset(client_ids)
        if validate and (missing := self._members.difference(base.client_ids())):
            raise UnknownClientError(f"{base!r} lacks {len(missing)} clients: {sorted(missing, key=repr)[:10]}")

    def __repr__(self) -> str:
        return f"SubsetFederatedData({self._base!r}, {len(self._members)} clients)"

    def _ids(self) -> Iterator[ClientId]:
        return (client_id for client_id in sorted(self._members) if self._contains(client_id))

    def _contains(self, client_id: ClientId) -> bool:
        return client_id in self._members and super()._contains(client_id)

    def _size(self, client_id: ClientId) -> int:
        return self._base.client_size(client_id)

    def _read(self, client_id: ClientId) -> Examples:
        return self._base.get_client(client_id).raw_examples

    def _batch_preprocessor(self) -> BatchPreprocessor:
        return BatchPreprocessor([*self._base._batch_preprocessor().fns, *self._batch_fns.fns])


class InMemoryFederatedData(FederatedData):
    """Clients in a dict. Source: fedjax.InMemoryFederatedData.

    Args:
      client_to_data_mapping: dict from client id to examples: a dict of arrays whose leading sizes are equal. Ids are
        hashable and ordered among themselves.
      preprocess_client: see `FederatedData.preprocess_client`.
      preprocess_batch: see `FederatedData.preprocess_batch`.

    Raises:
      DataError: a client's examples do not fit together, or ids cannot be ordered.
    """

    def __init__(
        self,
        client_to_data_mapping: Any,
        preprocess_client: ClientPreprocessor = NoOpClientPreprocessor,
        preprocess_batch: BatchPreprocessor = NoOpBatchPreprocessor,
    ):
        super().__init__(preprocess_client, preprocess_batch)
        try:
            ids = sorted(client_to_data_mapping)
        except TypeError as error:
            raise DataError(f"client ids must be of one kind, so that they have an order: {error}") from error
        self._data = {i: check_examples(client_to_data_mapping[i], f"client {i!r}") for i in ids}

    def __repr__(self) -> str:
        return f"InMemoryFederatedData({len(self._data)} clients)"

    def _ids(self) -> Iterator[ClientId]:
        return (client_id for client_id in self._data if self._contains(client_id))

    def _contains(self, client_id: ClientId) -> bool:
        return client_id in self._data and super()._contains(client_id)

    def _size(self, client_id: ClientId) -> int:
        return num_examples(self._data[client_id])

    def _read(self, client_id: ClientId) -> Examples:
        return self._data[client_id]
