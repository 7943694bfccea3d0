"""Calls that XLA compiles by themselves, in the place of putting what they do where they stand.

XLA puts a called function's operations among the caller's, and then fuses each into whatever uses it. What two results
are made of is computed twice then: a convolution written as sums of products, say, that a layer normalization uses for
its mean and again for its result. A call that is marked to stay one is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tf2jax_lite.jaxprs.compat import Primitive, core_call_lowering, register

from .materialize import call_marked, lower_once

__all__ = ["kept"]


def kept(fn: Callable[..., Any], *args: Any) -> Any:
    """Returns ``fn(*args)``, computed by a call that XLA does not take apart. For lowering rules: has no derivative.

    Args:
      fn: a function of arrays; it gives one array.
      *args: arrays.
    """
    (result,) = _kept.bind(*args, jaxpr=jax.make_jaxpr(fn)(*args))
    return result


def _lower(ctx: Any, *args: Any, jaxpr: Any) -> Any:
    # A call that takes sizes or the platform's index is put in place when those are known; what it takes and gives is
    # computed once nevertheless.
    late = bool(ctx.dim_var_values)
    if late:
        args = tuple(lower_once(ctx, arg)[0] for arg in args)
    results = core_call_lowering(ctx, *args, name="kept", call_jaxpr=jaxpr)
    (value,) = jax.tree.leaves(results)
    call_marked(value.owner)
    return lower_once(ctx, value) if late else results


_kept = Primitive("kept")
register(_kept, multiple_results=True, abstract=lambda *_, jaxpr: jaxpr.out_avals, lowering=_lower)
