"""The suite stages: XLA's time to compile by stage, from its profiler.

Also the time of the same program without CPU lowering rules, which is the cost of the rules.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tf2jax_lite
from tf2jax_lite.jaxprs.compat import bind
from tf2jax_lite.xla_cpu import rules

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


_WITH_RULES = (
    lax.conv_general_dilated_p,
    lax.reduce_window_max_p,
    lax.reduce_window_sum_p,
    lax.select_and_gather_add_p,
    lax.select_and_scatter_add_p,
)


def plain(closed: Any) -> Callable[..., list[Any]]:
    """Return a jaxpr's function with JAX's primitives in place of CPU variants.

    Those in calls stay.
    """
    own = {rules.variant_of(primitive): primitive for primitive in _WITH_RULES}

    def run(*args: Any) -> list[Any]:
        env = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, *args], strict=True))
        for eqn in closed.jaxpr.eqns:
            inputs = [atom.val if hasattr(atom, "val") else env[atom] for atom in eqn.invars]
            results = bind(eqn, *inputs, primitive=own.get(eqn.primitive))
            env.update(zip(eqn.outvars, results, strict=True))
        return [atom.val if hasattr(atom, "val") else env[atom] for atom in closed.jaxpr.outvars]

    return run


def _compiling(traced: Any) -> float:
    """Return the processor time of lowering and compiling."""
    jax.clear_caches()
    begun = time.process_time()
    traced.lower().compile()
    return time.process_time() - begun


def stages(name: str, *, size: str = "full", batch: int = 1) -> dict[str, Any]:
    """Compile a converted model under JAX's profiler.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.

    Returns:
      Seconds by part of XLA (summed over its threads), the number of kernels, equal ones counted once, and
      ``cpu``, CPU time of lowering and compiling with (``spelled``) and without rules (``plain``).
    """
    import keras
    import tensorflow as tf

    model = models.build(keras, name, size)
    flat = tf.nest.flatten(models.MODELS[name].inputs(batch, size))
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    fn, params = tf2jax_lite.convert(graph, *(tf.TensorSpec(v.shape, v.dtype) for v in flat))
    args = (params, *map(jnp.asarray, flat))
    traced = jax.jit(lambda params, *a: fn(params, *a)[0]).trace(*args)
    without = jax.jit(plain(traced.jaxpr)).trace(*jax.tree.leaves(args))
    cpu = {which: _compiling(program) for which, program in (("", traced), ("plain", without), ("spelled", traced))}
    jax.clear_caches()  # else XLA is not asked again
    lowered = traced.lower()
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
        "cpu": {which: cpu[which] for which in ("spelled", "plain")},  # the first of all paid for warming up
    }
