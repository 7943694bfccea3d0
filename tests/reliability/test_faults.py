"""Full disks, folders that cannot be written, Ctrl-C, kills and clocks that jump: outputs whole or absent.

The commands that write, each under each fault. On every run: ``convert`` and ``run``; all with ``-m slow``.
"""

import json
import os
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from .commands import DIGITS, Shell

WRITES = {
    "convert": "converted",
    "run": "y.npz",
    "finetune": "tuned",
    "federate": "federated",
    "export-tf": "saved",
    "verify": "report",
}
ALWAYS = ("convert", "run")
NAMES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in WRITES]


class Commands:
    """The commands on one small model, and what they wrote undisturbed."""

    def __init__(self, shell, folder):
        self.shell, self.folder, self.work = shell, folder, folder / "work"
        self.work.mkdir()
        rng = np.random.default_rng(0)
        images, y = rng.uniform(size=(60, 8, 8, 1)).astype(np.float32), rng.integers(0, 10, 60)
        np.savez(folder / "x.npz", image=images)
        np.savez(folder / "data.npz", image=images, y=y)
        np.savez(folder / "clients.npz", image=images, y=y, client_id=np.repeat(np.arange(6), 10))
        ended = shell.run("convert", DIGITS, folder / "base", "--platforms", "cpu", "--quiet")
        assert ended.code == 0, ended.out
        self._whole = {}

    def argv(self, name):
        base, out = self.folder / "base", self.work / WRITES[name]
        training = ["--out", out, "--quiet", "--checkpoint-dir", self.work / "state"]
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

    def run(self, name, keep=False, **fault):
        fresh = [] if keep else [str(self.work / p) for p in (*WRITES.values(), "state")]
        return self.shell.run(*self.argv(name), fresh=fresh, **fault)

    def written(self, name, ended):
        """Returns what a command wrote where its output belongs, by path."""
        prefix = f"work/{WRITES[name]}"
        return {p: h for p, h in ended.state.items() if p == prefix or p.startswith(prefix + "/")}

    def whole(self, name):
        """Returns what a command writes undisturbed."""
        if name not in self._whole:
            ended = self.run(name)
            assert ended.code == 0, ended.out
            self._whole[name] = self.written(name, ended)
            assert self._whole[name]
        return self._whole[name]

    def check(self, name, ended, codes):
        """Fails unless a command ended as it should: no traceback, and its output whole or absent."""
        assert ended.code in codes, (ended.code, ended.out)
        assert "Traceback" not in ended.out, ended.out
        found = self.written(name, ended)
        assert not found or set(found) == set(self.whole(name)), found
        metadata = self.work / WRITES[name] / "metadata.json"
        if found and metadata.exists():  # times differ; what the artefact says of itself must hold
            for file, entry in json.loads(metadata.read_text())["files"].items():
                assert found[f"work/{WRITES[name]}/{file}"] == entry["sha256"], file
        if ended.code in (0, -9) or name in ("finetune", "federate"):
            return
        left = [p for p in ended.state if p.startswith("work/") and p not in found]
        assert not left, left


@pytest.fixture(scope="module")
def commands():
    # Not pytest's own folder, which only its owner may enter: a child that is not root must get there.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Shell(folder) as shell:
            yield Commands(shell, folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_full_disk(commands, name, size):
    ended = commands.run(name, file_size=size)
    fits = size == 20_000 and name in ("run", "verify")
    commands.check(name, ended, [0] if fits else [2])
    assert fits or "cannot write" in ended.out or "cannot be written" in ended.out, ended.out


def _for_others() -> bool:
    """Whether users other than root can read the libraries."""
    folders = [Path(sys.prefix), *Path(sys.prefix).parents]
    return all(folder.stat().st_mode & 0o5 == 0o5 for folder in folders)


@pytest.mark.skipif(os.getuid() == 0 and not _for_others(), reason="root may write anywhere, and others not import")
@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_cannot_be_written(commands, name):
    ended = commands.run(name, readonly=str(commands.work))
    commands.check(name, ended, [2])
    assert not commands.written(name, ended)
    assert "cannot write" in ended.out or "cannot be written" in ended.out, ended.out


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in WRITES])
def test_a_clock_that_jumps(commands, name):
    whole = commands.whole(name)
    ended = commands.run(name, clock=True)
    commands.check(name, ended, [0])
    weights = [p for p in whole if p.endswith((".safetensors", ".npz"))]
    assert all(commands.written(name, ended)[p] == whole[p] for p in weights)


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_interrupted_at_any_moment(commands, name, times):
    commands.whole(name)
    rng = random.Random(name)
    for _ in range(times):
        ended = commands.run(name, signal="INT", after=rng.uniform(0.05, 1.05), fraction=True)
        commands.check(name, ended, [0, 130])


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["KILL", "INT"])
@pytest.mark.parametrize("name", ["finetune", "federate"])
def test_training_that_is_stopped_again_and_again_ends_with_the_same_bits(commands, name, signal):
    weights = f"work/{WRITES[name]}/params.safetensors"
    whole = commands.whole(name)[weights]
    ended = commands.run(name, signal=signal, after=0.35, fraction=True, until=True)
    assert ended.code == 0, ended.out
    assert ended.starts > 1
    assert ended.state[weights] == whole
