"""The suites convert, artifact and memory: the cost before the first result."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .run import peer_module
from .timing import in_turns, ratios, seconds


def chain(nodes: int) -> Any:
    """Return a tf.function of about ``nodes`` nodes: a chain of residual steps."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def fn(x: Any) -> Any:
        for _ in range(nodes // 4):
            x = x + tf.tanh(x * 0.5) - tf.nn.relu(x)
        return x

    return fn


def growth(sizes: tuple[int, ...] = (1000, 4000, 16000, 64000), *, peer: str | None = None) -> list[dict[str, Any]]:
    """Measure conversion and tracing as graphs grow; seconds a node should not.

    Args:
      sizes: numbers of nodes.
      peer: where to import tf2jax from; None leaves it out.

    Returns:
      For each size the nodes, seconds of the processor for our conversion and trace, and for tf2jax. This is work
      of one thread, so other work beside it does not count.
    """
    import jax
    import tensorflow as tf

    import tf2jax_lite

    module = peer_module(peer)
    converters = {"ours": tf2jax_lite.convert, "peer": module and module.convert}
    x = np.ones(8, np.float32)
    found = []
    for size in (100, *sizes):  # the first is a warm-up
        function = chain(size)
        concrete = function.get_concrete_function(tf.TensorSpec([8], tf.float32))  # traced before either begins
        record: dict[str, Any] = {"nodes": len(concrete.graph.as_graph_def().node)}
        for name, convert in converters.items():
            if convert is None:
                continue
            start = time.process_time()
            fn, params = convert(function, x)
            middle = time.process_time()
            jax.jit(fn).trace(params, x)
            record[name] = {"convert": middle - start, "trace": time.process_time() - middle}
        found.append(record)
    return found[1:]


def _process(code: str, *arguments: str) -> Any:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return json.loads(done.stdout.strip().splitlines()[-1])


_IMPORT = """
import json, sys, time
import jax
start = time.perf_counter()
import tf2jax_lite
print(json.dumps({"seconds": time.perf_counter() - start, "tensorflow": "tensorflow" in sys.modules}))
"""


# As the installed command, but with the checkout's code.
_SHELL = "import sys; from tf2jax_lite.cli import main; sys.exit(main())"


def start_times(repeats: int = 5) -> dict[str, float]:
    """Return median seconds of our import beyond jax's, and of ``--help``."""
    imports = [_process(_IMPORT) for _ in range(repeats)]
    command = [sys.executable, "-c", _SHELL, "--help"]
    helps = [seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(repeats)]
    bare = [seconds(lambda: subprocess.run([sys.executable, "-c", ""], check=True)) for _ in range(repeats)]
    return {
        "import": statistics.median(i["seconds"] for i in imports),
        "help": statistics.median(helps),
        "python": statistics.median(bare),
    }


def artifact(name: str, *, size: str = "full") -> dict[str, Any]:
    """Measure load and first call of an artifact and of ``tf.saved_model.load``.

    Args:
      name: the model.
      size: "full" or "small".
    """
    import jax
    import keras
    import tensorflow as tf

    import tf2jax_lite

    from . import models

    model = models.build(keras, name, size)
    x = models.MODELS[name].inputs(1, size)
    with tempfile.TemporaryDirectory() as folder:
        saved, exported = str(Path(folder) / "saved"), str(Path(folder) / "exported")
        model.export(saved, verbose=False)
        subprocess.run([sys.executable, "-c", _SHELL, "convert", saved, exported], check=True, capture_output=True)

        def ours() -> None:
            fn, params = tf2jax_lite.load(exported)
            jax.block_until_ready(jax.tree.leaves(params))
            assert callable(fn)

        def theirs() -> None:
            assert tf.saved_model.load(saved).signatures is not None

        times = in_turns(
            {"tf2jax_lite": lambda: seconds(ours), "tensorflow": lambda: seconds(theirs)}, rounds=5, budget=30
        )
    del x
    return {"model": name, "size": size, "times": times, "ratios": ratios(times)}


_MEMORY = """
import gc, json, sys
import jax, keras, tensorflow as tf
import tf2jax_lite
from benchmarks import models

def forget():
    try:  # building a model needs more for a while than the model: that peak is not the converter's
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))

def now():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))

name, size, kept = sys.argv[1:]
tf.constant(0.0).numpy(); jax.numpy.zeros(1).block_until_ready()
baseline = now()
model = models.build(keras, name, size)
weights = sum(w.numpy().nbytes for w in model.weights)
x = models.MODELS[name].inputs(1, size)
gc.collect()
built = now()
forget()
spec = tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape, v.dtype), x)
fn, params = tf2jax_lite.convert(tf.function(lambda x: model(x, training=False)), spec)
converted = peak()
forward = (lambda params, x: fn(params, x)[0]) if kept == "results" else fn
program = jax.jit(forward).lower(params, x).compile()
compiled = peak()
jax.block_until_ready(program(params, x))
found = {"baseline": baseline, "built": built, "converted": converted, "compiled": compiled, "peak": peak()}
print(json.dumps({"weights": weights, **found}))
"""


def memory(name: str, *, size: str = "full") -> dict[str, Any]:
    """Measure the peak memory of conversion and one call, in fresh processes.

    Args:
      name: the model.
      size: "full" or "small".

    Returns:
      Bytes of ``weights``, of ``baseline`` (both frameworks imported), when ``built``, peaks when ``converted``,
      ``compiled`` and at the end, and ``times_weights``: the last above the baseline, as a multiple of the weights.
      That is when the jitted call returns the params, too, which XLA copies; ``results_only`` is the multiple when it
      does not.
    """
    found = _process(_MEMORY, name, size, "all")
    alone = _process(_MEMORY, name, size, "results")

    def multiple(of: dict[str, Any]) -> float:
        return (of["peak"] - of["baseline"]) / of["weights"]

    found["compiled"] = alone["compiled"]
    return {"model": name, "size": size, **found, "times_weights": multiple(found), "results_only": multiple(alone)}
