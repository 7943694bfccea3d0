"""Options of a client's batches.

Source: the HParams dataclasses of fedjax.core.client_datasets.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from tf2jax_lite.federated.data.seeds import Seed, seed_words
from tf2jax_lite.support.errors import DataError

H = TypeVar("H", bound="_HParams")


@dataclasses.dataclass(frozen=True)
class _HParams:
    """Common base: checks of counts, and copies with changes."""

    batch_size: int

    def __post_init__(self):
        self._count("batch_size", 1)

    def replace(self: H, **changes: Any) -> H:
        """Return a copy with some values changed."""
        return dataclasses.replace(self, **changes)

    def _count(self, name: str, least: int, *, optional: bool = False) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise DataError(f"{type(self).__name__}: {name} is an int >= {least}, not {value!r}")


@dataclasses.dataclass(frozen=True)
class BatchHParams(_HParams):
    """See `ClientDataset.batch`.

    Attributes:
      batch_size: examples in a batch, >= 1.
      drop_remainder: leave out a last batch that has fewer.

    Raises:
      DataError: a value that is out of range.
    """

    drop_remainder: bool = False


@dataclasses.dataclass(frozen=True)
class PaddedBatchHParams(_HParams):
    """See `ClientDataset.padded_batch`.

    Attributes:
      batch_size: examples in a batch, >= 1.
      num_batch_size_buckets: how many sizes the last batch may be padded to, >= 1: ``batch_size``, half of it, ...

    Raises:
      DataError: a value that is out of range.
    """

    num_batch_size_buckets: int = 1

    def __post_init__(self):
        super().__post_init__()
        self._count("num_batch_size_buckets", 1)


@dataclasses.dataclass(frozen=True)
class ShuffleRepeatBatchHParams(_HParams):
    """See `ClientDataset.shuffle_repeat_batch`.

    Attributes:
      batch_size: examples in a batch, >= 1.
      num_epochs: passes over the data, >= 0; None for no such limit.
      num_steps: batches at most, >= 0; None for no such limit.
      drop_remainder: leave out a last batch that the epochs do not fill.
      seed: int >= 0, sequence of such, or JAX key; None draws a new order at each iteration.
      skip_shuffle: keep the order of the data.
      fill_remainder: True fills a last batch with examples of one more epoch, as FedJAX does; False leaves it short,
        as ``dataset.repeat(num_epochs).batch(batch_size)`` in TFF.

    Raises:
      DataError: a value that is out of range.
    """

    num_epochs: int | None = 1
    num_steps: int | None = None
    drop_remainder: bool = False
    seed: Seed = None
    skip_shuffle: bool = False
    fill_remainder: bool = True

    def __post_init__(self):
        super().__post_init__()
        self._count("num_epochs", 0, optional=True)
        self._count("num_steps", 0, optional=True)
        if self.seed is not None:
            seed_words(self.seed)


def resolve(kind: type[H], hparams: H | int | None, changes: dict[str, Any]) -> H:
    """Return ``hparams`` with ``changes``, or a new ``kind`` made of ``changes``.

    ``hparams`` may be the batch size alone.

    Raises:
      DataError: a name that ``kind`` does not have, ``batch_size`` missing, or a value that is out of range.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    if unknown := sorted(set(changes) - set(known)):
        raise DataError(f"{kind.__name__} has no {', '.join(unknown)}; it has {', '.join(known)}")
    if isinstance(hparams, int) and not isinstance(hparams, bool):
        hparams, changes = None, {"batch_size": hparams, **changes}
    if hparams is None:
        if "batch_size" not in changes:
            raise DataError(f"batch_size is missing: pass a {kind.__name__}, or batch_size=...")
        return kind(**changes)
    if not isinstance(hparams, kind):
        raise DataError(
            f"expected a {kind.__name__} or a batch size, not {type(hparams).__name__}: give "
            f"{kind.__name__}(batch_size=20), or 20"
        )
    return hparams.replace(**changes) if changes else hparams
