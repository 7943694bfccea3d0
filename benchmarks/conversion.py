"""Cost before the first result: convert, tf1, artifact, memory and first.

convert: conversion from a traced function, tf2jax's, and a profile of ours; also growing graphs, and start times. tf1:
functionalization of TF1 graphs as they grow. artifact: loading. memory: peaks. first: commands from a file to its first
result, as processes of their own, with cold and warm caches of compiled programs, and the same steps in Python.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import models
from .records import ROOT, Result
from .timing import in_process, in_turns, quiet, reset_peak, resident, seconds

# Where our time goes: a name for the page, then the function and the end of its file's path. None holds another.
PARTS = {
    "TensorFlow's GraphDef": ("as_graph_def", "framework/ops.py"),
    "nodes": ("load_main", "frontend/graphdef/functions.py"),
    "functions": ("load_library", "frontend/graphdef/functions.py"),
    "gradient functions": ("trace", "frontend/gradients/tf_registry.py"),
    "values of variables": ("_captures", "frontend/concrete/concrete_function.py"),
    "checks and plans": ("convert_imported", "tf2jax_lite/pipeline/convert.py"),
}
# Parts that are TensorFlow's.
GIVEN = ("TensorFlow's GraphDef", "gradient functions", "values of variables")


def shares(profile: cProfile.Profile, parts: dict[str, tuple[str, str]] = PARTS) -> dict[str, float]:
    """Return each part's share in a profile's time, and the rest's.

    A part within another counts there.
    """
    stats = pstats.Stats(profile)
    total = stats.total_tt or 1.0  # type: ignore[attr-defined]
    found = dict.fromkeys(parts, 0.0)
    for (path, _, function), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        for name, (wanted, file) in parts.items():
            if function == wanted and path.endswith(file):
                found[name] += cumulative / total
    return {**found, "the rest": max(0.0, 1 - sum(found.values()))}


def convert(options: Any) -> Iterator[Result]:
    """Measure start times, growing graphs, and conversion of each model.

    Both converters start with ``get_concrete_function``: TensorFlow's tracing is the same for both, and is told apart.

    Yields:
      Of models: ``nodes``; seconds of ``tracing`` in TensorFlow, of the ``first`` conversion of the process and of
      those in turns (``times``), and the ``shares`` of ours.
    """
    import tf2jax_lite

    yield {"what": "start"}, start_times()
    yield from _growth((500, 1000) if options.size == "small" else (1000, 4000, 16000, 64000), options.peer)
    peer = models.peer_module(options.peer)
    ours = tf2jax_lite.convert  # its imports count as import
    for name in models.chosen(options):
        _, fn, arrays = models.traceable(name, options.size, 1)
        specs = [*map(models.spec, arrays)]
        start = time.perf_counter()
        concrete = fn.get_concrete_function(*specs)
        values: dict[str, Any] = {"tracing": time.perf_counter() - start}
        values["nodes"] = len(concrete.graph.as_graph_def().node)
        values["first"] = seconds(lambda fn=fn, specs=specs: ours(fn, *specs))
        contestants: dict[str, Callable[[], float]] = {}
        contestants["tf2jax_lite"] = lambda fn=fn, specs=specs: seconds(lambda: ours(fn, *specs))
        if peer is not None:
            try:
                peer.convert(fn, *arrays)
                contestants["tf2jax"] = lambda fn=fn, arrays=arrays: seconds(lambda: peer.convert(fn, *arrays))
            except Exception as error:
                values["peer"] = {"failed": models.failure(error)}
        values["times"] = in_turns(contestants, budget=options.budget)
        profile = cProfile.Profile()
        profile.runcall(ours, fn, *specs)
        models.clear()
        yield {"model": name, "size": options.size}, {**values, "shares": shares(profile)}


def chain(nodes: int) -> Any:
    """Return a tf.function of about ``nodes`` nodes: a chain of residual steps."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def fn(x: Any) -> Any:
        for _ in range(nodes // 4):
            x = x + tf.tanh(x * 0.5) - tf.nn.relu(x)
        return x

    return fn


def _growth(sizes: Sequence[int], path: str | None) -> Iterator[Result]:
    """Measure conversion and tracing as graphs grow; seconds a node should not."""
    # Returns for each size the seconds of the processor for our conversion and trace, and for tf2jax. This is work of
    # one thread, so other work beside it does not count.
    import tensorflow as tf

    import tf2jax_lite

    peer = models.peer_module(path)
    x = np.ones(8, np.float32)
    for size in (100, *sizes):  # the first is a warm-up
        function = chain(size)
        concrete = function.get_concrete_function(tf.TensorSpec([8], tf.float32))  # traced before either begins
        values = {}
        for name, converter in {"ours": tf2jax_lite.convert, "peer": peer and peer.convert}.items():
            if converter is not None:
                start = time.process_time()
                fn, params = converter(function, x)
                middle = time.process_time()
                jax.jit(fn).trace(params, x)
                values[name] = {"convert": middle - start, "trace": time.process_time() - middle}
        if size > 100:
            yield {"what": "growth", "nodes": len(concrete.graph.as_graph_def().node)}, values


# As the installed command, but with the checkout's code.
_SHELL = "import sys; from tf2jax_lite.cli import main; sys.exit(main())"


def _import_seconds() -> float:
    start = time.perf_counter()
    import tf2jax_lite  # noqa: F401

    return time.perf_counter() - start


def start_times(repeats: int = 5) -> dict[str, float]:
    """Return median seconds of our import beyond jax's, and of ``--help``."""
    helps, bare = (
        [
            seconds(lambda code=code: subprocess.run([sys.executable, "-c", *code], check=True, capture_output=True))
            for _ in range(repeats)
        ]
        for code in ((_SHELL, "--help"), ("",))
    )
    return {
        "import": statistics.median(in_process(_import_seconds) for _ in range(repeats)),
        "help": statistics.median(helps),
        "python": statistics.median(bare),
    }


def artifact(options: Any) -> Iterator[Result]:
    """Measure loading of an artifact, and ``tf.saved_model.load``."""
    import tensorflow as tf

    import tf2jax_lite

    for name in models.chosen(options):
        if name == "gpt2_decode":
            continue
        model, _, _ = models.traceable(name, options.size, 1)
        with tempfile.TemporaryDirectory() as folder:
            saved, exported = str(Path(folder) / "saved"), str(Path(folder) / "exported")
            model.export(saved, verbose=False)
            subprocess.run(shell("convert", saved, exported), check=True, capture_output=True)

            def ours(exported: str = exported) -> None:
                fn, params = tf2jax_lite.load(exported)
                jax.block_until_ready(jax.tree.leaves(params))
                assert callable(fn)

            def theirs(saved: str = saved) -> None:
                assert tf.saved_model.load(saved).signatures is not None

            times = in_turns(
                {"tf2jax_lite": lambda: seconds(ours), "tensorflow": lambda: seconds(theirs)}, rounds=5, budget=30
            )
        yield {"model": name, "size": options.size}, {"times": times}


def memory(options: Any) -> Iterator[Result]:
    """Measure the peak memory of conversion and one call, in fresh processes.

    Yields:
      Bytes of ``weights``, of ``baseline`` (both frameworks imported), when ``built``, peaks when ``converted``,
      ``compiled`` and at the end, and ``times_weights``: the last above the baseline, as a multiple of the weights.
      That is when the jitted call returns the params, too, which XLA copies; ``results_only`` is the multiple when it
      does not.
    """
    for name in models.chosen(options):
        if name == "gpt2_decode":
            continue
        found, alone = (in_process(_memory, name, options.size, returned) for returned in (True, False))

        def multiple(of: dict[str, Any]) -> float:
            return (of["peak"] - of["baseline"]) / of["weights"]

        values = {**found, "compiled": alone["compiled"]}
        multiples = {"times_weights": multiple(found), "results_only": multiple(alone)}
        yield {"model": name, "size": options.size}, {**values, **multiples}


def _memory(name: str, size: str, returned: bool) -> dict[str, int]:
    """Return the memory of a conversion and a call that may return the params."""
    import keras
    import tensorflow as tf

    import tf2jax_lite

    tf.constant(0.0).numpy()
    jax.numpy.zeros(1).block_until_ready()
    baseline = resident("VmRSS")
    model = models.build(keras, name, size)
    weights = sum(w.numpy().nbytes for w in model.weights)
    x = models.MODELS[name].inputs(1, size)
    reset_peak()  # building a model needs more for a while than the model: that peak is not the converter's
    built = resident("VmRSS")
    fn, params = tf2jax_lite.convert(tf.function(lambda x: model(x, training=False)), models.spec(x))
    converted = resident()
    program = jax.jit(fn if returned else lambda params, x: fn(params, x)[0]).lower(params, x).compile()
    compiled = resident()
    jax.block_until_ready(program(params, x))
    sizes = {"baseline": baseline, "built": built, "converted": converted, "compiled": compiled}
    return {"weights": weights, **sizes, "peak": resident()}


# --- TF1


def _tf1_graph(nodes: int, gradients: bool) -> tuple[Any, list[str]]:
    """Return a GraphDef of about ``nodes`` nodes, and the names of its results."""
    # It is a chain of blocks: nested branches on a few shared predicates, a while loop with a branch in it.
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_v2_toggles

    tf1 = tf.compat.v1
    control_flow_v2_toggles.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [], "x")
            p, q = (tf1.placeholder(tf.bool, [], name) for name in "pq")
            y = x
            while len(graph.get_operations()) < nodes / (2.5 if gradients else 1):
                y = tf1.cond(p, lambda y=y: tf1.cond(q, lambda: tf.sin(y) * x, lambda: y + 1.0), lambda y=y: tf.tanh(y))

                def body(i: Any, a: Any) -> Any:
                    return i + 1, tf1.cond(i < 1, lambda: tf.sin(a) * x, lambda: a * 0.5)

                y = tf1.while_loop(lambda i, a: i < 2, body, [0, y])[1]
            outputs = [y, *(tf1.gradients(y, [x]) if gradients else [])]
            names = [tf.identity(tensor, f"result_{index}").op.name for index, tensor in enumerate(outputs)]
            return graph.as_graph_def(), names
    finally:
        control_flow_v2_toggles.enable_control_flow_v2()


def tf1(options: Any) -> Iterator[Result]:
    """Measure how the time to functionalize a TF1 graph grows with its nodes.

    Timed is the part from the GraphDef to the IR without control flow v1: reading protos, and the passes.

    Yields:
      Least seconds of the processor per node of each step, and of the ``passes``: equal for all sizes if linear.
    """
    from tf2jax_lite import ir
    from tf2jax_lite.frontend.graphdef import functions
    from tf2jax_lite.passes.canonicalize import stacks_to_lists
    from tf2jax_lite.passes.control_flow_v1 import functionalize
    from tf2jax_lite.support.config import Config

    for gradients in (False, True):
        for size in (200, 400) if options.size == "small" else (5_000, 10_000, 20_000, 50_000):
            proto, outputs = _tf1_graph(size, gradients)
            args = [ir.Argument(node.name, ir.VARIANT) for node in proto.node if node.op == "Placeholder"]
            best: dict[str, float] = {}
            for _ in range(options.rounds or 3):
                begin = time.process_time()
                main = functions.load_main(proto, "graph", args, outputs)
                read = time.process_time()
                graph = functionalize.run(ir.Graph(main, {}), Config())
                functionalized = time.process_time()
                graph = stacks_to_lists.run(graph, Config())
                done = time.process_time()
                assert not any(node.op in functionalize.OPS for _, node in graph.walk())
                steps = {"read": read - begin, "functionalize": functionalized - read, "stacks": done - functionalized}
                best = {name: min(value, best.get(name, value)) for name, value in steps.items()}
            each = {name: value / len(proto.node) for name, value in best.items()}
            case = {"gradients": gradients, "nodes": len(proto.node)}
            yield case, {"seconds": {**each, "passes": each["functionalize"] + each["stacks"]}}


# --- From a file to its first result

_PYTHON = """
import sys, numpy as np, tf2jax_lite, jax
fn, params = tf2jax_lite.{load}(sys.argv[1])
with np.load(sys.argv[2]) as arrays:
    jax.block_until_ready(jax.jit(fn)(params, *arrays.values())[0])
"""
CACHE = "TF2JAX_LITE_CACHE"


# Starts a command and prints its wall time, processor time and peak memory. Linux counts the memory of the process that
# starts another one as the other's: it must be small.
_LAUNCHER = """
import os, subprocess, sys, time
start = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measured(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Run a process; return wall and processor time in s, and peak memory in bytes.

    Raises:
      subprocess.CalledProcessError: the process failed.
    """
    launcher = [sys.executable, "-S", "-c", _LAUNCHER, *command]
    inherited = {**os.environ, **environment}
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its modules compiled
    found = subprocess.run(launcher, cwd=ROOT, env=inherited, stdout=subprocess.PIPE, check=True)
    return dict(zip(("wall", "cpu", "peak"), map(float, found.stdout.split()), strict=True))


def shell(*arguments: str | Path) -> list[str]:
    """Return the command line of ``tf2jax-lite``."""
    return [sys.executable, "-c", _SHELL, *map(str, arguments)]


def _dense(folder: Path, layers: int, width: int) -> int:
    """Save a model of large dense layers; return the bytes of its variables."""
    # Its conversion must not hold its variables.
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


def first(options: Any) -> Iterator[Result]:
    """Measure commands and their steps in Python, for ``dense`` and Keras models."""
    rounds = 1 if options.size == "small" else 3

    def repeated(command: Sequence[str], environment: Mapping[str, str] | None = None, rounds: int = rounds) -> Any:
        with quiet():
            found = [measured(command, environment or {CACHE: ""}) for _ in range(rounds)]
        return {"rounds": rounds, **{key: statistics.median(f[key] for f in found) for key in found[0]}}

    def commands(case: dict[str, Any], work: Path, keras: Path | None, size: int) -> Iterator[Result]:
        saved, artifact, arrays = work / "saved", work / "artifact", work / "x.npz"
        run = shell("run", artifact, "--input", arrays, "--output", work / "out.npz", "--quiet")
        cached = {CACHE: str(work / "cache")}
        convert = shell("convert", saved, artifact, "--force", "--quiet")
        yield {**case, "command": "inspect"}, repeated(shell("inspect", saved, "--json"))
        yield {**case, "command": "convert"}, {"bytes": size, **repeated(convert)}
        if keras is not None:
            command = shell("convert", keras, work / "k", "--force", "--quiet")
            yield {**case, "command": "convert keras"}, repeated(command)
        yield {**case, "command": "run without cache"}, repeated(run)
        yield {**case, "command": "run with a cold cache"}, repeated(run, cached, 1)
        yield {**case, "command": "run with a warm cache"}, repeated(run, cached)
        for name, load, path in (("load", "load", artifact), ("convert", "convert_saved_model", saved)):
            command = [sys.executable, "-c", _PYTHON.format(load=load), str(path), str(arrays)]
            yield {**case, "command": f"{name} and call in Python"}, repeated(command, rounds=1)

    yield {"command": "import"}, repeated([sys.executable, "-c", "import tensorflow, jax"])
    for name in models.chosen(options, ["dense", *models.MODELS]):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            if name == "dense":
                layers, width = (2, 256) if options.size == "small" else (4, 5120)
                size = _dense(work / "saved", layers, width)
                np.savez(work / "x.npz", x=np.ones((1, width), np.float32))
                yield from commands({"model": name}, work, None, size)
                continue
            model, _, inputs = models.traceable(name, options.size, 1)
            model.export(work / "saved", verbose=False)
            # Keras cannot load local classes, which some models have as layers.
            file = work / "model.keras" if all(type(x).__module__ != models.__name__ for x in model.layers) else None
            if file is not None:
                model.save(file)
            np.savez(work / "x.npz", **dict(zip((tensor.name for tensor in model.inputs), inputs, strict=True)))
            size = sum(int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize for v in model.weights)
            yield from commands({"model": name, "size": options.size}, work, file, size)
