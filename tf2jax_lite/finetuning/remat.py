"""Rematerialization of activations, block by block.

The backward pass computes them again, in place of storing all of them.

A model's jaxpr is cut into about as many blocks as the square root of its matrix products and convolutions, where
fewest bytes go from one block to the next: in a network of repeated blocks, between these. Source: Chen et al. 2016,
"Training Deep Nets with Sublinear Memory Cost".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from tf2jax_lite.jaxprs.compat import Var
from tf2jax_lite.jaxprs.evaluate import equations, evaluate, evaluate_equations, read
from tf2jax_lite.learning.model import Model
from tf2jax_lite.support.errors import InputError

_PRODUCTS = ("dot_general", "conv_general_dilated")


def rematerialized(model: Model) -> Model:
    """Return a model whose training mode stores only what goes from block to block.

    Raises:
      InputError: when traced: the model is one opaque operation.
    """
    apply_for_train = in_blocks(model.apply_for_train)
    apply_for_train.given = model.apply_for_train  # type: ignore[attr-defined]  # for error messages
    return dataclasses.replace(model, apply_for_train=apply_for_train)


def in_blocks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the same results, whose derivative stores less.

    It computes one block after another again.
    """

    def blocks(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        leaves = jax.tree.leaves(args)
        closed = jax.make_jaxpr(lambda *flat: evaluate(closed, flat, _inline))(*leaves)
        nested = (inner for eqn in closed.jaxpr.eqns for inner in equations(eqn))
        if any(eqn.primitive.name == "call_exported" for eqn in nested):
            raise InputError(
                "the StableHLO of an artifact is one operation, which has no blocks to rematerialize. Use "
                "backend='source', which runs the artifact's Python code."
            )
        return jax.tree.unflatten(jax.tree.structure(shapes), _run(closed, leaves))

    return blocks


def _inline(eqn: Any, operands: list[Any]) -> list[Any] | None:
    """Return the results of a jitted call, evaluated in place."""
    return evaluate(eqn.params["jaxpr"], operands, _inline) if eqn.primitive.name in ("jit", "pjit") else None


def _run(closed: Any, args: Sequence[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    env = dict(zip(jaxpr.constvars, closed.consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    cuts = [0, *cut_positions(jaxpr), len(jaxpr.eqns)]
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        eqns = jaxpr.eqns[begin:end]
        made = {v for eqn in eqns for v in eqn.outvars}
        later = [v for eqn in jaxpr.eqns[end:] for v in eqn.invars] + list(jaxpr.outvars)
        taken = list(dict.fromkeys(v for eqn in eqns for v in eqn.invars if isinstance(v, Var) and v not in made))
        given = list(dict.fromkeys(v for v in later if isinstance(v, Var) and v in made))

        def block(values: Any, eqns: Any = eqns, taken: Any = taken, given: Any = given) -> list[Any]:
            inner = dict(zip(taken, values, strict=True))
            evaluate_equations(eqns, inner)
            return read(given, inner)

        # The last block's backward pass begins at once: there is nothing to save.
        run = block if number == len(cuts) - 2 else jax.checkpoint(block)
        env.update(zip(given, run(read(taken, env)), strict=True))
    return read(jaxpr.outvars, env)


def cut_positions(jaxpr: Any) -> list[int]:
    """Return the equations at which blocks after the first begin."""
    products = [i for i, eqn in enumerate(jaxpr.eqns) if eqn.primitive.name in _PRODUCTS]
    count = round(math.sqrt(len(products)))
    if count < 2:
        return []
    live = _live_bytes(jaxpr)
    found: list[int] = []
    for block in range(1, count):
        # Between the products that are half a block before and after equal blocks.
        middle, half = block * len(products) / count, len(products) / count / 2
        first = products[max(0, math.ceil(middle - half) - 1)] + 1
        last = products[min(len(products) - 1, math.floor(middle + half))]
        first = max([first, *(cut + 1 for cut in found)])
        if first <= last:
            found.append(min(range(first, last + 1), key=lambda i: live[i]))
    return found


def _live_bytes(jaxpr: Any) -> list[float]:
    """Return for each equation the bytes of earlier results still to be read."""
    made = {v: i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.outvars}
    last: dict[Any, int] = {v: len(jaxpr.eqns) for v in jaxpr.outvars if isinstance(v, Var)}
    for i, eqn in enumerate(jaxpr.eqns):
        for v in eqn.invars:
            if isinstance(v, Var) and last.get(v, -1) < i:
                last[v] = i
    changes = [0.0] * (len(jaxpr.eqns) + 2)
    for v, begin in made.items():
        if v in last:
            nbytes = math.prod(v.aval.shape) * getattr(v.aval.dtype, "itemsize", 4)
            changes[begin + 1] += nbytes
            changes[last[v] + 1] -= nbytes
    return list(itertools.accumulate(changes))
