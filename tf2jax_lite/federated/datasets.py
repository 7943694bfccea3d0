"""Standard data sets: readers of their files, and synthetic clients.

Sources: tff.simulation.datasets, fedjax.datasets, LEAF (Caldas et al. 2018), the synthetic clients of Li et al. 2018
(FedProx). Files are not downloaded.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data import FederatedData, InMemoryFederatedData, TFFHDF5FederatedData, TFFSQLiteFederatedData
from tf2jax_lite.learning.data.examples import numpy_rng
from tf2jax_lite.support.errors import DataError
from tf2jax_lite.support.limits import read_json, regular

__all__ = [
    "CIFAR100",
    "EMNIST",
    "SHAKESPEARE",
    "STACKOVERFLOW",
    "StandardDataset",
    "load_leaf",
    "save_leaf",
    "synthetic_leaf",
]

Examples = dict[str, np.ndarray]

_MAX_LEAF = 1 << 31  # files of LEAF's FEMNIST have hundreds of megabytes


class Feature(NamedTuple):
    """The shape and dtype of a feature of one example; object stands for bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclasses.dataclass(frozen=True, eq=False)
class StandardDataset:
    """A data set of TFF.

    Attributes:
      name: its name.
      element_spec: feature to its `Feature`, as in TFF's files.
      draw: ``(rng, number of examples) -> examples`` of a synthetic client.
    """

    name: str
    element_spec: Mapping[str, Feature]
    draw: Callable[[np.random.Generator, int], Examples]

    def load_data(self, path: str | os.PathLike, split_name: str | None = None) -> FederatedData:
        """Return the clients of one of TFF's files, SQLite or HDF5.

        Args:
          path: the file.
          split_name: of a SQLite file, such as "train"; all splits if None.

        Raises:
          DataError: there is no such file, it is something else, or a client's features are others.
          MissingLibraryError: it is an HDF5 file, and h5py is not installed.
        """
        with regular(Path(path), DataError).open("rb") as file:
            is_sqlite = file.read(6) == b"SQLite"
        if is_sqlite:
            return TFFSQLiteFederatedData(path, self.element_spec, split_name)
        return TFFHDF5FederatedData(path).preprocess_client(self._checked)

    def _checked(self, client_id: Any, examples: Mapping[str, Any]) -> Mapping[str, Any]:
        if examples.keys() != self.element_spec.keys():
            raise DataError(
                f"client {client_id!r} has features {sorted(examples)}; those of {self.name} are "
                f"{sorted(self.element_spec)}"
            )
        found = {}
        for name, (shape, dtype) in self.element_spec.items():
            value = np.asarray(examples[name])
            if value.shape[1:] != shape or not np.can_cast(value.dtype, dtype, "same_kind"):
                raise DataError(
                    f"client {client_id!r}: feature {name!r} is {value.dtype}{list(value.shape[1:])}; that of "
                    f"{self.name} is {dtype}{list(shape)}"
                )
            found[name] = value.astype(dtype, copy=False)
        return found

    def synthetic(
        self, num_clients: int = 100, *, seed: int = 0, least: int = 20, most: int = 120
    ) -> InMemoryFederatedData:
        """Return random clients in the form of the files, to run programs offline.

        Args:
          num_clients: how many.
          seed: the same seed makes the same clients.
          least: the least number of a client's examples.
          most: the largest.

        Raises:
          InputError: a number is out of range.
        """
        return _drawn("synthetic", self.name, self.draw, num_clients, seed, least, most)


def _drawn(
    who: str,
    name: str,
    draw: Callable[[np.random.Generator, int], Examples],
    num_clients: int,
    seed: int,
    least: int,
    most: int,
) -> InMemoryFederatedData:
    check_number(who, "num_clients", num_clients, least=1, whole=True)
    check_number(who, "least", least, least=1, whole=True)
    check_number(who, "most", most, least=least, whole=True)
    clients = {}
    for number in range(num_clients):
        rng = numpy_rng(seed, number)
        clients[f"{name}_{number:05d}"] = draw(rng, int(rng.integers(least, most + 1)))
    return InMemoryFederatedData(clients)


def _labels(rng: np.random.Generator, classes: int, number: int) -> np.ndarray:
    """Return labels in proportions of the client's own."""
    return rng.choice(classes, number, p=rng.dirichlet(np.full(classes, 0.3)))


def _images(rng: np.random.Generator, labels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return images in [0, 1]: patterns of classes, brightness of a client, noise."""
    patterns = np.random.default_rng(0).random((int(labels.max()) + 1, *shape), dtype=np.float32)
    bright = np.float32(0.5 + 0.5 * rng.random())
    noise = rng.random((len(labels), *shape), dtype=np.float32)
    return bright * (np.float32(0.6) * patterns[labels] + np.float32(0.4) * noise)


def _emnist(rng: np.random.Generator, number: int) -> Examples:
    labels = _labels(rng, 62, number).astype(np.int32)
    return {"label": labels, "pixels": 1 - _images(rng, labels, (28, 28))}  # white paper is 1


def _cifar(rng: np.random.Generator, number: int) -> Examples:
    labels = _labels(rng, 100, number).astype(np.int64)
    image = np.round(255 * _images(rng, labels, (32, 32, 3))).astype(np.uint8)
    return {"coarse_label": labels // 5, "image": image, "label": labels}


def _strings(items: list[bytes]) -> np.ndarray:
    found = np.empty(len(items), object)
    found[:] = items
    return found


def _sentence(rng: np.random.Generator, words: int, vocabulary: int) -> bytes:
    """Return words whose frequencies follow Zipf's law."""
    numbers = np.minimum(rng.zipf(1.3, words), vocabulary)
    return b" ".join(b"w%d" % number for number in numbers)


def _shakespeare(rng: np.random.Generator, number: int) -> Examples:
    return {"snippets": _strings([_sentence(rng, int(rng.integers(5, 40)), 500) for _ in range(number)])}


def _stackoverflow(rng: np.random.Generator, number: int) -> Examples:
    def drawn(most: int) -> np.ndarray:
        return _strings([_sentence(rng, int(rng.integers(3, most)), 10_000) for _ in range(number)])

    tags = [b"|".join(b"tag%d" % tag for tag in np.unique(rng.zipf(1.5, 3))) for _ in range(number)]
    dates = np.datetime64("2015-01-01") + np.sort(rng.integers(0, 1000, number))
    return {
        "creation_date": _strings([str(date).encode() for date in dates]),
        "score": rng.poisson(2, number).astype(np.int64),
        "tags": _strings(tags),
        "title": drawn(12),
        "tokens": drawn(60),
        "type": _strings([b"question" if question else b"answer" for question in rng.random(number) < 0.4]),
    }


_TEXT = Feature((), np.dtype(object))

EMNIST = StandardDataset(
    "emnist", {"label": Feature((), np.dtype(np.int32)), "pixels": Feature((28, 28), np.dtype(np.float32))}, _emnist
)
CIFAR100 = StandardDataset(
    "cifar100",
    {
        "coarse_label": Feature((), np.dtype(np.int64)),
        "image": Feature((32, 32, 3), np.dtype(np.uint8)),
        "label": Feature((), np.dtype(np.int64)),
    },
    _cifar,
)
SHAKESPEARE = StandardDataset("shakespeare", {"snippets": _TEXT}, _shakespeare)
STACKOVERFLOW = StandardDataset(
    "stackoverflow",
    {
        "creation_date": _TEXT,
        "score": Feature((), np.dtype(np.int64)),
        **dict.fromkeys(("tags", "title", "tokens", "type"), _TEXT),
    },
    _stackoverflow,
)


def load_leaf(path: str | os.PathLike) -> InMemoryFederatedData:
    """Return the clients of LEAF's files, with features ``x`` and ``y``.

    Lists of numbers become arrays; text, and lists of different lengths, arrays of objects.

    Args:
      path: a JSON file, or a folder of such.

    Raises:
      DataError: a file is damaged, or is not LEAF's; or a client is in two files.
    """
    given = Path(path)
    clients: dict[str, Examples] = {}
    for file in sorted(given.glob("*.json")) if given.is_dir() else [given]:
        content = read_json(file, DataError, limit=_MAX_LEAF)
        try:
            found = {user: dict(content["user_data"][user]) for user in content["users"]}
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"{file}: not a file of LEAF, which has users and user_data: {error!r:.200}") from error
        if both := clients.keys() & found.keys():
            raise DataError(f"{file}: client {min(both)!r} is in another file, too")
        for user, data in found.items():
            clients[user] = {name: _column(v, f"{file}, client {user!r}, {name!r}") for name, v in data.items()}
    if not clients:
        raise DataError(f"{given}: there are no clients")
    return InMemoryFederatedData(clients)


def _column(values: Any, where: str) -> np.ndarray:
    if not isinstance(values, list):
        raise DataError(f"{where}: the values are a list, not {type(values).__name__}")
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    if array.dtype.kind in "iufb":
        return array.astype(np.float32) if array.dtype == np.float64 else array
    if len(kinds := _kinds_within(values)) > 1 or not kinds <= {"text", "numbers"}:
        raise DataError(f"{where}: the values are numbers, or text; not {' and '.join(sorted(kinds))}")
    found = np.empty(len(values), object)
    for index, value in enumerate(values):
        found[index] = value
    return found


def _kinds_within(values: list[Any]) -> set[str]:
    """Return the kinds of values in nested lists."""
    names = {str: "text", int: "numbers", float: "numbers", bool: "numbers"}
    kinds, pending = set(), [values]
    while pending:
        for value in pending.pop():
            if isinstance(value, list):
                pending.append(value)
            elif type(value) is int and not -(1 << 63) <= value < 1 << 64:
                kinds.add("integers of more than 64 bits")
            else:
                kinds.add(names.get(type(value), type(value).__name__))
    return kinds


def save_leaf(path: str | os.PathLike, federated_data: FederatedData) -> None:
    """Write clients as a JSON file of LEAF, which `load_leaf` reads.

    Args:
      path: the file; one that exists is overwritten.
      federated_data: clients with ids of text; LEAF's features are ``x`` and ``y``.

    Raises:
      DataError: values that JSON does not have, such as bytes.
    """
    data = {user: dict(dataset.raw_examples) for user, dataset in federated_data.clients()}
    content = {
        "users": list(data),
        "num_samples": [len(next(iter(examples.values()))) for examples in data.values()],
        "user_data": {user: {name: np.asarray(v).tolist() for name, v in e.items()} for user, e in data.items()},
    }
    try:
        text = json.dumps(content)
    except TypeError as error:
        raise DataError(f"{path}: clients for LEAF have numbers and text, as JSON has: {error}") from error
    Path(path).write_text(text, encoding="utf-8")


def synthetic_leaf(
    num_clients: int = 100,
    *,
    seed: int = 0,
    least: int = 20,
    most: int = 120,
    alpha: float = 1.0,
    beta: float = 1.0,
    features: int = 60,
    classes: int = 10,
) -> InMemoryFederatedData:
    """Return random clients in the form of LEAF's files.

    They are Synthetic(alpha, beta) of Li et al. 2018: each client labels its examples with a linear model of its own.
    `save_leaf` writes them.

    Args:
      num_clients: how many.
      seed: the same seed makes the same clients.
      least: the least number of a client's examples.
      most: the largest.
      alpha: variance among the clients' models, 0 or more.
      beta: variance among the clients' features, 0 or more.
      features: the size of ``x``, float32 (n, features).
      classes: the number of labels; ``y`` is int64 (n,).

    Raises:
      InputError: a number is out of range.
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        check_number("synthetic_leaf", name, value, least=0)
    for name, value in (("features", features), ("classes", classes)):
        check_number("synthetic_leaf", name, value, least=1, whole=True)
    deviations = np.arange(1, features + 1) ** -0.6  # the covariance is diagonal, j ** -1.2

    def draw(rng: np.random.Generator, number: int) -> Examples:
        weights = rng.normal(rng.normal(0, np.sqrt(alpha)), 1, (features + 1, classes))
        mean = rng.normal(rng.normal(0, np.sqrt(beta)), 1, features)
        x = rng.normal(mean, deviations, (number, features)).astype(np.float32)
        return {"x": x, "y": np.argmax(x @ weights[1:] + weights[0], 1)}

    return _drawn("synthetic_leaf", "leaf", draw, num_clients, seed, least, most)
