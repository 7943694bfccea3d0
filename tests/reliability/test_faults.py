"""Full disks, read-only folders, signals, clocks: outputs whole or absent.

The commands that write, each under each fault. On every run: ``convert`` and ``run``; all with ``-m slow``.
"""

import os
import random
import tempfile
from pathlib import Path

import pytest

from tools.reliability.commands import Shell
from tools.reliability.faults import WRITES, Commands, others_can_read

ALWAYS = ("convert", "run")
NAMES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.full) for name in WRITES]


@pytest.fixture(scope="module")
def commands():
    # Not pytest's own folder, which only its owner may enter: a child that is not root must get there.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Shell(folder) as shell:
            yield Commands(shell, folder)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 300, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_a_full_disk(commands, name, size):
    ended = commands.run(name, file_size=size)
    fits = size == 20_000 and name in ("run", "verify")
    commands.check(name, ended, [0] if fits else [2])
    assert fits or "cannot write" in ended.out or "cannot be written" in ended.out, ended.out


@pytest.mark.full
@pytest.mark.skipif(os.getuid() == 0 and not others_can_read(), reason="root may write anywhere, and others not import")
@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_cannot_be_written(commands, name):
    ended = commands.run(name, readonly=str(commands.work))
    commands.check(name, ended, [2])
    assert not commands.written(name, ended)
    assert "cannot write" in ended.out or "cannot be written" in ended.out, ended.out


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.full) for n in WRITES])
def test_a_clock_that_jumps(commands, name):
    whole = commands.whole(name)
    ended = commands.run(name, clock=True)
    commands.check(name, ended, [0])
    weights = [p for p in whole if p.endswith((".safetensors", ".npz"))]
    assert all(commands.written(name, ended)[p] == whole[p] for p in weights)


@pytest.mark.full
@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", NAMES)
def test_interrupted_at_any_moment(commands, name, times):
    commands.whole(name)
    rng = random.Random(name)
    for _ in range(times):
        ended = commands.run(name, signal="INT", after=rng.uniform(0.05, 1.05), fraction=True)
        commands.check(name, ended, [0, 130])


@pytest.mark.full
@pytest.mark.parametrize("signal", ["KILL", "INT"])
@pytest.mark.parametrize("name", ["finetune", "federate"])
def test_training_that_is_stopped_again_and_again_ends_with_the_same_bits(commands, name, signal):
    weights = f"work/{WRITES[name]}/params.safetensors"
    whole = commands.whole(name)[weights]
    # The signal comes after a part of the time of the first run. If that was slower, the signal may come too late.
    for after in (0.35, 0.2, 0.1):
        ended = commands.run(name, signal=signal, after=after, fraction=True, until=True)
        assert ended.code == 0, ended.out
        assert ended.state[weights] == whole
        if ended.starts > 1:
            return
    pytest.fail("no run was stopped")
