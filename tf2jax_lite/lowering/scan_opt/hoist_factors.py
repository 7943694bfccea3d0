"""Loop-invariant factors of matmuls (weight slices), made before the loop.

`weight_gradients` then batches the gradients with respect to such factors, too, as a GRU that resets its state before
the matmul has them.
"""

from __future__ import annotations

import dataclasses

from jax import lax

from tf2jax_lite.jaxprs.evaluate import evaluate_equations
from tf2jax_lite.loops.body import Body, variables

from .loop_invariants import invariant_variables, live_equations


def run(body: Body) -> Body:
    """Compute invariant factors of matmuls before the loop; they become constants."""
    invariant = invariant_variables(body.eqns, body.constants)
    factors = [v for e in body.eqns if e.primitive is lax.dot_general_p for v in variables(e.invars)]
    hoisted = dict.fromkeys(v for v in factors if v in invariant and v not in body.constants)
    if not hoisted:
        return body
    values = dict(body.constants)
    evaluate_equations(live_equations([e for e in body.eqns if not e.effects], hoisted), values)
    left = [e for e in body.eqns if hoisted.keys().isdisjoint(e.outvars)]
    constants = {**body.constants, **{v: values[v] for v in hoisted}}
    return dataclasses.replace(body, eqns=live_equations(left, body.results), constants=constants)
