"""Coverage-guided fuzzing with atheris, an optional dependency of this module.

`run_target` is one process: libFuzzer never gives control back, and its own thread of execution ends at a crash. `run`
starts one for each target and reads from what libFuzzer prints how far it came.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["ALL", "page", "run", "run_target", "statistics"]

ALL = (
    "graph",
    "saved_model",
    "saved_model_convert",
    "artifact_json",
    "artifact_stablehlo",
    "safetensors",
    "sqlite",
    "tff_sqlite",
    "npz",
    "hdf5",
    "stablehlo_text",
    "stablehlo_bytes",
)
_LINE = re.compile(r"^#(\d+)\s+(\w+)\s+cov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)


def run_target(name: str, corpus: Path, minutes: float, findings: Path) -> int:
    """Run libFuzzer on one target from its valid files; it ends the process.

    Args:
      findings: a folder for inputs that are neither read nor refused, one of each kind; and for what crashes.

    Returns:
      2 if there is no atheris; else nothing comes back.
    """
    try:
        import atheris
    except ImportError:
        print("coverage-guided fuzzing needs atheris: pip install atheris", file=sys.stderr)
        return 2
    work = Path(tempfile.mkdtemp(prefix="atheris"))
    findings.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["tf2jax_lite"]):
        from .targets import limits, make_targets
        from .worker import read_one

        target = make_targets(corpus, work, (name,))[name]
        with limits():  # what readers import when they are first used is to be instrumented, too
            for source, data in target.seeds.items():
                read_one(target, source, data)
    good = work / "good"
    good.mkdir()
    for source, data in target.seeds.items():
        (good / source).write_bytes(data)
    first = sorted(target.seeds)[0]
    seen: set[str] = set()

    def one(data: bytes) -> None:
        with limits():
            outcome, trace = read_one(target, first, data)
        if trace and outcome not in seen:
            seen.add(outcome)
            path = findings / f"{name}-guided-{len(seen)}{Path(first).suffix}"
            path.write_bytes(data)
            path.with_suffix(".txt").write_text(f"{outcome}\n{trace}")

    # On a busy machine shorter times than a minute say nothing.
    options = [f"-max_total_time={int(minutes * 60)}", "-timeout=60", "-report_slow_units=60"]
    options += ["-rss_limit_mb=4096", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={findings}/{name}-", str(good)], one)
    atheris.Fuzz()
    return 0


def statistics(log: str) -> dict[str, int]:
    """Return libFuzzer's inputs, branches and corpus files, at start and end."""
    lines = [(int(n), what, int(cov), int(corpus)) for n, what, cov, _, corpus in _LINE.findall(log)]
    if not lines:
        raise ValueError(f"libFuzzer printed no figures:\n{log[-2000:]}")
    begin = next((line for line in lines if line[1] == "INITED"), lines[0])
    end = lines[-1]
    return {
        "inputs": end[0],
        "branches at first": begin[2],
        "branches": end[2],
        "files at first": begin[3],
        "files": end[3],
    }


def run(
    names: Sequence[str],
    corpus: Path,
    minutes: float,
    findings: Path,
    after: Callable[[list[dict[str, Any]]], None] | None = None,
) -> list[dict[str, Any]]:
    """Run each target in a process of its own."""
    found: list[dict[str, Any]] = []
    for name in names:
        command = [sys.executable, "-m", "tools.fuzz", "--atheris", name, "--minutes", str(minutes)]
        command += ["--corpus", str(corpus), "--findings", str(findings)]
        before = set(findings.glob("*")) if findings.exists() else set()
        done = subprocess.run(
            command, capture_output=True, check=False, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        )
        figures = statistics(done.stderr.decode("utf-8", "replace"))
        new = [p for p in findings.glob("*") if p not in before and p.suffix != ".txt"]
        found.append({"target": name, **figures, "findings": len(new)})
        print(found[-1], flush=True)
        if after is not None:
            after(found)
    return found


_FIGURES = ("minutes", "inputs", "branches at first", "branches", "files at first", "files", "findings")


def page(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the record of the guided runs from targets and their figures."""
    names = tuple(row[0] for row in rows)
    asked = "all" if names == ALL else ",".join(names)
    minutes = max(row[1] for row in rows)
    return {
        "title": "Hostile files, guided by coverage",
        "command": f"python -m tools.fuzz --atheris {asked} --minutes {minutes:g} "
        "--json docs/reliability/fuzzing_guided.json",
        "columns": ["reader", *_FIGURES],
        "rows": list(rows),
        "notes": [
            "atheris (libFuzzer) changes the bytes of files that reached new branches of the library's own code. "
            "'at first': with the good files alone. Findings as above; each is in `testdata/fuzz` once it is fixed.",
            "A run of some readers replaces their rows and leaves the others' as they are.",
        ],
    }


def write(found: Sequence[dict[str, Any]], minutes: float, path: Path) -> None:
    """Write `page`, with the rows that were there of targets that were not run now."""
    before = json.loads(path.read_text()) if path.exists() else {"columns": [], "rows": []}
    kept = before["rows"] if before["columns"] == ["reader", *_FIGURES] else []
    rows = {row[0]: row for row in kept}
    for entry in found:
        rows[entry["target"]] = [entry["target"], *({**entry, "minutes": minutes}[key] for key in _FIGURES)]
    ordered = [rows[name] for name in (*ALL, *(set(rows) - set(ALL))) if name in rows]
    path.write_text(json.dumps(page(ordered), indent=1) + "\n")
