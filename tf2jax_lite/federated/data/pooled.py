"""All clients' examples as one dataset, for evaluation and baselines.

Source: fedjax.core.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tf2jax_lite.federated.data.client_dataset import ClientDataset, last_batch_size
from tf2jax_lite.federated.data.examples import concat_examples, pad_examples, take_examples
from tf2jax_lite.federated.data.federated_data import FederatedData, buffered_shuffle
from tf2jax_lite.federated.data.hparams import PaddedBatchHParams, resolve
from tf2jax_lite.federated.data.preprocessor import BatchPreprocessor
from tf2jax_lite.federated.data.seeds import Seed, numpy_rng
from tf2jax_lite.support.errors import DataError


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
    """
    return padded_batch_client_datasets((dataset for _, dataset in federated_data.clients()), hparams, **changes)


def shuffle_repeat_batch_federated_data(
    federated_data: FederatedData,
    batch_size: int,
    client_buffer_size: int,
    example_buffer_size: int,
    seed: Seed = None,
) -> Iterator[dict[str, Any]]:
    """Yield endless batches of all clients' examples.

    Clients are shuffled, then their examples.

    Args:
      federated_data: the clients; not all are in memory at once.
      batch_size: examples in a batch, >= 1.
      client_buffer_size: see `FederatedData.shuffled_clients`.
      example_buffer_size: of how many examples, at least, the next batch is drawn, >= batch_size.
      seed: see `numpy_rng`.

    Yields:
      Preprocessed batches of exactly ``batch_size`` examples.

    Raises:
      DataError: a value that is out of range, or there are no examples.
    """
    if not 1 <= batch_size <= example_buffer_size:
        raise DataError(f"1 <= batch_size <= example_buffer_size is needed, not {batch_size} and {example_buffer_size}")
    rng = numpy_rng(seed)
    shuffled = federated_data.shuffled_clients(client_buffer_size, int(rng.integers(1 << 62)))
    stream = buffered_shuffle(_rows(shuffled, federated_data), example_buffer_size, rng)
    while batch := list(itertools.islice(stream, batch_size)):
        first, _ = batch[0]
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
