"""Programs of two states of the package."""

import numpy as np
import pytest

from benchmarks import gpu
from benchmarks.__main__ import main


@pytest.mark.full
def test_programs_are_compared_with_another_state_s(tmp_path):
    """Names do not count; a program that only one state has is left out."""

    def add(x):
        return x + 1

    def increment(x):
        return x + 1

    now, before = tmp_path / "now", tmp_path / "before"
    x = np.ones((4, 3), np.float32)
    for folder, name, fn in (
        (now, "run-a-1", add),
        (before, "run-a-1", increment),
        (now, "run-b-1", add),
        (before, "run-b-1", lambda x: x * 2),
        (now, "run-c-1", add),
    ):
        gpu.write(fn, [x], folder / name / "ours.bin", "cpu")
    arguments = ["--suite", "earlier", "--folder", str(now), "--earlier", str(before), "--budget", "0"]
    same, other = main(["run", *arguments])
    assert (same["program"], same["same"]) == ("run-a-1", 1) and "times" not in same
    assert (other["program"], other["same"]) == ("run-b-1", 0)
    assert other["ratios"]["before"] > 0 and other["ours"]["kernels"] == other["before"]["kernels"]
    assert main(["run", *arguments, "--models", "a"])[0]["program"] == "run-a-1"
