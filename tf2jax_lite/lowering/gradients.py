"""Custom gradients: one jax.custom_vjp on the node that TensorFlow puts over a function's results and arguments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ops import values
from tf2jax_lite.ops.registry import op

from .joins import as_traced, is_carried
from .trace import Context, Trace

__all__: list[str] = []


@op("_CustomGradient", needs_context=True)
def custom_gradient(
    ctx: Context, input: list[Any], captured: list[Any], *, gradient: ir.FunctionRef, positions: list[int]
) -> list[Any]:
    """Hands its inputs on; backwards, inputs at ``positions`` get the gradient function's results, others nothing.

    See tf.custom_gradient: results get no gradient, since the arguments' one already holds it.
    """
    trace, frame = ctx.trace, ctx.frame.enter(ctx.step)
    function = trace.program.function(gradient.name)
    carried = [i for i, v in enumerate(input) if is_carried(v) and not values.is_string(v)]
    data = [as_traced(input[i]) for i in carried]
    symbols = [None if is_carried(v) else v for v in captured]
    saved = [as_traced(v) if is_carried(v) else None for v in captured]
    # Variables that the gradient function reads have the values of now, not those of when the gradient is taken.
    state = {v.name: as_traced(trace.state[v.name]) for v in symbols if isinstance(v, values.VariableHandle)}

    @jax.custom_vjp
    def node(data: list[Any], saved: list[Any], state: dict[str, Any]) -> list[Any]:
        return data

    def forward(data: list[Any], saved: list[Any], state: dict[str, Any]) -> Any:
        return data, (data, saved, state)

    def backward(residuals: Any, cotangents: list[Any]) -> Any:
        data, saved, state = residuals
        upstream: list[Any] = [None] * len(input)
        for i, value, cotangent in zip(carried, data, cotangents, strict=True):
            # TensorFlow's complex gradients are the conjugates of JAX's cotangents.
            upstream[i] = jnp.zeros_like(value) if cotangent.dtype == jax.dtypes.float0 else jnp.conj(cotangent)
        inner = Trace(trace.program, dict(state), None, loose=trace.loose)
        known = [symbol if value is None else value for symbol, value in zip(symbols, saved, strict=True)]
        results = dict(zip(positions, inner.call(function, [*upstream, *known], frame), strict=True))
        grads = [_cotangent(value, results.get(i)) for i, value in zip(carried, data, strict=True)]
        return grads, [_cotangent(v, None) for v in saved], {n: _cotangent(v, None) for n, v in state.items()}

    node.defvjp(forward, backward)
    results = list(input)
    for i, value in zip(carried, node(data, saved, state), strict=True):
        results[i] = value
    return results


@op("SymbolicGradient", needs_context=True)
def symbolic_gradient(ctx: Context, input: list[Any], *, f: ir.FunctionRef) -> list[Any]:
    """Returns the gradients of ``f`` at its arguments, given those of its results. See tf.raw_ops.SymbolicGradient."""
    trace, frame = ctx.trace, ctx.frame.enter(ctx.step)
    function = trace.program.function(f.name)
    count = len(function.args)
    args = [as_traced(v) for v in input[:count]]
    inexact = [i for i, v in enumerate(args) if jnp.issubdtype(v.dtype, jnp.inexact)]

    def call(chosen: list[Any]) -> list[Any]:
        given = list(args)
        for i, value in zip(inexact, chosen, strict=True):
            given[i] = value
        return [as_traced(v) for v in trace.call(function, given, frame)]

    results, pull = jax.vjp(call, [args[i] for i in inexact])
    upstream = [
        jnp.conj(as_traced(g)) if jnp.issubdtype(r.dtype, jnp.inexact) else np.zeros(r.shape, jax.dtypes.float0)
        for r, g in zip(results, input[count:], strict=True)
    ]
    (chosen,) = pull(upstream)
    grads = [jnp.zeros_like(v) for v in args]
    for i, value in zip(inexact, chosen, strict=True):
        grads[i] = jnp.conj(value)
    return grads


def _cotangent(value: Any, gradient: Any) -> Any:
    def one(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return np.zeros(leaf.shape, jax.dtypes.float0)
        if gradient is None:
            return jnp.zeros_like(leaf)
        return jnp.broadcast_to(jnp.conj(jnp.asarray(gradient)).astype(leaf.dtype), leaf.shape)

    return jax.tree.map(one, value)
