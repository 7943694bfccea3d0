"""The suite pages: memory allocation per call, and the effect of larger pages.

XLA's client on CPU takes memory for a program's temporaries at each call and frees it after it; the C library gives
large blocks back, so that each call touches pages that the system must first clear. TensorFlow keeps a pool. With
``GLIBC_TUNABLES=glibc.malloc.hugetlb=1`` in the environment glibc asks for pages of 2 MiB: fewer to clear one by one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TUNABLE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_CALLS = 5


def _faults(run: Callable[[], float]) -> float:
    """Return the number of pages that one call touches for the first time."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(_CALLS):
        run()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / _CALLS


def _measured(name: str, size: str, batch: int, budget: float) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import keras
    import tensorflow as tf

    import tf2jax_lite

    from . import models
    from .timing import in_turns, ratios, seconds

    model = models.build(keras, name, size)
    flat = tf.nest.flatten(models.MODELS[name].inputs(batch, size))
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    fn, params = tf2jax_lite.convert(graph, *(tf.TensorSpec(v.shape, v.dtype) for v in flat))
    params = {k: jnp.asarray(v) for k, v in params.items()}
    args, constants = [jnp.asarray(v) for v in flat], [tf.constant(v) for v in flat]
    compiled = jax.jit(lambda params, *a: fn(params, *a)[0]).lower(params, *args).compile()
    contestants = {
        "tf2jax_lite": lambda: seconds(lambda: jax.block_until_ready(compiled(params, *args))),
        "tensorflow": lambda: seconds(lambda: [t.numpy() for t in tf.nest.flatten(graph(*constants))]),
    }
    times = in_turns(contestants, rounds=40, budget=budget)
    faults = {who: _faults(run) for who, run in contestants.items()}
    return {"times": times, "ratios": ratios(times), "faults": faults}


def pages(name: str, *, size: str = "full", batch: int = 1, budget: float = 20.0) -> dict[str, Any]:
    """Compare a model with TensorFlow in two processes, one with large pages.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.
      budget: seconds of turns, each.

    Returns:
      ``plain`` and ``larger``: times, ratios, and page faults of a call by contestant.

    Raises:
      subprocess.CalledProcessError: a process failed.
    """
    record: dict[str, Any] = {"model": name, "size": size, "batch": batch}
    for which, more in (("plain", {}), ("larger", TUNABLE)):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.pages", name, size, str(batch), str(budget)],
            env={**os.environ, **more},
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        record[which] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    print(json.dumps(_measured(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
