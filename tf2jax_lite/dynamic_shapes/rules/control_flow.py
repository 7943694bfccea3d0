"""Rules for calls, branches, loops, and functions with custom derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.autodiff.custom_gradient import evaluate_padded
from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.evaluator import Evaluator, rule, unsupported
from tf2jax_lite.jaxprs.compat import COMPOSITE, bind, composite_jaxpr, scan_counts
from tf2jax_lite.loops.derivatives import WITH_RESIDUALS, while_loop


@rule("jit", "pjit", "closed_call", "core_call", "call", "custom_lin")
def _call(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    return ev.run(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], args)


@rule(COMPOSITE)
def _expanded(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return ev.run(composite_jaxpr(eqn), args)


@rule("remat2", "remat", "checkpoint")
def _checkpoint(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    run = jax.checkpoint(
        lambda *values: ev.inside(eqn.params["jaxpr"], *values),
        prevent_cse=eqn.params["prevent_cse"],
        policy=eqn.params["policy"],
    )
    return run(*args)


@rule("cond")
def _branch(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    which, *operands = args
    branches = [functools.partial(ev.inside, closed) for closed in eqn.params["branches"]]
    return lax.switch(which, branches, *operands)


@rule("while")
def _loop(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    of_cond, of_body, start = args[:first], args[first:second], args[second:]
    return lax.while_loop(
        lambda carry: ev.inside(params["cond_jaxpr"], *of_cond, *carry)[0],
        lambda carry: ev.inside(params["body_jaxpr"], *of_body, *carry),
        [jnp.asarray(v) for v in start],
    )


@rule(WITH_RESIDUALS)
def _loop_mark(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    loop, size = eqn.params["loop"], len(eqn.params["results"])
    results, operands = args[:size], [jnp.asarray(v) for v in args[size:]]
    if loop is not loop.base:
        raise unsupported(eqn)
    given, start = operands[: loop.constants], operands[loop.constants :]
    end = dict(zip(eqn.params["results"], results, strict=True))
    found, _ = while_loop(
        lambda carry: ev.inside(loop.jaxprs[0], *given[: loop.of_cond], *carry)[0],
        lambda carry: ev.inside(loop.jaxprs[1], *given[loop.of_cond :], *carry),
        start,
        eqn.params["max_trips"],
        [end.get(k, v) for k, v in enumerate(start)],
    )
    return [found[k] for k in eqn.params["results"]]


@rule("scan")
def _scan(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    closed_over, carried = scan_counts(params)
    consts, start, sliced = args[:closed_over], args[closed_over : closed_over + carried], args[closed_over + carried :]
    found = is_data_dependent(params["length"])
    size = ev.sizes.actual(params["length"])
    steps = ev.sizes.capacity(params["length"])

    def body(carry: Any, at: Any) -> Any:
        step, rows = at
        results = ev.inside(params["jaxpr"], *consts, *carry, *rows)
        after, out = results[: len(carry)], results[len(carry) :]
        if found:  # iterations beyond the actual length keep the carry
            after = [jnp.where(step < size, new, old) for new, old in zip(after, carry, strict=True)]
        return after, out

    carry, out = lax.scan(
        body,
        [jnp.asarray(v) for v in start],
        (lax.iota(np.int32, steps), [jnp.asarray(v) for v in sliced]),
        length=steps,
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *out]


# --- Custom derivatives


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _chosen(eqn: Any) -> tuple[list[jax.ShapeDtypeStruct], list[int], Callable[..., Any]]:
    """Return operand types, inexact ones' indices, and a function of these."""
    structs = [_struct(v.aval) for v in eqn.invars]
    inexact = [i for i, s in enumerate(structs) if jnp.issubdtype(s.dtype, jnp.inexact)]

    def call(given: Sequence[Any], *chosen: Any) -> Any:
        values = list(given)
        for i, value in zip(inexact, chosen, strict=True):
            values[i] = value
        return bind(eqn, *values)

    return structs, inexact, call


def _evaluate(ev: Evaluator, sizes: Any, closed: Any, args: Sequence[Any]) -> list[Any]:
    return Evaluator(ev.sizes.with_values(sizes)).inside(closed, *args)


@rule("custom_jvp_call")
def _with_jvp(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    structs, inexact, call = _chosen(eqn)

    def derivative(given: list[Any], tangents: list[Any]) -> Any:
        _, out = jax.jvp(functools.partial(call, given), [given[i] for i in inexact], tangents)
        return [t for t in out if t.dtype != jax.dtypes.float0]

    @jax.custom_jvp
    def function(sizes: Any, values: Any) -> Any:
        return _evaluate(ev, sizes, eqn.params["call_jaxpr"], values)

    @function.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        sizes, values = primals
        results = function(sizes, values)
        closed = jax.make_jaxpr(derivative)(structs, [structs[i] for i in inexact])
        given = [tangents[1][i] for i in inexact]
        found = iter(_evaluate(ev, sizes, closed, [*values, *given]))
        zeros = [
            next(found) if jnp.issubdtype(r.dtype, jnp.inexact) else np.zeros(r.shape, jax.dtypes.float0)
            for r in results
        ]
        return results, zeros

    return function(ev.sizes.values, [jnp.asarray(v) for v in args])


@rule("custom_gradient", "custom_gradient_tangent")
def _with_gradient(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return evaluate_padded(eqn, args, ev.sizes.values, ev.sizes.padded_shape, functools.partial(_evaluate, ev))


@rule("custom_vjp_call", "custom_vjp_call_jaxpr")
def _with_vjp(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    if "call_jaxpr" not in eqn.params:
        raise unsupported(eqn)
    structs, inexact, call = _chosen(eqn)
    trees: list[Any] = []

    def forward(*given: Any) -> Any:
        results, pull = jax.vjp(functools.partial(call, given), *(given[i] for i in inexact))
        leaves, tree = jax.tree.flatten(pull)
        trees[:] = [tree]
        return results, leaves

    @jax.custom_vjp
    def function(sizes: Any, values: Any) -> Any:
        return _evaluate(ev, sizes, eqn.params["call_jaxpr"], values)

    def saved(sizes: Any, values: Any) -> Any:
        closed, (results, leaves) = jax.make_jaxpr(forward, return_shape=True)(*structs)
        found = _evaluate(ev, sizes, closed, values)
        count = len(results)
        forms[:] = [(leaves, results)]
        return found[:count], (sizes, found[count:], values)

    forms: list[Any] = []

    def backward(residuals: Any, cotangents: Any) -> Any:
        sizes, found, values = residuals
        (leaves, results) = forms[0]

        def pulled(leaves: Any, given: Any) -> Any:
            given = [c if jnp.issubdtype(c.dtype, jnp.inexact) else np.zeros(c.shape, jax.dtypes.float0) for c in given]
            return jax.tree.unflatten(trees[0], leaves)(given)

        closed = jax.make_jaxpr(pulled)(leaves, results)
        cts = [
            jnp.zeros(c.shape, r.dtype) if c.dtype == jax.dtypes.float0 else c
            for c, r in zip(cotangents, results, strict=True)
        ]
        gradients = _evaluate(ev, sizes, closed, [*found, *cts])
        out: list[Any] = [np.zeros(v.shape, jax.dtypes.float0) for v in values]
        for i, gradient in zip(inexact, gradients, strict=True):
            out[i] = gradient
        return jax.tree.map(lambda s: np.zeros(s.shape, jax.dtypes.float0), sizes), out

    function.defvjp(saved, backward)
    return function(ev.sizes.values, [jnp.asarray(v) for v in args])
