"""Measure whole models with a CPU lowering rule switched off.

Usage: ``python -m benchmarks.ablation --models resnet50,vgg16``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import tf2jax_lite
from tf2jax_lite.xla_cpu.selection import Selection

from . import models
from .run import spec
from .steps import optimizer_step

__all__ = ["Lower", "programs"]

Lower = Callable[[Selection], tuple[Any, tuple[Any, ...]]]
"""Takes the names of the rules in force, None for all; returns a lowered function and its arguments."""


def programs(names: Iterable[str], size: str) -> Iterator[tuple[str, Lower]]:
    """Yield a call at batch 1, one at batch 8, and an optimizer's step of each model.

    Args:
      names: of `models.MODELS`.
      size: "full" or "small".
    """
    import keras

    for name in names:
        model = models.build(keras, name, size)
        for batch in (1, 8):
            yield f"{name}, batch {batch}", _call(model, models.MODELS[name].inputs(batch, size))
        if models.MODELS[name].trains:
            yield f"{name}, step", _step(model, models.MODELS[name].inputs(8, size))
        del model
        keras.backend.clear_session()
        gc.collect()


def _convert(fn: Any, rules: Selection, *specs: Any) -> tuple[Any, dict[str, Any]]:
    # The option is part of the converted function, so that each set of rules needs a conversion of its own.
    with tf2jax_lite.override_config("xla_cpu_rules", True if rules is None else rules):
        converted, params = tf2jax_lite.convert(fn, *specs)
    return converted, {k: jnp.asarray(v) for k, v in params.items()}


def _call(model: Any, x: Any) -> Lower:
    import tensorflow as tf

    flat = tf.nest.flatten(x)
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))

    def lower(rules: Selection) -> tuple[Any, tuple[Any, ...]]:
        fn, params = _convert(graph, rules, *map(spec, flat))
        args = (params, *map(jnp.asarray, flat))
        return jax.jit(lambda params, *inputs: fn(params, *inputs)[0]).lower(*args), args

    return lower


def _step(model: Any, x: Any) -> Lower:
    import tensorflow as tf

    graph = tf.function(lambda x: model(x, training=True))

    def lower(rules: Selection) -> tuple[Any, tuple[Any, ...]]:
        fn, params = _convert(graph, rules, spec(x))
        trainable, other = tf2jax_lite.split_params(params)
        key = jax.random.key(0)

        def forward(weights: Any, x: Any) -> Any:
            return fn(tf2jax_lite.merge_params(weights, other), x, rng=key)[0]

        step, state = optimizer_step(forward, trainable)
        args = (trainable, state, jax.tree.map(jnp.asarray, x))
        return jax.jit(step).lower(*args), args

    return lower
