"""Gradients of a random projection of the results, TensorFlow's beside JAX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from .compare import OutputComparison, compare_arrays, is_float
from .inputs import named_arguments
from .subjects import Subject

__all__ = ["compare_gradients"]


def compare_gradients(
    subject: Subject, inputs: Sequence[np.ndarray], seed: int, rtol: float | None
) -> list[OutputComparison]:
    """Compares gradients by trainable variables and by floating inputs.

    Errors are relative to the largest gradient of any variable or input: a gradient that ought to vanish next to
    others of size 1 is rounding on both sides.
    """
    floating = [i for i, x in enumerate(inputs) if x.dtype != object and is_float(x.dtype)]
    trainable = sorted(
        n for n, v in subject.variables.items() if subject.converted.variables[n].trainable and v.dtype.is_floating
    )
    expected, upstream = _tensorflow(subject, inputs, floating, trainable, seed)
    if not upstream:
        return []
    actual = _jax(subject, inputs, floating, trainable, upstream)
    paths = {spec.index: path for path, spec in named_arguments(subject.converted.interface).items()}
    names = [*trainable, *(f"input {paths.get(i, i)}" for i in floating)]
    sizes = [np.max(np.abs(e[np.isfinite(e)].astype(np.float64)), initial=0) for e in expected]
    scale = float(max(sizes, default=0.0)) or 1.0
    return [
        compare_arrays(name, e, a, rtol, kind="gradient", scale=scale)
        for name, e, a in zip(names, expected, actual, strict=True)
    ]


def _tensorflow(
    subject: Subject, inputs: Sequence[np.ndarray], floating: list[int], trainable: list[str], seed: int
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    rng = np.random.default_rng(seed)
    before = subject.variable_values()
    tensors = [tf.constant(x) for x in inputs]
    sources = [*(subject.variables[n] for n in trainable), *(tensors[i] for i in floating)]
    try:
        with tf.GradientTape() as tape:
            for i in floating:
                tape.watch(tensors[i])
            for name in trainable:
                tape.watch(subject.variables[name])
            results = subject.call_tf(tensors)
            upstream = {
                i: np.asarray(rng.normal(size=r.shape)).astype(r.dtype.as_numpy_dtype)
                for i, r in enumerate(results)
                if r.dtype.is_floating
            }
        chosen = [results[i] for i in upstream]
        grads = tape.gradient(chosen, sources, [tf.constant(u) for u in upstream.values()]) if chosen else []
    finally:
        subject.assign(before)
    expected = []
    for source, gradient in zip(sources, grads, strict=False):
        if gradient is None:
            expected.append(np.zeros(source.shape, source.dtype.as_numpy_dtype))
        else:
            expected.append(tf.convert_to_tensor(gradient).numpy())
    return expected, upstream


def _jax(
    subject: Subject,
    inputs: Sequence[np.ndarray],
    floating: list[int],
    trainable: list[str],
    upstream: Mapping[int, np.ndarray],
) -> list[np.ndarray]:
    params = dict(subject.params)

    def loss(weights: Any, values: Any) -> Any:
        given = list(inputs)  # integers stay known while tracing: trip counts of loops depend on them
        for i, value in zip(floating, values, strict=True):
            given[i] = value
        merged = {**params, **dict(zip(trainable, weights, strict=True))}
        results, _ = subject.converted.flat_call(merged, given, jax.random.key(0))
        return sum(jnp.sum(results[i] * u) for i, u in upstream.items())

    weights = [jnp.asarray(params[n]) for n in trainable]
    found = jax.jit(jax.grad(loss, argnums=(0, 1)))(weights, [jnp.asarray(inputs[i]) for i in floating])
    return [np.asarray(g) for part in found for g in part]
