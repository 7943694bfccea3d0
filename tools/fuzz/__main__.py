"""Fuzz all readers of files, and print a JSON summary.

Usage: ``python -m tools.fuzz --minutes N --seed S``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import targets as _targets
from .supervisor import fuzz


def main() -> int:
    """Return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, default=1 << 62, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default=",".join(_targets.NAMES), help="names, separated by commas")
    parser.add_argument("--corpus", type=Path, help="keep the corpus there, or use the one that is there")
    parser.add_argument("--json", type=Path, help="write the summary there")
    parser.add_argument("--findings", type=Path, help="write each finding's input to this folder")
    parser.add_argument(
        "--atheris", metavar="TARGET", help="coverage-guided: a target, several, or all (needs atheris)"
    )
    options = parser.parse_args()
    names = [name for name in options.targets.split(",") if name]
    unknown = [name for name in names if name not in _targets.NAMES]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(_targets.NAMES)}")
    with tempfile.TemporaryDirectory() as temporary:
        corpus = options.corpus or Path(temporary) / "corpus"
        if not corpus.exists():
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            from .corpus import make_corpus

            make_corpus(corpus)
        if options.atheris:
            from . import guided

            findings = options.findings or Path(temporary) / "findings"
            if options.atheris in _targets.NAMES:
                return guided.run_target(options.atheris, corpus, options.minutes, findings)
            chosen = guided.ALL if options.atheris == "all" else [n for n in options.atheris.split(",") if n]

            def keep(found: list[dict[str, Any]]) -> None:
                if options.json:
                    guided.write(found, options.minutes, options.json)

            found = guided.run(chosen, corpus, options.minutes, findings, keep)
            return 1 if any(entry["findings"] for entry in found) else 0
        summary = fuzz(corpus, options.seed, names, seconds=options.minutes * 60, inputs=options.inputs)
    if options.findings:
        options.findings.mkdir(parents=True, exist_ok=True)
        for finding in summary["findings"]:
            if "data" in finding:
                name = f"{finding['target']}-{finding['number']}-{finding['source']}"
                (options.findings / name).write_bytes(bytes.fromhex(finding["data"]))
    for finding in summary["findings"]:
        finding["data"] = finding.get("data", "")[:4000]
    if options.json:
        options.json.write_text(json.dumps(summary, indent=1) + "\n")
    for key, count in summary["counts"].items():
        print(f"{count:8d}  {key}")
    print(f"{summary['inputs']} inputs, {len(summary['findings'])} findings")
    return 1 if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
