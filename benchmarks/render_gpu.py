"""The performance page's section on GPUs: described or available ones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from . import tables
from .tables import Record

INTRODUCTION = """## On a GPU

`python -m benchmarks --suite programs --folder DIR` writes each model's call and training step as serialized StableHLO
for CUDA, for tf2jax_lite, native JAX and tf2jax. `python -m benchmarks.device DIR` compiles them and runs them
interleaved on JAX's default device; it needs no TensorFlow.

"""
DESCRIBED = """Compiled for a described {gpus} (`--described`), XLA reports the kernels that a call would launch (those
in loops per iteration), calls of cuDNN and cuBLAS (matrix products use cuBLAS, since autotuning needs a device), and
the bytes that kernels and calls read and write. CPU lowering rules ([above](#convolutions-and-pooling-on-cpu)) do not
apply.

"""

_NAMES = {"native": "native", "peer": "tf2jax"}


def _over(record: Record, other: str, what: str) -> float | None:
    theirs = record.get(other, {}).get(what)
    return record["ours"][what] / theirs if theirs else None


def _found(records: Sequence[Record], other: str, what: str) -> list[float]:
    return [value for r in records if (value := _over(r, other, what)) is not None]


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} (median; {min(values):.2f} to {max(values):.2f})"


def _summary(records: Sequence[Record]) -> str:
    """Return a summary of the comparison, for calls and for training steps."""
    lines = []
    for kind, chosen in (
        ("Calls", [r for r in records if r["program"].startswith("run-")]),
        ("Training steps", [r for r in records if r["program"].startswith("train-")]),
    ):
        if chosen:
            kernels, moved = (_range(_found(chosen, "native", what)) for what in ("kernels", "bytes"))
            lines.append(f"- {kind} ({len(chosen)} programs), to native: kernels {kernels}, bytes moved {moved}.")
    called = [r for r in records if r["native"]["calls"]]
    same = sum(r["ours"]["calls"] == r["native"]["calls"] == r["native"]["shared"] for r in called)
    lines.append(f"- In {same} of {len(called)} programs with library calls these are identical, including operands.")
    for other in ("native", "peer"):
        if ratios := _found(records, other, "cpu"):
            lines.append(f"- XLA's compile time (CPU), to {_NAMES[other]}: {_range(ratios)}.")
    return "\n".join(lines) + "\n"


def _pair(record: Record, what: str) -> str:
    return " / ".join(str(record[who][what]) for who in ("ours", "native", "peer") if who in record)


def section(described: Sequence[Record], timed: Sequence[Record]) -> str:
    """Return the section's text, or nothing without records.

    Args:
      described: records of ``python -m benchmarks.device --described``.
      timed: records of a machine with a GPU.
    """
    if not described and not timed:
        return ""
    text = INTRODUCTION
    if timed:
        rows = [
            (
                r["program"],
                f"{1e3 * r['times']['tf2jax_lite']['median']:.3f}",
                f"{1e3 * r['times']['native']['median']:.3f}",
                tables.ratio(r["ratios"].get("native")),
                tables.ratio(r["ratios"].get("tf2jax")),
            )
            for r in timed
        ]
        named = ", ".join(sorted({r["device"] for r in timed}))
        text += (
            f"Timed on {named}:\n\n"
            + tables.table(("program", "ours, ms", "native, ms", "to native", "to tf2jax"), rows)
            + "\n"
        )
    else:
        text += "No GPU was available for timing.\n\n"
    if described:
        gpus = ", ".join(sorted({r["device"].upper() for r in described}))
        rows = [
            (
                r["program"],
                _pair(r, "kernels"),
                _pair(r, "calls"),
                r["native"]["shared"],
                f"{r['ours']['bytes'] / 1e6:.0f}",
                *(tables.ratio(_over(r, other, "bytes")) for other in ("native", "peer")),
                tables.ratio(_over(r, "native", "temporaries")),
                *(tables.ratio(_over(r, other, "cpu")) for other in ("native", "peer")),
            )
            for r in described
        ]
        header = (
            "program",
            "kernels, ours / native / tf2jax",
            "library calls of these",
            "in ours and native",
            "MB moved",
            "to native",
            "to tf2jax",
            "temporaries, to native",
            "compiling, to native",
            "to tf2jax",
        )
        text += DESCRIBED.format(gpus=gpus) + _summary(described) + "\n" + tables.table(header, rows)
    return text
