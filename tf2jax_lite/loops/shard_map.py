"""`jax.lax`'s loops that also run inside ``jax.shard_map``.

There the carry has to keep its type, and with it the mesh axes that it varies along. A carry that starts as zeros,
equal on all devices, is given the axes of the body's result first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.shard_map import axes_of, in_mesh, varying_along


def scan(body: Callable[[Any, Any], tuple[Any, Any]], start: Any, xs: Any = None, **options: Any) -> tuple[Any, Any]:
    """Run `jax.lax.scan`."""
    if in_mesh():

        def step(carry: Any, xs: Any) -> Any:
            one = jax.tree.map(lambda x: varying_along(jnp.zeros(x.shape[1:], x.dtype), axes_of(x)), xs)
            return body(carry, one)[0]

        start = _with_final_axes(lambda carry: step(carry, xs), start)
    return lax.scan(body, start, xs, **options)


def while_loop(test: Callable[[Any], Any], body: Callable[[Any], Any], start: Any) -> Any:
    """Run `jax.lax.while_loop`; if devices' trips differ, all the carry varies."""
    if in_mesh():

        def step(carry: Any) -> Any:
            going = axes_of(test(carry))
            return jax.tree.map(lambda v: varying_along(v, going), body(carry))

        start = _with_final_axes(step, start)
        kept = jax.tree.map(axes_of, start)
        return lax.while_loop(test, lambda carry: jax.tree.map(varying_along, body(carry), kept), start)
    return lax.while_loop(test, body, start)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], start: Any) -> Any:
    """Run `jax.lax.fori_loop`. Its bounds are the same on all devices."""
    if in_mesh():
        start = _with_final_axes(lambda carry: body(jnp.asarray(lower, jnp.int32), carry), start)
    return lax.fori_loop(lower, upper, body, start)


def _with_final_axes(step: Callable[[Any], Any], start: Any) -> Any:
    """Return the initial carry, with the axes it varies along after any steps."""
    leaves, tree = jax.tree.flatten(start)
    leaves = list(map(jnp.asarray, leaves))
    for _ in range(len(leaves) + 1):  # at least one of them gains an axis each time
        found = jax.make_jaxpr(lambda *now: step(tree.unflatten(now)))(*leaves).out_avals
        if all(axes_of(a) <= axes_of(v) for a, v in zip(found, leaves, strict=True)):
            break
        leaves = [varying_along(v, axes_of(a)) for v, a in zip(leaves, found, strict=True)]
    return tree.unflatten(leaves)
