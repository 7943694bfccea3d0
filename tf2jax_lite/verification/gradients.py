"""Gradients of a random projection of the results, TensorFlow's beside JAX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from .compare import OutputComparison, compare_arrays, is_float
from .float64_reference import Float64Values, gradients_in_float64
from .roundoff_verdict import with_verdict
from .targets import SessionTarget, Target


def compare_gradients(
    target: Target, inputs: Sequence[np.ndarray], seed: int, rtol: float | None
) -> list[OutputComparison]:
    """Compare gradients with respect to trainable variables and floating-point inputs.

    Errors are relative to the largest gradient of any variable or input: a gradient that should vanish next to
    others of size 1 is rounding on both sides. Gradients that differ are compared in float64, see `with_verdict`.
    """
    # The inputs of a split model's core are results of its prefix: TensorFlow has no gradient with respect to them.
    split = target.host is not None
    floating = [] if split else [i for i, x in enumerate(inputs) if x.dtype != object and is_float(x.dtype)]
    known = target.converted.variables
    names = known if isinstance(target, SessionTarget) else target.variables
    trainable = sorted(n for n in names if known[n].trainable and is_float(known[n].dtype))
    if isinstance(target, SessionTarget):
        expected, upstream = _session(target, inputs, floating, trainable, seed)
    else:
        expected, upstream = _tensorflow(target, inputs, floating, trainable, seed)
    if not upstream:
        return []
    actual = _jax(target, inputs, floating, trainable, upstream)
    paths = {spec.index: path for path, spec in target.converted.interface.tensors().items()}
    names = [*trainable, *(f"input {paths.get(i, i)}" for i in floating)]
    sizes = [np.max(np.abs(e[np.isfinite(e)].astype(np.float64)), initial=0) for e in expected]
    scale = float(max(sizes, default=0.0)) or 1.0
    compared = [
        compare_arrays(name, e, a, rtol, kind="gradient", scale=scale)
        for name, e, a in zip(names, expected, actual, strict=True)
    ]
    if all(c.ok or c.problem for c in compared):
        return compared
    reference = _reference(target, inputs, floating, trainable, upstream)
    if reference is None:
        return compared
    return [
        c if c.ok or c.problem or t is None else with_verdict(c, e, a, t, reference.error, scale)
        for c, e, a, t in zip(compared, expected, actual, reference.results, strict=True)
    ]


def _reference(
    target: Target,
    inputs: Sequence[np.ndarray],
    floating: list[int],
    trainable: list[str],
    upstream: Mapping[int, np.ndarray],
) -> Float64Values | None:
    try:
        return gradients_in_float64(target, inputs, floating, trainable, upstream, _jax)
    except Exception:  # without a reference, the verdict stays as it is
        return None


def _upstream(results: Sequence[Any], seed: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        i: np.asarray(rng.normal(size=r.shape)).astype(r.dtype.as_numpy_dtype)
        for i, r in enumerate(results)
        if r.dtype.is_floating
    }


def _session(
    target: SessionTarget, inputs: Sequence[np.ndarray], floating: list[int], trainable: list[str], seed: int
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    before = target.variable_values()
    try:
        upstream = _upstream(target.call_tf([tf.constant(x) for x in inputs]), seed)
        target.assign(before)
        names = target.names()
        given = dict(zip(names, inputs, strict=True))
        at = [names[i] for i in floating]
        expected = target.concrete.gradients(given, at, trainable, upstream) if upstream else []
    finally:
        target.assign(before)
    return expected, upstream


def _tensorflow(
    target: Target, inputs: Sequence[np.ndarray], floating: list[int], trainable: list[str], seed: int
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    before = target.variable_values()
    tensors = target.tensors(inputs)
    sources = [*(target.variables[n] for n in trainable), *(tensors[i] for i in floating)]
    try:
        with tf.GradientTape() as tape:
            for i in floating:
                tape.watch(tensors[i])
            for name in trainable:
                tape.watch(target.variables[name])
            results = target.call_tf(tensors)
            upstream = _upstream(results, seed)
        chosen = [results[i] for i in upstream]
        grads = tape.gradient(chosen, sources, [tf.constant(u) for u in upstream.values()]) if chosen else []
    finally:
        target.assign(before)
    expected = []
    for source, gradient in zip(sources, grads, strict=False):
        if gradient is None:
            expected.append(np.zeros(source.shape, source.dtype.as_numpy_dtype))
        else:
            expected.append(tf.convert_to_tensor(gradient).numpy())
    return expected, upstream


def _jax(
    target: Target,
    inputs: Sequence[np.ndarray],
    floating: list[int],
    trainable: list[str],
    upstream: Mapping[int, np.ndarray],
) -> list[np.ndarray]:
    params = dict(target.params)

    def loss(weights: Any, values: Any) -> Any:
        given = list(inputs)  # integers stay static: trip counts of loops depend on them
        for i, value in zip(floating, values, strict=True):
            given[i] = value
        merged = {**params, **dict(zip(trainable, weights, strict=True))}
        results, _ = target.converted.flat_call(merged, given, jax.random.key(0))
        return sum(jnp.sum(results[i] * u) for i, u in upstream.items())

    weights = [jnp.asarray(params[n]) for n in trainable]
    found = jax.jit(jax.grad(loss, argnums=(0, 1)))(weights, [jnp.asarray(inputs[i]) for i in floating])
    return [np.asarray(g) for part in found for g in part]
