"""Samplers of a round's clients. Source: fedjax.core.client_samplers."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.data.client_dataset import ClientDataset
from tf2jax_lite.federated.data.federated_data import ClientId, FederatedData, ShuffledClients
from tf2jax_lite.federated.data.seeds import Seed, numpy_rng, seed_words
from tf2jax_lite.support.errors import DataError

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

    def __init__(self, num_clients: int, seed: Seed, start_round_num: int = 0):
        if not isinstance(num_clients, int | np.integer) or num_clients < 1:
            raise DataError(f"num_clients is an int >= 1, not {num_clients!r}")
        self._num_clients = int(num_clients)
        self._seed = seed_words(seed)
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
        keys = jax.random.split(jax.random.fold_in(self._key(), self._round_num), len(cohort))
        self._round_num += 1
        return [(client_id, dataset, key) for (client_id, dataset), key in zip(cohort, keys, strict=True)]

    def _key(self) -> jax.Array:
        words = np.random.SeedSequence(self._seed).generate_state(2)
        return jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32), impl="threefry2x32")

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
        seed: Seed,
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
        rng = numpy_rng(self._seed, round_num)
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

    def __init__(self, federated_data: FederatedData, num_clients: int, seed: Seed, start_round_num: int = 0):
        super().__init__(num_clients, seed, start_round_num)
        self._data, self._ids = federated_data, list(federated_data.client_ids())
        if len(self._ids) < num_clients:
            raise DataError(f"a cohort of {num_clients} clients cannot be drawn from {len(self._ids)}")

    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        drawn = numpy_rng(self._seed, round_num).choice(len(self._ids), self._num_clients, replace=False)
        return self._data.get_clients(self._ids[index] for index in drawn)


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
        seed: Seed = 0,
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
