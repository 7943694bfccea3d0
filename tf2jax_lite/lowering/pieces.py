"""Sums in a loop's body, in another order: what needs nothing of the loop comes together, and is cut before sums are.

Recurrent layers add the product of a step's input, that of its state and a bias, and cut the sum into gates. Where the
first was made before the loop (`hoisting`), the bias is added to it and it is cut there, too: what the loop reads then
are the gates' own arrays.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax.extend.core as jex
from jax import lax

from tf2jax_lite.ops.equations import size

__all__ = ["constants_first", "cut_early", "is_cut"]

_ELEMENTWISE = (lax.add_p, lax.sub_p, lax.mul_p, lax.neg_p)


def constants_first(
    eqns: Sequence[Any], results: Iterable[Any], wanted: Collection[Any], same: Collection[Any]
) -> list[Any]:
    """Makes ``(a + b) + c`` to ``(a + c) + b``.

    Args:
      eqns: equations of a jaxpr, in order.
      results: what the jaxpr returns.
      wanted: variables, of which ``a`` is one and ``b`` none.
      same: variables, of which ``c`` is one and ``b`` none.

    Returns:
      Equations that compute the same values of all variables but those of the sums ``a + b`` that nobody else takes.
    """
    makers = {eqn.outvars[0]: eqn for eqn in eqns if eqn.primitive is lax.add_p}
    uses = collections.Counter(v for eqn in eqns for v in _variables(eqn))
    uses.update(v for v in results if isinstance(v, jex.Var))
    wanted, found = set(wanted), []
    for eqn in eqns:
        first = [v for v in _variables(eqn) if v in makers and v not in wanted and uses[v] == 1]
        constant = [v for v in _variables(eqn) if v in same]
        if eqn.primitive is not lax.add_p or len(first) != 1 or len(constant) != 1:
            found.append(eqn)
            continue
        inner = makers[first[0]]
        known = [v for v in _variables(inner) if v in wanted]
        other = [v for v in inner.invars if v not in known and v not in same]
        if len(known) != 1 or len(other) != 1 or known[0].aval.shape != eqn.outvars[0].aval.shape:
            found.append(eqn)
            continue
        both = jex.Var(eqn.outvars[0].aval)
        wanted.add(both)
        makers[eqn.outvars[0]] = eqn.replace(invars=[both, other[0]])
        found += [eqn.replace(invars=[known[0], constant[0]], outvars=[both]), makers[eqn.outvars[0]]]
    return found


def cut_early(eqns: Sequence[Any], results: Iterable[Any], wanted: Collection[Any]) -> list[Any]:
    """Takes pieces of operands where a sum of them is only ever cut into pieces.

    Args:
      eqns: equations of a jaxpr, in order.
      results: what the jaxpr returns.
      wanted: variables; sums that none of them takes part in stay.

    Returns:
      Equations that compute the same values of all variables but those of the sums. Sums that nobody needs any more are
      still among them.
    """
    reaching, makers = set(wanted), {}
    for eqn in eqns:
        if _is_elementwise(eqn) and reaching.intersection(_variables(eqn)):
            reaching.add(eqn.outvars[0])
            makers[eqn.outvars[0]] = eqn
    sums = _only_cut(eqns, results, makers)
    found: list[Any] = []
    made: dict[Any, list[Any]] = {}  # by variable and cut

    def pieces(var: Any, cut: Any, outs: Sequence[Any] | None = None) -> list[Any]:
        """Returns variables for what a cut makes of an operand in the place of its own; ``outs`` if given."""
        count, params = len(cut.outvars), _params(cut, var.aval.shape)
        if isinstance(var, jex.Literal) or params is None:
            return [var] * count
        key = var, *params.values()
        if outs is None and key in made:
            return made[key]
        if outs is None:
            outs = [jex.Var(var.aval.update(shape=_narrowed(v.aval.shape, var.aval.shape))) for v in cut.outvars]
        made[key] = list(outs)
        if var in sums:
            args = [pieces(v, cut) for v in makers[var].invars]
            found.extend(makers[var].replace(invars=list(a), outvars=[o]) for *a, o in zip(*args, outs, strict=True))
        else:
            found.append(cut.replace(invars=[var], outvars=list(outs), params=params))
        return made[key]

    for eqn in eqns:
        if is_cut(eqn) and eqn.invars[0] in sums:
            pieces(eqn.invars[0], eqn, [v if type(v) is jex.Var else jex.Var(v.aval) for v in eqn.outvars])
        else:
            found.append(eqn)
    return found


def is_cut(eqn: Any) -> bool:
    """Whether an equation takes pieces out of its operand, without gaps."""
    if eqn.primitive is lax.slice_p:
        return all(s == 1 for s in eqn.params["strides"] or ())
    return eqn.primitive is lax.split_p


def _variables(eqn: Any) -> list[Any]:
    return [v for v in eqn.invars if isinstance(v, jex.Var)]


def _is_elementwise(eqn: Any) -> bool:
    """Whether a piece of an equation's result is the same of its operands' pieces; some may be stretched."""
    if eqn.primitive not in _ELEMENTWISE or size(eqn.outvars[0]) == math.inf:
        return False
    rank = len(eqn.outvars[0].aval.shape)
    return all(len(v.aval.shape) in (0, rank) for v in eqn.invars)


def _narrowed(shape: tuple[int, ...], operand: tuple[int, ...]) -> tuple[int, ...]:
    """Returns a piece's shape of an operand that may be stretched to the size of others."""
    return tuple(1 if whole == 1 else n for n, whole in zip(shape, operand, strict=True))


def _params(cut: Any, shape: tuple[int, ...]) -> dict[str, Any] | None:
    """Returns the parameters of a cut of an operand that may be stretched; None where nothing is to cut."""
    if not shape:
        return None
    if cut.primitive is lax.split_p:
        stretched = shape[cut.params["axis"]] == 1 < sum(cut.params["sizes"])
        return None if stretched else {**cut.params, "sizes": tuple(cut.params["sizes"])}
    starts = tuple(0 if n == 1 else start for n, start in zip(shape, cut.params["start_indices"], strict=True))
    limits = tuple(1 if n == 1 else limit for n, limit in zip(shape, cut.params["limit_indices"], strict=True))
    whole = limits == shape and not any(starts)
    return None if whole else {"start_indices": starts, "limit_indices": limits, "strides": None}


def _only_cut(eqns: Sequence[Any], results: Iterable[Any], makers: dict[Any, Any]) -> set[Any]:
    """Returns the sums that are cut into pieces no larger than they are together, and that nobody takes as a whole."""
    sums, whole = set(makers), {v for v in results if isinstance(v, jex.Var)}
    taken = dict.fromkeys(makers, 0)
    for eqn in reversed(eqns):
        if not eqn.effects and is_cut(eqn):
            var = eqn.invars[0]
            taken[var] = taken.get(var, 0) + sum(math.prod(v.aval.shape) for v in eqn.outvars)
            continue
        inner = [v for v in eqn.outvars if v in sums and v not in whole and taken[v] <= math.prod(v.aval.shape)]
        sums.difference_update(v for v in eqn.outvars if v not in inner)
        for v in _variables(eqn):
            if not inner:
                whole.add(v)
            elif v in taken:
                taken[v] += taken[inner[0]]
    return {v for v in sums if taken[v]}
