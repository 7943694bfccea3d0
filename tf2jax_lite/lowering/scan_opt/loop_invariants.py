"""Loop-invariant and live equations of a loop's body."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.dim_expr import names_in
from tf2jax_lite.dynamic_shapes.primitives import dynamic_reshape_p, truncate_p
from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr
from tf2jax_lite.loops.body import variables


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
