"""The performance page's section on another processor, with equal suites."""

from __future__ import annotations

from collections.abc import Sequence

from . import render_targets, tables
from .tables import Record

TEXT = """## On another processor

The thresholds of the CPU lowering rules were measured with AVX-512. These are the same measurements on two shared cores
with {machine}. Trace and compile is CPU time.

"""
HEADER = (
    "model",
    "batch",
    "ours, ms",
    "to tensorflow",
    "to tensorflow_xla",
    "to native",
    "to tf2jax",
    "trace and compile, to native",
    "to tf2jax",
    "training step, to native",
    "conversion, to tf2jax",
    "memory, times the weights",
)


def section(suites: dict[str, list[Record]]) -> str:
    """Return the section, empty without models that were run.

    Args:
      suites: the other processor's records by suite.
    """
    if not (run := suites.get("run", [])):
        return ""
    train = {(r["model"], r["batch"]): r["ratios"].get("native") for r in suites.get("train", [])}
    convert = {r["model"]: r["ratios"].get("tf2jax") for r in suites.get("convert", []) if "model" in r}
    memory = {r["model"]: r["results_only"] for r in suites.get("memory", [])}
    batches: dict[str, int] = {}
    rows: list[Sequence[object]] = []
    for r in run:
        first = batches.setdefault(r["model"], r["batch"]) == r["batch"]  # values per model are in its first row
        rows.append(
            (
                r["model"],
                r["batch"],
                f"{1e3 * r['times']['tf2jax_lite']['median']:.1f}",
                *(tables.ratio(r["ratios"].get(o)) for o in ("tensorflow", "tensorflow_xla", "native", "tf2jax")),
                *(tables.ratio(tables.ready(r, o)) for o in ("native", "peer")),
                tables.ratio(train.get((r["model"], r["batch"]))),
                *(tables.ratio(known.get(r["model"])) if first else "" for known in (convert, memory)),
            )
        )
    machine = " and ".join(sorted({r["machine"] for r in run}))
    return TEXT.format(machine=machine) + render_targets.table(suites) + "\n" + tables.table(HEADER, rows)
