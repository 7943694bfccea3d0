"""`jax.lax`'s loops, inside ``jax.shard_map``, too.

There what a loop carries keeps its type, and with it the axes of the mesh that it varies along. What starts as zeros,
equal on all devices, starts as what the first iteration makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.shard_map import axes_of, in_mesh, varying_along

__all__ = ["fori_loop", "scan", "while_loop"]


def scan(body: Callable[[Any, Any], tuple[Any, Any]], start: Any, xs: Any = None, **options: Any) -> tuple[Any, Any]:
    """`jax.lax.scan`."""
    if in_mesh():

        def step(carry: Any, xs: Any) -> Any:
            one = jax.tree.map(lambda x: varying_along(jnp.zeros(x.shape[1:], x.dtype), axes_of(x)), xs)
            return body(carry, one)[0]

        start = _settled(lambda carry: step(carry, xs), start)
    return lax.scan(body, start, xs, **options)


def while_loop(test: Callable[[Any], Any], body: Callable[[Any], Any], start: Any) -> Any:
    """`jax.lax.while_loop`. Where devices run different numbers of iterations, all that is carried differs."""
    if in_mesh():

        def step(carry: Any) -> Any:
            going = axes_of(test(carry))
            return jax.tree.map(lambda v: varying_along(v, going), body(carry))

        start = _settled(step, start)
        kept = jax.tree.map(axes_of, start)
        return lax.while_loop(test, lambda carry: jax.tree.map(varying_along, body(carry), kept), start)
    return lax.while_loop(test, body, start)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], start: Any) -> Any:
    """`jax.lax.fori_loop`. Its bounds are the same on all devices."""
    if in_mesh():
        start = _settled(lambda carry: body(jnp.asarray(lower, jnp.int32), carry), start)
    return lax.fori_loop(lower, upper, body, start)


def _settled(step: Callable[[Any], Any], start: Any) -> Any:
    """Returns what is carried at first, varying along all axes that it varies along after any number of steps."""
    leaves, tree = jax.tree.flatten(start)
    leaves = list(map(jnp.asarray, leaves))
    for _ in range(len(leaves) + 1):  # each time one of them at least varies along more
        found = jax.make_jaxpr(lambda *now: step(tree.unflatten(now)))(*leaves).out_avals
        if all(axes_of(a) <= axes_of(v) for a, v in zip(found, leaves, strict=True)):
            break
        leaves = [varying_along(v, axes_of(a)) for v, a in zip(leaves, found, strict=True)]
    return tree.unflatten(leaves)
