"""Write docs/finetuning-performance.md from records.

python -m benchmarks.render_training out.jsonl...
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from .training import LENGTH, MEMORY, PLACEMENTS, SIZES

PAGE = Path(__file__).parent.parent / "docs" / "finetuning-performance.md"
GOAL = 1.05
MIB = 2**20

Record = dict[str, Any]


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def _last(records: list[Record], kind: str, *keys: str) -> dict[Any, Record]:
    """Return the newest record of each value of some keys."""
    return {tuple(r[key] for key in keys): r for r in records if r["kind"] == kind}


def _flax(records: list[Record]) -> list[str]:
    found = _last(records, "flax", "placement", "dropout")
    rows = []
    for (placement, dropout), record in sorted(found.items(), key=lambda item: [*PLACEMENTS].index(item[0][0])):
        seconds = record["seconds"]
        rows.append(
            [
                placement,
                f"{dropout:g}",
                f"{seconds['ours']:.2f}",
                f"{seconds['flax']:.2f}",
                f"**{record['ratio']:.2f}**",
                f"{record['cpu_ratio']:.2f}",
                str(record["rounds"]),
            ]
        )
    if not rows:
        return []
    record = next(iter(found.values()))
    blocks, width, heads = SIZES[record["size"]]
    header = ["sharding", "dropout", "ours, s", "Flax, s", "ratio", "ratio, CPU time", "steps of each"]
    return [
        "## A step against Flax",
        "",
        f"A Keras transformer of {blocks} blocks, width {width}, {heads} heads and {record['params']:,} params, "
        f"converted, and the same model in Flax with the same weights, optimizer (AdamW) and shardings: "
        f"{record['batch']} sequences of {LENGTH} tokens a step, float32, eight virtual devices. "
        f"Steps alternate; the ratio is that of the medians. The goal is {GOAL}.",
        "",
        *_table(header, rows),
        "",
    ]


def _memory(records: list[Record]) -> list[str]:
    found = _last([r for r in records if not r.get("xla_flags")], "memory", "options")
    rows = [
        [
            f"`{name}`" if name.startswith("--") else name,
            f"{record['temporary_bytes'] / MIB:,.0f}",
            f"{record['output_bytes'] / MIB:,.0f}",
            f"{record['peak_bytes'] / MIB:,.0f}",
        ]
        for name in MEMORY
        if (record := found.get((name,)))
    ]
    if not rows:
        return []
    record = next(iter(found.values()))
    header = ["options", "temporaries, MiB", "results not in place, MiB", "peak of the process, MiB"]
    return [
        "## Memory of a step",
        "",
        f"The same transformer on one device, {record['batch']} sequences a step, `--backend source`; params and "
        f"AdamW's statistics take {record['state_bytes'] / MIB:,.0f} MiB. Temporaries are those of XLA's buffer "
        "assignment. The peak is the resident size of the process, with Python, JAX and the compiler. XLA:CPU computes "
        "products of bfloat16 in float32, so `bf16` saves less here than on a GPU or TPU.",
        "",
        *_table(header, rows),
        "",
        *_with_flags(records),
    ]


def _with_flags(records: list[Record]) -> list[str]:
    """Return a paragraph for each value of XLA_FLAGS that memory was measured with."""
    lines = []
    for flags in dict.fromkeys(r["xla_flags"] for r in records if r.get("xla_flags")):
        found = _last([r for r in records if r.get("xla_flags") == flags], "memory", "options")
        sizes = [f"{r['temporary_bytes'] / MIB:,.0f} MiB ({name.strip('-')})" for (name,), r in found.items()]
        lines += [
            f"By default XLA:CPU schedules for concurrency, and keeps more values at once. With `XLA_FLAGS={flags}`, "
            f"temporaries are {', '.join(sizes)}.",
            "",
        ]
    return lines


def _stream(records: list[Record]) -> list[str]:
    found = [r for r in records if r["kind"] == "stream"]
    if not found:
        return []
    record = found[-1]
    return [
        "## Data beyond memory",
        "",
        f"{record['gigabytes']} shards of 1 GB, .npz files of 256x256 images in float32, {record['examples']:,} "
        f"examples; {record['different']} shards have bytes of their own, the others are hard links to them:",
        "",
        "```sh",
        record["command"],
        "```",
        "",
        f"The process read {record['read_bytes'] / 1e9:.1f} GB in {record['seconds']:,.0f} s, in a shuffled order, and "
        f"its peak resident size was {record['peak_bytes'] / MIB:,.0f} MiB.",
        "",
    ]


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def page(records: list[Record]) -> str:
    """Return the page."""
    machine, versions = records[-1]["machine"], records[-1]["versions"]
    loads = [record["load"] for record in records]
    head = [
        "# Performance of fine-tuning",
        "",
        "Generated: `python -m benchmarks.training flax --json out.jsonl`, the same with `memory` and "
        "`stream`, then `python -m benchmarks.render_training out.jsonl`. The records "
        "of this page are [finetuning.jsonl](../benchmarks/results/finetuning.jsonl).",
        "",
        f"Measured on two shared cores ({machine}), JAX {versions['jax']} on CPU, {records[-1]['day']}. Other work ran "
        f"at the same time (load average {min(loads):.0f} to {max(loads):.0f}), so compare ratios, not seconds.",
        "",
    ]
    lines = [*head, *_flax(records), *_memory(records), *_stream(records)]
    return (
        "\n".join(
            line if line.startswith(("|", "#", "```", "tf2jax-lite")) else _wrapped(line) for line in lines
        ).rstrip()
        + "\n"
    )


def main() -> None:
    records = [json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text().splitlines()]
    PAGE.write_text(page(records))


if __name__ == "__main__":
    main()
