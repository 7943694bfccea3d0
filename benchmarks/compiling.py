"""The suite compile: time to trace and compile, native JAX's and tf2jax's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import tf2jax_lite

from . import models
from .native import Native
from .run import peer_module, spec, warm
from .steps import compile_once
from .timing import quiet


def _again(fn: Any, args: Any) -> dict[str, Any]:
    jax.clear_caches()  # else JAX and XLA reuse compiled programs
    return compile_once(jax.jit(lambda *a: fn(*a)), args)[1]


def compile_model(
    name: str, *, size: str = "full", batch: int = 1, peer: str | None = None, rounds: int = 3, budget: float = 60.0
) -> dict[str, Any]:
    """Trace and compile a model several times, contestants in turns.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.
      peer: where to import tf2jax from; None leaves it out.
      rounds: how many times, after one that does not count: it pays for what Python, JAX and XLA do once in a process.
      budget: seconds, the uncounted round included, after which no further round starts; one is always run.

    Returns:
      Medians of seconds by contestant (``ours``, ``native``, ``peer``), equations, kernels, and ``first``: the
      processor time of the round that does not count.
    """
    import keras
    import tensorflow as tf

    model = models.build(keras, name, size)
    x = models.MODELS[name].inputs(batch, size)
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    flat = tf.nest.flatten(x)
    arrays = [*map(jnp.asarray, flat)]
    contestants: dict[str, Callable[[], dict[str, Any]]] = {}

    def add(who: str, convert: Any) -> None:
        fn, params = convert(graph, *map(spec, flat))
        args = ({k: jnp.asarray(v) for k, v in params.items()}, *arrays)
        contestants[who] = lambda: _again(lambda params, *a: fn(params, *a)[0], args)

    add("ours", tf2jax_lite.convert)
    record: dict[str, Any] = {"model": name, "size": size, "batch": batch, "groups": models.MODELS[name].groups}
    if (module := peer_module(peer)) is not None:
        try:
            add("peer", module.convert)
        except Exception as error:
            record["peer"] = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
    native = Native(name, size, batch, [w.numpy() for w in model.weights])
    contestants["native"] = native.compile_again
    warm()
    with quiet():
        found: dict[str, list[dict[str, Any]]] = {who: [] for who in contestants}
        start = time.perf_counter()
        for count in range(1 + rounds):
            if count > 1 and time.perf_counter() - start > budget:
                break
            for who, run in contestants.items():
                found[who].append(run())
    for who, (first, *later) in found.items():
        medians = {what: statistics.median(r[what] for r in later) for what in first}
        record[who] = {**medians, "first": native.cost["cpu"] if who == "native" else first["cpu"]}
    native.close()
    keras.backend.clear_session()
    return record
