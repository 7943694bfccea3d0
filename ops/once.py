"""Values that XLA is to compute once, although several operations use them.

XLA's CPU backend puts cheap operations into each of their users, and takes an operation with one large operand for
cheap whatever that operand is made of. In a residual network each block's sum ends in such an operation (a rectifier),
so that every block adds up all the blocks before it anew, in code of its own. A mark on the sum ends this: the sum is
written to memory once, where a convolution or a product would have it anyway.

On CPU a mark is a call that gives its argument back; XLA neither looks through it nor copies anything. Elsewhere it is
nothing at all. Its derivative is linear, and cotangents are marked as values are: what all the users of a value send
back is summed once, too.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from .kept import call

__all__ = ["once", "once_if_traced"]


def once(value: Any) -> Any:
    """Returns an array unchanged, to be computed once on CPU.

    Args:
      value: an array of any shape and floating or complex dtype.
    """
    return _once.bind(value)


def once_if_traced(value: Any) -> Any:
    """Returns what `once` does for an array that is traced, and anything else as it is."""
    if not isinstance(value, jax.core.Tracer) or not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    return once(value)


def _called(ctx: Any, value: Any) -> Any:
    (aval,) = ctx.avals_in
    return call(
        ctx,
        value,
        jaxpr=_trace_once(aval) if all(isinstance(n, int) for n in aval.shape) else _trace(aval),
        name="once",
    )


def _trace(aval: Any) -> jex.ClosedJaxpr:
    return jax.make_jaxpr(lambda x: x)(aval)


_trace_once = functools.lru_cache(maxsize=1024)(_trace)  # one function in a program for all values of a form


_once = jex.Primitive("once")
_once.def_impl(lambda x: x)
_once.def_abstract_eval(lambda x: x)
ad.deflinear(_once, lambda cotangent: [once(cotangent)])
batching.defvectorized(_once)
mlir.register_lowering(_once, lambda ctx, x: [x])
mlir.register_lowering(_once, _called, platform="cpu")
