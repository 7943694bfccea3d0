"""Sums of products that a loop adds up, an iteration's product at a time, made of all iterations at once, after it.

TensorFlow's gradient of a loop carries the gradients of the weights and adds an iteration's share to each: of few rows
a product whose result is as large as the weights, which are read and written anew every time. Its factors are smaller:
kept of all iterations, they make one product.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import Var
from tf2jax_lite.jaxprs.walk import size

from .batch_steps import for_all_steps
from .carry_to_xs import Body

__all__ = ["after_loop"]

_MOST_ROWS = 128  # that an iteration's product sums over: with more, it takes longer than adding it
_MOST_VALUES = 1 << 26  # of a factor in all iterations: 256 MiB in float32
_VIEWS = (lax.squeeze_p, lax.reshape_p)


@dataclasses.dataclass(frozen=True)
class _Sum:
    """A product that each iteration adds to something that it carries, and does not read otherwise."""

    product: Any  # the equation

    def total(self, start: Any, factors: Sequence[Any]) -> Any:
        """Returns what is carried after the loop, of what it starts with, and the factors of all iterations."""
        summed, batch = self.product.params["dimension_numbers"]
        of_all = tuple((0, *(d + 1 for d in dims)) for dims in summed)
        params = {**self.product.params, "dimension_numbers": (of_all, batch)}
        return lax.add(start, lax.dot_general_p.bind(*factors, **params))


def after_loop(body: Body) -> tuple[Body, Callable[[Sequence[Any]], list[Any]]]:
    """Takes such sums out of a loop.

    Args:
      body: the loop's body.

    Returns:
      A body that does not carry them, and what makes of its results those of the body that was given.
    """
    jaxpr, count = body.jaxpr, len(body.carried)
    sums = _sums(body)
    if not sums:
        return body, list
    known = _known(body, {v for s in sums.values() for v in s.product.invars})
    wanted = list(dict.fromkeys(v for s in sums.values() for v in s.product.invars if v not in known))
    kept = [i for i in range(count) if i not in sums]
    smaller = dataclasses.replace(
        jaxpr,
        invars=[*(jaxpr.invars[i] for i in kept), *jaxpr.invars[count:]],
        outvars=[*(jaxpr.outvars[i] for i in kept), *jaxpr.outvars[count:], *wanted],
        eqns=[e for e in jaxpr.eqns if not any(e.outvars == [jaxpr.outvars[i]] for i in sums)],
    )

    def whole(results: Sequence[Any]) -> list[Any]:
        carried, rows = iter(results[: len(kept)]), results[len(kept) :]
        others = len(rows) - len(wanted)
        factors = known | dict(zip(wanted, rows[others:], strict=True))
        ends = [
            sums[i].total(body.carried[i], [factors[v] for v in sums[i].product.invars]) if i in sums else next(carried)
            for i in range(count)
        ]
        return [*ends, *rows[:others]]

    return dataclasses.replace(body, jaxpr=smaller, carried=[body.carried[i] for i in kept]), whole


def _sums(body: Body) -> dict[int, _Sum]:
    """Returns what is only added to, by its place among what is carried."""
    jaxpr = body.jaxpr
    uses = collections.Counter(v for e in jaxpr.eqns for v in e.invars if isinstance(v, Var))
    uses.update(v for v in jaxpr.outvars if isinstance(v, Var))
    made = {v: e for e in jaxpr.eqns for v in e.outvars}
    fixed = set(jaxpr.constvars)
    found = {}
    for i in range(len(body.carried)):
        before, after = jaxpr.invars[i], jaxpr.outvars[i]
        eqn = made.get(after) if isinstance(after, Var) else None
        if eqn is None or eqn.primitive is not lax.add_p or uses[before] != 1 or uses[after] != 1:
            continue
        added = [v for v in eqn.invars if v is not before]
        product = made.get(added[0]) if len(added) == 1 and isinstance(added[0], Var) else None
        if product is None or uses[added[0]] != 1 or not _is_worth_it(product, body.trips):
            continue
        if all(isinstance(v, Var) and v not in fixed for v in product.invars):
            found[i] = _Sum(product)
    return found


def _is_worth_it(product: Any, trips: int) -> bool:
    """Whether an equation is a product of few rows that is larger than its factors."""
    if product.primitive is not lax.dot_general_p or not jnp.issubdtype(product.outvars[0].aval.dtype, jnp.inexact):
        return False
    summed, batch = product.params["dimension_numbers"]
    a, b = product.invars
    if any(batch) or not max(size(a, trips), size(b, trips)) <= _MOST_VALUES:
        return False
    rows = math.prod(a.aval.shape[d] for d in summed[0])
    return rows <= _MOST_ROWS and size(a) + size(b) <= size(product.outvars[0])


def _known(body: Body, variables: set[Any]) -> dict[Any, Any]:
    """Returns, of those variables that are elements of stacks in another shape, the values of all iterations."""
    made = {v: e for e in body.jaxpr.eqns for v in e.outvars}
    found = {}
    for variable in variables:
        views, source = [], variable
        while source in made and made[source].primitive in _VIEWS:
            views.append(made[source])
            source = views[-1].invars[0]
        if source in body.read:
            found[variable] = for_all_steps(views[::-1], {}, {source: body.read[source]})[variable]
    return found
