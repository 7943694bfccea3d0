"""The suites run and train: time for one call or step, beside others'."""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tf2jax_lite

from . import models, products
from .native import Native
from .steps import compile_once, optimizer_step
from .timing import in_turns, ratios, seconds


@functools.cache
def warm() -> None:
    """Warm up XLA's process-wide initialization; Keras does so in the native process."""
    jax.jit(lambda x: jnp.tanh(x @ x)).lower(jnp.ones((8, 8))).compile()


def _compiled(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """Return a compiled function, and the cost of tracing and compiling it."""
    warm()
    compiled, cost = compile_once(jax.jit(fn), args)
    flops = (compiled.cost_analysis() or {}).get("flops", 0.0)  # counts the body of a loop once
    return compiled, {**cost, "flops": flops}


def _jax_run(compiled: Any, args: Sequence[Any]) -> Callable[[], float]:
    return lambda: seconds(lambda: jax.block_until_ready(compiled(*args)))


def _tf_run(fn: Any, *args: Any) -> Callable[[], float]:
    import tensorflow as tf

    return lambda: seconds(lambda: [t.numpy() for t in tf.nest.flatten(fn(*args))])


def spec(x: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape, v.dtype), x)


def _difference(expected: Any, actual: Any) -> float:
    expected, actual = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    return float(np.max(np.abs(expected - actual)) / max(np.max(np.abs(expected)), 1e-30))


def peer_module(path: str | None) -> Any:
    """Return tf2jax, or None; ``path`` is a directory to import it from."""
    if path is None:
        return None
    if path not in sys.path and Path(path).is_dir():
        sys.path.append(path)
    try:
        import tf2jax
    except ImportError:
        return None
    return tf2jax


def run_model(
    name: str,
    *,
    size: str = "full",
    batch: int = 1,
    peer: str | None = None,
    xla: bool = True,
    budget: float = 20.0,
) -> dict[str, Any]:
    """Measure inference.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.
      peer: where to import tf2jax from; None leaves it out.
      xla: whether TensorFlow's ``jit_compile=True`` takes part.
      budget: seconds of turns.

    Returns:
      Times and ratios by contestant, preparation of ours and of native JAX (wall clock, and processor time for tracing
      and compiling together), the largest relative error.
    """
    import keras
    import tensorflow as tf

    model = models.build(keras, name, size)
    x = models.MODELS[name].inputs(batch, size)
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    flat = tf.nest.flatten(x)
    constants = [tf.constant(v) for v in flat]
    concrete = graph.get_concrete_function(*map(spec, flat))
    start = time.perf_counter()
    jax_fn, params = tf2jax_lite.convert(graph, *map(spec, flat))
    record: dict[str, Any] = {"model": name, "size": size, "batch": batch, "groups": models.MODELS[name].groups}
    record["ours"] = {"convert": time.perf_counter() - start, "nodes": len(concrete.graph.as_graph_def().node)}
    params = {k: jnp.asarray(v) for k, v in params.items()}
    args = (params, *map(jnp.asarray, flat))

    def called(params: Any, *inputs: Any) -> Any:
        return jax_fn(params, *inputs)[0]

    compiled, cost = _compiled(called, args)
    record["ours"].update(cost)
    contestants = {"tf2jax_lite": _jax_run(compiled, args), "tensorflow": _tf_run(graph, *constants)}
    if xla:
        contestants["tensorflow_xla"] = _tf_run(tf.function(graph, jit_compile=True), *constants)
    if (module := peer_module(peer)) is not None:
        try:
            start = time.perf_counter()
            peer_fn, peer_params = module.convert(graph, *map(spec, flat))
            converted = time.perf_counter() - start
            peer_args = ({k: jnp.asarray(v) for k, v in peer_params.items()}, *args[1:])
            peer_compiled, peer_cost = _compiled(lambda params, *a: peer_fn(params, *a)[0], peer_args)
            record["peer"] = {"convert": converted, **peer_cost}
            contestants["tf2jax"] = _jax_run(peer_compiled, peer_args)
        except Exception as error:
            record["peer"] = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
    native = Native(name, size, batch, [w.numpy() for w in model.weights])
    contestants["native"] = native
    contestants["products"] = products.alone(jax.make_jaxpr(called)(*args))
    record["native"] = native.cost
    ours = [np.ravel(r)[:1000] for r in jax.tree.leaves(compiled(*args))]
    theirs = [t.numpy().ravel()[:1000] for t in tf.nest.flatten(graph(*constants))]
    record["error"] = max(map(_difference, theirs, ours))
    record["native_error"] = max(map(_difference, native.first, ours))
    record["times"] = in_turns(contestants, budget=budget)
    record["ratios"] = ratios(record["times"])
    native.close()
    keras.backend.clear_session()
    gc.collect()
    return record


def train_model(name: str, *, size: str = "full", batch: int = 8, budget: float = 20.0) -> dict[str, Any]:
    """Measure a step of SGD with momentum, in training mode, against native JAX.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.
      budget: seconds of turns.

    Returns:
      As `run_model`.
    """
    import keras
    import tensorflow as tf

    model = models.build(keras, name, size)
    x = models.MODELS[name].inputs(batch, size)
    start = time.perf_counter()
    jax_fn, params = tf2jax_lite.convert(tf.function(lambda x: model(x, training=True)), spec(x))
    record: dict[str, Any] = {"model": name, "size": size, "batch": batch, "groups": models.MODELS[name].groups}
    record["ours"] = {"convert": time.perf_counter() - start}
    trainable, other = tf2jax_lite.split_params({k: jnp.asarray(v) for k, v in params.items()})
    key = jax.random.key(0)

    def forward(weights: Any, x: Any) -> Any:
        return jax_fn(tf2jax_lite.merge_params(weights, other), x, rng=key)[0]

    step, state = optimizer_step(forward, trainable)
    args = (trainable, state, jax.tree.map(jnp.asarray, x))
    compiled, cost = _compiled(step, args)
    record["ours"].update(cost)
    native = Native(name, size, batch, [w.numpy() for w in model.weights], train=True)
    record["native"] = native.cost
    record["times"] = in_turns({"tf2jax_lite": _jax_run(compiled, args), "native": native}, budget=budget)
    record["ratios"] = ratios(record["times"])
    native.close()
    keras.backend.clear_session()
    gc.collect()
    return record
