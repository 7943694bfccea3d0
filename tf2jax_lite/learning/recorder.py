"""Recorders of a training: progress, JSON lines, CSV, TensorBoard, a plot.

Source: tff.program, whose release managers these are by name.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import dataclasses
import html
import io
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from rich import progress

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.support.errors import DataError, ExportError, InputError, MissingLibraryError
from tf2jax_lite.support.limits import regular
from tf2jax_lite.support.text import printable

Record = dict[str, Any]


def metric_arrays(metrics: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Return the numbers among nested metrics by path: ``client_work/train/loss``.

    Lists of numbers are arrays; those of anything else are nested metrics, by index. Text and None are left out.
    """
    found: dict[str, np.ndarray] = {}
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(metrics, Mapping):
        items = metrics.items()
    elif (array := _as_numbers(metrics)) is not None:
        found[prefix] = array
    elif isinstance(metrics, list | tuple):
        items = metrics._asdict().items() if hasattr(metrics, "_asdict") else enumerate(metrics)
    for name, value in items:
        found |= metric_arrays(value, f"{prefix}/{text_of_id(name)}" if prefix else text_of_id(name))
    return found


def _as_numbers(value: Any) -> np.ndarray | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # a list of lists of different lengths, a JAX key
        return None
    if array.dtype.kind in "biuf":
        return array
    return array.astype(np.float32) if jnp.issubdtype(array.dtype, np.floating) else None  # bfloat16, float8


def text_of_id(name: Any) -> str:
    """Return a client's id, or the key of a metric, as text."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def flat_metrics(metrics: Any) -> dict[str, Any]:
    """Return nested metrics by path: floats, and lists for arrays.

    See `metric_arrays`.
    """
    return {name: array.astype(np.float64).tolist() for name, array in metric_arrays(metrics).items()}


def scalars_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return a record's numbers by path, as in ``finalizer/domain_weights/0``."""
    return {
        "/".join([path, *map(str, index)]): float(value)
        for path, array in metric_arrays(record).items()
        for index, value in np.ndenumerate(array)
    }


def diagnostics_record(by_client: Mapping[Any, Any]) -> dict[str, Any]:
    """Return clients' metrics by the text of their ids."""
    found: dict[str, Any] = {}
    for client_id, entry in by_client.items():
        name = text_of_id(client_id)
        own = list(map(flat_metrics, entry)) if isinstance(entry, list) else flat_metrics(entry)
        found[repr(client_id) if name in found else name] = own
    return found


class Recorder:
    """Gets the records of a training; a subclass overrides what it needs.

    As a context manager, it calls `on_end` at the end of the block.
    """

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Run for each new record of the history.

        Args:
          record: JSON by path (``client_work/train/loss``), with the number of its ``round`` or ``epoch``: numbers,
            lists for arrays, and ``client_diagnostics`` by client.
        """

    def on_end(self) -> None:
        """Run at the end, and after an error."""

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """Record a round, as a `ReleaseManager`."""
        self.on_record({"round": key, **value})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.on_end()


@runtime_checkable
class ReleaseManager(Protocol):
    """Takes the values of each round. See tff.program.ReleaseManager.

    A resumed training releases the rounds before it again, so a manager replaces the values of a key.
    """

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """Record a round.

        Args:
          value: see `Recorder.on_record`.
          key: the round, from 1; 0 for an evaluation before the first.
        """


def _number(record: Mapping[str, Any]) -> int:
    return int(record["round"] if "round" in record else record["epoch"])


@contextlib.contextmanager
def _writing(path: Any) -> Iterator[None]:
    try:
        yield
    except (OSError, ExportError) as error:
        raise DataError(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})") from error


class JSONLinesReleaseManager(Recorder):
    """Appends each record to a file as a line of JSON; `read_history` reads it.

    Args:
      file_path: the file; its folder is made.

    Raises:
      DataError: it cannot be written.
    """

    def __init__(self, file_path: str | Path):
        self._path = Path(file_path)
        self._released: int | None = None
        with _writing(file_path):
            self._path.parent.mkdir(parents=True, exist_ok=True)

    def resume(self, done: int) -> list[Record]:
        """Return the records up to a round; later ones are written again."""
        with _writing(self._path):
            kept = [r for r in read_history(self._path) if r["round"] <= done] if self._path.exists() else []
            write_file(self._path, lines_of(kept))
        return kept

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Recorder.on_record`."""
        with _writing(self._path), self._path.open("ab") as file:
            file.write(lines_of([record]))
            file.flush()
            os.fsync(file.fileno())

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """See `ReleaseManager.release`: the first round begins the file."""
        if self._released is None:
            with _writing(self._path):
                write_file(self._path, b"")
        elif key <= self._released:
            self.resume(key - 1)
        self._released = key
        super().release(value, key)


def lines_of(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Return records as lines of JSON."""
    return "".join(json.dumps(dict(record)) + "\n" for record in records).encode()


def read_history(path: str | Path) -> list[Record]:
    """Read a JSONL file of metrics that `run_rounds` wrote.

    Each line is a dict with ``round``.

    Args:
      path: the file.

    Raises:
      DataError: the file is damaged, or cannot be read. An unfinished last line, of a run that was killed, is left out.
    """
    records: list[Record] = []
    try:
        lines = regular(Path(path), DataError).read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a history, as it is no text: {error}") from error
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line)
            record["round"] = int(record["round"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: not a record of a round: {error}") from error
        records.append(record)
    return records


class TensorBoardReleaseManager(Recorder):
    """Writes each record's scalars to an event file for TensorBoard.

    Those of arrays have an index. See tff.program.TensorBoardReleaseManager.

    Args:
      directory: where the file is made; TensorBoard's ``--logdir``.

    Raises:
      MissingLibraryError: tensorboardX is not installed.
      DataError: the file cannot be made.
    """

    def __init__(self, directory: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise MissingLibraryError(
                f"event files need tensorboardX: pip install 'tf2jax-lite[tensorboard]' ({error})"
            ) from error
        self._directory = directory
        with _writing(directory):
            self._writer = SummaryWriter(str(directory))

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Recorder.on_record`: the step is the record's round or epoch."""
        step = _number(record)
        with _writing(self._directory):
            for tag, value in scalars_of(record).items():
                if tag not in ("round", "epoch"):
                    self._writer.add_scalar(tag, value, step)
            self._writer.flush()  # a training may be killed

    def on_end(self) -> None:
        """See `Recorder.on_end`."""
        self._writer.close()


class ProgressBar(Recorder):
    """Shows the number of rounds, losses and accuracies.

    Args:
      unit: of a record, "epoch" or "round".
      total: number of rounds.
      done: of these, before a resumption.
      **options: of `rich.progress.Progress`.
    """

    def __init__(self, unit: str, total: int, done: int = 0, **options: Any):
        columns = (
            progress.TextColumn(unit, markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.TextColumn("{task.fields[rate]}", markup=False),
        )
        self._bar, self._done = progress.Progress(*columns, **options), done
        self._task = self._bar.add_task("compiling", total=total, completed=done, rate="")
        self._bar.start()

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Recorder.on_record`."""
        number, text = _number(record), summary_text(record)
        if number == self._done:  # an evaluation before the first round, which is still to be compiled
            text = f"{text}  compiling".lstrip()
        self._bar.update(self._task, completed=number, description=text)

    def on_rate(self, examples_per_second: float) -> None:
        """Show the throughput."""
        self._bar.update(self._task, rate=f"{examples_per_second:,.0f} examples/s")

    def on_end(self) -> None:
        """See `Recorder.on_end`."""
        self._bar.stop()


def summary_text(record: Mapping[str, Any]) -> str:
    """Return the losses and accuracies of a record as text."""
    shown = ((name, value) for name, value in record.items() if name.rsplit("/", 1)[-1] in ("loss", "accuracy", "mae"))
    return "  ".join(f"{printable(name)} {value:.4f}" for name, value in shown if isinstance(value, float))


class MemoryReleaseManager(Recorder):
    """Keeps values in memory. See tff.program.MemoryReleaseManager."""

    def __init__(self) -> None:
        self._values: dict[int, dict[str, Any]] = {}

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Recorder.on_record`."""
        self._values[_number(record)] = copy.deepcopy(dict(record))

    def values(self) -> dict[int, dict[str, Any]]:
        """Return the values by round."""
        return dict(self._values)


class LoggingReleaseManager(Recorder):
    """Logs values. See tff.program.LoggingReleaseManager.

    Args:
      logger: where to; ``tf2jax_lite.federated`` by default.
      level: of `logging`.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO):
        self._logger = logger or logging.getLogger("tf2jax_lite.federated")
        self._level = level

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Recorder.on_record`."""
        self._logger.log(self._level, "round %d: %s", _number(record), json.dumps(dict(record)))


class CSVFileReleaseManager(MemoryReleaseManager):
    """Writes a CSV file with a row for each round.

    Arrays and clients' metrics are JSON in a cell. All rows are written again after each round, which may bring new
    columns. See tff.program.CSVFileReleaseManager.

    Args:
      file_path: the file.
    """

    def __init__(self, file_path: str | Path):
        super().__init__()
        self._path = Path(file_path)

    def on_record(self, record: Mapping[str, Any]) -> None:
        """See `Recorder.on_record`.

        Raises:
          DataError: the file cannot be written.
        """
        super().on_record(record)
        rows = [row for _, row in sorted(self.values().items())]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({n: json.dumps(v) if isinstance(v, list | dict) else v for n, v in r.items()} for r in rows)
        with _writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._path, text.getvalue().encode())


class Plot(Recorder):
    """Draws the losses, and the accuracies, of a history at the end.

    Args:
      history: the records, which the training adds to.
      path: the ``.svg`` to write.

    Raises:
      InputError: the name ends in another suffix.
    """

    def __init__(self, history: History, path: str | Path):
        if Path(path).suffix != ".svg":
            raise InputError(f"{path}: plots are SVG; give a name that ends in .svg")
        self._history, self._path = history, Path(path)

    def on_end(self) -> None:
        """See `Recorder.on_end`."""
        with _writing(self._path):
            write_file(self._path, self._history.svg())


def plot_history(history: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Draw the losses, and the accuracies, of a training.

    Args:
      history: dicts with ``round`` and scalars by path, as `run_rounds` returns them.
      path: the ``.svg`` to write.

    Raises:
      InputError: the name ends in another suffix.
      DataError: the file cannot be written.
    """
    Plot(History("round", [dict(record) for record in history]), path).on_end()


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 220, 70, 16, 28, 34
_COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096", "#b7791f", "#2c7a7b")
_NAMES_PER_ROW = 4


def plain(metrics: Any) -> dict[str, Any]:
    """Return nested metrics as one flat dict for JSON, names joined by ``/``.

    Values are numbers and lists. Values that are not finite become None: JSON has no NaN.
    """
    return {path: _finite(array.tolist()) for path, array in metric_arrays(jax.device_get(metrics)).items()}


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass
class History:
    """The records of a training, in order.

    Attributes:
      unit: of a record, "epoch" or "round".
      records: flat dicts of numbers, each with the unit's number from 1 (0: before training).
    """

    unit: str
    records: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, number: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Add a record and return it."""
        self.records.append({self.unit: number, **plain(metrics)})
        return self.records[-1]

    def jsonl(self) -> bytes:
        """Return a line of JSON for each record."""
        return lines_of(dict(sorted(record.items())) for record in self.records)

    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """Return for each name its numbers, each with the number of its record."""
        found: dict[str, list[tuple[float, float]]] = {}
        for record in self.records:
            for name, value in record.items():
                if name != self.unit and isinstance(value, (int, float)) and not isinstance(value, bool):
                    found.setdefault(name, []).append((record[self.unit], value))
        return found

    def svg(self) -> bytes:
        """Return plots of all losses, and of all accuracies, as an SVG file."""
        curves = self.curves()
        losses = {n: c for n, c in curves.items() if n.rsplit("/", 1)[-1] == "loss"}
        shares = {n: c for n, c in curves.items() if "accuracy" in n.rsplit("/", 1)[-1]}
        panels = [p for p in (("loss", losses), ("accuracy", shares)) if p[1]]
        total = max(len(panels), 1) * _HEIGHT
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {total}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{total}" fill="white"/>',
        ]
        for i, (title, lines) in enumerate(panels):
            parts.append(f'<g transform="translate(0 {i * _HEIGHT})">{_panel(title, lines, self.unit)}</g>')
        return ("".join(parts) + "</svg>\n").encode()

    def _repr_html_(self) -> str:
        """Return the plots for a notebook."""
        return f'<div style="max-width: {_WIDTH}px">{self.svg().decode()}</div>'


def _panel(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    xs = [x for line in lines.values() for x, _ in line]
    ys = [y for line in lines.values() for _, y in line]
    x0, x1 = min(xs), max(max(xs), min(xs) + 1)
    y0, y1 = min(ys), max(ys)
    if y1 - y0 <= 1e-12 * max(abs(y0), abs(y1), 1):
        half = 0.5 * max(abs(y0), 1)
        y0, y1 = y0 - half, y1 + half

    def at(x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + width * (x - x0) / (x1 - x0), _TOP + height * (y1 - y) / (y1 - y0)

    parts = []
    for i in range(5):
        y = y0 + (y1 - y0) * i / 4
        left, height = at(x0, y)
        parts.append(f'<path d="M{left:.1f} {height:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for i, (name, line) in enumerate(lines.items()):
        color = _COLORS[i % len(_COLORS)]
        points = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        row, column = divmod(i, _NAMES_PER_ROW)
        position = f'x="{_LEFT + 160 * column}" y="{16 + 14 * row}"'
        parts.append(f'<text {position} fill="{color}">{html.escape(name)}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 10}">{unit} {x0:g}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">{x1:g}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{title}</text>')
    return "".join(parts)
