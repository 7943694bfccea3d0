"""Make clients from one dataset. Every example goes to exactly one client.

Sources: McMahan et al. 2017 (few labels a client); Hsu et al. 2019 and Li et al. 2021, "Federated Learning on Non-IID
Data Silos" (Dirichlet skew of labels and of quantity).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data.examples import Examples, Seed, check_examples, num_examples, numpy_rng, take_examples
from tf2jax_lite.learning.data.federated_data import InMemoryFederatedData
from tf2jax_lite.support.errors import DataError

_ATTEMPTS = 200
_number = functools.partial(check_number, "a partition", error=DataError)


def partition_iid(examples: Examples, num_clients: int, *, seed: Seed) -> InMemoryFederatedData:
    """Deal shuffled examples out evenly: sizes differ by one at most.

    Args:
      examples: dict from feature to array, all of leading size n.
      num_clients: how many clients, 1 <= num_clients <= n.
      seed: see `numpy_rng`. The same seed makes the same clients.

    Returns:
      Clients "client_0", "client_1", ... (with leading zeros, so that the ids' order is that of the numbers).

    Raises:
      DataError: an argument is out of range.
    """
    arrays, total = _check(examples, num_clients)
    order = numpy_rng(seed).permutation(total)
    return _clients(arrays, np.array_split(order, num_clients))


def partition_dirichlet(
    examples: Examples, num_clients: int, alpha: float, *, seed: Seed, label: str = "y", min_size: int = 1
) -> InMemoryFederatedData:
    """Partition with skewed labels.

    Each label's examples are dealt out in proportions drawn from Dirichlet(alpha, ..., alpha).

    Args:
      examples: dict from feature to array, all of leading size n.
      num_clients: how many clients, 1 <= num_clients <= n.
      alpha: > 0. Small values give each client few labels; large ones come near to ``partition_iid``.
      seed: see `numpy_rng`. The same seed makes the same clients.
      label: the feature that holds the labels, shape (n,).
      min_size: repeat the draw until each client has this many examples.

    Returns:
      Clients as from `partition_iid`.

    Raises:
      DataError: an argument is out of range, or no draw gives every client ``min_size`` examples.
    """
    arrays, total = _check(examples, num_clients)
    groups = _labels(arrays, label)
    _check_skew(alpha, min_size, num_clients, total)
    rng = numpy_rng(seed)
    for _ in range(_ATTEMPTS):
        parts: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
        for indices in groups:
            cuts = _cuts(_dirichlet(rng, alpha, num_clients), indices.size)
            for client, part in enumerate(np.split(rng.permutation(indices), cuts)):
                parts[client].append(part)
        joined = [np.concatenate(part) for part in parts]
        if min(part.size for part in joined) >= min_size:
            return _clients(arrays, [rng.permutation(part) for part in joined])
    raise DataError(_TOO_SKEWED.format(min_size=min_size, num_clients=num_clients, alpha=alpha))


def partition_by_label(
    examples: Examples, num_clients: int, labels_per_client: int, *, seed: Seed, label: str = "y"
) -> InMemoryFederatedData:
    """Give each client the examples of few labels.

    Labels are dealt out so that each is at nearly the same number of clients, which share its examples evenly.

    Args:
      examples: dict from feature to array, all of leading size n.
      num_clients: how many clients, 1 <= num_clients <= n.
      labels_per_client: how many different labels a client has: from 1 to all there are. A client has fewer where a
        label has fewer examples than clients.
      seed: see `numpy_rng`. The same seed makes the same clients.
      label: the feature that holds the labels, shape (n,).

    Returns:
      Clients as from `partition_iid`.

    Raises:
      DataError: an argument is out of range, or ``num_clients * labels_per_client`` is less than the number of labels:
        some examples would have no client.
    """
    arrays, _ = _check(examples, num_clients)
    groups = _labels(arrays, label)
    _number("labels_per_client", labels_per_client, least=1, most=len(groups), whole=True)
    if num_clients * labels_per_client < len(groups):
        raise DataError(
            f"{num_clients} clients with {labels_per_client} labels each cannot hold all {len(groups)} labels;"
            " raise num_clients or labels_per_client"
        )
    rng = numpy_rng(seed)
    holders: list[list[int]] = [[] for _ in groups]
    for client in rng.permutation(num_clients):
        # The labels that fewest clients have, in random order among equals.
        order = np.lexsort(np.array([rng.random(len(groups)), [len(clients) for clients in holders]]))
        for group in order[:labels_per_client]:
            holders[group].append(int(client))
    parts: list[list[np.ndarray]] = [[np.empty(0, np.int64)] for _ in range(num_clients)]
    for indices, clients in zip(groups, holders, strict=True):
        for client, part in zip(clients, np.array_split(rng.permutation(indices), len(clients)), strict=True):
            parts[client].append(part)
    return _clients(arrays, [rng.permutation(np.concatenate(part)) for part in parts])


def partition_quantity_skew(
    examples: Examples, num_clients: int, alpha: float, *, seed: Seed, min_size: int = 1
) -> InMemoryFederatedData:
    """Partition with skewed sizes.

    Shuffled examples are dealt out in proportions drawn from Dirichlet(alpha, ..., alpha).

    Args:
      examples: dict from feature to array, all of leading size n.
      num_clients: how many clients, 1 <= num_clients <= n.
      alpha: > 0. Small values make some clients large and most small.
      seed: see `numpy_rng`. The same seed makes the same clients.
      min_size: repeat the draw until each client has this many examples.

    Returns:
      Clients as from `partition_iid`.

    Raises:
      DataError: an argument is out of range, or no draw gives every client ``min_size`` examples.
    """
    arrays, total = _check(examples, num_clients)
    _check_skew(alpha, min_size, num_clients, total)
    rng = numpy_rng(seed)
    for _ in range(_ATTEMPTS):
        parts = np.split(rng.permutation(total), _cuts(_dirichlet(rng, alpha, num_clients), total))
        if min(part.size for part in parts) >= min_size:
            return _clients(arrays, parts)
    raise DataError(_TOO_SKEWED.format(min_size=min_size, num_clients=num_clients, alpha=alpha))


_TOO_SKEWED = (
    f"none of {_ATTEMPTS} draws gave each of {{num_clients}} clients {{min_size}} examples; raise alpha={{alpha}}, or"
    " lower min_size or num_clients"
)


def _check(examples: Examples, num_clients: int) -> tuple[dict[str, np.ndarray], int]:
    arrays = check_examples(examples, "the dataset to partition")
    total = num_examples(arrays)
    if not isinstance(num_clients, int | np.integer) or not 1 <= num_clients <= total:
        raise DataError(f"num_clients is an int from 1 to the number of examples, {total}; not {num_clients!r}")
    return arrays, total


def _check_skew(alpha: float, min_size: int, num_clients: int, total: int) -> None:
    _number("alpha", alpha, above=0)
    _number("min_size", min_size, least=0, whole=True)
    if min_size * num_clients > total:
        raise DataError(
            f"min_size={min_size!r} for {num_clients} clients needs more than the {total} examples there are"
        )


def _labels(arrays: dict[str, np.ndarray], label: str) -> list[np.ndarray]:
    """Return the indices of each label's examples."""
    if label not in arrays:
        raise DataError(f"there is no feature {label!r} with labels; the features are {sorted(arrays)}: pass label=...")
    if arrays[label].ndim != 1:
        raise DataError(f"labels have shape (n,), not {list(arrays[label].shape)}")
    try:
        _, inverse = np.unique(arrays[label], return_inverse=True)
    except TypeError as error:
        raise DataError(f"labels must be of one kind, so that they have an order: {error}") from error
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.cumsum(np.bincount(inverse))[:-1])


def _dirichlet(rng: np.random.Generator, alpha: float, size: int) -> np.ndarray:
    """Draw proportions from Dirichlet(alpha, ...); one of them for tiny alpha."""
    proportions = rng.dirichlet(np.full(size, alpha))
    return proportions if np.isfinite(proportions).all() else np.eye(size)[rng.integers(size)]


def _cuts(proportions: np.ndarray, total: int) -> np.ndarray:
    """Where to cut ``total`` examples."""
    return np.rint(np.cumsum(proportions)[:-1] * total).astype(np.int64).clip(0, total)


def _clients(arrays: dict[str, np.ndarray], parts: Any) -> InMemoryFederatedData:
    digits = len(str(len(parts) - 1))
    return InMemoryFederatedData(
        {f"client_{number:0{digits}d}": take_examples(arrays, part) for number, part in enumerate(parts)}
    )
