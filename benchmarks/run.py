"""The suites run and train: time for one call or step, beside others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from . import models
from .kernels import alone
from .native import Native
from .records import Result
from .timing import compile_once, in_turns, waited, waited_tf, warm


def _compiled(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """Return a compiled function, and the cost of tracing and compiling it."""
    warm()
    compiled, cost = compile_once(jax.jit(fn), args)
    flops = (compiled.cost_analysis() or {}).get("flops", 0.0)  # counts the body of a loop once
    return compiled, {**cost, "flops": flops}


def _difference(expected: Any, actual: Any) -> float:
    expected, actual = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    return float(np.max(np.abs(expected - actual)) / max(np.max(np.abs(expected)), 1e-30))


def run(options: Any) -> Iterator[Result]:
    """Measure inference of each model and batch size.

    Yields:
      Times by contestant, preparation of ours, of tf2jax and of native JAX (wall clock, and processor time for tracing
      and compiling together), the largest relative errors.
    """
    for case in models.cases(options):
        yield case, _run(case, options)


def _run(case: dict[str, Any], options: Any) -> dict[str, Any]:
    import tensorflow as tf

    name, size, batch = case.values()
    model, graph, arrays = models.traceable(name, size, batch)
    constants = [tf.constant(v) for v in arrays]
    fn, args = models.converted(graph, arrays)
    compiled, cost = _compiled(fn, args)
    found: dict[str, Any] = {"ours": cost}
    contestants = {"tf2jax_lite": waited(compiled, *args), "tensorflow": waited_tf(graph, *constants)}
    if not options.no_xla:
        contestants["tensorflow_xla"] = waited_tf(tf.function(graph, jit_compile=True), *constants)
    if (peer := models.peer_module(options.peer)) is not None:
        try:
            peer_fn, peer_args = models.converted(graph, arrays, peer.convert)
            peer_compiled, found["peer"] = _compiled(peer_fn, peer_args)
            contestants["tf2jax"] = waited(peer_compiled, *peer_args)
        except Exception as error:
            found["peer"] = {"failed": models.failure(error)}
    native = Native(name, size, batch, model.weights)
    contestants |= {"native": native, "products": alone(jax.make_jaxpr(fn)(*args))}
    found["native"] = native.cost
    ours = [np.ravel(r)[:1000] for r in jax.tree.leaves(compiled(*args))]
    theirs = [t.numpy().ravel()[:1000] for t in tf.nest.flatten(graph(*constants))]
    found["error"] = max(map(_difference, theirs, ours))
    found["native_error"] = max(map(_difference, native.first, ours))
    found["times"] = in_turns(contestants, budget=options.budget)
    native.close()
    models.clear()
    return found


def train(options: Any) -> Iterator[Result]:
    """Measure a step of SGD with momentum, in training mode, against native JAX.

    It takes the last batch size.
    """
    last = models.cases(options)[-1]["batch"]
    for case in models.cases(options):
        if models.MODELS[case["model"]].trains and case["batch"] == last:
            yield case, _train(case, options)


def _train(case: dict[str, Any], options: Any) -> dict[str, Any]:
    import keras

    name, size, batch = case.values()
    model = models.build(keras, name, size)
    step, args = models.training_step(model, models.MODELS[name].inputs(batch, size))
    compiled, cost = _compiled(step, args)
    native = Native(name, size, batch, model.weights, train=True)
    contestants: dict[str, Callable[[], float]] = {"tf2jax_lite": waited(compiled, *args), "native": native}
    times = in_turns(contestants, budget=options.budget)
    native.close()
    models.clear()
    return {"ours": cost, "native": native.cost, "times": times}
