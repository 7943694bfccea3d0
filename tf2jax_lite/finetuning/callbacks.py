"""Callbacks of a training, and its early end.

`Callback` is the base class for experiment trackers.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from tf2jax_lite.learning.recorder import Recorder
from tf2jax_lite.support.errors import InputError

from .steps import FinetuneState

# Last parts of the names of metrics of which less is better.
_LESS_IS_BETTER = ("loss", "mae", "mse", "perplexity", "error")


@dataclasses.dataclass(frozen=True)
class Monitor:
    """Watches one metric of the history.

    Attributes:
      metric: its name in the records, as in ``eval/loss``. Less is better of losses, errors and perplexity; more is
        better of other metrics.
      patience: training ends after this many epochs without a better value; None for never.

    Raises:
      InputError: ``patience`` is below 1.
    """

    metric: str
    patience: int | None = None

    def __post_init__(self) -> None:
        """Check the patience."""
        if self.patience is not None and (type(self.patience) is not int or self.patience < 1):
            raise InputError(f"patience is an integer of at least 1, not {self.patience}.")

    def _best(self, records: Sequence[Mapping[str, Any]]) -> int | None:
        """Return the index of the first record with the best value.

        None if none has a finite one.
        """
        less = self.metric.rsplit("/", 1)[-1].endswith(_LESS_IS_BETTER)
        values = [(record[self.metric], i) for i, record in enumerate(records) if record.get(self.metric) is not None]
        if not values:
            return None
        best = (min if less else max)(value for value, _ in values)
        return next(i for value, i in values if value == best)

    def improved(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the last record is better than all before."""
        return self._best(records) == len(records) - 1

    def exhausted(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the patience is over."""
        best = self._best(records)
        return self.patience is not None and best is not None and len(records) - 1 - best >= self.patience


class FirstBatch(NamedTuple):
    """The first batch of a training, or of the part after a resumption.

    Attributes:
      num_examples: of the batch.
      devices: of the training, those of all processes.
      num_steps: steps that are left, if training does not end early.
    """

    num_examples: int
    devices: Sequence[Any]
    num_steps: int


class Callback(Recorder):
    """Gets the steps of a training, too; a subclass overrides what it needs."""

    def on_begin(self, batch: FirstBatch) -> None:
        """Run before the first step."""

    def on_step(self, step: int, num_examples: int, state: FinetuneState) -> None:
        """Run after a step is dispatched; devices may still compute it.

        Args:
          step: number of steps so far, those before a resumption included.
          num_examples: examples of the step's batch.
          state: the training's state. The next step donates its memory: copy arrays to keep them.
        """


class Throughput(Callback):
    """Measures examples per second between two calls of `rate`.

    The first step, which compiles, does not count.
    """

    def __init__(self) -> None:
        self._begin: float | None = None
        self._examples = 0

    def on_step(self, step: int, num_examples: int, state: FinetuneState) -> None:
        """See `Callback.on_step`."""
        if self._begin is None:
            jax.block_until_ready(state.loss_sum)
            self._begin = time.perf_counter()
        else:
            self._examples += num_examples

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Recorder.on_record`: evaluation and checkpoints do not count."""
        self._begin, self._examples = None, 0

    def rate(self) -> float | None:
        """Return examples per second since the last record; None before the second step."""
        if self._begin is None or not self._examples:
            return None
        return self._examples / max(time.perf_counter() - self._begin, 1e-9)


class Profile(Callback):
    """Traces a few steps with `jax.profiler`.

    Args:
      directory: where the trace is written; TensorBoard and Perfetto read it.
      first: number of the first traced step of this process, from 1; earlier ones compile and warm up. If there are
        fewer steps, the last ones are traced.
      count: number of traced steps.
    """

    def __init__(self, directory: str | Path, first: int = 10, count: int = 3):
        self._directory, self._first, self._count = Path(directory), first, count
        self._seen, self._running = 0, False
        _open(self._directory)

    def on_begin(self, batch: FirstBatch) -> None:
        """See `Callback.on_begin`."""
        self._first = max(1, min(self._first, batch.num_steps - self._count + 1))
        if self._first == 1:
            self._start()

    def on_step(self, step: int, num_examples: int, state: FinetuneState) -> None:
        """See `Callback.on_step`."""
        self._seen += 1
        if self._seen == self._first - 1:
            jax.block_until_ready(state.loss_sum)
            self._start()
        elif self._running and self._seen >= self._first - 1 + self._count:
            jax.block_until_ready(state.loss_sum)
            self.on_end()

    def _start(self) -> None:
        jax.profiler.start_trace(str(self._directory))
        self._running = True

    def on_end(self) -> None:
        """See `Recorder.on_end`."""
        if self._running:
            jax.profiler.stop_trace()
            self._running = False


def _open(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}.") from error
