"""The suite stages: where XLA's time goes when a converted model is compiled, as its own profiler tells."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import tf2jax_lite

from . import models
from .steps import kernels

# XLA's names of its parts. Kernels are made and compiled by several threads: theirs are sums.
PARTS = {
    "passes over operations": "HLO passes ",
    "writing kernels": "FusionCompiler::Compile",
    "compiling kernels": "TaskDispatcher::dispatch",
}


def _events(folder: str) -> list[dict[str, Any]]:
    (path,) = Path(folder).rglob("*.trace.json.gz")
    with gzip.open(path) as file:
        return [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]


def stages(name: str, *, size: str = "full", batch: int = 1) -> dict[str, Any]:
    """Compiles a converted model under JAX's profiler.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.

    Returns:
      Seconds by part of XLA (summed over its threads), and how many kernels there are, alike ones counted once.
    """
    import keras
    import tensorflow as tf

    model = models.build(keras, name, size)
    flat = tf.nest.flatten(models.MODELS[name].inputs(batch, size))
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    fn, params = tf2jax_lite.convert(graph, *(tf.TensorSpec(v.shape, v.dtype) for v in flat))
    lowered = jax.jit(lambda params, *a: fn(params, *a)[0]).lower(params, *map(jnp.asarray, flat))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            compiled = lowered.compile()
        events = _events(folder)
    found = {what: [e["dur"] / 1e6 for e in events if e["name"].startswith(part)] for what, part in PARTS.items()}
    keras.backend.clear_session()
    return {
        "model": name,
        "size": size,
        "batch": batch,
        "seconds": {what: sum(times) for what, times in found.items()},
        "kernels": kernels(compiled),
        "different": len(found["writing kernels"]),
    }
