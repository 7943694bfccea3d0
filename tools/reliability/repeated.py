"""Convert many times in one process, and record remaining objects and memory.

Usage: ``python -m tools.reliability.repeated --count 1000 --json OUT``.

Growth is counted after garbage collection and with JAX's caches cleared: objects of the library, TensorFlow's
graphs, JAX arrays and resident memory. TensorFlow keeps something of each function that it traces, for any caller
(all of a graph with a custom gradient, which it never unregisters); so as many functions are traced without being
converted, and their remains are reported beside it.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def make(index: int) -> Any:
    """Return a function with all kinds of constructs, and its argument's spec.

    It has variables, a call, a branch, a loop and a custom gradient.
    """
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(index)
    weights = tf.Variable(rng.normal(size=(64, 64)).astype(np.float32), name="weights")

    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        return x * 2.0, lambda upstream: upstream * 3.0

    @tf.function(autograph=False)
    def inner(x: Any) -> Any:
        return tf.tanh(x @ weights)

    @tf.function(autograph=False)
    def model(x: Any) -> Any:
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: -x)
        _, y = tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, inner(y)), (tf.constant(0), y))
        return scaled(y) if index % 2 else y

    return model, tf.TensorSpec([None, 64], tf.float32)


def convert_one(index: int, run: bool = True) -> None:
    """Convert a new function, and run it compiled now and then."""
    import jax
    import numpy as np

    import tf2jax_lite as tf2jax

    model, spec = make(index)
    jax_fn, params = tf2jax.convert(model, spec)
    if run and index % 10 == 0:
        jax.jit(jax_fn)(params, np.ones((2, 64), np.float32))


def trace_one(index: int) -> None:
    """Only traces a new function, as a control."""
    model, spec = make(index)
    model.get_concrete_function(spec).graph.as_graph_def()


def living() -> dict[str, int]:
    """Return the number of conversions' living objects, and memory in bytes."""
    import jax

    jax.clear_caches()
    for _ in range(3):
        gc.collect()
    counts: collections.Counter[str] = collections.Counter()
    for item in gc.get_objects():
        module = type(item).__module__
        if isinstance(module, str) and module.startswith("tf2jax_lite"):
            counts["objects of the library"] += 1
        elif type(item).__name__ == "FuncGraph":
            counts["TensorFlow graphs"] += 1
    counts["JAX arrays"] = len(jax.live_arrays())
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    counts["resident bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
    return dict(counts)


def measure(count: int, work: Any, warm: int = 50) -> list[dict[str, int]]:
    """Return what lives after ``warm`` calls, then after half and all of ``count``."""
    found = []
    for index in range(warm + count):
        if index in (warm, warm + count // 2):
            found.append(living())
        work(index)
    return [*found, living()]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.reliability.repeated", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    traced = measure(options.count, trace_one)
    converted = measure(options.count, convert_one)
    rows = []
    for name in ("objects of the library", "TensorFlow graphs", "JAX arrays", "resident bytes"):
        for what, found in (("traced", traced), ("converted", converted)):
            rows.append([f"{name}, functions {what}", *(step.get(name, 0) for step in found)])
    page = {
        "title": "Repeated conversion in one process",
        "command": f"python -m tools.reliability.repeated --count {options.count} --json {options.json}",
        "columns": ["what lives", "after 50", f"after {50 + options.count // 2}", f"after {50 + options.count}"],
        "rows": rows,
        "notes": [
            "After garbage collection, with JAX's caches cleared. 'traced': TensorFlow alone traces the same "
            "functions; its remains are its own. Weights are 16 KiB a function."
        ],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(page, indent=1) + "\n")


if __name__ == "__main__":
    main()
