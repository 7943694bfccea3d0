"""Make docs/reliability/fuzzing.json from the files of ``--json``.

Usage: ``python -m tools.fuzz.report FILES...``.
"""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent.parent.parent / "docs" / "reliability" / "fuzzing.json"

_NOTES = [
    "A finding is anything but a result or one of our errors: another exception, the end of the process, more "
    "than 20 seconds of processor time, more than 3 GiB of memory. An error of ours that only says that our own code "
    "stumbled (over a missing key, say) is one, too: such a file is not handled.",
    "Inputs are functions of the seed, the target and a number, so each comes again. What was found is in "
    "`testdata/fuzz`, and `tests/fuzz/test_slice.py` reads it again.",
    "A worker that crashes takes along the counts of its last two seconds: inputs are counted low rather than high.",
    "The one worker that took too much memory had read StableHLO text that the process in front of it let pass "
    "unread; now it reads text as the reader does.",
    "Findings before these runs, all fixed: MLIR's Python bindings end the process when a source location is not "
    "UTF-8; and MLIR takes 3.4 GiB for 1.7 kB of damaged bytecode. Since then another process, of bounded memory, "
    "reads each StableHLO payload first. Files that were refused because our code stumbled: attributes of "
    "another kind than the op's, shapes and collections of another form, entries of metadata.json; all are looked at "
    "now.",
]


def combined(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the page's section for several runs."""
    read: collections.Counter[str] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()
    for summary in summaries:
        for key, count in summary["counts"].items():
            target, outcome = key.split("\t")
            if not outcome.startswith("finding"):
                (read if outcome == "read" else refused)[target] += count
    findings = collections.Counter(f.get("target", "worker") for s in summaries for f in s["findings"])
    rows = [[t, read[t] + refused[t], read[t], refused[t], findings[t]] for t in sorted({*read, *refused, *findings})]
    rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, 5))])
    seeds = ", ".join(str(s["seed"]) for s in summaries)
    findings_of = [f for s in summaries for f in s["findings"]]
    met = sorted({f"{f.get('target', 'worker')}, {f['outcome'].split(': ', 1)[-1]}" for f in findings_of})
    return {
        "title": "Hostile files",
        "command": "python -m tools.fuzz --minutes N --seed S --json run.json; python -m tools.fuzz.report run.json",
        "columns": ["reader", "inputs", "read", "refused", "findings"],
        "rows": rows,
        "notes": [
            f"Runs with the seeds {seeds}.",
            *(
                [f"Findings of these runs, each fixed after its run and kept as a file: {'; '.join(met)}."]
                if met
                else []
            ),
            *_NOTES,
        ],
    }


if __name__ == "__main__":
    RESULT.parent.mkdir(exist_ok=True)
    found = combined([json.loads(Path(name).read_text()) for name in sys.argv[1:]])
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
