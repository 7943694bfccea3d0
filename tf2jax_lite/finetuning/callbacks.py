"""Watches trainings: throughput, JSON lines, TensorBoard, profiles, and a base class for experiment trackers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from tf2jax_lite.federated.simulation.events import EventWriter
from tf2jax_lite.support.errors import InputError

from .steps import FinetuneState

__all__ = ["Callback", "JsonLines", "Profile", "TensorBoard", "Throughput"]


class Callback:
    """Does nothing; a subclass overrides the methods that it needs."""

    def on_step(self, step: int, num_examples: int, state: FinetuneState) -> None:
        """Run after a step is dispatched; devices may still compute it.

        Args:
          step: number of steps so far, those before a resumption included.
          num_examples: examples of the step's batch.
          state: the training's state. The next step donates its memory: copy arrays to keep them.
        """

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Run for each new record of the history, after it is saved."""

    def on_end(self) -> None:
        """Run at the end, and after an error."""


class Throughput(Callback):
    """Measures examples per second between two calls of `rate`, without the first step, which compiles."""

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
        """See `Callback.on_record`: evaluation and checkpoints do not count."""
        self._begin, self._examples = None, 0

    def rate(self) -> float | None:
        """Return examples per second since the last record; None before the second step."""
        if self._begin is None or not self._examples:
            return None
        return self._examples / max(time.perf_counter() - self._begin, 1e-9)


class JsonLines(Callback):
    """Appends each record of the history to a file as a line of JSON.

    Args:
      path: the file.
    """

    def __init__(self, path: str | Path):
        self._path = Path(path)
        _open(self._path.parent)

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Callback.on_record`."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(record), sort_keys=True) + "\n")


class TensorBoard(Callback):
    """Writes the scalars of each record for TensorBoard, without TensorFlow; steps are epochs.

    Args:
      directory: TensorBoard's ``--logdir``.
    """

    def __init__(self, directory: str | Path):
        _open(Path(directory))
        self._writer = EventWriter(directory)

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Callback.on_record`."""
        scalars = {name: float(v) for name, v in record.items() if isinstance(v, (int, float)) and name != "epoch"}
        self._writer.add_scalars(scalars, int(record["epoch"]))

    def on_end(self) -> None:
        """See `Callback.on_end`."""
        self._writer.close()


class Profile(Callback):
    """Traces a few steps with `jax.profiler`.

    Args:
      directory: where the trace is written; TensorBoard and Perfetto read it.
      first: number of the first traced step of this process, from 1; earlier ones compile and warm up.
      count: number of traced steps.
    """

    def __init__(self, directory: str | Path, first: int = 10, count: int = 3):
        self._directory, self._first, self._count = Path(directory), first, count
        self._seen, self._running = 0, False
        _open(self._directory)

    def on_step(self, step: int, num_examples: int, state: FinetuneState) -> None:
        """See `Callback.on_step`."""
        self._seen += 1
        if self._seen == self._first - 1 or (self._first == 1 and self._seen == 1):
            jax.block_until_ready(state.loss_sum)
            jax.profiler.start_trace(str(self._directory))
            self._running = True
        elif self._running and self._seen >= self._first - 1 + self._count:
            jax.block_until_ready(state.loss_sum)
            self.on_end()

    def on_end(self) -> None:
        """See `Callback.on_end`."""
        if self._running:
            jax.profiler.stop_trace()
            self._running = False


def _open(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}.") from error
