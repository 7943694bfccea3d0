"""Calls that XLA compiles as functions of their own, instead of inlining them.

XLA inlines a called function, and then fuses each operation into its users. The operands of two results are computed
twice then: a convolution lowered as sums of products, say, that a layer normalization uses for its mean and again for
its result. A call that is marked as not inlineable is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tf2jax_lite.jaxprs.compat import Primitive, core_call_lowering, register

from .materialize import lower_materialize, mark_noinline
from .selection import Rule


def outline(fn: Callable[..., Any], *args: Any) -> Any:
    """Return ``fn(*args)`` by a call that XLA does not inline, for lowerings.

    It has no derivative.

    Args:
      fn: a function of arrays that returns one array.
      *args: arrays.
    """
    (result,) = _outline_p.bind(*args, jaxpr=jax.make_jaxpr(fn)(*args))
    return result


def _lower(ctx: Any, *args: Any, jaxpr: Any) -> Any:
    # JAX inlines a call that takes sizes or the platform's index once those are known: then its operands and its
    # result are materialized, at least.
    is_inlined_later = bool(ctx.dim_var_values)
    if is_inlined_later:
        args = tuple(lower_materialize(ctx, arg)[0] for arg in args)
    results = core_call_lowering(ctx, *args, name="outline", call_jaxpr=jaxpr)
    (value,) = jax.tree.leaves(results)
    mark_noinline(value.owner)
    return lower_materialize(ctx, value) if is_inlined_later else results


_outline_p = Primitive("outline")
register(_outline_p, multiple_results=True, abstract=lambda *_, jaxpr: jaxpr.out_avals, lowering=_lower)

RULES = (
    Rule(
        "outline",
        applies=lambda fn, *args: True,
        lower=outline,
        reason="XLA computes a long sum of products once for each user. Holds for rules marked with outline=True.",
    ),
)
