"""Carried values that no iteration reads, recomputed after the loop.

A list that keeps the last iteration's result alone is such a value: it is a function of what the loop returns besides.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tf2jax_lite.jaxprs.compat import Literal, Var
from tf2jax_lite.jaxprs.evaluate import evaluate_equations, read
from tf2jax_lite.loops.body import Body, variables

from .loop_invariants import invariant_variables, live_equations


def run(body: Body) -> Body:
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
