"""Files that no mutation makes: exit code 2 in the shell, or read right.

Every case is a child process with an address space of 6 GiB and 60 seconds of processor time, so that what takes more
ends with another exit code. What converts is run, too. On every run: a few that cost nothing, in this process.
"""

import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

import tf2jax_lite
from tf2jax_lite.errors import Tf2JaxError
from tf2jax_lite.frontend.saved.graph_def_file import default_ends
from tools.reliability.commands import DIGITS, Shell
from tools.reliability.strange_files import FILES
from tools.reliability.strange_graphs import GRAPHS as WHOLE
from tools.reliability.strange_nodes import NODES

GRAPHS = {**WHOLE, **NODES}

QUICK = ("a loop of itself", "two nodes of one name", "negative dimensions", "one hot", *NODES)
LATER = ("segments of 2^31", "a spectrum of 2^31")  # converted; running them is what is refused


@pytest.fixture(scope="module")
def shell():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Shell(folder) as shell:
            done = shell.run("convert", DIGITS, folder / "base", "--platforms", "cpu", "--quiet")
            assert done.code == 0, done.out
            yield shell


def check(shell, argv, codes):
    done = shell.run(*argv, cpu_seconds=60, memory=6 << 30)
    assert done.code in (codes if isinstance(codes, tuple) else (codes,)), (done.code, done.out)
    assert "Traceback" not in done.out, done.out
    assert "root:x:0" not in done.out
    return done


@pytest.mark.full
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(shell, tmp_path, name):
    make, codes = GRAPHS[name]
    (tmp_path / "g.pb").write_bytes(make().SerializeToString())
    done = check(shell, ["convert", tmp_path / "g.pb", tmp_path / "out", "--platforms", "cpu", "--quiet"], codes)
    assert (tmp_path / "out").exists() == (done.code == 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.pb", "out"][: 2 if done.code == 0 else 1]
    if done.code == 0 and name not in ("a loop without end",):
        np.savez(tmp_path / "x.npz", x=np.float32([1, 2]))
        argv = ["run", tmp_path / "out", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz"]
        check(shell, argv, (0, 2))


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_files(shell, tmp_path, name):
    argv = FILES[name](tmp_path, shell.folder / "base")
    before = set(tmp_path.rglob("*"))
    # A single array belongs to the single argument whatever its name, and is read without a file of that name.
    reads = name == "an input outside of the archive"
    check(shell, argv, 0 if reads else 2)
    assert set(tmp_path.rglob("*")) - {tmp_path / "y.npz"} == before


@pytest.mark.full_cases("an axis twice")
@pytest.mark.parametrize("name", [name for name in QUICK if name not in LATER])
def test_graphs_in_this_process(name):
    data = GRAPHS[name][0]().SerializeToString()
    with pytest.raises(Tf2JaxError):
        fn, params = tf2jax_lite.convert_graph_def(data, *default_ends(data))
        # Traced only: a loop that doubles would run until memory ends.
        jax.eval_shape(fn, params, jax.ShapeDtypeStruct((2,), np.float32))
