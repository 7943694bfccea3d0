"""Evaluation of exports of `jax.export` operation by operation.

XLA can then partition them over a mesh: JAX calls the StableHLO of an artifact as one operation. Its gradient is
another module, so gradients stay those of the artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import bind
from tf2jax_lite.jaxprs.evaluate import equations, evaluate, retrace_bodies
from tf2jax_lite.stablehlo import api

_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
LOOPS_AND_BRANCHES = frozenset({"scan", "while", "cond", "checkpoint", "remat", "remat2"})
"""Primitives whose jaxprs `retrace_bodies` replaces."""
_REPLACED = {"call_exported", "mulhi"}


def call_body(eqn: Any) -> Any:
    """Return the jaxpr that an equation calls once; None for other equations."""
    if eqn.primitive.name not in _CALLS:
        return None
    return eqn.params.get("jaxpr", eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr")))


def evaluate_export(
    eqn: Any, values: Sequence[Any], run: Callable[[Any, list[Any]], list[Any]], wrap: Any
) -> list[Any]:
    """Evaluate an equation that calls an export.

    Cotangents of integers are bools in its module, and float0 outside.

    Args:
      eqn: an equation of the primitive ``call_exported``.
      values: a value for each operand.
      run: ``(jaxpr, values) -> values`` of the results.
      wrap: makes a value of an array.
    """
    exported = eqn.params["exported"]
    module = api.parse(exported.mlir_module_serialized)

    def call(*arrays: Any) -> list[Any]:
        kept = [arrays[i] for i in exported.module_kept_var_idx]
        return api.evaluate(module, kept, platforms=exported.platforms)

    def is_float0(atom: Any) -> bool:
        return atom.aval.dtype == jax.dtypes.float0

    avals = [jax.ShapeDtypeStruct(atom.aval.shape, bool if is_float0(atom) else atom.aval.dtype) for atom in eqn.invars]
    given = [
        wrap(np.zeros(atom.aval.shape, bool)) if is_float0(atom) else value
        for value, atom in zip(values, eqn.invars, strict=True)
    ]
    found = run(jax.make_jaxpr(call)(*avals), given)
    return [
        wrap(np.zeros(v.aval.shape, v.aval.dtype)) if is_float0(v) else value
        for value, v in zip(found, eqn.outvars, strict=True)
    ]


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose exports are evaluated operation by operation."""

    def call(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        found = evaluate(closed, jax.tree.leaves(args), _rule)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return call


def _rule(eqn: Any, values: list[Any]) -> list[Any] | None:
    if eqn.primitive.name == "call_exported":
        return evaluate_export(eqn, values, lambda closed, given: evaluate(closed, given, _rule), lambda array: array)
    if eqn.primitive.name == "mulhi" and eqn.outvars[0].aval.dtype == jnp.uint32:
        return [_high_product(*values)]
    body = call_body(eqn)
    if body is not None:
        return evaluate(body, values, _rule)
    if eqn.primitive.name in LOOPS_AND_BRANCHES and any(e.primitive.name in _REPLACED for e in equations(eqn)):
        return bind(retrace_bodies(eqn, lambda closed, args: evaluate(closed, args, _rule)), *values)
    return None


def _high_product(a: Any, b: Any) -> jax.Array:
    """Return the upper half of the 64-bit product of uint32 arrays.

    XLA of jaxlib 0.10 cannot partition its own operation for this ("Unable to convert MHLO to StableHLO").
    """
    with jax.enable_x64(True):
        wide = jnp.asarray(a, jnp.uint64) * jnp.asarray(b, jnp.uint64)
        return jnp.asarray(wide >> np.uint64(32), jnp.uint32)
