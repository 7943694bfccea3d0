"""Products and quotients that XLA rounds as written.

XLA:CPU contracts a product and the sum after it to an FMA, folds the constants of a chain of sums, turns a division by
a constant into a product with its reciprocal, and reorders quotients of quotients. Where the result is rounded to an
integer next, as in quantization, a difference in the last bit becomes a whole step.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def product(a: Any, b: Any) -> Any:
    """Return ``a * b``, rounded before anything is added to it."""
    return rounded(a * b)


def rounded(out: Any) -> Any:
    """Return a result in a form that is not fused with the next operation.

    It is the identity on floats, opaque to the compiler.
    """
    # LLVM proves that a small integer times a constant is neither NaN nor infinite, but has no bound for its size.
    large = jnp.asarray(jnp.finfo(out.dtype).max / 4, out.dtype)
    return jnp.where(jnp.abs(out) < large, out, jnp.where(out > 0, jnp.maximum(out, large), jnp.minimum(out, -large)))


def quotient(a: Any, b: Any) -> Any:
    """Return ``a / b`` by a division, rounded before the next operation.

    It is a division also if ``b`` is constant.
    """
    a = jnp.asarray(a)
    return rounded(a / jnp.where(a == a, jnp.asarray(b, a.dtype), a))
