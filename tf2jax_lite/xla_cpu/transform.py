"""The CPU lowering rules for any JAX function: `optimize`.

A function is traced, and the primitives of its jaxpr become CPU variants (`rules`), in the jaxprs of calls, loops and
branches, too. Variants have the parameters and types of their primitives, so that the rest of the program is unchanged.
Functions with custom derivatives are wrapped: their derivative rules are traced when needed, and rewritten then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr, bind, is_traced, jaxpr_as_fun
from tf2jax_lite.jaxprs.shard_map import axes_of
from tf2jax_lite.jaxprs.walk import parts
from tf2jax_lite.support.config import get_config

from .catalog import selection
from .reductions import has_long_rows
from .rules import has_cpu_rule, variant_of
from .selection import using

_WITH_JAXPRS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "scan", "while", "cond"}
)
_REDUCTIONS = (lax.reduce_sum_p, lax.reduce_max_p, lax.reduce_min_p)
# Their rule does not hold for NaN; and too many to trace for a derivative that is rarely long.
_LEFT = (lax.argmax_p, lax.argmin_p, lax.broadcast_in_dim_p)


def optimize(fn: Callable[..., Any], *, rules: Any = None) -> Callable[..., Any]:
    """Return a function of the same values and derivatives that runs faster on CPU.

    Convolutions, poolings, reductions, cumulative sums and inverse trigonometric functions take the CPU lowering rules
    for their shapes, also in derivatives, batches, loops and branches. On other platforms they are lowered as before.
    Values agree up to rounding. The body of ``jax.shard_map`` and of Pallas kernels stays as it is.

    Args:
      fn: a function that `jax.jit` could compile: of pytrees of arrays, by position or keyword. Bind other arguments
        with `functools.partial` before.
      rules: True, False, "auto", or names of rules, as the option ``xla_cpu_rules``; None for its present value.

    Returns:
      A function for use under `jax.jit`, `jax.grad`, `jax.vmap` and other transforms. Called outside of them it is
      compiled as by `jax.jit`.

    Raises:
      ConfigError: there is no such rule.
    """
    selected = selection(get_config("xla_cpu_rules") if rules is None else rules)

    @functools.wraps(fn)
    def rewritten(*args: Any, **kwargs: Any) -> Any:
        with using(selected):
            return _rewrite_and_call(fn, *args, **kwargs)

    compiled = jax.jit(rewritten)

    @functools.wraps(fn)
    def optimized(*args: Any, **kwargs: Any) -> Any:
        traced = any(is_traced(leaf) for leaf in jax.tree.leaves((args, kwargs)))
        return (rewritten if traced else compiled)(*args, **kwargs)

    return optimized


def _rewrite_and_call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)
    leaves = jaxpr_as_fun(_rewritten(closed))(*jax.tree.leaves((args, kwargs)))
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _rewritten(jaxpr: Any) -> Any:
    """Return a jaxpr with CPU variants; itself if no primitive has a rule."""
    opened, consts = parts(jaxpr)
    if opened is not jaxpr:  # a closed jaxpr; JAX since 0.12 has no other
        inner = _rewritten(opened)
        return jaxpr if inner is opened else ClosedJaxpr(inner, consts)
    eqns = [_rewritten_equation(eqn) for eqn in jaxpr.eqns]
    unchanged = all(new is old for new, old in zip(eqns, jaxpr.eqns, strict=True))
    return jaxpr if unchanged else jaxpr.replace(eqns=eqns)


def _rewritten_equation(eqn: Any) -> Any:
    if has_cpu_rule(eqn.primitive):
        return eqn.replace(primitive=variant_of(eqn.primitive)) if _may_take_rule(eqn) else eqn
    if eqn.primitive.name in _CUSTOM:
        return _with_rewritten_derivatives(eqn)
    if eqn.primitive.name not in _WITH_JAXPRS:
        return eqn
    changed = {}
    for name, value in eqn.params.items():
        items = value if isinstance(value, (tuple, list)) else (value,)
        if not items or not all(isinstance(item, (Jaxpr, ClosedJaxpr)) for item in items):
            continue
        new = tuple(map(_rewritten, items))
        if any(a is not b for a, b in zip(new, items, strict=True)):
            changed[name] = type(value)(new) if isinstance(value, (tuple, list)) else new[0]
    return eqn.replace(params={**eqn.params, **changed}) if changed else eqn


def _may_take_rule(eqn: Any) -> bool:
    """Return whether a variant, slower to trace, may change the lowering."""
    if eqn.primitive in _REDUCTIONS:
        return has_long_rows(eqn.invars[0].aval.shape, eqn.params["axes"])
    return eqn.primitive not in _LEFT


def _with_rewritten_derivatives(eqn: Any) -> Any:
    """Return a custom-derivative equation, with all its parts rewritten."""
    closed = eqn.params["call_jaxpr"]
    body = _rewritten(closed)
    if body is closed:
        return eqn
    structs = [_struct(v.aval) for v in eqn.invars]
    moving = _is_differentiable(structs), _is_differentiable([v.aval for v in eqn.outvars])
    wrapped = _CUSTOM[eqn.primitive.name](jaxpr_as_fun(body), functools.partial(bind, eqn), *moving)
    made = jax.make_jaxpr(wrapped)(*structs)
    if made.consts or len(made.eqns) != 1 or list(made.eqns[0].invars) != list(made.jaxpr.invars):
        return eqn
    return eqn.replace(primitive=made.eqns[0].primitive, params=made.eqns[0].params)


def _struct(aval: Any) -> Any:
    # What varies between devices is part of a type only inside of `jax.shard_map`.
    return aval if axes_of(aval) else jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _is_differentiable(values: Sequence[Any]) -> list[bool]:
    return [bool(jnp.issubdtype(v.dtype, np.inexact)) for v in values]


def _chosen(values: Sequence[Any], moving: Sequence[bool]) -> list[Any]:
    return [v for v, moves in zip(values, moving, strict=True) if moves]


def _filled(values: Sequence[Any], like: Sequence[Any], moving: Sequence[bool]) -> list[Any]:
    """Return all (co)tangents: those given, and float0 zeros for others."""
    given = iter(values)
    return [
        next(given) if moves else np.zeros(v.shape, jax.dtypes.float0) for v, moves in zip(like, moving, strict=True)
    ]


# Both take the rewritten function, the original one, and whether each operand and each result has a derivative.


def _custom_jvp(body: Any, original: Any, moving_in: Sequence[bool], moving_out: Sequence[bool]) -> Callable[..., Any]:
    fn = jax.custom_jvp(body)

    @fn.defjvp
    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        def derivative(primals: Sequence[Any], moving: Sequence[Any]) -> Any:
            out, dots = jax.jvp(lambda *args: original(*args), list(primals), _filled(moving, primals, moving_in))
            return out, _chosen(dots, moving_out)

        out, dots = _rewrite_and_call(derivative, list(primals), _chosen(tangents, moving_in))
        return out, _filled(dots, out, moving_out)

    return fn


def _custom_vjp(body: Any, original: Any, moving_in: Sequence[bool], moving_out: Sequence[bool]) -> Callable[..., Any]:
    fn = jax.custom_vjp(body)

    def forward(*args: Any) -> Any:
        return _rewrite_and_call(lambda *args: jax.vjp(original, *args), *args)

    def backward(pull: Any, cotangents: Sequence[Any]) -> Any:
        def gradient(moving: Sequence[Any]) -> Any:
            return _chosen(pull(_filled(moving, cotangents, moving_out)), moving_in)

        found = iter(_rewrite_and_call(gradient, _chosen(cotangents, moving_out)))
        return tuple(next(found) if moves else None for moves in moving_in)

    fn.defvjp(forward, backward)
    return fn


_CUSTOM = {"custom_jvp_call": _custom_jvp, "custom_vjp_call": _custom_vjp}
