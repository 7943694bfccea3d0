"""The suite calls: time to compile and to call, by ``expected_calls``.

    python -m benchmarks --suite calls --models vgg16,unet --batch 1

Each model is converted with all CPU lowering rules, with none, and with ``xla_cpu_rules="auto"`` for several numbers of
calls. Compile time is processor time of tracing, lowering and compiling, with cleared caches, in turns; so are calls.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import tf2jax_lite

from . import models
from .native import Native
from .run import spec, warm
from .steps import compile_once
from .timing import in_turns, quiet, seconds

CALLS = (0, 10, 100, 1000)


def _settings() -> dict[str, dict[str, Any]]:
    auto = {f"auto {n}": {"xla_cpu_rules": "auto", "expected_calls": n} for n in CALLS}
    return {"all": {"xla_cpu_rules": True}, "none": {"xla_cpu_rules": False}, **auto}


def record(name: str, *, size: str = "full", batch: int = 1, rounds: int = 3, budget: float = 20.0) -> dict[str, Any]:
    """Compile and run a model with each setting, and native JAX, in turns.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.
      rounds: compilations of each, after one that does not count.
      budget: seconds of calls.

    Returns:
      By setting and for ``native``: ``compile``, seconds of processor time (medians), ``kernels``, and ``times`` of
      calls; and ``ratios``, medians to native of both.
    """
    import keras
    import tensorflow as tf

    model = models.build(keras, name, size)
    x = models.MODELS[name].inputs(batch, size)
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    flat = tf.nest.flatten(x)
    native = Native(name, size, batch, [w.numpy() for w in model.weights])
    compiles: dict[str, Callable[[], dict[str, Any]]] = {"native": native.compile_again}
    runs: dict[str, Callable[[], float]] = {"native": native}
    warm()

    def add(who: str) -> None:
        fn, params = tf2jax_lite.convert(graph, *map(spec, flat))
        args = ({k: jnp.asarray(v) for k, v in params.items()}, *map(jnp.asarray, flat))

        def compile_again() -> dict[str, Any]:
            jax.clear_caches()
            compiled, cost = compile_once(jax.jit(lambda params, *a: fn(params, *a)[0]), args)
            runs[who] = lambda: seconds(lambda: jax.block_until_ready(compiled(*args)))
            return cost

        compiles[who] = compile_again

    for who, options in _settings().items():
        with contextlib.ExitStack() as stack:
            for option, value in options.items():
                stack.enter_context(tf2jax_lite.override_config(option, value))
            add(who)
    with quiet():
        costs: dict[str, list[dict[str, Any]]] = {who: [] for who in compiles}
        for _ in range(1 + rounds):
            for who, compile_again in compiles.items():
                costs[who].append(compile_again())
    compiling = {who: statistics.median(c["cpu"] for c in found[1:]) for who, found in costs.items()}
    times = in_turns(runs, budget=budget)
    native.close()
    keras.backend.clear_session()
    return {
        "model": name,
        "size": size,
        "batch": batch,
        "compile": compiling,
        "kernels": {who: found[0]["different"] for who, found in costs.items()},
        "times": times,
        "ratios": {
            who: {
                "compile": compiling[who] / compiling["native"],
                "run": times[who]["median"] / times["native"]["median"],
            }
            for who in compiles
        },
    }


def main(options: Any) -> Iterator[dict[str, Any]]:
    """Yield a record for each convolution network and batch."""
    for name in options.models.split(","):
        if "convolution" in models.MODELS[name].groups:
            for batch in map(int, options.batch.split(",")):
                yield record(name, size=options.size, batch=batch, budget=options.budget)
