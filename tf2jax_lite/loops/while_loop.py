"""``lax.while_loop`` with its operands as residuals of an identity primitive.

The operands suffice to recompute the loop, so the derivative rules in `derivatives` hang on that primitive. Without
differentiation it lowers to nothing.
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

WITH_RESIDUALS = "while_residuals"
"""The primitive's name. Its operands are results of a loop and the loop's operands; it returns the results.

Parameters: ``loop``, its functions; ``results``, the indices of the results among the carried arrays; ``max_trips``, an
upper bound of its trip count, or None.
"""

LOOP_START = "loop_start"
"""The name of an identity on a loop's operands, without derivatives."""

_start = Primitive(LOOP_START)
with_residuals_p = Primitive(WITH_RESIDUALS)


def while_loop(
    test: Any, step: Any, start: Any, max_trips: int | None = None, end: Sequence[Any] | None = None
) -> tuple[Any, bool]:
    """Run a loop that has derivatives of both modes; see ``jax.lax.while_loop``.

    Args:
      start: the initial carry, a pytree of arrays.
      max_trips: an upper bound of the trip count; None if unknown.
      end: the leaves of the last carry, if they are computed already and only derivatives are needed.

    Returns:
      The last carry, and whether reverse mode is supported: not if iterations have effects, which would be repeated.
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
        # The trip count may differ between devices of a mesh, and the whole carry with it.
        leaves = [varying_along(v, axes) for v in leaves]
        closed = jax.make_jaxpr(run)(*leaves)
    differentiable = True

    def rule(eqn: Any, operands: list[Any]) -> list[Any] | None:
        nonlocal differentiable
        if eqn.primitive.name != "while":
            return None
        if not eqn.effects:
            return _with_residuals(eqn, operands, max_trips, end)
        differentiable = False
        return list(end) if end else None

    return tree.unflatten(evaluate(closed, leaves, rule)), differentiable


def _with_residuals(eqn: Any, operands: Sequence[Any], max_trips: int | None, end: Sequence[Any] | None) -> list[Any]:
    """Run a loop, and pass its results through the primitive."""
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
        passed = with_residuals_p.bind(*given, *args, loop=loop, results=tuple(results), max_trips=max_trips)
        for k, value in zip(results, passed, strict=True):
            found[k] = value
    return found


def zero(like: Any) -> Any:
    """Return the zero tangent of an array or an abstract value."""
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


def batch_first(args: Sequence[Any], dims: Sequence[Any]) -> tuple[int, list[Any], list[bool]]:
    """Return the batch size, operands with batch axis first, and who is batched."""
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True)]
    return size, moved, [d is not None for d in dims]


def repeat(value: Any, size: int) -> Any:
    """Return a value repeated along a new batch axis, the first."""
    return lax.broadcast(value, (size,))


def _with_residuals_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results = params["loop"], params["results"]
    size, args, mapped = batch_first(args, dims)
    count = len(results)
    differ = {p for p, m in enumerate(mapped[count:]) if m}
    differ |= {loop.constants + k for k, m in zip(results, mapped, strict=False) if m}
    new = batched(loop, size, differ)
    given = [args[j] if mapped[j] or not new.carried[k] else repeat(args[j], size) for j, k in enumerate(results)]
    operands = new.operands(args[count:], mapped[count:])
    out = with_residuals_p.bind(*given, *operands, **{**params, "loop": new})
    return out, [0 if new.carried[k] else None for k in results]


register(
    with_residuals_p,
    multiple_results=True,
    impl=lambda *xs, results, **_: list(xs[: len(results)]),
    abstract=lambda *xs, results, **_: list(xs[: len(results)]),
    batch=_with_residuals_batch,
    lowering=lambda ctx, *xs, results, **_: list(xs[: len(results)]),
)
