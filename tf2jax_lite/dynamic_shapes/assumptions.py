"""Find results that depend on assumed sizes, to be NaN if these do not hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tf2jax_lite.jaxprs.compat import Literal, Var
from tf2jax_lite.jaxprs.walk import equations, without_unread

from .dim_expr import names_in
from .primitives import truncate_p


def affected_by_assumptions(jaxpr: Any) -> set[Any]:
    """Return variables that depend on a dimension with assumed size or capacity."""
    assumed = [eqn for outer in jaxpr.eqns for eqn in assumptions(outer)]
    if any(isinstance(eqn.params["dim"], int) for eqn in assumed):  # a constant in the program could be this size
        return {v for eqn in jaxpr.eqns for v in eqn.outvars}
    affected = {name for eqn in assumed for name in names_in(eqn.params["dim"])}
    found: set[Any] = set()
    for eqn in jaxpr.eqns:
        if any(assumptions(eqn)) or affected & variables_of(eqn) or not found.isdisjoint(_vars(eqn.invars)):
            found.update(eqn.outvars)
    return found


def assumptions(eqn: Any) -> Iterator[Any]:
    """Yield the equations in this one that assume a size or a sufficient capacity."""
    for other in equations(eqn):
        if other.primitive is truncate_p and not (
            is_constant(other) or (other.params["name"] and other.params["is_sure"])
        ):
            yield other


def is_constant(eqn: Any) -> bool:
    """Return whether an equation of `truncate_p` keeps a static number of rows."""
    return isinstance(eqn.invars[1], Literal)


def without_dead_sizes(closed: Any, unbounded: set[str]) -> Any:
    """Eliminate dead equations, so that the jaxpr may do without unbounded variables.

    Assumptions about other variables stay, because they are checked there.
    """
    return without_unread(closed, lambda eqn: any(unbounded.isdisjoint(variables_of(e)) for e in assumptions(eqn)))


def variables_of(eqn: Any) -> set[str]:
    """Return the names of the dimension variables of an equation."""
    return {name for dim in _dims(eqn) for name in names_in(dim)}


def variables_in(jaxpr: Any) -> set[str]:
    """Return the names of the dimension variables of a jaxpr and those inside of it."""
    return {name for outer in jaxpr.eqns for eqn in equations(outer) for name in variables_of(eqn)}


def _dims(eqn: Any) -> Iterator[Any]:
    for v in (*eqn.invars, *eqn.outvars):
        yield from getattr(v.aval, "shape", ())
    yield eqn.params.get("dim", 0)


def _vars(atoms: Any) -> Iterator[Any]:
    return (v for v in atoms if isinstance(v, Var))
