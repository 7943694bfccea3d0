"""Write docs/federated-performance.md from records of `benchmarks.federated`.

python -m benchmarks.render_federated FILE...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .federated import GOALS

Record = dict[str, Any]
PAGE = Path(__file__).parents[1] / "docs" / "federated-performance.md"

INTRODUCTION = """# Performance of federated rounds

Generated: `python -m benchmarks.federated --json out.jsonl`, then `python -m benchmarks.render_federated out.jsonl`.

Measured on two shared x86-64 cores, JAX on CPU, float32. The workload: 200 clients with 20 to 120 examples of 28x28
images and 62 classes; batches of 20, one epoch, SGD. Other work ran at the same time (load average {load}), so compare
**ratios**: our time divided by that of a hand-written loop over a jitted step; runs are interleaved. Medians; below 1
tf2jax_lite is faster. CPU ratios compare work; wall-clock ratios also depend on the use of both cores.
"""


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def _clock(record: Record) -> float:
    times = record["times"]
    return times["ours"]["clock"] / times["native"]["clock"]


def _rounds(records: Sequence[Record]) -> str:
    rows = []
    for model in dict.fromkeys(r["model"] for r in records):
        runs = sorted((r for r in records if r["model"] == model), key=_clock)
        r = runs[len(runs) // 2]
        ours, hand = r["times"]["ours"], r["times"]["native"]
        rows.append(
            (
                r["model"],
                r["clients"],
                f"{ours['clock']:.3f}",
                f"{hand['clock']:.3f}",
                f"**{_clock(r):.2f}**",
                f"{_clock(runs[0]):.2f} to {_clock(runs[-1]):.2f}" if len(runs) > 1 else "one run",
                f"{ours['processor'] / hand['processor']:.2f}",
                GOALS[r["model"]],
                f"{r['difference']:.0e}",
            )
        )
    header = (
        "model",
        "clients",
        "ours, s",
        "native loop, s",
        "ratio, wall clock",
        "range of runs",
        "ratio, CPU",
        "goal",
        "weights differ by",
    )
    return "## A round\n\n" + _table(header, rows)


def _memory(records: Sequence[Record]) -> str:
    rows = [(r["model"], r["clients"], *(f"{r[w]['more']}" for w in ("ours", "native"))) for r in records]
    text = "Peak memory in MiB above that before the first round, including compilation.\n\n"
    return "## Memory of a round\n\n" + text + _table(("model", "clients", "ours", "native loop"), rows)


def _backends(records: Sequence[Record]) -> str:
    rows = []
    for r in records:
        times = r["times"]
        clock, processor = (min(t[kind] for t in times.values() if t) for kind in ("clock", "processor"))
        cells = (
            f"{t['clock'] / clock:.2f} ({t['processor'] / processor:.2f})" if t else "not supported"
            for t in times.values()
        )
        rows.append((r["model"], *cells, r["chosen"]))
    text = (
        "Wall-clock time relative to the best backend, CPU time in parentheses; the last column is the choice of "
        '`client_execution="auto"`. An artifact\'s StableHLO cannot be batched.\n\n'
    )
    return "## Execution backends\n\n" + text + _table(("model", *records[0]["times"], "auto"), rows)


def _scaling(records: Sequence[Record]) -> str:
    rows = [(f"{r['clients']:,}", f"{r['seconds']:.2f}", r["peak"], r["more"]) for r in records]
    text = "Logistic regression; each size in a separate process, after a round of 40 clients. Seconds include "
    text += "compilation for the size.\n\n"
    header = ("clients per round", "seconds", "peak, MiB", "above the round of 40, MiB")
    return "## Scaling\n\n" + text + _table(header, rows)


def page(records: Sequence[Record]) -> str:
    """Return the page's text, by a round's median run, or the last record."""
    latest: dict[Any, Record] = {}
    for i, r in enumerate(records):
        every = i if r["what"] == "rounds" else None
        latest[r["what"], r.get("model"), r.get("clients") if r["what"] == "scaling" else None, every] = r
    loads = [r["load"] for r in latest.values() if "load" in r] or [0]
    parts = [INTRODUCTION.format(load=f"{min(loads):.0f} to {max(loads):.0f}")]
    for what, render in (("rounds", _rounds), ("memory", _memory), ("ways", _backends), ("scaling", _scaling)):
        chosen = [r for r in latest.values() if r["what"] == what]
        if chosen:
            parts.append(render(chosen))
    return "\n".join(parts)


def main(paths: Sequence[str]) -> None:
    """Write the page from files of records."""
    PAGE.write_text(page([json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]))


if __name__ == "__main__":
    main(sys.argv[1:])
