"""Products and quotients that are rounded as written.

XLA on the CPU contracts a product and a sum that follows it into one rounding, and divides by a constant by multiplying
with its reciprocal. Where the result is rounded to an integer next, a last bit more or less makes a whole step of
difference.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

__all__ = ["product", "quotient"]


def product(a: Any, b: Any) -> Any:
    """Returns a * b, rounded before anything is added to it."""
    out = a * b
    # The identity, which no compiler sees.
    return jnp.where(out == out, out, jnp.full_like(out, jnp.nan))


def quotient(a: Any, b: Any) -> Any:
    """Returns a / b by a division, also where b is a constant."""
    a = jnp.asarray(a)
    return a / jnp.where(a == a, jnp.asarray(b, a.dtype), a)
