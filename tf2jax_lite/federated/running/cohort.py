"""A round's clients as stacked arrays: chunk by chunk, so that memory does not grow with the cohort."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.federated.data import (
    EXAMPLE_MASK_KEY,
    BatchHParams,
    ClientDataset,
    PaddedBatchHParams,
    ShuffleRepeatBatchHParams,
)
from tf2jax_lite.federated.data.client_dataset import index_table
from tf2jax_lite.federated.data.seeds import seed_words

from .buffers import Arena

__all__ = ["Batching", "Chunk", "Client", "Cohort", "client_seed"]

Batching = ShuffleRepeatBatchHParams | BatchHParams | PaddedBatchHParams


@dataclasses.dataclass(frozen=True)
class Client:
    """One client's data of a round.

    Attributes:
      index: its place in the cohort.
      examples: dict of arrays of shape (n, ...).
      rows: int64 (steps, batch): which examples make each batch; -1 is padding, always at a row's end.
      client_input: what the algorithm passes for it, or None.
    """

    index: int
    examples: dict[str, np.ndarray]
    rows: np.ndarray
    client_input: Any = None

    @property
    def steps(self) -> int:
        """The number of batches."""
        return self.rows.shape[0]

    def batches(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches as they are, short ones short."""
        for row in self.rows:
            kept = row[row >= 0]
            yield {name: value[kept] for name, value in self.examples.items()}


class Chunk(NamedTuple):
    """Clients stacked along a leading axis; all arrays are numpy's.

    Attributes:
      batches: feature to array of shape (clients, steps, batch, ...), with a bool ``"__mask__"`` if any is padded.
      steps: int32 (clients,), how many of the steps are the client's; 0 in rows that only pad the chunk.
      index: int32 (clients,), places in the cohort; the cohort's size in rows that only pad.
      client_input: pytree stacked along the leading axis, or None.
    """

    batches: dict[str, np.ndarray]
    steps: np.ndarray
    index: np.ndarray
    client_input: Any


def client_seed(batching: Batching, key: Any, round_number: int, index: int) -> list[int] | None:
    """Returns the seed by which a client's examples are shuffled in a round; None where nothing is shuffled.

    It comes from ``batching.seed`` if that is set, else from the training's key: a resumed run shuffles alike.
    """
    if not isinstance(batching, ShuffleRepeatBatchHParams) or batching.skip_shuffle:
        return None
    base = seed_words(key if batching.seed is None else batching.seed)
    return [*base, round_number, index]


@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of a round, as a user gives them.

    Attributes:
      clients: for each a `ClientDataset`, an iterable of ready batches (dicts of arrays, the last may be short), or
        None: the client dropped out.
      batching: how ClientDatasets are cut into batches.
      key: the training's key, for shuffling.
      round_number: the round, from 0.
      inputs: for each client what the algorithm passes to it; None if nothing.
    """

    clients: Sequence[Any]
    batching: Batching | None
    key: Any = 0
    round_number: int = 0
    inputs: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.clients)

    def count_dropped(self) -> int:
        """Returns how many clients dropped out."""
        return sum(client is None for client in self.clients)

    def prepared(self) -> Iterator[Client]:
        """Yields the clients that have data, in order.

        Raises:
          DataError: a client's data is no dict of numeric arrays, or does not go with the other clients' data.
        """
        form: dict[str, tuple[tuple[int, ...], np.dtype]] | None = None
        for index, item in enumerate(self.clients):
            if item is None:
                continue
            found = self._client(index, item)
            if found is None or found.steps == 0:
                continue
            here = {name: (value.shape[1:], value.dtype) for name, value in found.examples.items()}
            if form is None:
                form = here
            elif here != form:
                raise DataError(f"client {index} of the round has examples {_text(here)}; those before: {_text(form)}")
            yield found

    def _client(self, index: int, item: Any) -> Client | None:
        client_input = None if self.inputs is None else self.inputs[index]
        if isinstance(item, ClientDataset):
            if self.batching is None:
                raise InputError("client_batching is missing: how a ClientDataset is cut into batches")
            if len(item) == 0:
                return None
            # A batch preprocessor treats each example alone, so it may run once for all.
            examples = _numeric(item.all_examples(), index)
            size = len(next(iter(examples.values())))
            return Client(index, examples, self._rows(size, index), client_input)
        if isinstance(item, Mapping) or not isinstance(item, Iterable):
            raise DataError(
                f"client {index} of the round is a {type(item).__name__}; give a ClientDataset, an iterable of batches "
                "(dicts of arrays), or None for a client that dropped out"
            )
        return _from_batches(index, item, client_input)

    def _rows(self, total: int, index: int) -> np.ndarray:
        batching = self.batching
        assert batching is not None
        size = batching.batch_size
        if not isinstance(batching, ShuffleRepeatBatchHParams):
            end = total // size * size if getattr(batching, "drop_remainder", False) else total
            table = np.full(-(-end // size) * size, -1, np.int64)
            table[:end] = np.arange(end)
            return table.reshape(-1, size)
        if batching.num_epochs is None and batching.num_steps is None:
            raise InputError("client_batching has no end; set num_epochs or num_steps")
        return index_table(total, batching, client_seed(batching, self.key, self.round_number, index))


def _from_batches(index: int, batches: Iterable[Any], client_input: Any) -> Client | None:
    kept: list[dict[str, np.ndarray]] = []
    for batch in batches:
        if not isinstance(batch, Mapping):
            raise DataError(f"client {index} of the round: a batch is a dict of arrays, not {type(batch).__name__}")
        arrays = {name: np.asarray(value) for name, value in batch.items()}
        mask = arrays.pop(EXAMPLE_MASK_KEY, None)
        arrays = _numeric(arrays, index)
        if mask is not None:
            arrays = {name: value[np.asarray(mask, bool)] for name, value in arrays.items()}
        if kept and arrays.keys() != kept[0].keys():
            raise DataError(f"client {index} of the round: batches differ: {sorted(kept[0])} and {sorted(arrays)}")
        if len(next(iter(arrays.values()))):
            kept.append(arrays)
    if not kept:
        return None
    ends = np.cumsum([0, *(len(next(iter(b.values()))) for b in kept)])
    rows = [np.arange(start, end) for start, end in itertools.pairwise(ends)]
    try:
        examples = {name: np.concatenate([b[name] for b in kept]) for name in kept[0]}
    except ValueError as error:
        raise DataError(f"client {index} of the round: batches do not fit together: {error}") from error
    table = np.full((len(rows), max(len(row) for row in rows)), -1, np.int64)
    for step, row in enumerate(rows):
        table[step, : len(row)] = row
    return Client(index, examples, table, client_input)


def _numeric(examples: Mapping[str, Any], index: int) -> dict[str, np.ndarray]:
    """Returns the features as arrays of JAX's dtypes."""
    found: dict[str, np.ndarray] = {}
    for name, value in examples.items():
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            raise DataError(
                f"client {index} of the round: feature {name!r} is text; a preprocessor must make numbers of it"
            )
        if array.ndim == 0:
            raise DataError(f"client {index} of the round: feature {name!r} is a scalar, not an array of examples")
        found[name] = np.asarray(array, jax.dtypes.canonicalize_dtype(array.dtype))
    sizes = {name: value.shape[0] for name, value in found.items()}
    if len(set(sizes.values())) != 1:
        raise DataError(f"client {index} of the round: the features' numbers of examples differ: {sizes}")
    return found


def _text(form: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> str:
    return ", ".join(f"{name}: {dtype}{list(shape)}" for name, (shape, dtype) in sorted(form.items()))


def round_up(steps: int) -> int:
    """Returns the next of 1, 2, 3, 4, 6, 8, 12, 16, ...: few shapes to compile for, at most a third of padding."""
    size = 1
    while size < steps:
        if size >= 2 and size // 2 * 3 >= steps:
            return size // 2 * 3
        size *= 2
    return size


def stack(
    clients: Sequence[Client], rows: int, steps: int, nobody: int, arena: Arena | None = None, *, fill: bool = True
) -> Chunk:
    """Stacks clients of one form to a chunk.

    Args:
      clients: at least one.
      rows: the leading size of the result; rows without a client repeat nothing and have 0 steps.
      steps: the steps of the result.
      nobody: the index of rows without a client.
      arena: where the batches lie; memory of their own if None.
      fill: write zeros where no client has a batch, for programs that read all of it.
    """
    arena = arena or Arena()
    batch = max(client.rows.shape[1] for client in clients)
    arrays = {
        name: arena.empty(name, (rows, steps, batch, *value.shape[1:]), value.dtype)
        for name, value in clients[0].examples.items()
    }
    mask = arena.empty(EXAMPLE_MASK_KEY, (rows, steps, batch), bool)
    mask[:] = False
    counts = np.zeros(rows, np.int32)
    index = np.full(rows, nobody, np.int32)
    short = False
    for c, client in enumerate(clients):
        count, width = client.rows.shape
        counts[c], index[c] = count, client.index
        take, real = client.rows, client.rows >= 0
        mask[c, :count, :width] = real
        if width < batch or not real.all():
            # Padding repeats an example of its batch: see model.split_mask.
            short = True
            take = np.repeat(client.rows[:, :1], batch, axis=1)
            np.copyto(take[:, :width], client.rows, where=real)
        for name, value in client.examples.items():
            np.take(value, take, axis=0, out=arrays[name][c, :count], mode="clip")
            if fill:
                arrays[name][c, count:] = 0
    if fill:
        for value in arrays.values():
            value[len(clients) :] = 0
    if short:
        arrays[EXAMPLE_MASK_KEY] = mask
    inputs = None
    if clients[0].client_input is not None:
        given = [client.client_input for client in clients]
        given += [given[0]] * (rows - len(given))
        inputs = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *given)
    return Chunk(arrays, counts, index, inputs)
