"""Sums, products and quotients that are rounded as written.

XLA on the CPU contracts a product and a sum that follows it into one rounding, adds up the constants of a chain of
sums first, divides by a constant by multiplying with its reciprocal, and reorders quotients of quotients. Where the
result is rounded to an integer next, a last bit more or less makes a whole step of difference.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

__all__ = ["product", "quotient", "rounded"]


def product(a: Any, b: Any) -> Any:
    """Returns a * b, rounded before anything is added to it."""
    return rounded(a * b)


def rounded(out: Any) -> Any:
    """Returns the result of an operation, rounded before another one follows."""
    # The identity, which no compiler sees: LLVM proves of small integers times a constant that they are no NaN and not
    # infinite, but not how large they are.
    large = jnp.asarray(jnp.finfo(out.dtype).max / 4, out.dtype)
    return jnp.where(jnp.abs(out) < large, out, jnp.where(out > 0, jnp.maximum(out, large), jnp.minimum(out, -large)))


def quotient(a: Any, b: Any) -> Any:
    """Returns a / b by a division, also where b is a constant, rounded before anything else is divided by it."""
    a = jnp.asarray(a)
    return rounded(a / jnp.where(a == a, jnp.asarray(b, a.dtype), a))
