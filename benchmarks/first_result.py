"""The suite first: time and memory from a file to its first result.

Commands run as processes of their own, with cold and warm caches of compiled programs; the same steps in Python are
timed in fresh processes, too. ``--models`` chooses among the Keras models; ``dense`` is a model of large layers, whose
conversion must not hold its variables. Records have wall and processor time, since other work may share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import timing

ROOT = Path(__file__).parents[1]
# As the installed command, but with the checkout's code.
_SHELL = "import sys; from tf2jax_lite.cli import main; sys.exit(main())"
_IMPORTS = "import tensorflow, jax"
_PYTHON = """
import sys, numpy as np, tf2jax_lite, jax
fn, params = tf2jax_lite.load(sys.argv[1])
with np.load(sys.argv[2]) as arrays:
    jax.block_until_ready(jax.jit(fn)(params, *arrays.values())[0])
"""
_CONVERT = """
import sys, numpy as np, tf2jax_lite, jax
fn, params = tf2jax_lite.convert_saved_model(sys.argv[1])
with np.load(sys.argv[2]) as arrays:
    jax.block_until_ready(jax.jit(fn)(params, *arrays.values())[0])
"""
CACHE = "TF2JAX_LITE_CACHE"


def measured(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Run a process; return wall and processor time in s, and peak memory in bytes.

    Raises:
      subprocess.CalledProcessError: it failed.
    """
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, list(command))
    wall = time.perf_counter() - start
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss * 1024}


def repeated(name: str, command: Sequence[str], environment: Mapping[str, str], rounds: int) -> dict[str, Any]:
    """Return the medians of `measured` over some rounds, as a record."""
    with timing.quiet():
        found = [measured(command, environment) for _ in range(rounds)]
    return {"case": name, "rounds": rounds, **{k: statistics.median(f[k] for f in found) for k in found[0]}}


def shell(*arguments: str | Path) -> list[str]:
    """Return the command line of ``tf2jax-lite``."""
    return [sys.executable, "-c", _SHELL, *map(str, arguments)]


def dense(folder: Path, layers: int, width: int) -> int:
    """Save a model of large dense layers; return the bytes of its variables."""
    import tensorflow as tf

    module = tf.Module()
    module.weights = [
        tf.Variable(tf.random.stateless_normal([width, width], [0, i]), name=f"w{i}") for i in range(layers)
    ]

    @tf.function(input_signature=[tf.TensorSpec([None, width], name="x")])
    def call(x: Any) -> Any:
        for weight in module.weights:
            x = tf.nn.relu(x @ weight)
        return {"y": x}

    tf.saved_model.save(module, str(folder), signatures=call)
    return 4 * layers * width * width


def _commands(model: Path, keras: Path | None, arrays: Path, work: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the records of a model."""
    cold, artifact = work / "cache", work / "artifact"
    plain = {CACHE: ""}
    yield repeated("inspect", shell("inspect", model, "--json"), plain, rounds)
    convert = shell("convert", model, artifact, "--force", "--quiet")
    yield repeated("convert", convert, plain, rounds)
    if keras is not None:
        yield repeated("convert keras", shell("convert", keras, work / "k", "--force", "--quiet"), plain, rounds)
    run = shell("run", artifact, "--input", arrays, "--output", work / "out.npz", "--quiet")
    yield repeated("run without cache", run, plain, rounds)
    yield repeated("run with a cold cache", run, {CACHE: str(cold)}, 1)
    yield repeated("run with a warm cache", run, {CACHE: str(cold)}, rounds)
    yield repeated("load and call in Python", [sys.executable, "-c", _PYTHON, str(artifact), str(arrays)], plain, 1)
    yield repeated("convert and call in Python", [sys.executable, "-c", _CONVERT, str(model), str(arrays)], plain, 1)


def main(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the records of the suite."""
    import keras

    from . import models

    rounds = 1 if options.size == "small" else 3
    yield repeated("import TensorFlow and JAX", [sys.executable, "-c", _IMPORTS], {}, rounds)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "dense"
        layers, width = (2, 256) if options.size == "small" else (4, 5120)
        size = dense(work / "saved", layers, width)
        np.savez(work / "x.npz", x=np.ones((1, width), np.float32))
        for record in _commands(work / "saved", None, work / "x.npz", work, rounds):
            yield {"model": "dense", "bytes": size, **record}
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            model = models.build(keras, name, options.size)
            model.export(work / "saved", verbose=False)
            model.save(work / "model.keras")
            inputs = models.MODELS[name].inputs(1, options.size)
            inputs = inputs if isinstance(inputs, list) else [inputs]
            names = [tensor.name for tensor in model.inputs]
            np.savez(work / "x.npz", **dict(zip(names, inputs, strict=True)))
            size = sum(int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize for v in model.weights)
            for record in _commands(work / "saved", work / "model.keras", work / "x.npz", work, rounds):
                yield {"model": name, "size": options.size, "bytes": size, **record}


def rows(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return records as rows: model, case, wall and processor time, memory.

    The memory is that above imports, divided by the size of the variables.
    """
    bare = next((r["peak"] for r in records if r["case"].startswith("import")), 0)
    return [
        (
            r.get("model", ""),
            r["case"],
            f"{r['wall']:.1f}",
            f"{r['cpu']:.1f}",
            f"{(r['peak'] - bare) / r['bytes']:.2f}" if r["case"] == "convert" else "",
        )
        for r in records
    ]


if __name__ == "__main__":
    for line in sys.argv[1:]:
        found = [json.loads(text) for text in Path(line).read_text().splitlines()]
        for row in rows([r for r in found if r.get("suite") == "first"]):
            print("| " + " | ".join(row) + " |")
