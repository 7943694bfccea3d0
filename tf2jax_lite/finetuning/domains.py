"""Domains of examples, their counts and initial weights.

Agnostic federated averaging uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tf2jax_lite.federated.data import FederatedData
from tf2jax_lite.support.errors import DataError, InputError

MAX_DOMAINS = 10_000
"""More domains are treated as an error: the key of another array."""


class Domains(NamedTuple):
    """The domains of a training.

    Attributes:
      key: the examples' key of the domain's number.
      weights: the initial mixture, one positive number per domain.
      window: (rounds, domains), the expected number of examples by domain in a round.
      learning_rate: of the mixture.
    """

    key: str
    weights: list[float]
    window: list[list[float]]
    learning_rate: float = 0.1


def check_domains(examples: Mapping[str, Any], key: str, where: str, count: int | None = None) -> np.ndarray:
    """Return the examples' domains, int32 (n,).

    Raises:
      DataError: the array is missing, or has other values than integers from 0 to ``count - 1``.
    """
    if key not in examples:
        raise DataError(f"{where}: no array {key!r} of the examples' domains among {sorted(examples)} (--domain-key)")
    found = np.asarray(examples[key])
    limit = MAX_DOMAINS if count is None else count
    if found.dtype.kind not in "iu" or found.ndim != 1 or (found.size and (found.min() < 0 or found.max() >= limit)):
        raise DataError(
            f"{where}: {key!r} holds the examples' domains, integers from 0 to {limit - 1} of shape (n,); "
            f"not {found.dtype}{list(found.shape)}{_span(found)}"
        )
    return found.astype(np.int32)


def _span(found: np.ndarray) -> str:
    return f" from {found.min()} to {found.max()}" if found.size and found.dtype.kind in "iuf" else ""


def count_domains(
    clients: FederatedData, key: str, clients_per_round: int, *, rounds: int = 1, learning_rate: float = 0.1
) -> Domains:
    """Count the domains of all clients.

    Each gets the same weight, and the mean number of examples in a cohort.

    Args:
      clients: the clients.
      key: the examples' key of the domain's number.
      clients_per_round: size of a cohort.
      rounds: the number of rounds in the window.
      learning_rate: of the mixture.

    Raises:
      DataError: a client's domains are invalid.
      InputError: a number is out of range, or a domain has no examples.
    """
    if rounds < 1 or not learning_rate >= 0:
        raise InputError(
            f"the domains' window is 1 or more rounds and their rate 0 or more, not {rounds}, {learning_rate}"
        )
    counts = np.zeros(0, np.int64)
    number = 0
    for client_id, dataset in clients.clients():
        number += 1
        if not len(dataset):
            continue
        here = np.bincount(check_domains(dataset.all_examples(), key, f"client {client_id!r}"))
        counts = np.pad(counts, (0, max(0, len(here) - len(counts))))
        counts[: len(here)] += here
    if not counts.size or not counts.all():
        raise InputError(f"domains are numbered from 0 without gaps; {key!r} has examples by domain {counts.tolist()}")
    mean = counts * (clients_per_round / number)
    return Domains(key, [1.0 / len(counts)] * len(counts), [mean.tolist()] * rounds, learning_rate)
