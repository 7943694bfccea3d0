"""Values made for all iterations at once, before or after the loop.

Before it: TensorFlow's recurrent layers multiply each step's input by the kernel inside the loop. With few rows a
matmul takes the time of reading the weights, so one matmul for all steps is faster. Elementwise operations on its
result (a bias, gates) stay in the loop: before the loop, each gate would be a kernel of its own to compile.

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

After it: TensorFlow's gradient of a loop carries the gradients of weights and adds a term in each iteration. If the
term is a matmul of few rows, its result is as large as the weights, which are read and written in every iteration. Its
factors are smaller: stacked over all iterations, they make one matmul. A value that no iteration reads, such as a list
that keeps the last iteration's result alone, is a function of the loop's other results.
"""

from __future__ import annotations

import collections
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
from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr, Literal, Var
from tf2jax_lite.jaxprs.evaluate import evaluate_equations, read, size
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
