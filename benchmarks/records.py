"""Records: one measured value each, one JSON object a line.

A suite yields results: a case (the fields that identify a measurement) and nested values. Each value becomes a record
with the keys ``suite, case, metric, value, unit, machine, versions, day, load``; ``metric`` is the path of the value,
joined by slashes. A dict with ``median`` is one value, whose other entries (``best``, ``rounds``) are keys of its
record.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .timing import ratios

Record = dict[str, Any]
Result = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A case, and nested values."""

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

_SECONDS = "times trace compile cpu convert tracing first import help python seconds simulated wall"
_BYTES = "weights baseline built converted compiled peak bytes temporaries state results read memory"
# The first part of a metric's path with a unit gives it to the metric; others are counts and ratios.
UNITS = {
    **dict.fromkeys(("shares", "ratios", "kernels", "calls"), "1"),
    **dict.fromkeys(_SECONDS.split(), "s"),
    **dict.fromkeys(_BYTES.split(), "B"),
    "flops": "FLOP",
    "gflops": "GFLOP/s",
    "lines": "lines",
}
_IN_RECORD = ("suite", "case", "metric", "value", "unit")
_CONTEXT = ("machine", "versions", "day", "load", "cores")


def circumstances() -> Record:
    """Return the machine, versions, day and load of a measurement."""
    versions = {}
    for name in ("jax", "tensorflow"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    load, cores = os.getloadavg()[0], os.cpu_count()
    return {"machine": _machine(), "versions": versions, "day": day, "load": load, "cores": cores}


def _machine() -> str:
    """Return the kind of processor, and its widest vectors if the system reports them."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        flags = []
    vectors = next((name for flag, name in (("avx512f", ", AVX-512"), ("avx2", ", AVX2")) if flag in flags), "")
    return platform.machine() + vectors


def unit_of(metric: str, value: Any) -> str | None:
    """Return the unit of a metric; None if its value is a text."""
    if isinstance(value, str):
        return None
    return next((UNITS[part] for part in metric.split("/") if part in UNITS), "1")


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and "median" not in value:
            yield from _leaves(value, (*path, name))
        else:
            yield "/".join((*path, name)), value


def records_of(suite: str, result: Result, context: Mapping[str, Any]) -> list[Record]:
    """Return the records of a result."""
    case, values = result
    values = dict(values)
    context = {**context, "versions": {**context.get("versions", {}), **values.pop("versions", {})}}
    found = []
    for metric, value in _leaves(values):
        spread = {**value} if isinstance(value, Mapping) else {"median": value}
        value = spread.pop("median")
        head = {"suite": suite, "case": dict(case), "metric": metric, "value": value, "unit": unit_of(metric, value)}
        found.append({**head, **spread, **context})
    return found


def results_of(records: Iterable[Record]) -> list[Record]:
    """Return results: dicts with ``suite``, the case, values and context.

    It has the ratios of times, too: the median of tf2jax_lite, else of the first contestant, divided by each other's.
    """
    found: list[Record] = []
    key, seen = None, set[str]()
    for record in records:
        if key != (key := (record["suite"], record["case"])) or record["metric"] in seen:
            context = {name: record[name] for name in _CONTEXT if name in record}
            found.append({"suite": record["suite"], **record["case"], **context})
            seen = set()
        seen.add(record["metric"])
        spread = {name: value for name, value in record.items() if name not in (*_IN_RECORD, *_CONTEXT)}
        *path, last = record["metric"].split("/")
        inner = found[-1]
        for name in path:
            inner = inner.setdefault(name, {})
        timed = bool(spread) or path[-1:] == ["times"]
        inner[last] = {"median": record["value"], **spread} if timed else record["value"]
    for result in found:
        _add_ratios(result)
    return found


def _add_ratios(values: Record) -> None:
    for value in [*values.values()]:
        if isinstance(value, dict):
            _add_ratios(value)
    if times := values.get("times"):
        values["ratios"] = ratios(times)


def latest(results: Iterable[Record], keys: Sequence[str]) -> list[Record]:
    """Return the last result for each value of some keys."""
    return list({tuple(result.get(key) for key in keys): result for result in results}.values())


def read(paths: Iterable[str | Path]) -> list[Record]:
    """Return the records of files."""
    return [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]


def append(path: Path, records: Iterable[Record]) -> None:
    """Append records to a file."""
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def formatted(record: Record) -> str:
    """Return a record as a line for people."""
    case = ", ".join(f"{name} {value}" for name, value in record["case"].items())
    value, unit = record["value"], record["unit"]
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{record['suite']} | {case} | {record['metric']} | {text}" + (f" {unit}" if unit not in (None, "1") else "")


def compared(before: Sequence[Record], after: Sequence[Record]) -> list[tuple[Record, Record, float]]:
    """Return pairs of records of one metric, and the ratio of their values."""

    def by_metric(records: Sequence[Record]) -> dict[Any, Record]:
        numbers = (r for r in records if isinstance(r["value"], int | float))
        return {(r["suite"], json.dumps(r["case"], sort_keys=True), r["metric"]): r for r in numbers}

    old, new = by_metric(before), by_metric(after)
    return [
        (old[key], new[key], new[key]["value"] / old[key]["value"]) for key in new if key in old and old[key]["value"]
    ]
