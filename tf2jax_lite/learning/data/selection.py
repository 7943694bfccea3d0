"""Samplers that simulate devices: availability, deadlines, choice by loss.

Sources: Bonawitz et al. 2019, "Towards Federated Learning at Scale" (over-selection); Cho et al. 2020, "Client
Selection in Federated Learning" (power of choice).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tf2jax_lite.learning.data.client_dataset import ClientDataset
from tf2jax_lite.learning.data.examples import OrderSeed, Seed, numpy_rng, order_rng
from tf2jax_lite.learning.data.federated_data import ClientId, ClientSampler, FederatedData
from tf2jax_lite.support.errors import DataError

Latency = Callable[[ClientId, int, np.random.Generator], float]


class AvailabilitySampler(ClientSampler):
    """Draws each cohort uniformly from the clients that are available in the round.

    A cohort is smaller, or empty, where fewer are available.

    Args:
      federated_data: the clients.
      num_clients: the size of a cohort.
      seed: an int >= 0, a sequence of such, or a JAX key.
      availability: ``(client id, round) -> chance`` from 0 to 1 that the client is available; bools are chances, too.
      start_round_num: the number of the first round.
    """

    def __init__(
        self,
        federated_data: FederatedData,
        num_clients: int,
        seed: OrderSeed,
        availability: Callable[[ClientId, int], float],
        start_round_num: int = 0,
    ):
        super().__init__(num_clients, seed, start_round_num)
        self._data, self._ids, self._availability = federated_data, list(federated_data.client_ids()), availability

    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        rng = order_rng(self._seed, round_num)
        chances = np.array([self._availability(client_id, round_num) for client_id in self._ids], np.float64)
        if not ((chances >= 0) & (chances <= 1)).all():
            raise DataError("AvailabilitySampler: availability returns a chance from 0 to 1")
        there = np.flatnonzero(rng.random(len(self._ids)) < chances)
        drawn = rng.choice(there, min(self._num_clients, len(there)), replace=False) if len(there) else there
        return self._data.get_clients(self._ids[index] for index in drawn)


class PowerOfChoiceSampler(ClientSampler):
    """Draws candidates uniformly, and takes those with the largest losses.

    A round's cohort depends on the losses as well, and so on the training: a resumed run has the same cohorts if
    ``loss`` has the same values.

    Args:
      federated_data: the clients.
      num_clients: the size of a cohort.
      seed: an int >= 0, a sequence of such, or a JAX key.
      num_candidates: how many clients are drawn first, at least ``num_clients``.
      loss: ``(client id) -> the client's last loss``; infinity for one that is to be tried first.
      start_round_num: the number of the first round.

    Raises:
      DataError: ``num_candidates`` is out of range.
    """

    def __init__(
        self,
        federated_data: FederatedData,
        num_clients: int,
        seed: OrderSeed,
        num_candidates: int,
        loss: Callable[[ClientId], float],
        start_round_num: int = 0,
    ):
        super().__init__(num_clients, seed, start_round_num)
        self._data, self._ids, self._loss = federated_data, list(federated_data.client_ids()), loss
        if not num_clients <= num_candidates <= len(self._ids):
            raise DataError(f"num_candidates is from {num_clients} to {len(self._ids)}, not {num_candidates}")
        self._num_candidates = num_candidates

    def _draw(self, round_num: int) -> Iterator[tuple[ClientId, ClientDataset]]:
        drawn = order_rng(self._seed, round_num).choice(len(self._ids), self._num_candidates, replace=False)
        losses = np.array([self._loss(self._ids[index]) for index in drawn], np.float64)
        order = np.argsort(-np.where(np.isnan(losses), np.inf, losses), kind="stable")
        return self._data.get_clients(self._ids[drawn[place]] for place in order[: self._num_clients])


def lognormal_latency(seconds_per_example: float = 0.01, spread: float = 1.0) -> Latency:
    """Return a latency model whose seconds per example are lognormal.

    Args:
      seconds_per_example: the median.
      spread: the standard deviation of their logarithm.
    """

    def latency(client_id: ClientId, num_examples: int, rng: np.random.Generator) -> float:
        return num_examples * seconds_per_example * float(rng.lognormal(0.0, spread))

    return latency


class DeadlineSampler:
    """Over-selects clients, and drops those that answer late.

    A cohort has all clients of another sampler, with None in place of the data of those that are dropped: trainings
    count them.

    Args:
      sampler: draws more clients than are needed.
      num_clients: how many answers end a round.
      latency: ``(client id, number of examples, numpy generator) -> seconds``, see `lognormal_latency`.
      deadline: seconds after which the round ends anyway; None for no end.
      seed: of the latencies.

    Attributes:
      seconds: how long the last round took.
    """

    def __init__(
        self,
        sampler: ClientSampler,
        num_clients: int,
        latency: Latency,
        deadline: float | None = None,
        seed: Seed = 0,
    ):
        if num_clients < 1 or (deadline is not None and not deadline > 0):
            raise DataError(f"num_clients is at least 1 and deadline above 0, not {num_clients} and {deadline}")
        self._sampler, self._number, self._latency, self._deadline = sampler, num_clients, latency, deadline
        self._seed = seed
        self.seconds = 0.0

    @property
    def round_num(self) -> int:
        """The number of the round that the next `sample` draws."""
        return self._sampler.round_num

    def set_round_num(self, round_num: int) -> None:
        """See `ClientSampler.set_round_num`."""
        self._sampler.set_round_num(round_num)

    def sample(self) -> list[tuple[ClientId, ClientDataset | None, Any]]:
        """Return the next cohort: a list of (id, dataset or None, JAX key)."""
        rng = numpy_rng(self._seed, self.round_num)
        cohort = self._sampler.sample()
        seconds = np.array([self._latency(client_id, len(data), rng) for client_id, data, _ in cohort])
        answers = np.sort(seconds)[: self._number]
        self.seconds = min(float(answers[-1]) if len(answers) else 0.0, self._deadline or np.inf)
        if len(answers) < self._number and self._deadline is not None:
            self.seconds = self._deadline  # the server waits for more
        first = set(np.argsort(seconds, kind="stable")[: self._number].tolist())
        kept = [i in first and seconds[i] <= self.seconds for i in range(len(cohort))]
        return [
            (client_id, data if keep else None, key) for (client_id, data, key), keep in zip(cohort, kept, strict=True)
        ]
