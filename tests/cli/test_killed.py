"""``convert`` killed at any moment leaves the old directory, a new one, or none."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DIGITS = Path(__file__).parent.parent.parent / "tf2jax_lite" / "demo" / "digits_cnn"

# A process that has imported everything and used nothing (so that it can be forked) runs the command in children.
SCRIPT = """
    import hashlib, json, os, random, shutil, signal, sys, time
    from pathlib import Path

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow, jax, keras
    from tf2jax_lite.pipeline import convert as api, model_files
    from tf2jax_lite import export
    from tf2jax_lite.cli import main

    model, folder, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    out, old = folder / "out", folder / "old"

    def start(target):
        child = os.fork()
        if child == 0:
            sys.argv = ["tf2jax-lite", "convert", model, str(target), "--platforms", "cpu", "--quiet", "--force"]
            code = 1
            try:
                main()
                code = 0
            except SystemExit as done:
                code = int(done.code or 0)
            finally:
                os._exit(code)
        return child

    def state():
        if not out.exists():
            return "none"
        metadata = json.loads((out / "metadata.json").read_text())
        names = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} - {"metadata.json"}
        if names != set(metadata["files"]):
            return f"broken: {sorted(names)}"
        for name, entry in metadata["files"].items():
            if hashlib.sha256((out / name).read_bytes()).hexdigest() != entry["sha256"]:
                return f"broken: {name}"
        return "old" if (out / "metadata.json").stat().st_mtime_ns == stamp else "new"

    begin = time.perf_counter()
    _, status = os.waitpid(start(old), 0)
    assert status == 0
    whole = time.perf_counter() - begin
    stamp = (old / "metadata.json").stat().st_mtime_ns
    rng = random.Random(seed)
    found = []
    for attempt in range(kills):
        shutil.rmtree(out, ignore_errors=True)
        if attempt % 2:
            shutil.copytree(old, out)
        child = start(out)
        # Most of the time is spent converting; the end, where files appear, matters more.
        time.sleep(whole * (rng.uniform(0, 1) if attempt % 3 == 0 else rng.uniform(0.7, 1.05)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found.append(state())
    _, status = os.waitpid(start(out), 0)
    found.append(state() if status == 0 else "failed")
    print(json.dumps({"found": found, "left": sorted(p.name for p in folder.iterdir())}))
"""


@pytest.mark.full
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_at_random_moments(kills, tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(DIGITS), str(tmp_path), str(kills), "7"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    report = json.loads(result.stdout.splitlines()[-1])
    assert len(report["found"]) == kills + 1
    for attempt, found in enumerate(report["found"][:-1]):
        assert found in ("new", "old" if attempt % 2 else "none"), report
    # The next one works, and removes leftovers of the killed ones.
    assert report["found"][-1] == "new"
    assert report["left"] == ["old", "out"]
