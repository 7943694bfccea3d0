"""Functions traced once for each set of shapes, their equations put in wherever they are called, or shared.

Tracing a function with derivative rules of its own (``jax.custom_jvp``) or a chain of `jax.numpy` calls takes JAX half
a millisecond; finding what was traced before takes a tenth of that. The jaxpr is the same, name scopes included.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax

from .compat import INLINE_WHEN_TRACED, is_traced

__all__ = ["inlined", "shared"]


def inlined(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that does what ``fn`` does, and costs less to trace again.

    Args:
      fn: takes arrays (or pytrees of arrays) by position and hashable Python values by keyword, and gives arrays. What
        it does depends on shapes, dtypes and the keywords alone.
    """
    return _traced_once(fn, inline=INLINE_WHEN_TRACED)


def shared(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that does what ``fn`` does, and costs less to trace and to lower again.

    Each call is one equation, and what it calls is in a program once for each set of shapes: for long chains of
    equations without a scope or a derivative of interest.

    Args:
      fn: as `inlined` takes it.
    """
    return _traced_once(fn, inline=False)


def _traced_once(fn: Callable[..., Any], *, inline: Any) -> Callable[..., Any]:
    parameters = inspect.signature(fn).parameters.values()
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    staged = jax.jit(fn, inline=inline, static_argnames=keywords)

    @functools.wraps(fn)
    def call(*args: Any, **attrs: Any) -> Any:
        # Outside of a trace JAX runs operation by operation: nothing is to be compiled for one call.
        if any(map(is_traced, jax.tree.leaves(args))):
            return staged(*args, **attrs)
        return fn(*args, **attrs)

    return call
