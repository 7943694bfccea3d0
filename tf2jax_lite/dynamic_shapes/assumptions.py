"""Which results would not be what TensorFlow gives if sizes are not what they are taken to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tf2jax_lite.jaxprs.compat import Literal, Var
from tf2jax_lite.jaxprs.walk import equations, without_unread

from .dim_expr import names, parsed
from .tracker import prefix_p

__all__ = ["doubtful", "is_constant", "read_only", "sizes_in"]


def doubtful(jaxpr: Any) -> set[Any]:
    """Returns the variables that depend on a size that was taken to be another, on that other, or on one's room."""
    taken = [eqn for outer in jaxpr.eqns for eqn in assumptions(outer)]
    if any(isinstance(eqn.params["dim"], int) for eqn in taken):  # which numbers in the program are this size?
        return {v for eqn in jaxpr.eqns for v in eqn.outvars}
    doubted = {name for eqn in taken for name in _variables(eqn.params["dim"])}
    found: set[Any] = set()
    for eqn in jaxpr.eqns:
        if any(assumptions(eqn)) or doubted & sizes_of(eqn) or not found.isdisjoint(_vars(eqn.invars)):
            found.update(eqn.outvars)
    return found


def assumptions(eqn: Any) -> Iterator[Any]:
    """Returns what of an equation, or inside of it, takes a size to be another, or to have room."""
    for other in equations(eqn):
        if other.primitive is prefix_p and not (
            is_constant(other) or (other.params["name"] and other.params["is_sure"])
        ):
            yield other


def is_constant(eqn: Any) -> bool:
    """Return whether the number of rows that an equation of `prefix_p` keeps is known."""
    return isinstance(eqn.invars[1], Literal)


def read_only(closed: Any, open_sizes: set[str]) -> Any:
    """Returns a program without what is read nowhere, so that it may do without sizes of which no room is known.

    What is assumed of other sizes stays, as it is seen there whether it holds.
    """
    return without_unread(closed, lambda eqn: any(open_sizes.isdisjoint(sizes_of(e)) for e in assumptions(eqn)))


def sizes_of(eqn: Any) -> set[str]:
    """Returns the names of the variables in the dimensions that an equation is about."""
    return {name for dim in _dims(eqn) for name in _variables(dim)}


def sizes_in(jaxpr: Any) -> set[str]:
    """Returns the names of the variables in dimensions, of what is in a jaxpr and in those inside of it."""
    return {name for outer in jaxpr.eqns for eqn in equations(outer) for name in sizes_of(eqn)}


def _dims(eqn: Any) -> Iterator[Any]:
    """Returns the dimensions that an equation is about."""
    for v in (*eqn.invars, *eqn.outvars):
        yield from getattr(v.aval, "shape", ())
    yield eqn.params.get("dim", 0)


def _vars(atoms: Any) -> Iterator[Any]:
    return (v for v in atoms if isinstance(v, Var))


def _variables(dim: Any) -> set[str]:
    return set() if isinstance(dim, int) else names(parsed(str(dim)))
