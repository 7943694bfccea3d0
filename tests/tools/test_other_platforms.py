"""Op cases are written as programs, run without TensorFlow, and compared."""

import jax
import numpy as np
import pytest
import tensorflow as tf

from tests.ops.harness import case
from tools import other_platforms

X = np.float32([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]])
CASES = [
    case("Tanh", X),
    case("Cast", X, DstT=tf.bfloat16).using(name="to bfloat16"),
    case("Sum", X, np.array([1]), keep_dims=False),
    # A callback cannot be serialized: the case is reported, and the others of its group are written.
    case("Print", X, [X], message="", first_n=-1, summarize=3).using(grad=False),
]


@pytest.fixture
def run(monkeypatch, tmp_path, capfd):
    """Return a function of a command, which returns the text it prints."""
    monkeypatch.setattr(other_platforms, "_cases", lambda arguments: CASES)

    def run(*arguments):
        capfd.readouterr()
        other_platforms.main([arguments[0], str(tmp_path), *arguments[1:]])
        return capfd.readouterr().out

    return run


@pytest.mark.full
def test_results_of_a_platform_are_compared(run, tmp_path):
    said = run("write", "--platform", "cpu")
    assert said.startswith(f"{CASES[3]}: not written: NotImplementedError: ") and said.count("not written") == 1
    run("run", "--processes", "1")
    with pytest.raises(SystemExit, match=r"^False$"):
        run("compare")
    stored = dict(np.load(tmp_path / "results.npz"))
    for name in stored:
        if stored[name].size == X.nbytes:  # the values of Tanh, before all other results of this size
            stored[name] = np.zeros_like(stored[name])
            break
    np.savez(tmp_path / "results.npz", **stored)
    with jax.enable_x64(True):
        found = list(other_platforms.failures(tmp_path, tmp_path / "results.npz"))
    assert [name for name, _ in found] == [str(CASES[0])]
    assert "Not equal to tolerance" in found[0][1]
