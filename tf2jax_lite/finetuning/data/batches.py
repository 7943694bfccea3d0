"""Examples of a training as batches.

They start anywhere in an epoch, so that a training resumes in the middle of it.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.federated.data import ClientDataset
from tf2jax_lite.support.byte_order import native

Batch = dict[str, np.ndarray]


class TrainingData(abc.ABC):
    """Examples that a training reads epoch by epoch.

    Attributes:
      is_share: whether batches hold this process's share of the examples, not all of them.
    """

    is_share: bool = False

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of examples of an epoch, of all processes together."""

    @abc.abstractmethod
    def epoch(self, number: int, batch_size: int, seed: int, skip: int = 0) -> Iterator[Batch]:
        """Yield an epoch's batches in an order drawn from the seed and the epoch's number.

        Args:
          number: of the epoch, from 0.
          batch_size: examples of a batch, of all processes together; the last batch may be short.
          seed: of the training.
          skip: number of batches to leave out at the begin.
        """

    @abc.abstractmethod
    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield all examples in order, for evaluation.

        A short batch is padded; ``__mask__`` tells real examples.
        """

    @abc.abstractmethod
    def first(self, count: int) -> Batch:
        """Return the first examples."""

    @abc.abstractmethod
    def identity(self) -> Any:
        """Return JSON that identifies the examples, for checkpoints."""

    @abc.abstractmethod
    def prepared(self, prepare: Callable[[Batch], Batch]) -> TrainingData:
        """Return the examples with a function applied to batches of them."""

    def problem(self) -> str | None:
        """Return the first value that is not finite, as text, if that is cheap to find."""
        return None


class InMemory(TrainingData):
    """Arrays that every process holds.

    Args:
      examples: dict of arrays (n, ...).
    """

    def __init__(self, examples: Mapping[str, Any]):
        self._examples = {name: native(value) for name, value in examples.items()}

    @functools.cached_property
    def dataset(self) -> ClientDataset:
        """The arrays, checked: `prepared` takes them as they are, and has its own checks."""
        return ClientDataset(self._examples)

    def __len__(self) -> int:
        """See `TrainingData`."""
        return len(self.dataset)

    def epoch(self, number: int, batch_size: int, seed: int, skip: int = 0) -> Iterator[Batch]:
        """See `TrainingData.epoch`."""
        batches = self.dataset.shuffle_repeat_batch(
            batch_size=batch_size, num_epochs=1, seed=[seed, number], fill_remainder=False
        )
        return itertools.islice(iter(batches), skip, None)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """See `TrainingData.in_order`."""
        return iter(self.dataset.padded_batch(batch_size=batch_size))

    def first(self, count: int) -> Batch:
        """See `TrainingData.first`."""

        def rows(value: Any) -> Any:
            return value[:count] if isinstance(value, Sequence) or getattr(value, "ndim", 0) else value

        return {name: rows(value) for name, value in self._examples.items()}

    def prepared(self, prepare: Callable[[Batch], Batch]) -> InMemory:
        """See `TrainingData.prepared`."""
        return InMemory(prepare({name: _read_only(value) for name, value in self._examples.items()}))

    def identity(self) -> str:
        """Return a SHA-256 of all arrays."""
        found = hashlib.sha256()
        for name, array in sorted(self.dataset.raw_examples.items()):
            found.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
            found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    def problem(self) -> str | None:
        """See `TrainingData.problem`."""
        for name, value in self.dataset.raw_examples.items():
            array = np.asarray(value)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                first = int(np.argmin(np.isfinite(array.reshape(len(array), -1)).all(1)))
                return f"{name!r} of example {first} is NaN or infinite"
        return None


def _read_only(value: Any) -> Any:
    """Return a view that cannot be written to: a copy may take too much memory."""
    if not isinstance(value, np.ndarray):
        return value
    found = value.view()
    found.flags.writeable = False
    return found
