"""Clients' datasets by id, their samplers, and batches over clients.

Source: fedjax.core: FederatedData, client samplers, padded and shuffled batches over clients.
"""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning.data.client_dataset import ClientDataset, PaddedBatchHParams, last_batch_size, resolve
from tf2jax_lite.learning.data.examples import (
    BatchPreprocessor,
    ClientPreprocessor,
    Examples,
    NoOpBatchPreprocessor,
    NoOpClientPreprocessor,
    OrderSeed,
    Rng,
    check_examples,
    concat_examples,
    num_examples,
    order_rng,
    own_seed,
    pad_examples,
    take_examples,
)
from tf2jax_lite.support.errors import DataError, UnknownClientError

ClientId = Any  # str or bytes in files; anything hashable and ordered in memory
T = TypeVar("T")
D = TypeVar("D", bound="FederatedData")


class FederatedData(abc.ABC):
    """A federated dataset: client ids and their examples, read on demand.

    A kind of storage defines ``_ids``, ``_size`` and ``_read``. Instances are never changed: `slice`,
    `preprocess_client` and `preprocess_batch` return new ones that share the storage.

    Attributes:
      preprocess_client: functions of ``(id, examples)``, when a client is read.
      preprocess_batch: functions of a batch, when it is made.
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

    def shuffled_clients(self, buffer_size: int, seed: OrderSeed = None) -> ShuffledClients:
        """Return all clients endlessly, reshuffled for each pass.

        Args:
          buffer_size: of how many ids the next one is drawn, >= 1. As many as there are clients shuffles perfectly.
          seed: see `order_rng`; the same seed, the same order. None draws another order each time.

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
        return ClientDataset(examples, self._batch_fns)


class ShuffledClients(Iterator[tuple[ClientId, ClientDataset]]):
    """The iterator of `FederatedData.shuffled_clients`.

    It can also skip clients without reading them.

    Args:
      federated_data: the clients.
      buffer_size: of how many ids the next one is drawn.
      seed: see `order_rng`.
    """

    def __init__(self, federated_data: FederatedData, buffer_size: int, seed: OrderSeed = None):
        if not isinstance(buffer_size, int | np.integer) or buffer_size < 1:
            raise DataError(f"buffer_size is an int >= 1, not {buffer_size!r}")
        self._data = federated_data
        self._ids = self._passes(federated_data, int(buffer_size), order_rng(seed))

    @staticmethod  # a generator with a reference to its owner outlives it, with the lock of a file that it reads
    def _passes(data: FederatedData, buffer_size: int, rng: Rng) -> Iterator[ClientId]:
        while True:
            client_id = none = object()
            for client_id in buffered_shuffle(data.client_ids(), buffer_size, rng):
                yield client_id
            if client_id is none:
                return

    def __next__(self) -> tuple[ClientId, ClientDataset]:
        client_id = next(self._ids)
        return client_id, self._data.get_client(client_id)

    def skip(self, count: int) -> None:
        """Pass ``count`` clients over without reading them."""
        next(itertools.islice(self._ids, count, count), None)


def buffered_shuffle(items: Iterable[T], buffer_size: int, rng: Rng) -> Iterator[T]:
    """Yield items in random order, holding ``buffer_size`` of them at most.

    An item comes at most ``buffer_size - 1`` positions early, and may come arbitrarily late. With a buffer for
    all of them every order is equally likely.
    """
    items = iter(items)
    buffer = list(itertools.islice(items, buffer_size))
    if isinstance(rng, np.random.RandomState):  # FedJAX's order
        buffer = [buffer[index] for index in rng.permutation(len(buffer))]
        for item in items:
            drawn, buffer[0] = buffer[0], item
            index = rng.randint(buffer_size)
            if index < buffer_size - 1:
                buffer[0], buffer[index] = buffer[index], buffer[0]
            yield drawn
        yield from buffer
        return
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
        super().__init__(preprocess_batch=base._batch_fns)
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


Sample = list[tuple[ClientId, ClientDataset, jax.Array]]


class ClientSampler(abc.ABC):
    """Draws a cohort for each round.

    Rounds are numbered: a round's cohort depends on the seed and its number alone.

    Args:
      num_clients: the size of a cohort, >= 1.
      seed: an int >= 0, a sequence of such, or a JAX key.
      start_round_num: the number of the first round.

    Raises:
      DataError: a value that is out of range.
    """

    def __init__(self, num_clients: int, seed: OrderSeed, start_round_num: int = 0):
        if not isinstance(num_clients, int | np.integer) or num_clients < 1:
            raise DataError(f"num_clients is an int >= 1, not {num_clients!r}")
        self._num_clients = int(num_clients)
        self._seed = own_seed(seed)
        self.set_round_num(start_round_num)

    @property
    def round_num(self) -> int:
        """The number of the round that the next `sample` draws."""
        return self._round_num

    def set_round_num(self, round_num: int) -> None:
        """Set the next round to ``round_num``, to resume from a checkpoint.

        Raises:
          DataError: it is negative.
        """
        if not isinstance(round_num, int | np.integer) or round_num < 0:
            raise DataError(f"the number of a round is an int >= 0, not {round_num!r}")
        self._round_num = int(round_num)

    def sample(self) -> Sample:
        """Return the next cohort: a list of (id, dataset, JAX key)."""
        cohort = list(self._draw(self._round_num))
        keys = jax.random.split(self._key(self._round_num), len(cohort))
        self._round_num += 1
        return [(client_id, dataset, key) for (client_id, dataset), key in zip(cohort, keys, strict=True)]

    def _key(self, round_num: int) -> jax.Array:
        if isinstance(self._seed, np.random.RandomState):  # FedJAX's keys
            return jax.random.PRNGKey(round_num)
        words = np.random.SeedSequence(self._seed).generate_state(2)
        key = jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32), impl="threefry2x32")
        return jax.random.fold_in(key, round_num)

    @abc.abstractmethod
    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        """Return the clients of a round."""


class WeightedSampler(ClientSampler):
    """Draws clients with chances in proportion to weights.

    Args:
      federated_data: the clients.
      num_clients: the size of a cohort.
      seed: an int >= 0, a sequence of such, or a JAX key.
      weights: dict from id to weight, or a function of the id; finite, >= 0. None: the clients' numbers of examples.
      start_round_num: the number of the first round.
      replace: False draws a cohort's clients one after another from those that are left; True may draw one more than
        once, and its chance at each draw is its weight over the sum.

    Raises:
      DataError: a weight is missing or out of range, or fewer clients have a weight > 0 than a cohort needs.
    """

    def __init__(
        self,
        federated_data: FederatedData,
        num_clients: int,
        seed: OrderSeed,
        weights: Mapping[ClientId, float] | Callable[[ClientId], float] | None = None,
        start_round_num: int = 0,
        replace: bool = False,
    ):
        super().__init__(num_clients, seed, start_round_num)
        self._data, self._replace = federated_data, replace
        if weights is None:
            pairs = list(federated_data.client_sizes())
        elif callable(weights):
            pairs = [(client_id, weights(client_id)) for client_id in federated_data.client_ids()]
        elif not isinstance(weights, Mapping):
            raise DataError(f"weights are a dict from client id to weight or a function of the id, not {weights!r}")
        else:
            self._ids = list(federated_data.client_ids())
            if missing := [client_id for client_id in self._ids if client_id not in weights]:
                raise DataError(f"weights lack {len(missing)} clients: {missing[:10]}")
            pairs = [(client_id, weights[client_id]) for client_id in self._ids]
        self._ids = [client_id for client_id, _ in pairs]
        try:
            values = np.array([weight for _, weight in pairs], np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"weights must be numbers: {error}") from error
        if not np.isfinite(values).all() or (values < 0).any():
            raise DataError("weights must be finite and >= 0")
        # Scaled by a power of 2: their sum may be more than the largest number. Beside others, some may vanish.
        values = np.ldexp(values, -int(np.frexp(values.max(initial=0))[1]))
        usable = int((values > 0).sum())
        if usable < (1 if replace else self._num_clients):
            raise DataError(f"a cohort of {self._num_clients} clients cannot be drawn: {usable} have a weight > 0")
        self._chances = values / values.sum()

    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        rng = order_rng(self._seed, round_num)
        drawn = rng.choice(len(self._ids), self._num_clients, replace=self._replace, p=self._chances)
        return self._data.get_clients(self._ids[index] for index in drawn)


class UniformGetClientSampler(ClientSampler):
    """Draws each cohort uniformly without replacement. Source: fedjax.

    Args:
      federated_data: the clients.
      num_clients: the size of a cohort.
      seed: an int >= 0, a sequence of such, or a JAX key.
      start_round_num: the number of the first round.

    Raises:
      DataError: there are fewer clients than a cohort needs.
    """

    def __init__(self, federated_data: FederatedData, num_clients: int, seed: OrderSeed, start_round_num: int = 0):
        super().__init__(num_clients, seed, start_round_num)
        self._data, self._ids = federated_data, list(federated_data.client_ids())
        if len(self._ids) < num_clients:
            raise DataError(f"a cohort of {num_clients} clients cannot be drawn from {len(self._ids)}")

    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        drawn = order_rng(self._seed, round_num).choice(len(self._ids), self._num_clients, replace=False)
        return self._data.get_clients(self._ids[index] for index in drawn)


class PoissonSampler(ClientSampler):
    """Draws each client by its own coin.

    Accounting of differential privacy assumes this. A cohort's size varies, and it may be empty. The seed has to be
    secret for privacy.

    Args:
      federated_data: the clients.
      num_clients: the expected size of a cohort; each client's chance is this over their number.
      seed: an int >= 0, a sequence of such, or a JAX key.
      start_round_num: the number of the first round.

    Raises:
      DataError: there are fewer clients than ``num_clients``.
    """

    def __init__(self, federated_data: FederatedData, num_clients: int, seed: OrderSeed, start_round_num: int = 0):
        super().__init__(num_clients, seed, start_round_num)
        self._data, self._ids = federated_data, list(federated_data.client_ids())
        if len(self._ids) < num_clients:
            raise DataError(f"a cohort of {num_clients} clients cannot be expected from {len(self._ids)}")

    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        coins = order_rng(self._seed, round_num).random(len(self._ids)) * len(self._ids)
        return self._data.get_clients(self._ids[index] for index in np.flatnonzero(coins < self._num_clients))


class UniformShuffledClientSampler(ClientSampler):
    """Takes consecutive cohorts from shuffled clients. Source: fedjax.

    Every client is drawn once before any is drawn again. Reads the data in the order of
    `FederatedData.shuffled_clients`, so it also suits data with slow random access.

    Args:
      shuffled_clients: an iterator of (id, dataset) as `FederatedData.shuffled_clients` returns, or a function that
        creates one (``lambda: data.shuffled_clients(100, seed=0)``), which can also go back to an earlier round.
      num_clients: the size of a cohort.
      start_round_num: the number of the first round: as many cohorts are passed over.
      seed: of the clients' keys only; the order of the clients is the iterator's.

    Raises:
      DataError: a value that is out of range; from `set_round_num`, an earlier round with an iterator.
    """

    def __init__(
        self,
        shuffled_clients: Iterator[tuple[ClientId, ClientDataset]] | Callable[[], Iterator[Any]],
        num_clients: int,
        start_round_num: int = 0,
        seed: OrderSeed = 0,
    ):
        self._source = shuffled_clients
        self._iterator = shuffled_clients() if callable(shuffled_clients) else shuffled_clients
        self._next_round = 0
        super().__init__(num_clients, seed, start_round_num)

    def set_round_num(self, round_num: int) -> None:
        """Set the next round to ``round_num``; skip the clients of rounds before.

        Raises:
          DataError: it is negative, or an earlier round and the sampler was given an iterator.
        """
        super().set_round_num(round_num)
        if round_num < self._next_round:
            if not callable(self._source):
                raise DataError("an iterator cannot go back to an earlier round; give a function that creates it")
            self._iterator, self._next_round = self._source(), 0
        count = (round_num - self._next_round) * self._num_clients
        if isinstance(self._iterator, ShuffledClients):
            self._iterator.skip(count)
        else:
            for _ in range(count):
                next(self._iterator, None)
        self._next_round = round_num

    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        self._next_round = round_num + 1
        for _ in range(self._num_clients):
            client = next(self._iterator, None)
            if client is None:
                raise DataError(f"round {round_num}: the iterator of clients has ended")
            yield client


def padded_batch_client_datasets(
    datasets: Iterable[ClientDataset], hparams: PaddedBatchHParams | None = None, **changes: Any
) -> Iterator[dict[str, Any]]:
    """Yield the datasets' examples in order, in padded batches.

    A batch may hold examples of several clients.

    Args:
      datasets: they have the same features and the same preprocessor.
      hparams: a `PaddedBatchHParams`.
      **changes: its values, instead of ``hparams`` or overriding it.

    Yields:
      Batches as `ClientDataset.padded_batch` gives them.

    Raises:
      DataError: an unfitting value, or datasets that differ in features or preprocessor.
    """
    params = resolve(PaddedBatchHParams, hparams, changes)
    size = params.batch_size
    preprocessor: BatchPreprocessor | None = None
    waiting: list[Any] = []
    count = 0
    for dataset in datasets:
        if preprocessor is not None and dataset.preprocessor != preprocessor:
            raise DataError("the client datasets have different batch preprocessors; batch them one by one")
        preprocessor = dataset.preprocessor
        if not len(dataset):
            continue
        waiting.append(dataset.raw_examples)
        count += len(dataset)
        if count < size:
            continue
        examples = concat_examples(waiting)
        whole = count // size * size
        for start in range(0, whole, size):
            yield pad_examples(preprocessor(take_examples(examples, slice(start, start + size))), size)
        waiting, count = [take_examples(examples, slice(whole, None))], count - whole
    if count and preprocessor is not None:
        last = last_batch_size(count, size, params.num_batch_size_buckets)
        yield pad_examples(preprocessor(concat_examples(waiting)), last)


def padded_batch_federated_data(
    federated_data: FederatedData, hparams: PaddedBatchHParams | None = None, **changes: Any
) -> Iterator[dict[str, Any]]:
    """Yield all clients' examples in padded batches.

    See `padded_batch_client_datasets`.

    Args:
      federated_data: the clients.
      hparams: `PaddedBatchHParams`.
      **changes: fields of ``hparams`` to replace.
    """
    return padded_batch_client_datasets((dataset for _, dataset in federated_data.clients()), hparams, **changes)


def shuffle_repeat_batch_federated_data(
    federated_data: FederatedData,
    batch_size: int,
    client_buffer_size: int,
    example_buffer_size: int,
    seed: OrderSeed = None,
) -> Iterator[dict[str, Any]]:
    """Yield endless batches of all clients' examples.

    Clients are shuffled, then their examples.

    Args:
      federated_data: the clients; not all are in memory at once.
      batch_size: examples in a batch, >= 1.
      client_buffer_size: see `FederatedData.shuffled_clients`.
      example_buffer_size: of how many examples, at least, the next batch is drawn, >= batch_size.
      seed: see `order_rng`.

    Yields:
      Preprocessed batches of exactly ``batch_size`` examples.

    Raises:
      DataError: a value that is out of range, or there are no examples.
    """
    if not 1 <= batch_size <= example_buffer_size:
        raise DataError(f"1 <= batch_size <= example_buffer_size is needed, not {batch_size} and {example_buffer_size}")
    rng = order_rng(seed)
    legacy = isinstance(rng, np.random.RandomState)
    clients = np.random.RandomState(rng.randint(1 << 32)) if legacy else int(rng.integers(1 << 62))
    shuffled = federated_data.shuffled_clients(client_buffer_size, clients)
    yield from _shuffled_batches(_rows(shuffled, federated_data), batch_size, example_buffer_size, rng)


def buffered_shuffle_batch_client_datasets(
    datasets: Iterable[ClientDataset], batch_size: int, buffer_size: int, rng: OrderSeed = None
) -> Iterator[dict[str, Any]]:
    """Yield the datasets' examples once, shuffled, in batches. Source: fedjax.

    Args:
      datasets: they have the same features and the same preprocessor.
      batch_size: examples in a batch, >= 1; the last may have fewer.
      buffer_size: of how many examples the next one is drawn, >= 1.
      rng: see `order_rng`; but a ``RandomState`` is drawn from, as in FedJAX.

    Raises:
      DataError: a value that is out of range, or datasets that differ in features or preprocessor.
    """
    if batch_size < 1 or buffer_size < 1:
        raise DataError(f"batch_size and buffer_size are >= 1, not {batch_size} and {buffer_size}")
    source = rng if isinstance(rng, np.random.RandomState) else order_rng(rng)
    pairs = ((dataset, row) for dataset in datasets for row in range(len(dataset)))
    yield from _shuffled_batches(pairs, batch_size, buffer_size, source)


def _shuffled_batches(
    rows: Iterable[tuple[ClientDataset, int]], batch_size: int, buffer_size: int, rng: Rng
) -> Iterator[dict[str, Any]]:
    """Yield batches of (dataset, row), shuffled."""
    stream = buffered_shuffle(rows, buffer_size, rng)
    kind: tuple[Any, Any] | None = None
    while batch := list(itertools.islice(stream, batch_size)):
        first, _ = batch[0]
        kind = kind or (first.preprocessor, first.raw_examples.keys())
        if any((dataset.preprocessor, dataset.raw_examples.keys()) != kind for dataset, _ in batch):
            raise DataError("the client datasets have different features or batch preprocessors; batch them one by one")
        columns = {
            name: np.stack([dataset.raw_examples[name][row] for dataset, row in batch]) for name in first.raw_examples
        }
        yield first.preprocessor(columns)


def _rows(
    shuffled: Iterator[tuple[Any, ClientDataset]], federated_data: FederatedData
) -> Iterator[tuple[ClientDataset, int]]:
    """Yield every example of every client as (its client's dataset, its row)."""
    empty = 0
    for _, dataset in shuffled:
        empty = 0 if len(dataset) else empty + 1
        if empty and empty > federated_data.num_clients():
            break
        for row in range(len(dataset)):
            yield dataset, row
    raise DataError(f"{federated_data!r} has no examples")
