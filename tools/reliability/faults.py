"""Run every command that writes under every fault, N times.

Usage: ``python -m tools.reliability.faults --count N --json OUT``.

`test_faults.py` has the same checks, some of them on every run.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.support.npz import read_npz

from .commands import DIGITS, Ended, Shell

WRITES = {
    "convert": "converted",
    "run": "y.npz",
    "finetune": "tuned",
    "federate": "federated",
    "export-tf": "saved",
    "verify": "report",
}


class Commands:
    """The commands on one small model, and what they wrote undisturbed."""

    def __init__(self, shell: Shell, folder: Path):
        self.shell, self.folder, self.work = shell, folder, folder / "work"
        self.work.mkdir()
        rng = np.random.default_rng(0)
        images, y = rng.uniform(size=(60, 8, 8, 1)).astype(np.float32), rng.integers(0, 10, 60)
        np.savez(folder / "x.npz", image=images)
        np.savez(folder / "data.npz", image=images, y=y)
        np.savez(folder / "clients.npz", image=images, y=y, client_id=np.repeat(np.arange(6), 10))
        ended = shell.run("convert", DIGITS, folder / "base", "--platforms", "cpu", "--quiet")
        assert ended.code == 0, ended.out
        self._whole: dict[str, dict[str, str]] = {}

    def argv(self, name: str) -> list[Any]:
        """Return the arguments of a command."""
        base, out = self.folder / "base", self.work / WRITES[name]
        training = ["--from-logits", "--out", out, "--quiet", "--checkpoint-dir", self.work / "state"]
        return {
            "convert": ["convert", DIGITS, out, "--platforms", "cpu", "--quiet"],
            "run": ["run", base, "--input", self.folder / "x.npz", "--output", out],
            "finetune": ["finetune", base, "--data", self.folder / "data.npz", "--epochs", "3", *training],
            "federate": [
                *("federate", base, "--data", self.folder / "clients.npz"),
                *("--rounds", "3", "--clients-per-round", "3", *training),
            ],
            "export-tf": ["export-tf", base, out, "--model", DIGITS, "--quiet"],
            "verify": ["verify", DIGITS, base, "--report", out],
        }[name]

    def run(self, name: str, **fault: Any) -> Ended:
        """Run a command under a fault, without earlier output; see `commands.Command`."""
        fresh = list(map(str, self.work.iterdir()))  # a kill leaves files with names of their own
        return self.shell.run(*self.argv(name), fresh=fresh, **fault)

    def written(self, name: str, ended: Ended) -> dict[str, str]:
        """Return what a command wrote where its output belongs, by path."""
        prefix = f"work/{WRITES[name]}"
        return {p: h for p, h in ended.state.items() if p == prefix or p.startswith(prefix + "/")}

    def whole(self, name: str) -> dict[str, str]:
        """Return what a command writes undisturbed."""
        if name not in self._whole:
            ended = self.run(name)
            assert ended.code == 0, ended.out
            self._whole[name] = self.written(name, ended)
            assert self._whole[name]
        return self._whole[name]

    def check(self, name: str, ended: Ended, codes: Sequence[int]) -> None:
        """Fail unless a command ended right: no traceback, output whole or absent."""
        assert ended.code in codes, (ended.code, ended.out)
        # Python swallows a Ctrl-C inside of a callback of its garbage collector (JAX has one), and says so.
        out = re.sub(r"Exception ignored in: .*\nTraceback", "", ended.out)
        assert "Traceback" not in out, ended.out
        found = self.written(name, ended)
        assert not found or set(found) == set(self.whole(name)), found
        if found and name == "verify":
            assert (self.work / WRITES[name]).read_text().rstrip().endswith("</html>"), "the report is cut short"
        if found and name == "run":
            assert read_npz(self.work / WRITES[name])
        metadata = self.work / WRITES[name] / "metadata.json"
        if found and metadata.exists():  # times differ; its metadata must hold
            for file, entry in json.loads(metadata.read_text())["files"].items():
                assert found[f"work/{WRITES[name]}/{file}"] == entry["sha256"], file
        if ended.code in (0, -9) or name in ("finetune", "federate"):
            return
        left = [p for p in ended.state if p.startswith("work/") and p not in found]
        assert not left, left


def others_can_read() -> bool:
    """Whether users other than root can read the libraries."""
    folders = [Path(sys.prefix), *Path(sys.prefix).parents]
    return all(folder.stat().st_mode & 0o5 == 0o5 for folder in folders)


def faults(commands: Commands, name: str, count: int, rng: random.Random) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield ``(what, fault, exit codes that are right)`` for one command.

    Args:
      commands: the commands; what they write undisturbed says how large a disk is too small.
    """
    root = commands.work / WRITES[name]
    files = [root] if root.is_file() else [p for p in root.rglob("*") if p.is_file()]
    largest = max(p.stat().st_size for p in files)
    for size in (0, *(rng.randrange(largest) for _ in range(count))):
        yield "full disk", {"file_size": size}, (2,)
    if os.getuid() != 0 or others_can_read():
        yield "read-only folder", {"readonly": str(commands.work)}, (2,)
    yield "clock that jumps", {"clock": True}, (0,)
    for signal, codes in (("INT", (0, 130)), ("KILL", (0, -9))):
        for _ in range(count):
            yield f"SIG{signal}", {"signal": signal, "after": rng.uniform(0.02, 1.05), "fraction": True}, codes


def row(commands: Commands, name: str, what: str, runs: Sequence[tuple[dict[str, Any], Any]]) -> tuple[list[Any], str]:
    """Run a command under one kind of fault."""
    codes: collections.Counter[int] = collections.Counter()
    whole, problems = 0, []
    for fault, right in runs:
        ended = commands.run(name, **fault)
        codes[ended.code] += 1
        whole += bool(commands.written(name, ended))
        try:
            commands.check(name, ended, right)
        except AssertionError as error:
            problems.append(f"{name}, {what} {fault}: {error}")
    outcomes = ", ".join(f"{code} ({times})" for code, times in sorted(codes.items()))
    return [name, what, len(runs), outcomes, whole, len(runs) - whole, len(problems)], "\n".join(problems)


def resumed(commands: Commands, name: str, signal: str) -> tuple[list[Any], str]:
    """Stop training repeatedly until it ends; compare weights, return a `row`."""
    weights = f"work/{WRITES[name]}/params.safetensors"
    expected = commands.whole(name)[weights]
    ended = commands.run(name, signal=signal, after=0.35, fraction=True, until=True)
    same = ended.code == 0 and ended.state.get(weights) == expected
    what = f"SIG{signal} again and again, resumed: the same bits" if same else f"SIG{signal} again and again, resumed"
    problem = "" if same else f"{name}: {what}: {ended.code} {ended.out}"
    return [name, what, ended.starts, f"{ended.code} (1)", int(same), 0, int(not same)], problem


def page(rows: Sequence[Sequence[Any]], count: int, seed: int) -> dict[str, Any]:
    """Return the record of the runs, with the commands that have rows."""
    names = list(dict.fromkeys(row[0] for row in rows))
    chosen = "" if names == list(WRITES) else f"--commands {','.join(names)} "
    return {
        "title": "Faults",
        "command": f"python -m tools.reliability.faults --count {count} --seed {seed} {chosen}"
        "--json docs/reliability/faults.json",
        "columns": ["command", "fault", "runs", "exit codes (times)", "output whole", "absent", "wrong"],
        "rows": list(rows),
        "notes": [
            "'Full disk': no file may grow beyond a size below that of the output's largest file (RLIMIT_FSIZE). "
            "Signals come at random moments of the time that the whole command takes. An output is whole if it has all "
            "files and each has the SHA-256 that its metadata tell; 'wrong' is anything in between, a traceback, files "
            "left beside it (but by a kill), or an exit code other than 0, 2 (refused), 130 (interrupted) or minus the "
            "signal's number.",
        ],
    }


def main() -> int:
    """Run the command; return 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.reliability.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="moments, and disks, for each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", default=",".join(WRITES), help="which, separated by commas")
    parser.add_argument("--json", type=Path, required=True, help="written after each row")
    options = parser.parse_args()
    rng, rows, problems = random.Random(options.seed), [], []

    def keep(found: tuple[list[Any], str]) -> None:
        rows.append(found[0])
        print(found[0], flush=True)
        if found[1]:
            problems.append(found[1])
            print(found[1], flush=True)
        options.json.write_text(json.dumps(page(rows, options.count, options.seed), indent=1) + "\n")

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        with Shell(folder) as shell:
            commands = Commands(shell, folder)
            for name in options.commands.split(","):
                commands.whole(name)
                runs: dict[str, list[tuple[dict[str, Any], Any]]] = {}
                for what, fault, right in faults(commands, name, options.count, rng):
                    runs.setdefault(what, []).append((fault, right))
                for what, each in runs.items():
                    keep(row(commands, name, what, each))
                if name in ("finetune", "federate"):
                    for signal in ("INT", "KILL"):
                        keep(resumed(commands, name, signal))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
