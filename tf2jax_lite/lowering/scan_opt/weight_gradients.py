"""Scans whose gradients by the weights of their products are made of all iterations at once, after the loop.

JAX adds up such a gradient iteration by iteration: of few rows each is a product whose result is as large as the
weights, read and written anew every time. Here the derivative of a product ``h @ w`` by ``w`` leaves the loop: what
``h`` was is kept of all iterations (as JAX does, too), its product with the tangents of ``w`` is made once, and the
loop's derivative takes an iteration's share of that. Transposed, it is one product for the weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr, Literal, Var, bind, jaxpr_as_fun
from tf2jax_lite.jaxprs.walk import size

__all__ = ["scan"]

_MOST_ROWS = 128  # of an iteration's product: with more, the weights' gradient is a product like any other
_MOST_VALUES = 1 << 26  # of a product's results in all iterations: 256 MiB in float32


def scan(body: Jaxpr, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any], trips: int) -> list[Any]:
    """Runs ``lax.scan``.

    Args:
      body: takes what is the same in all iterations, what is carried, and an iteration's inputs; returns what is
        carried on, and what else comes out.
      consts: what is the same in all iterations.
      carry: what the first iteration takes.
      xs: arrays with an entry for each iteration along the first axis.
      trips: how many iterations there are.

    Returns:
      What the last iteration carries on, and what else came out of all of them.
    """
    counts = [len(consts), len(carry)]
    products = [] if body.effects else _products(body, len(consts), trips)
    if not products:
        return _run(body, trips, consts, carry, xs)

    @jax.custom_jvp
    def run(*args: Any) -> list[Any]:
        return _run(body, trips, *_parted(args, counts))

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        moving = [i for i, t in enumerate(tangents) if type(t) is not SymbolicZero and t.dtype != jax.dtypes.float0]
        taken = [(eqn, i) for eqn, i in products if body.invars.index(eqn.invars[i]) in moving]
        elsewhere = _used_elsewhere(body, taken)
        moving = [i for i in moving if body.invars[i] in elsewhere]
        fixed = [primals[body.invars.index(eqn.invars[i])] for eqn, i in taken]
        turned = [_other_way(eqn, i, weights) for (eqn, i), weights in zip(taken, fixed, strict=True)]

        def primal(values: Sequence[Any], slots: Any) -> tuple[list[Any], Any]:
            args = list(primals)
            for i, value in zip(moving, values, strict=True):
                args[i] = value
            consts, carry, xs = _parted(args, counts)

            def step(carry: Any, x: Any) -> tuple[list[Any], tuple[list[Any], list[Any]]]:
                inputs, of_products = x
                args = [*consts, *carry, *inputs]
                results, factors = _evaluated(body, args, taken, fixed, turned, of_products)
                return results[: len(carry)], (results[len(carry) :], factors)

            end, (rows, factors) = lax.scan(step, carry, (xs, slots), trips)
            end = [*end, *rows]
            return [v for v in end if jnp.issubdtype(v.dtype, jnp.inexact)], (end, factors)

        shapes = [(trips, *eqn.outvars[0].aval.shape) for eqn, _ in taken]
        slots = [jnp.zeros(s, eqn.outvars[0].aval.dtype) for (eqn, _), s in zip(taken, shapes, strict=True)]
        _, linear, (end, factors) = jax.linearize(primal, [primals[i] for i in moving], slots, has_aux=True)
        shares = [
            _for_all(eqn, i, factor, tangents[body.invars.index(eqn.invars[i])])
            for (eqn, i), factor in zip(taken, factors, strict=True)
        ]
        found = iter(linear([tangents[i] for i in moving], shares))
        zeros = [np.zeros(v.shape, jax.dtypes.float0) for v in end]
        return end, [
            next(found) if jnp.issubdtype(v.dtype, jnp.inexact) else z for v, z in zip(end, zeros, strict=True)
        ]

    run.defjvp(rule, symbolic_zeros=True)
    return run(*consts, *carry, *xs)


def _run(body: Jaxpr, trips: int, consts: Sequence[Any], carry: Any, xs: Any) -> list[Any]:
    fn = jaxpr_as_fun(ClosedJaxpr(body, ()))

    def step(now: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        results = fn(*consts, *now, *x)
        return results[: len(now)], results[len(now) :]

    end, rows = lax.scan(step, list(carry), list(xs), trips)
    return [*end, *rows]


def _parted(args: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    places = [0, *itertools.accumulate(counts), len(args)]
    return [list(args[a:b]) for a, b in itertools.pairwise(places)]


def _products(body: Jaxpr, count: int, trips: int) -> list[tuple[Any, int]]:
    """Returns the products of something of an iteration with weights, and the weights' place among the operands."""
    weights, found = {v for v in body.invars[:count] if jnp.issubdtype(v.aval.dtype, jnp.inexact)}, []
    for eqn in body.eqns:
        if eqn.primitive is not lax.dot_general_p or any(eqn.params["dimension_numbers"][1]):
            continue
        places = [i for i, v in enumerate(eqn.invars) if isinstance(v, Var) and v in weights]
        if len(places) != 1 or size(eqn.outvars[0], trips) > _MOST_VALUES:
            continue
        (place,) = places
        other = eqn.invars[1 - place].aval
        contract = eqn.params["dimension_numbers"][0][1 - place]
        rows = np.prod([n for d, n in enumerate(other.shape) if d not in contract], dtype=int)
        if rows <= _MOST_ROWS:
            found.append((eqn, place))
    return found


def _used_elsewhere(body: Jaxpr, taken: Sequence[tuple[Any, int]]) -> set[Any]:
    """Returns what equations read other than as the weights of the products."""
    places = {id(eqn): i for eqn, i in taken}
    used = {v for eqn in body.eqns for i, v in enumerate(eqn.invars) if places.get(id(eqn)) != i and isinstance(v, Var)}
    return used | {v for v in body.outvars if isinstance(v, Var)}


@jax.custom_jvp
def _with_share(value: Any, slot: Any) -> Any:
    """Returns ``value``, with the tangents of ``slot`` added to its own."""
    return value


@_with_share.defjvp
def _with_share_jvp(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[0] + tangents[1]


def _other_way(eqn: Any, place: int, weights: Any) -> tuple[dict[str, Any], Any]:
    """Returns a product's parameters for weights whose summed dimensions come last, and those weights.

    Of few rows the product by which the gradient comes back is the faster one with them: it sums over the first.
    """
    contract, batch = eqn.params["dimension_numbers"]
    kept = [d for d in range(weights.ndim) if d not in contract[place]]
    last = tuple(range(len(kept), weights.ndim))
    summed = (contract[0], last) if place else (last, contract[1])
    return {**eqn.params, "dimension_numbers": (summed, batch)}, jnp.transpose(weights, (*kept, *contract[place]))


def _product(eqn: Any, place: int, params: dict[str, Any], turned: Any, weights: Any, factor: Any) -> Any:
    """Returns a product, whose tangents by ``factor`` are made with the turned weights."""

    def ordered(a: Any, b: Any) -> tuple[Any, Any]:
        return (a, b) if place else (b, a)

    @jax.custom_jvp
    def product(factor: Any, weights: Any, turned: Any) -> Any:
        return bind(eqn, *ordered(factor, weights))[0]

    def rule(primals: Any, tangents: Any) -> Any:
        factor, weights, turned = primals
        by_factor, by_weights, _ = tangents
        result = product(factor, weights, turned)
        tangent = jnp.zeros_like(result)
        if type(by_factor) is not SymbolicZero:
            tangent = lax.dot_general_p.bind(*ordered(by_factor, turned), **params)
        if type(by_weights) is not SymbolicZero:  # where this is differentiated again
            tangent = tangent + bind(eqn, *ordered(factor, by_weights))[0]
        return result, tangent

    product.defjvp(rule, symbolic_zeros=True)
    return product(factor, weights, turned)


def _evaluated(
    body: Jaxpr,
    args: Sequence[Any],
    taken: Sequence[tuple[Any, int]],
    fixed: Sequence[Any],
    turned: Sequence[tuple[dict[str, Any], Any]],
    slots: Sequence[Any],
) -> tuple[list[Any], list[Any]]:
    """Runs an iteration with weights that have no tangents in the products.

    Returns:
      Its results, and what the products multiply the weights with.
    """
    env, factors = dict(zip(body.invars, args, strict=True)), []
    places = {id(eqn): n for n, (eqn, _) in enumerate(taken)}

    def read(v: Any) -> Any:
        return v.val if isinstance(v, Literal) else env[v]

    for eqn in body.eqns:
        values, number = [read(v) for v in eqn.invars], places.get(id(eqn))
        if number is None:
            env.update(zip(eqn.outvars, bind(eqn, *values), strict=True))
            continue
        place = taken[number][1]
        factors.append(values[1 - place])
        result = _product(eqn, place, *turned[number], fixed[number], values[1 - place])
        env[eqn.outvars[0]] = _with_share(result, slots[number])
    return [read(v) for v in body.outvars], factors


def _for_all(eqn: Any, place: int, factor: Any, weights: Any) -> Any:
    """Returns a product of all iterations' factors with the same weights."""
    operands, axes = [factor, weights] if place else [weights, factor], (0, None) if place else (None, 0)
    return jax.vmap(lambda *a: bind(eqn, *a)[0], in_axes=axes)(*operands)
