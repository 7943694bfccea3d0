"""Pieces of sums: a piece of ``a + b`` becomes the sum of the pieces of ``a`` and ``b``.

Recurrent layers add the products of a step's input and of its state, and cut the sum into gates. Where the first was
made before the loop (`hoisting`), it is cut there, too: what the loop reads then are the gates' own arrays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax.extend.core as jex
from jax import lax

__all__ = ["cut_early"]

_ELEMENTWISE = (lax.add_p, lax.sub_p, lax.mul_p, lax.neg_p)


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
    if not sums:
        return list(eqns)
    found: list[Any] = []
    made: dict[Any, Any] = {}  # by variable and place

    def piece(var: Any, place: Any, cut: Any, out: Any = None) -> Any:
        """Returns a variable for a piece, ``out`` if given; ``cut`` is the equation that asks for it."""
        shape = tuple(stop - start for start, stop in zip(*place, strict=True))
        if out is None and ((var, place) in made or shape == var.aval.shape):
            return made.get((var, place), var)
        out = jex.Var(var.aval.update(shape=shape)) if out is None else out
        made[var, place] = out
        if var in sums:
            eqn = makers[var]
            args = [piece(v, _within(v, place), cut) if isinstance(v, jex.Var) else v for v in eqn.invars]
            found.append(eqn.replace(invars=args, outvars=[out]))
        else:
            params = {"start_indices": place[0], "limit_indices": place[1], "strides": None}
            found.append(cut.replace(primitive=lax.slice_p, invars=[var], outvars=[out], params=params))
        return out

    for eqn in eqns:
        if _is_cut(eqn) and eqn.invars[0] in sums:
            for place, out in zip(_places(eqn), eqn.outvars, strict=True):
                if not isinstance(out, jex.DropVar):
                    piece(eqn.invars[0], place, eqn, out)
        else:
            found.append(eqn)
    return found


def _variables(eqn: Any) -> list[Any]:
    return [v for v in eqn.invars if isinstance(v, jex.Var)]


def _is_elementwise(eqn: Any) -> bool:
    """Whether a piece of an equation's result is the same of its operands' pieces; some may be stretched."""
    if eqn.primitive not in _ELEMENTWISE:
        return False
    shape = eqn.outvars[0].aval.shape
    return all(
        not v.aval.shape or (len(v.aval.shape) == len(shape) and all(map(_fits, v.aval.shape, shape)))
        for v in eqn.invars
    )


def _fits(size: Any, whole: Any) -> bool:
    return isinstance(whole, int) and size in (1, whole)


def _within(var: Any, place: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns where a piece of a result is in an operand, which has size 1 where it is stretched."""
    shape = var.aval.shape
    starts = tuple(0 if n == 1 else start for n, start in zip(shape, place[0], strict=False))
    return starts, tuple(1 if n == 1 else stop for n, stop in zip(shape, place[1], strict=False))


def _is_cut(eqn: Any) -> bool:
    if eqn.primitive is lax.slice_p:
        return all(s == 1 for s in eqn.params["strides"] or ())
    return eqn.primitive is lax.split_p


def _places(eqn: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns where each result of a cut starts and stops in its operand."""
    if eqn.primitive is lax.slice_p:
        return [(tuple(eqn.params["start_indices"]), tuple(eqn.params["limit_indices"]))]
    shape, axis, places, start = eqn.invars[0].aval.shape, eqn.params["axis"], [], 0
    for size in eqn.params["sizes"]:
        starts = tuple(start if d == axis else 0 for d in range(len(shape)))
        places.append((starts, tuple(start + size if d == axis else n for d, n in enumerate(shape))))
        start += size
    return places


def _only_cut(eqns: Sequence[Any], results: Iterable[Any], makers: dict[Any, Any]) -> set[Any]:
    """Returns the sums that are cut into pieces no larger than they are together, and that nobody takes as a whole."""
    sums, whole = set(makers), {v for v in results if isinstance(v, jex.Var)}
    taken = dict.fromkeys(makers, 0)
    for eqn in reversed(eqns):
        if not eqn.effects and _is_cut(eqn):
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
