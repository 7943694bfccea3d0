"""The performance page's part on GPUs: programs compiled for one that was described, or timed on one that was there."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from . import tables
from .tables import Record

INTRODUCTION = """## On a GPU

`python -m benchmarks --suite programs --folder DIR` writes each model's call and training step as serialized StableHLO
for CUDA, ours beside JAX written by hand and the peer's. `python -m benchmarks.device DIR` compiles them and takes
turns on the device that JAX has there; it needs no TensorFlow.

"""
DESCRIBED = """Compiled for a described {gpus} without one (`--described`), XLA gives what a call would launch: kernels,
those in loops as often as they run; calls of cuDNN and cuBLAS (matrix products are left to cuBLAS, since nothing can be
tried out); what kernels and calls read and write. A twin of a convolution or a pooling
([above](#convolutions-and-pooling-on-cpu)) is the primitive itself here.

"""


def _over(record: Record, other: str, what: str) -> float | None:
    theirs = record.get(other, {}).get(what)
    return record["ours"][what] / theirs if theirs else None


def _found(records: Sequence[Record], other: str, what: str) -> list[float]:
    return [value for r in records if (value := _over(r, other, what)) is not None]


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} (median; {min(values):.2f} to {max(values):.2f})"


def _summary(records: Sequence[Record]) -> str:
    """Says how programs compare, of calls and of training steps."""
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
    lines.append(f"- In {same} of {len(called)} programs with library calls these are the same, operand for operand.")
    for other in ("native", "peer"):
        if ratios := _found(records, other, "cpu"):
            lines.append(f"- XLA's compiling, processor time, to {other}: {_range(ratios)}.")
    return "\n".join(lines) + "\n"


def _pair(record: Record, what: str) -> str:
    return " / ".join(str(record[who][what]) for who in ("ours", "native", "peer") if who in record)


def section(described: Sequence[Record], timed: Sequence[Record]) -> str:
    """Returns the section's text, or nothing without records.

    Args:
      described: what ``python -m benchmarks.device --described`` wrote.
      timed: what it wrote on a machine with a GPU.
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
            + tables.table(("program", "ours, ms", "native, ms", "to native", "to peer"), rows)
            + "\n"
        )
    else:
        text += "None was to be had, so nothing is timed here.\n\n"
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
            "kernels, ours / native / peer",
            "library calls of these",
            "in ours and native",
            "MB moved",
            "to native",
            "to peer",
            "temporaries, to native",
            "compiling, to native",
            "to peer",
        )
        text += DESCRIBED.format(gpus=gpus) + _summary(described) + "\n" + tables.table(header, rows)
    return text
