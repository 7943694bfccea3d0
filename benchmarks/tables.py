"""Tables, medians, and ratios of records, for the performance page."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Record = dict[str, Any]


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def ready(record: Record, other: str) -> float | None:
    """Return our time to trace and compile relative to another's.

    It is processor time, or the clock in older records.
    """
    ours, theirs = record["ours"], record.get(other, {})
    if "compile" not in theirs:
        return None
    if "cpu" in ours and "cpu" in theirs:
        return ours["cpu"] / theirs["cpu"]
    return (ours["trace"] + ours["compile"]) / (theirs["trace"] + theirs["compile"])


def different(record: Record, who: str) -> int:
    """Return the number of a contestant's different kernels; 0 if unknown."""
    return record.get(who, {}).get("different", 0)


def each(record: Record, who: str) -> float | None:
    """Return CPU milliseconds to trace and compile per different kernel."""
    pieces = different(record, who)
    return 1e3 * record[who]["cpu"] / pieces if pieces else None
