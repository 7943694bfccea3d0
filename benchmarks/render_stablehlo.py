"""Write run times in docs/stablehlo.md from `benchmarks.stablehlo`.

python -m benchmarks.render_stablehlo FILE...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
PAGE = Path(__file__).parents[1] / "docs" / "stablehlo.md"
BEGIN, END = "<!-- run time: python -m benchmarks.render_stablehlo -->", "<!-- end of run time -->"
GOAL = 1.05


def section(records: Sequence[Record]) -> str:
    """Return the text between the page's marks.

    Args:
      records: as `benchmarks.stablehlo.main` returns them; of several of a model the last counts.
    """
    latest = {r["model"]: r for r in records if r.get("suite") == "stablehlo"}
    total = latest.pop("median")
    loads = [load for r in latest.values() for load in r["load"]]
    above = [f"{name} ({r['ratio']:.2f})" for name, r in latest.items() if r["ratio"] > GOAL]
    same = sum(r["same_program"] for r in latest.values())
    lines = [
        f"jax {total['jax']} on {total['cores']} CPU cores, while other work ran (load average {min(loads):.1f} to "
        f"{max(loads):.1f}): milliseconds say little, **ratios** count, since both programs ran in turns.",
        "",
        f"Median over {len(latest)} functions: {total['ratio']:.3f}. Above the goal of {GOAL}: "
        f"{', '.join(above) or 'none'}. {same} of them compile to as many instructions of each kind as the original.",
        "",
        "| function | ours, ms | original, ms | ratio | rounds | equations, ours / original | same program |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, r in latest.items():
        lines.append(
            f"| {name} | {r['ours_ms']:.3f} | {r['original_ms']:.3f} | {r['ratio']:.3f} | {r['rounds']} | "
            f"{r['equations']:.2f} | {'yes' if r['same_program'] else 'no'} |"
        )
    return "\n".join(lines)


def written(page: str, text: str) -> str:
    """Return a page whose generated section holds a text."""
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:start]}\n\n{text}\n\n{page[end:]}"


def main(paths: Sequence[str]) -> None:
    """Write the section from files of JSON lines."""
    records = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    PAGE.write_text(written(PAGE.read_text(), section(records)))


if __name__ == "__main__":
    main(sys.argv[1:])
