"""Functions with TensorFlow's derivative rules whose derivative is that of JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.export.codegen.block_ir import Equation, Literal, Value

from .candidates import call, trace
from .graph import Graph, Replacement, Rule
from .local_rules import axes_of
from .matching import Match, find
from .proposals import divided, standardized
from .shapes import aval, is_float, new, scalar_literal

_LARGEST_INTEGER = 4  # exponents up to it are written as products


def primitive(name: str) -> Callable[[Graph, Equation, Match], Replacement]:
    """Return a function that writes a primitive of one operand."""
    return lambda graph, step, match: [new(name, {}, match.arguments, step, match.results)]


def reciprocal(graph: Graph, step: Equation, match: Match) -> Replacement:
    """Write 1 / x."""
    one = Literal(np.ones((), step.outputs[0].aval.dtype))
    return [new("div", {}, [one, *match.arguments], step, match.results)]


def remainder(graph: Graph, step: Equation, match: Match) -> Replacement:
    """Write a remainder that has the sign of the divisor."""
    _, words = next(iter(divided(graph, step)))
    divisor = Literal(np.asarray(words["divisor"], step.outputs[0].aval.dtype))
    return [new("mod", {}, [*match.arguments, divisor], step, match.results)]


def power(graph: Graph, step: Equation, match: Match) -> Replacement | None:
    """Write a power with a constant exponent, whose own derivative is not needed."""
    x, exponent = match.arguments
    maker = graph.definition(exponent)
    if maker is not None and maker.name == "broadcast_in_dim":
        exponent = maker.inputs[0]
    number = scalar_literal(exponent)
    if number is None or number == 0 or not is_float(x):
        return None
    if number in range(2, _LARGEST_INTEGER + 1):
        return [new("integer_pow", {"y": int(number)}, [x], step, match.results)]
    return [new("pow", {}, [x, exponent], step, match.results)]


def standardize(graph: Graph, step: Equation, match: Match) -> Replacement:
    """Write `jax.nn.standardize` with an explicit variance.

    The default variance of `jax.nn.standardize` is a difference of squares, which rounds differently.
    """
    x, epsilon = match.arguments
    _, words = next(iter(standardized(graph, step)))
    axis, shape = words.get("axis", -1), x.aval.shape
    reduced = axes_of(axis, len(shape))
    kept = aval([1 if i in reduced else size for i, size in enumerate(shape)], x.aval.dtype)
    variance = Value(kept, "variance")
    given = [x, variance, epsilon]
    return [
        call("jnp.var", [x], step, variance, {"axis": axis, "keepdims": True}),
        call("jax.nn.standardize", given, step, match.results[0], words, ["variance", "epsilon"]),
    ]


def normalize(graph: Graph, step: Equation, match: Match) -> Replacement:
    """Write `helpers._normalize` with a mean without leading axes."""
    x, mean, *others = match.arguments
    steps, vector = [], graph.use(mean, "squeeze")
    if vector is None:
        axes = tuple(range(len(mean.aval.shape) - 1))
        steps = [new("squeeze", {"dimensions": axes}, [mean], step, aval(mean.aval.shape[-1:], mean.aval.dtype))]
        vector = steps[0]
    given = [x, vector.outputs[0], *others]
    return [*steps, call("_normalize", given, step, step.outputs, words=["epsilon"])]


def _silu_tangent(x: Any, t: Any) -> Any:
    gate = jax.nn.sigmoid(x)
    return t * (gate * (1 + x * (1 - gate)))


def silu(rules: Mapping[str, Sequence[Rule]]) -> Rule:
    """Return the rule for ``tf.nn.silu``, whose derivative is a function of ``x``."""

    def rule(graph: Graph, step: Equation) -> Replacement | None:
        primal, tangents = step.blocks.get("primal"), step.blocks.get("jvp")
        if primal is None or tangents is None or len(step.outputs) != 1 or len(step.inputs) < 2:
            return None
        x, value, *others = step.inputs
        maker = graph.definition(value)
        if maker is not None and maker.name == "stop_gradient":
            maker = graph.definition(maker.inputs[0])
        if maker is None or maker.params.get("function") != "jax.nn.silu" or primal.results[0] is not primal.args[1]:
            return None
        if any(v is not x for v in (*maker.inputs, *others)):
            return None
        count = len(step.inputs)
        pattern = trace(_silu_tangent, [x.aval, x.aval], {}, rules)
        inner = Graph(tangents)
        for earlier in tangents.steps:
            inner.finish(earlier)
        root = inner.definition(tangents.results[-1])
        match = find(inner, root, pattern) if root is not None and pattern is not None else None
        if match is None:
            return None
        residual, tangent = match.arguments
        known = [tangents.args[0], *tangents.args[2:count]]
        if tangent is not tangents.args[count] or all(residual is not v for v in known):
            return None
        return [call("jax.nn.silu", [x], step, step.outputs)]

    return rule
