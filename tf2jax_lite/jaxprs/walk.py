"""Visit of equations of nested jaxprs, and dead-code elimination."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .compat import ClosedJaxpr, Var


def parts(closed: Any) -> tuple[Any, Sequence[Any]]:
    """Return a jaxpr and its constants, given a closed or an open one."""
    return getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())


def inner(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs among an equation's parameters."""
    for value in params.values():
        value = getattr(value, "jaxprs", value)  # a loop with derivative rules holds jaxprs in an object
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(parts(item)[0], "eqns"):
                yield item


def equations(eqn: Any) -> Iterator[Any]:
    """Yield an equation and all that are nested in it."""
    yield eqn
    for closed in inner(eqn.params):
        for other in parts(closed)[0].eqns:
            yield from equations(other)


def without_unread(closed: Any, is_kept: Callable[[Any], bool]) -> Any:
    """Return a closed jaxpr without dead equations, with all inputs and outputs.

    Args:
      is_kept: whether an equation stays in any case; one with effects does.
    """
    needed = {v for v in closed.jaxpr.outvars if isinstance(v, Var)}
    kept: list[Any] = []
    for eqn in reversed(closed.jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars) or is_kept(eqn):
            kept.append(eqn)
            needed.update(v for v in eqn.invars if isinstance(v, Var))
    return ClosedJaxpr(closed.jaxpr.replace(eqns=kept[::-1]), closed.consts)


def size(var: Any, trips: int = 1) -> float:
    """Return a variable's elements over ``trips``; infinity for symbolic shapes."""
    shape = var.aval.shape
    return trips * math.prod(shape) if all(isinstance(n, int) for n in shape) else math.inf
