"""Cohorts of clients, and their batches as arrays.

The layout of a chunk's batches determines its program. The worker that runs the chunk copies the examples later, so
that several workers copy in parallel.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.integers import check_integers
from tf2jax_lite.federated.client_work import ClientWork
from tf2jax_lite.federated.execution.cpu_pool import Arena
from tf2jax_lite.learning.data import (
    EXAMPLE_MASK_KEY,
    BatchHParams,
    ClientDataset,
    PaddedBatchHParams,
    ShuffleRepeatBatchHParams,
)
from tf2jax_lite.learning.data.client_dataset import index_table, num_steps
from tf2jax_lite.learning.data.examples import EXAMPLE_FILL_KEY, OrderSeed, seed_words
from tf2jax_lite.support.errors import DataError, InputError

Batching = ShuffleRepeatBatchHParams | BatchHParams | PaddedBatchHParams
Check = Callable[[Mapping[str, np.ndarray], str], None]
_SMALL = 1000  # examples of a client whose table of rows is kept for others of its size
_Form = dict[str, tuple[tuple[int, ...], np.dtype]]


@dataclasses.dataclass(frozen=True)
class Client:
    """One client's data of a round.

    Attributes:
      index: its place in the cohort.
      examples: dict of arrays of shape (n, ...).
      rows: int64 (steps, batch): which examples make each batch; -1 is padding, always at a row's end.
      client_input: the algorithm's input for it, or None.
      counted: how many examples of the batches, in order, are of the epochs; those behind fill the last batch. None if
        batches are not filled.
    """

    index: int
    examples: dict[str, np.ndarray]
    rows: np.ndarray
    client_input: Any = None
    counted: int | None = None

    @property
    def steps(self) -> int:
        """The number of batches."""
        return self.rows.shape[0]

    @functools.cached_property
    def is_full(self) -> bool:
        """Return whether no batch has padding."""
        return bool(self.rows[-1, -1] >= 0 and (self.rows[:, -1] >= 0).all())  # mostly the last is short

    def batches(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches as they are, short ones short."""
        for number, row in enumerate(self.rows):
            kept = row[row >= 0]
            batch = {name: value[kept] for name, value in self.examples.items()}
            yield batch if self.counted is None else batch | {EXAMPLE_FILL_KEY: self.fill()[number]}

    def fill(self) -> np.ndarray:
        """Return which examples fill the last batch, bool (steps, batch)."""
        assert self.counted is not None
        return (np.arange(self.rows.size) >= self.counted).reshape(self.rows.shape)


class Chunk(NamedTuple):
    """Clients stacked along a leading axis; all arrays are numpy's.

    Attributes:
      batches: feature to array of shape (clients, steps, batch, ...), with a bool ``"__mask__"`` if any is padded, and
        ``"__fill__"`` if last batches are filled.
      steps: int32 (clients,), how many of the steps are the client's; 0 in rows that only pad the chunk.
      index: int32 (clients,), indices in the cohort; the cohort's size in padding rows.
      client_input: pytree stacked along the leading axis, or None.
    """

    batches: dict[str, np.ndarray]
    steps: np.ndarray
    index: np.ndarray
    client_input: Any


class Entry(NamedTuple):
    """One entry of a round's ``client_data``.

    Attributes:
      client_id: the client's id; None if it was not given.
      data: see `Cohort.clients`.
      key: the client's JAX key of the round; None if it was not given.
    """

    client_id: Any
    data: Any
    key: Any


def as_entries(client_data: Any) -> list[Entry]:
    """Return a round's clients.

    They are given as data, pairs ``(id, data)`` or triples ``(id, data, key)``.

    Raises:
      InputError: it is a mapping or no iterable, or some have keys and others none.
    """
    if isinstance(client_data, (dict, str)) or not hasattr(client_data, "__iter__"):
        raise InputError(f"client_data is a list with one entry a client, not {type(client_data).__name__}")
    entries = [_entry(item) for item in client_data]
    if len({entry.key is None for entry in entries}) > 1:
        raise InputError("client_data: give all clients a key, as a sampler does, or none")
    return entries


def _entry(item: Any) -> Entry:
    if isinstance(item, Entry):
        return item
    if not isinstance(item, tuple) or len(item) not in (2, 3):
        return Entry(None, item, None)
    first, second = item[:2]
    # A tuple of data is a client's batches, or its training and test data.
    is_data = isinstance(first, Mapping | ClientDataset) or isinstance(second, tuple | Mapping)
    if is_data and not isinstance(first, str | bytes | int | np.integer):
        return Entry(None, item, None)
    return Entry(*item, *[None] * (3 - len(item)))


def client_seed(batching: Batching, key: Any, round_number: int, index: int, client_key: Any = None) -> OrderSeed:
    """Return the seed of a client's shuffling in a round; None without shuffling.

    It comes from ``batching.seed`` if that is set, else from the client's key of the round if it was given one, else
    from the training's key: a resumed run has the same order.
    """
    if not isinstance(batching, ShuffleRepeatBatchHParams) or batching.skip_shuffle:
        return None
    if batching.seed is None and client_key is not None:
        return list(seed_words(client_key))
    if isinstance(batching.seed, np.random.RandomState):
        return batching.seed
    base = seed_words(key if batching.seed is None else batching.seed)
    return [*base, round_number, index]


class Half(NamedTuple):
    """A half of each client's examples; see `Cohort.half`.

    Attributes:
      number: 0 for the even batches, 1 for the odd ones.
      batch_size: of these batches; None where clients are ready batches.
    """

    number: int
    batch_size: int | None


@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of a round, as a user gives them.

    Attributes:
      clients: for each a `ClientDataset`, an iterable of ready batches (dicts of arrays, the last may be short), or
        None: the client dropped out.
      batching: how ClientDatasets are cut into batches.
      key: the training's key, for shuffling.
      round_number: the round, from 0.
      inputs: the algorithm's input for each client; None if it has none.
      check: called with each client's examples, dict of arrays (n, ...) without padding, and their name in errors;
        it raises if the algorithm cannot take them. It is needed as traced programs see no values.
      ids: each client's id, or None.
      keys: each client's JAX key of the round; None to derive them from the round's.
      part: the half of each client's examples that is taken; None for all. See `half`.
      prepare: see `ClientWork.prepare`.
    """

    clients: Sequence[Any]
    batching: Batching | None
    key: Any = 0
    round_number: int = 0
    inputs: Sequence[Any] | None = None
    check: Check | None = None
    ids: Sequence[Any] | None = None
    keys: Sequence[Any] | None = None
    part: Half | None = None
    prepare: Callable[..., Any] | None = None

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def capacity(self) -> int:
        """The number of clients that accumulators have memory for, at least 1."""
        return round_up_far(len(self))

    def half(self, number: int) -> Cohort:
        """Return the cohort with the even (0) or the odd (1) batches of each client.

        Batches are those of the data in order, before anything is repeated, shuffled or filled. One batch alone is
        split by its examples.
        """
        return dataclasses.replace(self, part=Half(number, None if self.batching is None else self.batching.batch_size))

    def of_work(self, work: ClientWork) -> Cohort:
        """Return the cohort as a work needs it; see its `drops_fill` and `prepare`."""
        batching = self.batching
        if work.drops_fill and isinstance(batching, ShuffleRepeatBatchHParams):
            batching = dataclasses.replace(batching, fill_remainder=False)
        return dataclasses.replace(self, batching=batching, prepare=work.prepare)

    def after(self, outputs: Mapping[int, Any]) -> Cohort:
        """Return the cohort whose clients' inputs are their outputs of a first pass.

        A client without one, whose part of the data had no batch or whose result was refused, drops out.
        """
        clients = [client if i in outputs else None for i, client in enumerate(self.clients)]
        return dataclasses.replace(self, clients=clients, inputs=[outputs.get(i) for i in range(len(clients))])

    def count_dropped(self) -> int:
        """Return the number of clients that dropped out."""
        return sum(client is None for client in self.clients)

    def name(self, index: int) -> Any:
        """Return a client's id, or its index if it has none."""
        found = None if self.ids is None else self.ids[index]
        return index if found is None else found

    def stacked_keys(self) -> jax.Array | None:
        """Return the clients' keys (clients and more,), or None; see `shares`."""
        if self.keys is None:
            return None
        typed = [k for k in self.keys if jnp.issubdtype(k.dtype, jax.dtypes.prng_key)]
        words = np.stack([np.asarray(jax.random.key_data(key)) for key in self.keys])
        size = round_up_far(len(words) + 1)
        words = np.concatenate([words, np.zeros((size - len(words), *words.shape[1:]), words.dtype)])
        return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(typed[0]) if typed else None)

    def shares(self) -> np.ndarray | None:
        """Return each client's own share of the examples in its batches.

        A last batch that is filled from one epoch more holds examples twice; they do not make a client count for more.
        With a number of steps a client's weight is its number of examples, however many it processes. Sources:
        fedjax.algorithms.fed_avg weighs by the size of the dataset, TFF by the examples of all epochs, without filling.

        Returns:
          float32, padded, so that its size is the same for cohorts of similar sizes; None where batches
          are as the epochs are.
        """
        batching = self.batching
        if not isinstance(batching, ShuffleRepeatBatchHParams) or not batching.fill_remainder:
            return None
        found = np.ones(round_up_far(len(self.clients) + 1), np.float32)
        for index, client in enumerate(self.clients):
            total = self._count(len(client)) if isinstance(client, ClientDataset) else 0
            seen = (num_steps(total, batching) or 0) * batching.batch_size
            if seen:
                found[index] = _epochs(batching) * total / seen
        return found

    def without_batch(self) -> dict[int, float]:
        """Return the weights of clients that weigh without a batch, by their indices.

        Their examples are fewer than a batch, and a remainder is dropped, as in FedJAX; see `shares`.
        """
        batching = self.batching
        if not isinstance(batching, ShuffleRepeatBatchHParams) or not batching.fill_remainder:
            return {}
        if not batching.drop_remainder:
            return {}
        sizes = {i: self._count(len(c)) for i, c in enumerate(self.clients) if isinstance(c, ClientDataset)}
        return {i: float(_epochs(batching) * n) for i, n in sizes.items() if n and num_steps(n, batching) == 0}

    def prepared(self) -> Iterator[Client]:
        """Yield the clients that have data, in order.

        Raises:
          DataError: a client's data is not a dict of numeric arrays, or does not go with the other clients' data.
          Tf2JaxError: raised by ``check``.
        """
        form: _Form | None = None
        for index, item in enumerate(self.clients):
            if item is None:
                continue
            found = self._client(index, item)
            if found is None or found.steps == 0:
                continue
            who, given = f"client {index} of the round", found.examples
            if self.prepare is not None:
                examples, client_input = self.prepare(given, found.client_input, who)
                found = dataclasses.replace(found, examples=dict(examples), client_input=client_input)
            if form is None:
                form = _form(found.examples)
            elif not _has_form(found.examples, form):
                here = _text(_form(found.examples))
                raise DataError(f"{who} has examples {here}; those before: {_text(form)}")
            if self.check is not None:
                self.check(given, who)
            yield found

    def _client(self, index: int, item: Any) -> Client | None:
        client_input = None if self.inputs is None else self.inputs[index]
        if isinstance(item, ClientDataset):
            if self.batching is None:
                raise InputError(
                    "client_batching is missing, which says how a ClientDataset is cut into batches. Give the builder "
                    "client_batching=BatchHParams(batch_size=20)."
                )
            if len(item) == 0:
                return None
            # A batch preprocessor treats each example alone, so it may run once for all.
            examples = _numeric(item.all_examples() if item.preprocessor else item.raw_examples, index)
            size = len(next(iter(examples.values())))
            chosen = None if self.part is None else self._indices(size)
            count = size if chosen is None else len(chosen)
            rows = self._rows(count, index)
            if chosen is not None:
                rows = np.where(rows < 0, -1, np.append(chosen, -1)[rows])
            epochs = self._cutting.num_epochs if self._cutting.fill_remainder else None
            return Client(index, examples, rows, client_input, None if epochs is None else count * epochs)
        if isinstance(item, Mapping) or not isinstance(item, Iterable):
            raise DataError(
                f"client {index} of the round is a {type(item).__name__}; give a ClientDataset, an iterable of batches "
                "(dicts of arrays), or None for a client that dropped out"
            )
        found = _from_batches(index, item, client_input)
        if found is None or self.part is None:
            return found
        return dataclasses.replace(found, rows=_alternate(found.rows, self.part.number))

    def _indices(self, total: int) -> np.ndarray:
        """Return the examples of a dataset's half."""
        assert self.part is not None and self.part.batch_size is not None
        in_order = ShuffleRepeatBatchHParams(self.part.batch_size, skip_shuffle=True, fill_remainder=False)
        rows = _alternate(_rows_in_order(total, in_order), self.part.number)
        return rows[rows >= 0]

    def _count(self, total: int) -> int:
        return total if self.part is None else len(self._indices(total))

    @functools.cached_property
    def _cutting(self) -> ShuffleRepeatBatchHParams:
        """How ClientDatasets are cut; without a seed where nothing is shuffled."""
        batching = self.batching
        assert batching is not None
        if not isinstance(batching, ShuffleRepeatBatchHParams):
            drop = getattr(batching, "drop_remainder", False)
            return ShuffleRepeatBatchHParams(
                batching.batch_size, drop_remainder=drop, skip_shuffle=True, fill_remainder=False
            )
        if batching.num_epochs is None and batching.num_steps is None:
            raise InputError("client_batching has no end; set num_epochs or num_steps")
        return dataclasses.replace(batching, seed=None) if batching.skip_shuffle else batching

    def _rows(self, total: int, index: int) -> np.ndarray:
        cutting = self._cutting
        if cutting.skip_shuffle:
            return _rows_in_order(total, cutting) if total < _SMALL else index_table(total, cutting, None)
        given = None if self.keys is None else self.keys[index]
        return index_table(total, cutting, client_seed(cutting, self.key, self.round_number, index, given))


def _epochs(batching: ShuffleRepeatBatchHParams) -> int:
    """Return how often a client's weight counts an example; see `Cohort.shares`."""
    return 1 if batching.num_steps is not None else batching.num_epochs or 1


def _alternate(rows: np.ndarray, number: int) -> np.ndarray:
    """Return every other batch; of one batch every other example."""
    return rows[number::2] if len(rows) > 1 else rows[:, number::2]


def cohort_of(
    entries: Sequence[Entry],
    batching: Batching | None,
    key: Any,
    round_number: int,
    inputs: Sequence[Any] | None = None,
) -> Cohort:
    """Return the cohort of a round's entries; see `Cohort` for the arguments."""
    ids = [entry.client_id for entry in entries]
    keys = [entry.key for entry in entries] if entries and entries[0].key is not None else None
    return Cohort([entry.data for entry in entries], batching, key, round_number, inputs, ids=ids, keys=keys)


@functools.lru_cache(maxsize=512)
def _rows_in_order(total: int, cutting: ShuffleRepeatBatchHParams) -> np.ndarray:
    table = index_table(total, cutting, None)
    table.setflags(write=False)
    return table


def _from_batches(index: int, batches: Iterable[Any], client_input: Any) -> Client | None:
    kept: list[dict[str, np.ndarray]] = []
    for batch in batches:
        if isinstance(batch, tuple) and len(batch) == 2:  # (x, y), as in TFF
            batch = {"x": batch[0], "y": batch[1]}
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
    """Return the features as arrays of JAX's dtypes."""
    if EXAMPLE_MASK_KEY in examples:
        raise DataError(
            f"client {index} of the round: a feature is named {EXAMPLE_MASK_KEY!r}, which is the mask's name; rename it"
        )
    found: dict[str, np.ndarray] = {}
    for name, value in examples.items():
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            raise DataError(
                f"client {index} of the round: feature {name!r} is text; a preprocessor must make numbers of it"
            )
        if array.ndim == 0:
            raise DataError(f"client {index} of the round: feature {name!r} is a scalar, not an array of examples")
        dtype = array.dtype.newbyteorder("=")
        if not _is_known_to_jax(dtype):  # dates, records
            raise DataError(
                f"client {index} of the round: feature {name!r} is {array.dtype}, which JAX has not; a preprocessor "
                "must make numbers of it"
            )
        canonical = jax.dtypes.canonicalize_dtype(dtype)
        if canonical != dtype:
            check_integers({name: array}, f"client {index} of the round", DataError)
        found[name] = np.asarray(array, canonical)
    sizes = {name: value.shape[0] for name, value in found.items()}
    if len(set(sizes.values())) != 1:
        raise DataError(f"client {index} of the round: the features' numbers of examples differ: {sizes}")
    return found


@functools.lru_cache(maxsize=64)
def _is_known_to_jax(dtype: np.dtype) -> bool:
    try:
        jax.typeof(np.zeros((), dtype))
    except TypeError:
        return False
    return True


def _form(examples: Mapping[str, np.ndarray]) -> _Form:
    return {name: (value.shape[1:], value.dtype) for name, value in examples.items()}


def _has_form(examples: Mapping[str, np.ndarray], form: _Form) -> bool:
    if len(examples) != len(form):
        return False
    for name, value in examples.items():
        known = form.get(name)
        if known is None or value.dtype != known[1] or value.shape[1:] != known[0]:
            return False
    return True


def _text(form: _Form) -> str:
    return ", ".join(f"{name}: {dtype}{list(shape)}" for name, (shape, dtype) in sorted(form.items()))


def round_up(steps: int) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, ...: few shapes, padding <= 1/3."""
    size = 1
    while size < steps:
        if size >= 2 and size // 2 * 3 >= steps:
            return size // 2 * 3
        size *= 2
    return size


def round_up_far(count: int) -> int:
    """Return the next of 8, 32 and 128, and beyond these `round_up`.

    Cohorts of changing sizes then have few shapes.
    """
    return next((size for size in (8, 32, 128) if count <= size), round_up(count))


def lay_out(clients: Sequence[Client], rows: int, steps: int, padding_index: int, arena: Arena | None = None) -> Chunk:
    """Return a chunk for clients with equal shapes; `fill` writes its batches.

    Args:
      clients: at least one.
      rows: the leading size of the result; rows without a client repeat nothing and have 0 steps.
      steps: the steps of the result.
      padding_index: the index of rows without a client.
      arena: memory for the batches; new memory if None.
    """
    arena = arena or Arena()
    batch = max(client.rows.shape[1] for client in clients)
    arrays = {
        name: arena.empty(name, (rows, steps, batch, *value.shape[1:]), value.dtype)
        for name, value in clients[0].examples.items()
    }
    if any(client.rows.shape[1] < batch or not client.is_full for client in clients):
        arrays[EXAMPLE_MASK_KEY] = arena.empty(EXAMPLE_MASK_KEY, (rows, steps, batch), bool)
    if any(client.counted is not None for client in clients):
        arrays[EXAMPLE_FILL_KEY] = arena.empty(EXAMPLE_FILL_KEY, (rows, steps, batch), bool)
    counts = np.zeros(rows, np.int32)
    index = np.full(rows, padding_index, np.int32)
    for c, client in enumerate(clients):
        counts[c], index[c] = client.steps, client.index
    inputs = None
    if clients[0].client_input is not None:
        given = [client.client_input for client in clients]
        given += [given[0]] * (rows - len(given))
        inputs = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *given)
    return Chunk(arrays, counts, index, inputs)


def fill(chunk: Chunk, clients: Sequence[Client], *, everywhere: bool = True) -> None:
    """Write the batches of clients into their chunk of `lay_out`.

    Args:
      chunk: to write to.
      clients: the same ones.
      everywhere: write zeros where no client has a batch, for programs that read all of it.
    """
    arrays = dict(chunk.batches)
    mask, filled = arrays.pop(EXAMPLE_MASK_KEY, None), arrays.pop(EXAMPLE_FILL_KEY, None)
    for flags in (mask, filled):
        if flags is not None:
            flags[:] = False
    for c, client in enumerate(clients):
        count, width = client.rows.shape
        take = client.rows
        if filled is not None and client.counted is not None:
            filled[c, :count, :width] = client.fill()
        if mask is not None:
            batch = mask.shape[2]
            real = mask[c, :count, :width] = client.rows >= 0
            if width < batch or not client.is_full:
                # Padding repeats an example of its batch: see model.split_mask.
                take = np.repeat(client.rows[:, :1], batch, axis=1)
                np.copyto(take[:, :width], client.rows, where=real)
        for name, value in client.examples.items():
            np.take(value, take, axis=0, out=arrays[name][c, :count], mode="clip")
            if everywhere:
                arrays[name][c, count:] = 0
    if everywhere:
        for value in arrays.values():
            value[len(clients) :] = 0
