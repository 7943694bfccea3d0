"""Which results would not be what TensorFlow gives if sizes are not what they are taken to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax.extend import core as jex

from tf2jax_lite.ops.dimension_values import names, parsed
from tf2jax_lite.ops.extents import prefix_p

from ..jaxprs import equations

__all__ = ["doubtful"]


def doubtful(jaxpr: Any) -> set[Any]:
    """Returns the variables that depend on a size that was taken to be another, on that other, or on one's room."""
    prefixes = [eqn for outer in jaxpr.eqns for eqn in equations(outer) if eqn.primitive is prefix_p]
    taken = [eqn for eqn in prefixes if not (eqn.params["name"] and eqn.params["is_sure"])]
    if any(isinstance(eqn.params["dim"], int) for eqn in taken):  # which numbers in the program are this size?
        return {v for eqn in jaxpr.eqns for v in eqn.outvars}
    doubted = {name for eqn in taken for name in _variables(eqn.params["dim"])}
    found: set[Any] = set()
    for eqn in jaxpr.eqns:
        dims = [d for v in (*eqn.invars, *eqn.outvars) for d in getattr(v.aval, "shape", ())]
        dims += [eqn.params.get("dim", 0)]
        inside = any(e in taken for e in equations(eqn))
        if inside or any(doubted & _variables(d) for d in dims) or not found.isdisjoint(_vars(eqn.invars)):
            found.update(eqn.outvars)
    return found


def _vars(atoms: Any) -> Iterator[Any]:
    return (v for v in atoms if isinstance(v, jex.Var))


def _variables(dim: Any) -> set[str]:
    return set() if isinstance(dim, int) else names(parsed(str(dim)))
