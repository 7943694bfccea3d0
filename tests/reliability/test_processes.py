"""Conversion and runs in forked and spawned processes: equal bits."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODEL = ROOT / "testdata" / "tf_module"

# TensorFlow and JAX have threads once they have computed something, and no process that has threads can be forked; so
# the parent has imported all and used nothing, as a pre-forking server does.
SCRIPT = """
    import hashlib, json, multiprocessing, os, sys
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from concurrent.futures import ThreadPoolExecutor
    import jax, numpy as np, tensorflow
    import tf2jax_lite as tf2jax
    from tf2jax_lite.pipeline import convert as api

    X = np.linspace(-1, 1.5, 12, dtype=np.float32).reshape(3, 4)

    def digest(_):
        fn, params = tf2jax.convert_saved_model(sys.argv[1])
        results, updated = jax.jit(fn)(params, X)
        found = hashlib.sha256(str(jax.make_jaxpr(fn)(params, X)).encode())
        for tree in (params, results, updated):
            for name in sorted(tree):
                found.update(name.encode() + np.asarray(tree[name]).tobytes())
        return found.hexdigest()

    def several(i):
        tf2jax.update_config("dynamic_shape_bound", i)  # of this process alone
        with ThreadPoolExecutor(2) as pool:
            return [*pool.map(digest, range(2)), tf2jax.get_config("dynamic_shape_bound")]

    def forked(i):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(write, json.dumps(several(i)).encode())
            finally:
                os._exit(0)
        os.close(write)
        return child, read

    if __name__ == "__main__":
        children = [forked(i) for i in range(1, int(sys.argv[2]) + 1)]
        found = []
        for child, read in children:
            with os.fdopen(read) as pipe:
                found.append(json.loads(pipe.read() or "null"))
            os.waitpid(child, 0)
        count = int(sys.argv[3])
        if count:
            with multiprocessing.get_context("spawn").Pool(count) as pool:
                found += pool.map(several, range(1, count + 1), 1)
        print(json.dumps({"found": found, "own": digest(0), "left": tf2jax.get_config("dynamic_shape_bound")}))
"""


@pytest.mark.full
@pytest.mark.parametrize(("forks", "spawns"), [(3, 0), pytest.param(8, 4, marks=pytest.mark.full)])
def test_the_same_in_every_process(tmp_path, forks, spawns):
    script = tmp_path / "processes.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), str(MODEL), str(forks), str(spawns)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["found"]) == forks + spawns
    for i, (one, two, _) in enumerate(report["found"]):
        assert one == two == report["own"], i
    assert report["left"] == 0
    assert [bound for *_, bound in report["found"][:forks]] == list(range(1, forks + 1))
