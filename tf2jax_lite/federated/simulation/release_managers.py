"""Callbacks that record the rounds of `train_model`.

Source: tff.program, whose release managers these are by name.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.federated.simulation.events import EventWriter
from tf2jax_lite.federated.simulation.records import scalars_of
from tf2jax_lite.support.errors import DataError, ExportError


@runtime_checkable
class ReleaseManager(Protocol):
    """Takes the values of each round. See tff.program.ReleaseManager.

    A resumed training releases the rounds before it again, so a manager replaces the values of a key.
    """

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """Record a round.

        Args:
          value: JSON by path (``client_work/train/loss``), with ``round``: numbers, lists for arrays, and
            ``client_diagnostics`` by client.
          key: the round, from 1; 0 for an evaluation before the first.
        """


class MemoryReleaseManager:
    """Keeps values in memory. See tff.program.MemoryReleaseManager."""

    def __init__(self) -> None:
        self._values: dict[int, dict[str, Any]] = {}

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """See `ReleaseManager.release`."""
        self._values[key] = copy.deepcopy(dict(value))

    def values(self) -> dict[int, dict[str, Any]]:
        """Return the values by round."""
        return dict(self._values)


class LoggingReleaseManager:
    """Logs values. See tff.program.LoggingReleaseManager.

    Args:
      logger: where to; ``tf2jax_lite.federated`` by default.
      level: of `logging`.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO):
        self._logger = logger or logging.getLogger("tf2jax_lite.federated")
        self._level = level

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """See `ReleaseManager.release`."""
        self._logger.log(self._level, "round %d: %s", key, json.dumps(dict(value)))


class _FileReleaseManager:
    """Writes all values again after each round: a round may bring new columns."""

    def __init__(self, file_path: str | Path):
        self._path = Path(file_path)
        self._rows: dict[int, dict[str, Any]] = {}

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """See `ReleaseManager.release`.

        Raises:
          DataError: the file cannot be written.
        """
        self._rows[key] = {"round": key, **value}
        rows = [row for _, row in sorted(self._rows.items())]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._path, self._text(rows).encode())
        except (OSError, ExportError) as error:
            raise DataError(f"{self._path}: cannot be written ({getattr(error, 'strerror', None) or error})") from error

    def _text(self, rows: list[dict[str, Any]]) -> str:
        raise NotImplementedError


class CSVFileReleaseManager(_FileReleaseManager):
    """Writes a CSV file with a row for each round.

    Arrays and clients' metrics are JSON in a cell. See tff.program.CSVFileReleaseManager.

    Args:
      file_path: the file.
    """

    def _text(self, rows: list[dict[str, Any]]) -> str:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({n: json.dumps(v) if isinstance(v, list | dict) else v for n, v in r.items()} for r in rows)
        return text.getvalue()


class JSONLinesReleaseManager(_FileReleaseManager):
    """Writes a file with a line of JSON for each round; `read_history` reads it.

    Args:
      file_path: the file.
    """

    def _text(self, rows: list[dict[str, Any]]) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)


class TensorBoardReleaseManager:
    """Writes scalars for TensorBoard, those of arrays by index.

    See tff.program.TensorBoardReleaseManager.

    Args:
      summary_dir: the folder.
    """

    def __init__(self, summary_dir: str | Path):
        self._writer = EventWriter(summary_dir)

    def release(self, value: Mapping[str, Any], key: int) -> None:
        """See `ReleaseManager.release`."""
        self._writer.add_scalars({n: v for n, v in scalars_of(value).items() if n != "round"}, key)
