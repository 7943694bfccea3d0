"""Run a worker, and continue after inputs that kill, hang or exhaust it."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .worker import Place

__all__ = ["fuzz"]

_MOST_WAITED = 600.0


def fuzz(
    corpus: Path,
    seed: int,
    targets: Sequence[str],
    *,
    seconds: float = float("inf"),
    inputs: int = 1 << 62,
    cpu_seconds: float = 20.0,
    memory: int = 3 << 30,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run inputs until the time is over or so many are read.

    Args:
      cpu_seconds: an input that takes more processor time is a finding ("hang"); so is one that waits for 600.

    Returns:
      A JSON summary: counts by target and outcome, and findings with their inputs.
    """
    end = time.time() + seconds
    counts: collections.Counter[str] = collections.Counter()
    findings: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fuzz", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        root = Path(folder)
        number = 0
        while time.time() < end and number < inputs:
            options = {
                "corpus": str(corpus),
                "work": str(root / "work"),
                "seed": seed,
                "targets": list(targets),
                "start": number,
                "stop": inputs,
                "end": min(end, 4e9),
                "place": str(root / "place"),
                "counts": str(root / "counts.json"),
                "findings": str(root / "findings.jsonl"),
            }
            (root / "work").mkdir(exist_ok=True)
            (root / "place").unlink(missing_ok=True)
            (root / "counts.json").unlink(missing_ok=True)
            place = Place(root / "place")
            with (root / "log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tools.fuzz.worker", json.dumps(options)], stdout=log, stderr=log
                )
                try:
                    problem = _watch(process, place, end, cpu_seconds, memory)
                finally:
                    if process.poll() is None:
                        process.kill()
                    process.wait()
            at, _, done = place.read()
            if (root / "counts.json").exists():
                counts.update(json.loads((root / "counts.json").read_text()))
            if done or time.time() >= end:
                break
            tail = (root / "log").read_bytes()[-3000:].decode("utf-8", "replace")
            if at < number:
                raise RuntimeError(f"the worker does not start ({problem}):\n{tail}")
            findings.append({"number": at, "outcome": f"finding: {problem}", "trace": tail})
            if not quiet:
                print(f"input {at}: {problem}", flush=True)
            number = at + 1
        if (root / "findings.jsonl").exists():
            findings += [json.loads(line) for line in (root / "findings.jsonl").read_text().splitlines()]
    return {
        "seed": seed,
        "inputs": sum(counts.values()) + sum("target" not in f for f in findings),
        "counts": dict(sorted(counts.items())),
        "findings": findings,
    }


def _watch(process: subprocess.Popen[bytes], place: Place, end: float, cpu_seconds: float, memory: int) -> str:
    """Return why a worker ended, or had to be ended."""
    last, since, queued = -2, time.monotonic(), 0.0
    while process.poll() is None:
        time.sleep(0.25)
        number, began, done = place.read()
        if number != last:
            last, since, queued = number, time.monotonic(), _in_queue(process.pid)
        if number < 0:
            if time.monotonic() - since > 3600:
                return "does not start"
            continue
        status = Path(f"/proc/{process.pid}/status").read_text() if process.poll() is None else ""
        resident = next((int(x.split()[1]) * 1024 for x in status.splitlines() if x.startswith("VmRSS")), 0)
        if resident > memory:
            return f"memory: {resident >> 20} MiB"
        # On a busy machine a worker stands still although it could run: that is not its fault.
        waited = time.monotonic() - since - (_in_queue(process.pid) - queued)
        too_long = _cpu(process.pid) - began > cpu_seconds or waited > _MOST_WAITED
        if too_long and not done and place.read()[0] == number:
            return "hang"
        if time.time() > end + 30:
            return "over"
    return f"crash: signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"


def _in_queue(pid: int) -> float:
    """Return for how many seconds a process could have run and had no processor."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
