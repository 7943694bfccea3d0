"""Values of an iteration's inputs that are materialized before they are split.

Recurrent layers add the matmul of a step's input, that of its state and a bias, and split the sum into gates. Where the
first was made before the loop (`hoist_matmuls`), XLA fuses the read of the iteration's slice into each gate. On CPU a
fusion that reads an array at several offsets computes the slice index for each element and is not vectorized: 14 ns per
element of a GRU instead of about one. `materialize` on the sum makes it one kernel, and gates are slices of its result.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import Literal, Var
from tf2jax_lite.jaxprs.evaluate import size
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.loops.body import Body, variables


def run(body: Body) -> Body:
    """Materialize input values, not larger, that are split into several slices."""
    views, slices = set(body.xs), collections.Counter[Any]()
    used = {v for eqn in body.eqns for v in variables(eqn.invars)}
    for eqn in body.eqns:
        operands = [v for v in variables(eqn.invars) if v in views]
        if operands and (eqn.primitive is lax.slice_p or eqn.primitive is lax.split_p):
            slices[operands[0]] += sum(v in used for v in eqn.outvars)
        elif len(eqn.outvars) == 1 and any(size(v) == size(eqn.outvars[0]) < math.inf for v in operands):
            views.add(eqn.outvars[0])
    marked = {v: Var(v.aval) for v, n in slices.items() if n > 1 and jnp.issubdtype(v.aval.dtype, jnp.inexact)}
    if not marked:
        return body
    eqns = [_materialized(v, marked[v]) for v in body.xs if v in marked]
    for eqn in body.eqns:
        eqns.append(eqn.replace(invars=[v if isinstance(v, Literal) else marked.get(v, v) for v in eqn.invars]))
        eqns += [_materialized(v, marked[v]) for v in eqn.outvars if v in marked]
    return dataclasses.replace(body, eqns=eqns)


def _materialized(var: Any, result: Any) -> Any:
    return _equation(var.aval).replace(invars=[var], outvars=[result])


@functools.lru_cache(maxsize=64)
def _equation(aval: Any) -> Any:
    return jax.make_jaxpr(materialize)(aval).jaxpr.eqns[0]
