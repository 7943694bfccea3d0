"""Visit and evaluation of jaxprs, with a rule per equation; dead-code elimination.

Uses: substitution of primitives, abstract interpretation, vectorization.

Equations run in the caller's trace and name stack; `jaxpr_as_fun` restores the name stack that each was traced in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from .compat import ClosedJaxpr, Literal, Var, bind


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


Rule = Callable[[Any, list[Any]], list[Any] | None]
"""Returns the results of an equation, given it and the values of its operands; None to evaluate it as it is."""


def evaluate(
    jaxpr: Any,
    args: Sequence[Any],
    rule: Rule | None = None,
    *,
    consts: Sequence[Any] | None = None,
    literal: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """Evaluate a jaxpr equation by equation.

    Args:
      args: a value for each input: arrays, or anything that ``rule`` understands.
      rule: returns the results of an equation; equations for which it returns None are bound.
      consts: values of the jaxpr's constants, by default those that it is closed over.
      literal: maps the number in a literal to a value; the number itself by default.
    """
    jaxpr, own = parts(jaxpr)
    env = dict(zip(jaxpr.constvars, own if consts is None else consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    evaluate_equations(jaxpr.eqns, env, rule, literal=literal)
    return read(jaxpr.outvars, env, literal)


def evaluate_equations(
    eqns: Iterable[Any],
    env: dict[Any, Any],
    rule: Rule | None = None,
    *,
    literal: Callable[[Any], Any] | None = None,
) -> None:
    """Evaluate equations in order, and add results to an environment.

    Args:
      env: values of variables; it has all that the equations read and do not compute.
    """
    for eqn in eqns:
        operands = read(eqn.invars, env, literal)
        results = None if rule is None else rule(eqn, operands)
        env.update(zip(eqn.outvars, bind(eqn, *operands) if results is None else results, strict=True))


def read(atoms: Iterable[Any], env: dict[Any, Any], literal: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the values of variables and literals."""
    if literal is None:
        return [a.val if isinstance(a, Literal) else env[a] for a in atoms]
    return [literal(a.val) if isinstance(a, Literal) else env[a] for a in atoms]


def retrace_bodies(eqn: Any, run: Callable[[Any, list[Any]], list[Any]]) -> Any:
    """Return an equation of a loop or branch with its jaxprs traced again.

    Args:
      eqn: the equation: ``scan``, ``while``, ``cond`` or ``checkpoint``.
      run: ``(jaxpr, arrays) -> results`` evaluates a jaxpr in another way; shapes and dtypes stay.
    """

    def retraced(value: Any) -> Any:
        if isinstance(value, (tuple, list)) and value and all(isinstance(item, ClosedJaxpr) for item in value):
            return type(value)(retraced(item) for item in value)
        jaxpr, _ = parts(value)
        if not hasattr(jaxpr, "eqns"):
            return value
        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in jaxpr.invars]
        closed = jax.make_jaxpr(lambda *args: run(value, list(args)))(*avals)
        if isinstance(value, ClosedJaxpr):
            return closed
        return value if closed.consts else closed.jaxpr  # rematerialized blocks hold open jaxprs

    return eqn.replace(params={name: retraced(value) for name, value in eqn.params.items()})
