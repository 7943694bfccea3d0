"""Special functions: CHLO ops, which also come as composites of that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .core import OpContext, rule

__all__: list[str] = []


def _define(name: str, fn: Callable[..., Any]) -> None:
    @rule(f"chlo.{name}")
    def _(ctx: OpContext, *args: Any) -> Any:
        return fn(*args)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "bessel_i1e": lax.bessel_i1e,
    "conj": lax.conj,
    "cosh": lax.cosh,
    "digamma": lax.digamma,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "is_inf": jnp.isinf,
    "is_neg_inf": jnp.isneginf,
    "is_pos_inf": jnp.isposinf,
    "lgamma": lax.lgamma,
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "sinh": lax.sinh,
    "square": lax.square,
    "tan": lax.tan,
    "zeta": lax.zeta,
    "broadcast_add": jnp.add,
    "broadcast_subtract": jnp.subtract,
    "broadcast_multiply": jnp.multiply,
    "broadcast_maximum": jnp.maximum,
    "broadcast_minimum": jnp.minimum,
    "broadcast_power": jnp.power,
    "broadcast_and": jnp.bitwise_and,
    "broadcast_or": jnp.bitwise_or,
    "broadcast_xor": jnp.bitwise_xor,
    "broadcast_select": jnp.where,
}

if hasattr(lax, "mulhi"):  # jax 0.9 has none, and its modules have no such op
    # Not by its decomposition, which widens to 64 bits: without 64-bit mode those are 32.
    _FUNCTIONS["mulhi"] = lax.mulhi

for _name, _fn in _FUNCTIONS.items():
    _define(_name, _fn)


@rule("chlo.constant")
def _constant(ctx: OpContext) -> Any:
    return ctx.attr("value")


@rule("chlo.top_k")
def _top_k(ctx: OpContext, x: Any) -> Any:
    k = ctx.attr("k")
    if k is None:
        k = ctx.attr("composite_attributes", {}).get("k")
    return lax.top_k(x, int(np.asarray(k)))
