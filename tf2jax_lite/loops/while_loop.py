"""``lax.while_loop`` whose results go through an identity that has the loop's operands at its side.

What a loop starts with is enough to compute all of it again, so the operands are what its derivatives are made of
(`data_ended`, which gives the identity its derivatives). Nothing is computed differently where none is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import AbstractValue, Primitive, Zero, bind, register
from tf2jax_lite.jaxprs.evaluate import evaluate
from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along

from .functions import Traced, batched

__all__ = ["MARK", "in_front", "mark", "spread", "while_loop", "zero"]

MARK = "data_ended"
"""The primitive's name. Its operands are results of a loop, and the loop's operands; it gives the former back.

Parameters: ``loop``, its functions; ``results``, which of the carried arrays the results are; ``most``, how often it
runs at most, or None.
"""

_start = Primitive("loop_start")
mark = Primitive(MARK)


def while_loop(
    test: Any, step: Any, start: Any, most: int | None = None, end: Sequence[Any] | None = None
) -> tuple[Any, bool]:
    """Runs a loop; see ``jax.lax.while_loop``.

    Args:
      test: whether there is another iteration, given what is carried.
      step: what an iteration makes of it.
      start: a pytree of arrays.
      most: how many iterations there are at most; None if nothing says.
      end: the leaves of what is carried at the end, where that is there already, but for derivatives.

    Returns:
      What is carried at the end, and whether gradients go backwards through it: not if iterations have effects, which
      would be had again.

    Raises:
      TypeError: of JAX; what is carried changes its shape or dtype.
    """
    leaves, tree = jax.tree.flatten(start)

    axes = frozenset[str]()

    def iterate(state: Any) -> Any:
        return jax.tree.map(lambda v: varying_along(v, axes), step(state)) if axes else step(state)

    def run(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(lax.while_loop(test, iterate, tree.unflatten(leaves)))

    closed = jax.make_jaxpr(run)(*leaves)
    axes = frozenset[str]().union(*(axes_of(v.aval) for eqn in closed.jaxpr.eqns for v in eqn.invars))
    if axes and end is None:
        # On each device of a mesh the loop may run another number of times, and all that is carried differ.
        leaves = [varying_along(v, axes) for v in leaves]
        closed = jax.make_jaxpr(run)(*leaves)
    differentiable = True

    def rule(eqn: Any, operands: list[Any]) -> list[Any] | None:
        nonlocal differentiable
        if eqn.primitive.name != "while":
            return None
        if not eqn.effects:
            return _marked(eqn, operands, most, end)
        differentiable = False
        return list(end) if end else None

    return tree.unflatten(evaluate(closed, leaves, rule)), differentiable


def _marked(eqn: Any, operands: Sequence[Any], most: int | None, end: Sequence[Any] | None) -> list[Any]:
    """Runs a loop so that it has derivatives."""
    params = eqn.params
    counts = (params["cond_nconsts"], params["body_nconsts"])
    loop = Traced(params["cond_jaxpr"], params["body_jaxpr"], counts)
    results = [k for k, inexact in enumerate(loop.inexact) if inexact]
    moving = [i for i, v in enumerate(operands) if jnp.issubdtype(jnp.result_type(v), jnp.inexact)]
    args = list(map(jnp.asarray, operands))
    still = list(args)
    if results and moving:
        for i, value in zip(moving, _start.bind(*(args[i] for i in moving)), strict=True):
            still[i] = value
    found = list(end or bind(eqn, *still))
    if results and moving:
        given = [found[k] for k in results]
        marked = mark.bind(*given, *args, loop=loop, results=tuple(results), most=most)
        for k, value in zip(results, marked, strict=True):
            found[k] = value
    return found


def zero(like: Any) -> Any:
    """Returns the zero tangent of an array, or of one of an abstract value."""
    aval = like if isinstance(like, AbstractValue) else jax.typeof(like)
    return Zero(aval.to_tangent_aval())


# ---- an identity without derivatives ----

register(
    _start,
    multiple_results=True,
    impl=lambda *xs: list(xs),
    abstract=lambda *xs: list(xs),
    jvp=lambda xs, _: (_start.bind(*xs), list(map(zero, xs))),
    batch=lambda xs, dims: (_start.bind(*xs), dims),
    lowering=lambda ctx, *xs: list(xs),
)


# ---- the identity on results ----


def in_front(args: Sequence[Any], dims: Sequence[Any]) -> tuple[int, list[Any], list[bool]]:
    """Returns the size of the batch, operands with it in front, and which have it."""
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True)]
    return size, moved, [d is not None for d in dims]


def spread(value: Any, size: int) -> Any:
    """Returns a value, as often as a batch is large, along a new first axis."""
    return lax.broadcast(value, (size,))


def _mark_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results = params["loop"], params["results"]
    size, args, mapped = in_front(args, dims)
    count = len(results)
    differ = {p for p, m in enumerate(mapped[count:]) if m}
    differ |= {loop.constants + k for k, m in zip(results, mapped, strict=False) if m}
    new = batched(loop, size, differ)
    given = [args[j] if mapped[j] or not new.carried[k] else spread(args[j], size) for j, k in enumerate(results)]
    operands = new.operands(args[count:], mapped[count:])
    out = mark.bind(*given, *operands, **{**params, "loop": new})
    return out, [0 if new.carried[k] else None for k in results]


register(
    mark,
    multiple_results=True,
    impl=lambda *xs, results, **_: list(xs[: len(results)]),
    abstract=lambda *xs, results, **_: list(xs[: len(results)]),
    batch=_mark_batch,
    lowering=lambda ctx, *xs, results, **_: list(xs[: len(results)]),
)
