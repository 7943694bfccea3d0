"""What is the same in all iterations of a loop, and can be computed before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.export import is_symbolic_dim

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.dim_expr import names, parsed
from tf2jax_lite.dynamic_shapes.primitives import dynamic_reshape_p, truncate_p
from tf2jax_lite.jaxprs.equations import bind

__all__ = ["evaluated", "is_plain", "needed", "unchanging", "variables"]


def unchanging(eqns: Sequence[Any], constants: Iterable[Any]) -> set[Any]:
    """Returns what is the same in all iterations, given what of it equations start with."""
    found, changing = set(constants), set[str]()
    for eqn in eqns:
        if found.issuperset(variables(eqn.invars)) and is_plain(eqn) and not (changing and changing & _sizes_in(eqn)):
            found.update(eqn.outvars)
        else:
            changing.update(_sizes_of(eqn))
    return found


def _sizes_of(eqn: Any) -> list[str]:
    """Returns the variables, of sizes that data decides, that an equation gives a value."""
    if eqn.primitive not in (truncate_p, dynamic_reshape_p):
        return []
    return [name for name in eqn.params.get("names", [eqn.params.get("name")]) if name]


def _sizes_in(eqn: Any) -> set[str]:
    """Returns the variables that an equation has in sizes, which it need not take as inputs: ``iota`` does not."""
    dims = [d for v in eqn.outvars for d in getattr(v.aval, "shape", ()) if not isinstance(d, int)]
    for value in eqn.params.values():
        dims += filter(is_symbolic_dim, value if isinstance(value, tuple) else [value])
    return {name for dim in dims if is_data_dependent(dim) for name in names(parsed(str(dim)))}


def evaluated(eqns: Sequence[Any], known: dict[Any, Any]) -> dict[Any, Any]:
    """Returns ``known`` with the equations' results added."""
    values = dict(known)
    for eqn in eqns:
        args = [v.val if isinstance(v, jex.Literal) else values[v] for v in eqn.invars]
        values.update(zip(eqn.outvars, bind(eqn, *args), strict=True))
    return values


def needed(eqns: Sequence[Any], results: Iterable[Any]) -> list[Any]:
    """Returns the equations that results are computed with, and those with effects, in order."""
    wanted, sizes, kept = {v for v in results if isinstance(v, jex.Var)}, set[str](), []
    finds_sizes = any(map(_sizes_of, eqns))
    for eqn in reversed(eqns):
        if eqn.effects or wanted.intersection(eqn.outvars) or sizes.intersection(_sizes_of(eqn)):
            kept.append(eqn)
            wanted.update(v for v in eqn.invars if isinstance(v, jex.Var))
            sizes.update(_sizes_in(eqn) if finds_sizes else ())
    return kept[::-1]


def is_plain(eqn: Any) -> bool:
    """Whether an equation may as well run for all iterations at once.

    Not so: effects, keys (some generators draw other bits under vmap), branches (both would run) and loops.
    """
    keys = (jnp.issubdtype(v.aval.dtype, jax.dtypes.extended) for v in (*eqn.invars, *eqn.outvars))
    if eqn.effects or any(keys):
        return False
    if eqn.primitive.name == "jit":
        return all(map(is_plain, eqn.params["jaxpr"].jaxpr.eqns))
    values = [v for p in eqn.params.values() for v in (p if isinstance(p, (tuple, list)) else [p])]
    return not any(isinstance(v, (jex.Jaxpr, jex.ClosedJaxpr)) for v in values)


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Returns what are variables among variables and literals."""
    return [v for v in atoms if isinstance(v, jex.Var)]
