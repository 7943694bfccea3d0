"""Matmuls of inputs, made for all iterations at once before the loop.

TensorFlow's recurrent layers multiply each step's input by the kernel inside the loop. With few rows a matmul takes the
time of reading the weights, so one matmul for all steps is faster. Elementwise operations on its result (a bias, gates)
stay in the loop: before the loop, each gate would be a kernel of its own to compile.

Time of a loop with the matmuls before it, divided by that of one with them inside (LSTM on two cores with AVX-512):

| rows | width 256, 128 steps | its gradient | width 64, 128 steps | width 512, 32 steps |
| ---- | -------------------- | ------------ | ------------------- | ------------------- |
| 1    |                      |              | 0.6                 |                     |
| 4    | 0.5                  | 0.9          | 1.1                 |                     |
| 8    | 0.6                  | 0.8          | 1.0                 | 0.8                 |
| 16   | 0.8                  | 1.3          |                     | 0.9                 |
| 32   | 1.2                  | 1.1          | 1.0                 |                     |
| 64   | 1.5                  | 1.0          |                     |                     |
| 128  | 1.6                  | 1.2          | 1.1                 |                     |

With more rows a step's matmul is as fast as that of all steps, and its results stay in the caches. Gradients with
respect to the weights are made for all steps at once in either case (`weight_gradients`). On GPU the number of kernels
counts.

Loop-invariant factors of matmuls (weight slices) are made before the loop, too. `weight_gradients` then batches the
gradients with respect to such factors, as a GRU that resets its state before the matmul has them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.export import is_symbolic_dim

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.dim_expr import names_in
from tf2jax_lite.dynamic_shapes.primitives import dynamic_reshape_p, truncate_p
from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr
from tf2jax_lite.jaxprs.evaluate import evaluate_equations, size
from tf2jax_lite.loops.batch_steps import batch_equations
from tf2jax_lite.loops.body import Body, variables
from tf2jax_lite.xla_cpu import cost_model


def invariant_variables(eqns: Sequence[Any], constants: Iterable[Any]) -> set[Any]:
    """Return the variables with the same value in all iterations."""
    found, varying_sizes = set(constants), set[str]()
    for eqn in eqns:
        is_invariant = found.issuperset(variables(eqn.invars)) and is_batchable(eqn)
        if is_invariant and not (varying_sizes and varying_sizes & _sizes_in(eqn)):
            found.update(eqn.outvars)
        else:
            varying_sizes.update(_sizes_of(eqn))
    return found


def _sizes_of(eqn: Any) -> list[str]:
    """Return the names of data-dependent dimensions that an equation defines."""
    if eqn.primitive not in (truncate_p, dynamic_reshape_p):
        return []
    return [name for name in eqn.params.get("names", [eqn.params.get("name")]) if name]


def _sizes_in(eqn: Any) -> set[str]:
    """Return dynamic dimensions in an equation, inputs or not: see ``iota``."""
    dims = [d for v in eqn.outvars for d in getattr(v.aval, "shape", ()) if not isinstance(d, int)]
    for value in eqn.params.values():
        dims += filter(is_symbolic_dim, value if isinstance(value, tuple) else [value])
    return {name for dim in dims if is_data_dependent(dim) for name in names_in(dim)}


def live_equations(eqns: Sequence[Any], results: Iterable[Any]) -> list[Any]:
    """Return the equations that results depend on, and those with effects, in order."""
    needed, sizes, live = set(variables(results)), set[str](), []
    defines_sizes = any(map(_sizes_of, eqns))
    for eqn in reversed(eqns):
        if eqn.effects or needed.intersection(eqn.outvars) or sizes.intersection(_sizes_of(eqn)):
            live.append(eqn)
            needed.update(variables(eqn.invars))
            sizes.update(_sizes_in(eqn) if defines_sizes else ())
    return live[::-1]


def is_batchable(eqn: Any) -> bool:
    """Return whether an equation may run for all iterations at once.

    Effects may not, nor random keys (some generators draw other bits under vmap), branches (both would run) and loops.
    """
    keys = (jnp.issubdtype(v.aval.dtype, jax.dtypes.extended) for v in (*eqn.invars, *eqn.outvars))
    if eqn.effects or any(keys):
        return False
    if eqn.primitive.name == "jit":
        return all(map(is_batchable, eqn.params["jaxpr"].jaxpr.eqns))
    values = [v for p in eqn.params.values() for v in (p if isinstance(p, (tuple, list)) else [p])]
    return not any(isinstance(v, (Jaxpr, ClosedJaxpr)) for v in values)


def hoist_matmuls(body: Body) -> Body:
    """Make matmuls of inputs before the loop; remove dead equations and inputs.

    Their results become inputs.
    """
    matmuls = [eqn.outvars[0] for eqn in _input_matmuls(body)]
    made = set(matmuls)
    left = live_equations([e for e in body.eqns if not e.outvars or e.outvars[0] not in made], body.results)
    used = {v for e in left for v in variables(e.invars)}.union(variables(body.results))
    hoisted = [v for v in matmuls if v in used]
    values = batch_equations(live_equations([e for e in body.eqns if not e.effects], hoisted), body.constants, body.xs)
    xs = {v: x for v, x in body.xs.items() if v in used} | {v: values[v] for v in hoisted}
    return dataclasses.replace(body, eqns=left, xs=xs)


def _input_matmuls(body: Body) -> list[Any]:
    """Return matmuls of few rows between input values and invariant ones."""
    invariant, varying, found = set(body.constants), set(body.xs), []
    for eqn in body.eqns:
        used = set(variables(eqn.invars))
        if not used <= invariant | varying or not is_batchable(eqn):
            continue
        if not used & varying:
            invariant.update(eqn.outvars)
        elif all(size(v, body.trips) <= cost_model.MAX_STACKED_ELEMENTS for v in eqn.outvars):
            varying.update(eqn.outvars)
            sides = [v for v in variables(eqn.invars) if v in varying]  # the matmul of a value with itself has two
            if eqn.primitive is lax.dot_general_p and len(sides) == 1 and _has_few_rows(eqn, varying):
                found.append(eqn)
    return found


def _has_few_rows(eqn: Any, varying: set[Any]) -> bool:
    contract, batch = eqn.params["dimension_numbers"]
    (side,) = (i for i, v in enumerate(eqn.invars) if v in varying)
    shape = eqn.invars[side].aval.shape
    rows = math.prod(n for d, n in enumerate(shape) if d not in contract[side])
    is_cpu = jax.default_backend() == "cpu"
    limit = cost_model.MAX_BATCHED_MATMUL_ROWS_CPU if is_cpu else cost_model.MAX_BATCHED_MATMUL_ROWS
    return not any(batch) and rows <= limit


def hoist_factors(body: Body) -> Body:
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
