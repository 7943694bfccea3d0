"""Functions that are traced once for each set of shapes.

Their equations are inlined at each call, or shared.

JAX takes half a millisecond to trace a function with custom derivative rules (``jax.custom_jvp``) or a chain of
`jax.numpy` calls, and a tenth of that to find it in its cache. The jaxpr is the same, name scopes included.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax

from .compat import INLINE_WHEN_TRACED, is_traced

# Options with context managers that change traced or compiled programs.
_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_default_device",
    "jax_debug_nans",
    "jax_disable_jit",
)


def trace_settings() -> tuple[Any, ...]:
    """Return the values of JAX's options on which traced programs depend.

    They are part of the key of a cache of jaxprs or of compiled programs.
    """
    return tuple(getattr(jax.config, name, None) for name in _OPTIONS)


def inlined(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the values of ``fn`` that is cheaper to trace again.

    Args:
      fn: takes arrays (or pytrees of arrays) by position and hashable Python values by keyword, and returns arrays. The
        equations depend on shapes, dtypes and keywords alone.
    """
    return _traced_once(fn, inline=INLINE_WHEN_TRACED)


def shared(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn``'s values by a function that is cheaper to trace and lower.

    Each call is one equation, and a program has the called function once for each set of shapes: for long chains of
    equations without name scopes or derivatives of interest.
    """
    return _traced_once(fn, inline=False)


def _traced_once(fn: Callable[..., Any], *, inline: Any) -> Callable[..., Any]:
    parameters = inspect.signature(fn).parameters.values()
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    staged = jax.jit(fn, inline=inline, static_argnames=keywords)

    @functools.wraps(fn)
    def call(*args: Any, **attrs: Any) -> Any:
        # Outside a trace JAX runs operation by operation: a compilation does not pay for one call.
        if any(map(is_traced, jax.tree.leaves(args))):
            return staged(*args, **attrs)
        return fn(*args, **attrs)

    return call
