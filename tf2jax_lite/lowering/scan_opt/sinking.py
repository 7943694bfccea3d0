"""Carried values that are computed after the loop.

TensorFlow's gradient of a loop carries the gradients of weights and adds a term in each iteration. If the term is a
matmul of few rows, its result is as large as the weights, which are read and written in every iteration. Its factors
are smaller: stacked over all iterations, they make one matmul.

A value that no iteration reads, such as a list that keeps the last iteration's result alone, is a function of the
loop's other results.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import Literal, Var
from tf2jax_lite.jaxprs.evaluate import evaluate_equations, read, size
from tf2jax_lite.loops.batch_steps import batch_equations
from tf2jax_lite.loops.body import Body, variables
from tf2jax_lite.xla_cpu import cost_model

from .hoisting import invariant_variables, live_equations

_VIEWS = (lax.squeeze_p, lax.reshape_p)


def sink_accumulators(body: Body) -> Body:
    """Take accumulated matmuls of few rows out of the loop."""
    matmuls = _accumulated_matmuls(body)
    if not matmuls:
        return body
    factors = list(dict.fromkeys(v for eqn in matmuls.values() for v in eqn.invars))
    stacked = _stacked_inputs(body, factors)
    missing = [v for v in factors if v not in stacked]
    after = dict(zip(body.carry, body.carry_out, strict=True))
    sums = {after[v] for v in matmuls}
    carried = [v for v in body.carry if v not in matmuls]

    def finish(carry: list[Any], ys: list[Any]) -> Any:
        others = len(ys) - len(missing)
        values = stacked | dict(zip(missing, ys[others:], strict=True))
        ends = dict(zip(carried, carry, strict=True))
        for v, eqn in matmuls.items():
            ends[v] = lax.add(body.carry[v], _over_all_iterations(eqn, [values[f] for f in eqn.invars]))
        return body.finish([ends[v] for v in body.carry], ys[:others])

    return dataclasses.replace(
        body,
        eqns=[e for e in body.eqns if not (len(e.outvars) == 1 and e.outvars[0] in sums)],
        carry={v: body.carry[v] for v in carried},
        carry_out=[after[v] for v in carried],
        ys=[*body.ys, *missing],
        finish=finish,
    )


def _over_all_iterations(matmul: Any, factors: Sequence[Any]) -> Any:
    """Return the sum of a matmul over all iterations, given its stacked factors."""
    contract, batch = matmul.params["dimension_numbers"]
    dims = tuple((0, *(d + 1 for d in side)) for side in contract)
    return lax.dot_general_p.bind(*factors, **{**matmul.params, "dimension_numbers": (dims, batch)})


def _accumulated_matmuls(body: Body) -> dict[Any, Any]:
    """Return variables that are only added to, with each iteration's matmul."""
    uses = collections.Counter(v for e in body.eqns for v in variables(e.invars))
    uses.update(variables(body.results))
    defined_by = {v: e for e in body.eqns for v in e.outvars}
    found = {}
    for before, after in zip(body.carry, body.carry_out, strict=True):
        eqn = defined_by.get(after) if isinstance(after, Var) else None
        if eqn is None or eqn.primitive is not lax.add_p or uses[before] != 1 or uses[after] != 1:
            continue
        terms = [v for v in eqn.invars if v is not before]
        matmul = defined_by.get(terms[0]) if len(terms) == 1 and isinstance(terms[0], Var) else None
        if matmul is None or uses[terms[0]] != 1 or not _pays(matmul, body.trips):
            continue
        if all(isinstance(v, Var) and v not in body.constants for v in matmul.invars):
            found[before] = matmul
    return found


def _pays(eqn: Any, trips: int) -> bool:
    """Return whether a matmul has few rows, and a result larger than factors."""
    if eqn.primitive is not lax.dot_general_p or not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact):
        return False
    contract, batch = eqn.params["dimension_numbers"]
    a, b = eqn.invars
    if any(batch) or not max(size(a, trips), size(b, trips)) <= cost_model.MAX_STACKED_ELEMENTS:
        return False
    rows = math.prod(a.aval.shape[d] for d in contract[0])
    return rows <= cost_model.MAX_BATCHED_MATMUL_ROWS and size(a) + size(b) <= size(eqn.outvars[0])


def _stacked_inputs(body: Body, factors: Sequence[Any]) -> dict[Any, Any]:
    """Return inputs' values in all iterations, of factors in another shape."""
    defined_by = {v: e for e in body.eqns for v in e.outvars}
    found = {}
    for factor in factors:
        views, source = [], factor
        while source in defined_by and defined_by[source].primitive in _VIEWS:
            views.append(defined_by[source])
            source = views[-1].invars[0]
        if source in body.xs:
            found[factor] = batch_equations(views[::-1], {}, {source: body.xs[source]})[factor]
    return found


def sink_last_values(body: Body) -> Body:
    """Recompute carried values after the loop if other results suffice."""
    used = {v for e in body.eqns for v in variables(e.invars)}.union(variables(body.results))
    pairs = list(zip(body.carry, body.carry_out, strict=True))
    # Values in ``ys`` are not those of the last iteration alone.
    ends = {after for before, after in pairs if before in used and isinstance(after, Var)}
    found = invariant_variables(body.eqns, {*body.constants, *ends})
    sunk = {b for b, after in pairs if b not in used and (isinstance(after, Literal) or after in found)}
    if not sunk:
        return body
    after_loop = live_equations(
        [e for e in body.eqns if found.issuperset(e.outvars) and not ends.issuperset(e.outvars)],
        [after for before, after in pairs if before in sunk],
    )
    carried = [before for before, _ in pairs if before not in sunk]
    carry_out = [after for before, after in pairs if before not in sunk]

    def finish(carry: list[Any], ys: list[Any]) -> Any:
        values = dict(body.constants)
        values.update((v, value) for v, value in zip(carry_out, carry, strict=True) if isinstance(v, Var))
        evaluate_equations(after_loop, values)
        return body.finish(read(body.carry_out, values), ys)

    return dataclasses.replace(
        body,
        eqns=live_equations(body.eqns, [*carry_out, *body.ys]),
        carry={v: body.carry[v] for v in carried},
        carry_out=carry_out,
        finish=finish,
    )
