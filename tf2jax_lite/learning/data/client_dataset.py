"""The examples of one client, and their batches.

Source: ClientDataset and the HParams dataclasses of fedjax.core.client_datasets.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from tf2jax_lite.learning.data.examples import (
    BatchPreprocessor,
    Examples,
    NoOpBatchPreprocessor,
    OrderSeed,
    check_examples,
    num_examples,
    order_rng,
    own_seed,
    pad_examples,
    permuted,
    take_examples,
)
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
      seed: int >= 0, sequence of such, or JAX key; None draws a new order at each iteration. ``RandomState(n)`` of
        numpy: FedJAX's order for its seed ``n``, the same for each client and round.
      skip_shuffle: keep the order of the data.
      fill_remainder: True fills a last batch with examples of one more epoch, as FedJAX does; False leaves it short,
        as ``dataset.repeat(num_epochs).batch(batch_size)`` in TFF.

    Raises:
      DataError: a value that is out of range.
    """

    num_epochs: int | None = 1
    num_steps: int | None = None
    drop_remainder: bool = False
    seed: OrderSeed = None
    skip_shuffle: bool = False
    fill_remainder: bool = True

    def __post_init__(self):
        super().__post_init__()
        self._count("num_epochs", 0, optional=True)
        self._count("num_steps", 0, optional=True)
        if self.seed is not None:
            own = own_seed(self.seed)
            if isinstance(own, np.random.RandomState):
                object.__setattr__(self, "seed", own)


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


class Batches(Iterable[dict[str, Any]]):
    """Reusable batches; ``len`` is their number if finite.

    Args:
      make: starts an iteration.
      count: how many batches it gives; None for no end.
    """

    def __init__(self, make: Callable[[], Iterator[dict[str, Any]]], count: int | None):
        self._make, self._count = make, count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._make()

    def __len__(self) -> int:
        if self._count is None:
            raise TypeError("these batches have no end; set num_epochs or num_steps")
        return self._count

    def __bool__(self) -> bool:
        return self._count != 0


class ClientDataset:
    """A client's examples in memory.

    Args:
      raw_examples: dict from feature to array, all of equal leading size: the number of examples.
      preprocessor: applied to each batch when it is made.

    Attributes:
      raw_examples: the examples as read-only numpy arrays, before the preprocessor. Batches are copies.
      preprocessor: the `BatchPreprocessor`.

    Raises:
      DataError: the features' leading sizes differ, one is a scalar, or there is none.
    """

    def __init__(self, raw_examples: Examples, preprocessor: BatchPreprocessor = NoOpBatchPreprocessor):
        self.raw_examples = check_examples(raw_examples)
        self.preprocessor = preprocessor

    def __len__(self) -> int:
        """Return the number of examples before the preprocessor."""
        return num_examples(self.raw_examples)

    def __getitem__(self, index: slice) -> ClientDataset:
        """Return a dataset of a slice of the examples (views)."""
        if not isinstance(index, slice):
            raise DataError(f"a ClientDataset is sliced, as in dataset[:4]; {index!r} is no slice")
        return ClientDataset(take_examples(self.raw_examples, index), self.preprocessor)

    def __repr__(self) -> str:
        features = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.raw_examples.items())
        return f"ClientDataset({features})"

    def all_examples(self) -> dict[str, Any]:
        """Return all examples, preprocessed as one batch; a copy."""
        return self.preprocessor(self.raw_examples)

    def batch(self, hparams: BatchHParams | int | None = None, **changes: Any) -> Batches:
        """Return the examples in order, in batches; the last one may be short.

        Args:
          hparams: a `BatchHParams`, or the batch size.
          **changes: its values, instead of ``hparams`` or overriding it.

        Returns:
          Iterable over dicts of arrays with leading size ``batch_size`` (the last: fewer).

        Raises:
          DataError: an unknown or unfitting value.
        """
        params = resolve(BatchHParams, hparams, changes)
        size, total = params.batch_size, len(self)
        count = total // size if params.drop_remainder else -(-total // size)

        def make() -> Iterator[dict[str, Any]]:
            for start in range(0, count * size, size):
                yield self.preprocessor(take_examples(self.raw_examples, slice(start, start + size)))

        return Batches(make, count)

    def padded_batch(self, hparams: PaddedBatchHParams | int | None = None, **changes: Any) -> Batches:
        """Return the examples in order, in batches of few sizes.

        A jitted function is then compiled few times.

        Args:
          hparams: a `PaddedBatchHParams`, or the batch size.
          **changes: its values, instead of ``hparams`` or overriding it.

        Returns:
          Iterable over dicts of arrays with leading size ``batch_size``; the last batch is padded with zeros to the
          smallest of ``batch_size``, ``batch_size // 2``, ... (``num_batch_size_buckets`` sizes) that holds it. Each
          has bool (size,) under ``"__mask__"``, False for padding.

        Raises:
          DataError: an unknown or unfitting value; a preprocessor that adds examples or a feature ``"__mask__"``.
        """
        params = resolve(PaddedBatchHParams, hparams, changes)
        size, total = params.batch_size, len(self)
        count = -(-total // size)
        last = last_batch_size(total, size, params.num_batch_size_buckets)

        def make() -> Iterator[dict[str, Any]]:
            for step in range(count):
                examples = take_examples(self.raw_examples, slice(step * size, (step + 1) * size))
                yield pad_examples(self.preprocessor(examples), last if step == count - 1 else size)

        return Batches(make, count)

    def shuffle_repeat_batch(self, hparams: ShuffleRepeatBatchHParams | int | None = None, **changes: Any) -> Batches:
        """Return shuffled batches of one epoch after another, for training.

        Each epoch has every example once, in a new order; a batch may hold the end of one epoch and the start of the
        next. With ``num_epochs`` and ``num_steps`` both given, whichever ends first does; with neither there is no end.
        A dataset without examples has no batches.

        Args:
          hparams: a `ShuffleRepeatBatchHParams`, or the batch size.
          **changes: its values, instead of ``hparams`` or overriding it.

        Returns:
          Iterable over dicts of arrays with leading size ``batch_size``. Where the epochs do not fill the last batch,
          it is filled from one epoch more (FedJAX), left short (``fill_remainder=False``, TFF), or left out
          (``drop_remainder=True``). With a seed, each iteration gives the same batches.

        Raises:
          DataError: an unknown or unfitting value.
        """
        params = resolve(ShuffleRepeatBatchHParams, hparams, changes)

        def make() -> Iterator[dict[str, Any]]:
            for indices in shuffled_indices(len(self), params):
                yield self.preprocessor(take_examples(self.raw_examples, indices))

        return Batches(make, num_steps(len(self), params))


def last_batch_size(total: int, batch_size: int, num_buckets: int) -> int:
    """Return the padded size of the last batch of ``total`` examples.

    See `ClientDataset.padded_batch`.
    """
    remainder = total % batch_size
    size = batch_size
    for _ in range(num_buckets - 1):
        if remainder == 0 or size // 2 < remainder:
            break
        size //= 2
    return size


def shuffled_indices(total: int, hparams: ShuffleRepeatBatchHParams) -> Iterator[np.ndarray]:
    """Yield the indices of each batch, int64 (batch_size,) or shorter.

    See `ClientDataset.shuffle_repeat_batch`.

    Args:
      total: the number of examples.
      hparams: how they are cut into batches.
    """
    steps = num_steps(total, hparams)
    if steps == 0:
        return
    size = hparams.batch_size
    end = None  # in examples, counted over all epochs
    if not hparams.fill_remainder and hparams.num_epochs is not None:
        end = total * hparams.num_epochs
    rng = None if hparams.skip_shuffle else order_rng(hparams.seed)
    order = np.arange(total)
    queue = order[:0]
    step = 0
    while steps is None or step < steps:
        wanted = size if end is None else min(size, end - step * size)
        parts = [queue]
        have = queue.shape[0]
        while have < wanted:
            order = order if rng is None else permuted(order, rng)
            parts.append(order)
            have += total
        # Only the last part can reach beyond the batch.
        left = have - wanted
        indices = np.concatenate(parts)
        queue = indices[indices.shape[0] - left :]
        yield indices[:wanted]
        step += 1


def index_table(total: int, hparams: ShuffleRepeatBatchHParams, seed: Any) -> np.ndarray:
    """Return the indices of all batches of `shuffled_indices` at once.

    Args:
      total: the number of examples.
      hparams: how they are cut into batches; one of ``num_epochs`` and ``num_steps`` is set.
      seed: taken in place of that of ``hparams``.

    Returns:
      int64 (steps, batch_size); -1 where the last batch is short.
    """
    steps, size = num_steps(total, hparams), hparams.batch_size
    assert steps is not None
    wanted = steps * size
    if not hparams.fill_remainder and hparams.num_epochs is not None:
        wanted = min(wanted, total * hparams.num_epochs)
    epochs = -(-wanted // total) if total else 0
    if hparams.skip_shuffle:
        parts = [np.arange(total)] * epochs
    else:
        rng = order_rng(seed)
        orders = itertools.accumulate(range(epochs), lambda order, _: permuted(order, rng), initial=np.arange(total))
        parts = list(orders)[1:]
    table = np.full(steps * size, -1, np.int64)
    if parts:
        table[:wanted] = (parts[0] if epochs == 1 else np.concatenate(parts))[:wanted]
    return table.reshape(steps, size)


def num_steps(total: int, hparams: ShuffleRepeatBatchHParams) -> int | None:
    """Return the number of `shuffle_repeat_batch` batches; None if infinite."""
    if total == 0:
        return 0
    steps = hparams.num_steps
    if hparams.num_epochs is not None:
        examples = total * hparams.num_epochs
        epochs = examples // hparams.batch_size if hparams.drop_remainder else -(-examples // hparams.batch_size)
        steps = epochs if steps is None else min(steps, epochs)
    return steps
