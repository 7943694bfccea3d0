"""Training data in memory and in files, as batches.

Batches start anywhere in an epoch, so that a training resumes in the middle of it. Pipelines shuffle, read ahead, and
give each process its share of the data.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import itertools
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tf2jax_lite.learning.data import ClientDataset
from tf2jax_lite.learning.data.examples import pad_examples
from tf2jax_lite.learning.data.rows import ROW_KINDS, Rows, file_kind, open_rows
from tf2jax_lite.learning.data.tables import HUB, TABLES, HubRows, ImageFolder, image_classes
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.errors import DataError, InputError, MissingLibraryError
from tf2jax_lite.support.limits import reading
from tf2jax_lite.support.npz import read_npz

Batch = dict[str, np.ndarray]


class TrainingData(abc.ABC):
    """Examples that a training reads epoch by epoch.

    Attributes:
      is_share: whether batches hold this process's share of the examples, not all of them.
      class_names: of the targets, if the data has them.
    """

    is_share: bool = False
    class_names: Sequence[str] = ()

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


Examples = Mapping[str, Any] | TrainingData | Iterable[Any] | str | Path
"""Values that `as_training_data` takes."""

_WINDOW = 2
"""Blocks whose rows are shuffled with each other; as many stay in memory."""


class RowData(TrainingData):
    """Examples by index as training data.

    The order is drawn from the seed and the epoch. Rows that are read in blocks (Parquet) are shuffled in two steps:
    the blocks, and the rows of two neighboring blocks. Of several processes each reads its share of every batch; a
    short last batch is then left out.

    Args:
      rows: `Rows`, or any sequence of dicts of arrays or numbers: a list, a ``grain.MapDataset``, a Hugging Face
        dataset.
      prepare: applied to each batch, a dict of arrays (n, ...).
      threads: that read ahead; 0 for none.
      workers: processes that read ahead; 0 for none.

    Raises:
      MissingLibraryError: Grain is not installed.
    """

    def __init__(
        self,
        rows: Rows | Sequence[Any],
        prepare: Callable[[Batch], Batch] = lambda batch: batch,
        *,
        threads: int = 8,
        workers: int = 0,
    ):
        try:
            import grain
        except ImportError as error:
            raise MissingLibraryError(f"this data needs Grain: pip install 'tf2jax-lite[grain]' ({error})") from error
        self._grain, self._rows, self._prepare = grain, rows, prepare
        self._threads, self._workers = threads, workers
        self.is_share = jax.process_count() > 1
        self.class_names = list(getattr(rows, "classes", ()))

    def __len__(self) -> int:
        """See `TrainingData`."""
        return len(self._rows)

    def epoch(self, number: int, batch_size: int, seed: int, skip: int = 0) -> Iterator[Batch]:
        """See `TrainingData.epoch`."""
        processes = jax.process_count()
        if batch_size % processes:
            raise InputError(f"the batch size {batch_size} is no multiple of the {processes} processes.")
        words = np.random.SeedSequence([seed, number]).generate_state(1)
        rows, blocks = self._rows, None
        if isinstance(rows, Rows) and (blocks := rows.blocks()) is not None:
            rows = _Ordered(rows, blocks, words)
        source = self._grain.MapDataset.source(rows)
        shuffled = source.shuffle(seed=int(words[0])) if blocks is None else source
        share = shuffled.slice(slice(jax.process_index(), None, processes)) if processes > 1 else shuffled
        batches = share.batch(batch_size // processes, drop_remainder=processes > 1, batch_fn=_stacked)
        return map(self._prepare, self._read(batches.slice(slice(skip, None)) if skip else batches))

    def _read(self, batches: Any) -> Iterator[Batch]:
        options = self._grain.ReadOptions(num_threads=self._threads, prefetch_buffer_size=max(self._threads, 1))
        found = batches.to_iter_dataset(options)
        if self._workers:
            from absl import flags  # a dependency of Grain

            if not flags.FLAGS.is_parsed():  # Grain reads its flags, also in programs that parse none
                flags.FLAGS.mark_as_parsed()
            found = found.mp_prefetch(self._grain.MultiprocessingOptions(num_workers=self._workers))
        return iter(found)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """See `TrainingData.in_order`. Every process reads all examples."""
        batches = self._grain.MapDataset.source(self._rows).batch(batch_size, batch_fn=_stacked)
        return (pad_examples(self._prepare(batch), batch_size) for batch in self._read(batches))

    def first(self, count: int) -> Batch:
        """See `TrainingData.first`, without ``prepare``."""
        return _stacked([self._rows[i] for i in range(min(count, len(self)))])

    def prepared(self, prepare: Callable[[Batch], Batch]) -> RowData:
        """See `TrainingData.prepared`."""
        return RowData(
            self._rows,
            lambda batch: prepare(self._prepare(batch)),
            threads=self._threads,
            workers=self._workers,
        )

    def identity(self) -> Any:
        """See `TrainingData.identity`."""
        return self._rows.identity() if isinstance(self._rows, Rows) else [type(self._rows).__name__, len(self)]


_FORMATS = (
    ".npz, .csv and .jsonl files, which are read into memory; .tfrecord, .array_record and .parquet files; folders of "
    "files of one of these kinds; folders with a folder of images for each class; and hf://datasets/NAME"
)


def open_data(
    path: str | Path,
    *,
    threads: int = 8,
    workers: int = 0,
    label: str = "y",
    image_shape: Sequence[int] | None = None,
) -> TrainingData:
    """Open training data.

    Args:
      path: an .npz, .csv or .jsonl file, which is read into memory; what `open_rows` opens, which is not; a folder with
        a folder of images for each class (`ImageFolder`); or a data set's name, ``hf://datasets/NAME`` (`HubRows`).
      threads: see `RowData`.
      workers: see `RowData`.
      label: the name of the class, for its names, and of images.
      image_shape: of images, see `ImageFolder`.

    Raises:
      DataError: the data is damaged, or of no known kind.
      MissingLibraryError: an extra is not installed.
    """
    if (address := _hub_address(path)) is not None:
        return RowData(HubRows(address, label), threads=threads, workers=workers)
    path = Path(path)
    if image_classes(path):
        return RowData(ImageFolder(path, label, image_shape), threads=threads, workers=workers)
    with reading(str(path), DataError):
        files = sorted(p for p in path.iterdir() if not p.name.startswith(".")) if path.is_dir() else [path]
    kinds = {file_kind(file) for file in files}
    if len(kinds) == 1 and (read := TABLES.get(next(iter(kinds)))) is not None:
        return InMemory(read(files))
    if len(kinds) == 1 and kinds <= ROW_KINDS and (path.is_dir() or kinds != {".npz"}):
        return RowData(open_rows(path), threads=threads, workers=workers)
    if path.is_dir() or (path.is_file() and not zipfile.is_zipfile(path)):
        found = f"; found are {sorted(kinds)}" if path.is_dir() and kinds else ""
        raise DataError(f"{path} is not training data{found}. These are {_FORMATS}.")
    return InMemory(read_npz(path, DataError))


def _hub_address(path: str | Path) -> str | None:
    """Return the address of a data set of the Hub; a path has one slash of two."""
    text = str(path)
    if isinstance(path, Path) and text.startswith("hf:/") and not text.startswith("hf://"):
        text = text.replace("hf:/", "hf://", 1)
    return text if text.startswith(HUB) else None


def as_training_data(examples: Examples) -> TrainingData:
    """Return examples as `TrainingData`.

    Args:
      examples: training data; a dict of arrays (n, ...), or a table of columns (pandas); a path, see `open_data`; a
        sequence of examples, see `RowData`; another iterable with a length, see `StreamedData`.

    Raises:
      InputError: it is something else, or there are no examples.
    """
    given: Any = examples
    if hasattr(given, "keys"):
        return InMemory({name: given[name] for name in given.keys()})  # noqa: SIM118  (of a table, `in` may differ)
    if isinstance(given, TrainingData):
        data = given
    elif isinstance(given, (str, Path)):
        data = open_data(given)
    elif hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        data = RowData(given)
    elif hasattr(given, "__len__") and hasattr(given, "__iter__"):
        data = StreamedData(given, len(given))
    else:
        raise InputError(
            "training data is a dict of arrays, a path, or a sequence of examples, which are dicts, not "
            f"{type(given).__name__}. An iterable without a length needs StreamedData(iterable, num_examples)."
        )
    if not isinstance(data, InMemory) and not len(data):
        raise InputError("there are no examples to train on.")
    return data


class StreamedData(TrainingData):
    """Examples of an iterable in its order.

    An example is a ``grain.IterDataset`` that shuffles.
    Each epoch iterates once from the begin; a resumed training reads again what it has seen.

    Args:
      examples: dicts of arrays or numbers. It must start again for each epoch, with the same examples.
      num_examples: of an epoch.
      prepare: applied to each batch, a dict of arrays (n, ...).

    Raises:
      InputError: it is an iterator, which does not start again.
    """

    def __init__(
        self,
        examples: Iterable[Any],
        num_examples: int,
        prepare: Callable[[Batch], Batch] = lambda batch: batch,
    ):
        if iter(examples) is examples:
            raise InputError("an iterator ends with the first epoch; give something that starts again, such as a list.")
        self._examples, self._count, self._prepare = examples, num_examples, prepare

    def __len__(self) -> int:
        """See `TrainingData`."""
        return self._count

    def _batches(self, batch_size: int) -> Iterator[Batch]:
        rest = itertools.islice(iter(self._examples), self._count)
        while found := list(itertools.islice(rest, batch_size)):
            yield _stacked(found)

    def epoch(self, number: int, batch_size: int, seed: int, skip: int = 0) -> Iterator[Batch]:
        """See `TrainingData.epoch`; the order is the iterable's."""
        return map(self._prepare, itertools.islice(self._batches(batch_size), skip, None))

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """See `TrainingData.in_order`."""
        return (pad_examples(self._prepare(batch), batch_size) for batch in self._batches(batch_size))

    def first(self, count: int) -> Batch:
        """See `TrainingData.first`, without ``prepare``."""
        found = next(self._batches(min(count, self._count)), None)
        if found is None:
            raise InputError(f"the {type(self._examples).__name__} has no examples; {self._count} were announced.")
        return found

    def prepared(self, prepare: Callable[[Batch], Batch]) -> StreamedData:
        """See `TrainingData.prepared`."""
        return StreamedData(self._examples, self._count, lambda batch: prepare(self._prepare(batch)))

    def identity(self) -> Any:
        """See `TrainingData.identity`."""
        return [type(self._examples).__name__, self._count]


class _Ordered:
    """Rows in an order that reads blocks one after another.

    Args:
      rows: the rows.
      blocks: sizes of blocks.
      words: of the seed.
    """

    def __init__(self, rows: Rows, blocks: Sequence[int], words: np.ndarray):
        rng = np.random.default_rng(words)
        begins = np.cumsum([0, *blocks])
        chosen = rng.permutation(len(blocks))
        parts = []
        for window in range(0, len(chosen), _WINDOW):
            here = [np.arange(int(begins[i]), int(begins[i + 1])) for i in chosen[window : window + _WINDOW]]
            parts.append(rng.permutation(np.concatenate(here)))
        self._rows, self._order = rows, np.concatenate(parts)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Any:
        return self._rows[int(self._order[index])]


def _stacked(examples: Sequence[Any]) -> Batch:
    """Return examples as one batch.

    Raises:
      DataError: one is not a dict, or they differ in names or shapes.
    """
    names = list(examples[0]) if isinstance(examples[0], Mapping) else []
    for example in examples:
        if not isinstance(example, Mapping) or not names or example.keys() != examples[0].keys():
            there = sorted(example) if isinstance(example, Mapping) else type(example).__name__
            raise DataError(f"an example is a dict of arrays or numbers by name, {names or 'not empty'}; not {there}.")
    found = {}
    for name in names:
        try:
            found[name] = np.stack([np.asarray(example[name]) for example in examples])
        except ValueError as error:
            raise DataError(
                f"the examples' {name!r} differ in shape ({error}). Pad them, and mark padded targets (ignore_label=)."
            ) from error
    return found
