"""Sums of 16-bit floats in float32; products and quotients rounded as written.

In 16 bits a sum of some thousand numbers stops growing.

XLA:CPU contracts a product and the sum after it to an FMA, folds the constants of a chain of sums, turns a division by
a constant into a product with its reciprocal, and reorders quotients of quotients. Where the result is rounded to an
integer next, as in quantization, a difference in the last bit becomes a whole step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def _is_half(dtype: Any) -> bool:
    return dtype.itemsize <= 2 and jnp.issubdtype(dtype, jnp.floating)


def upcast(x: Any) -> Any:
    """Return an array of 16-bit floats as float32, any other as it is."""
    return x.astype(np.float32) if _is_half(x.dtype) else x


def in_float32(fn: Callable[..., Any], *operands: Any) -> Any:
    """Compute in float32 if the first operand has 16-bit floats.

    Args:
      fn: takes the operands and returns an array or a pytree of arrays.
      *operands: arrays; all of them are converted if the first is.

    Returns:
      The results of ``fn``; those that are float32 by the conversion have the first operand's dtype.
    """
    dtype = operands[0].dtype
    if not _is_half(dtype):
        return fn(*operands)
    out = fn(*(lax.convert_element_type(v, np.float32) for v in operands))
    return jax.tree.map(lambda v: lax.convert_element_type(v, dtype) if v.dtype == np.float32 else v, out)


def total(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """Return the sum over axes in the dtype of ``x``, accumulated in float32 at least."""
    return in_float32(lambda v: jnp.sum(v, axis=axis, dtype=v.dtype), jnp.asarray(x))


def product(a: Any, b: Any) -> Any:
    """Return ``a * b``, rounded before anything is added to it."""
    return rounded(a * b)


def rounded(out: Any) -> Any:
    """Return floats opaque to the compiler, which does not fuse them then."""
    # LLVM proves that a small integer times a constant is neither NaN nor infinite, but has no bound for its size.
    large = jnp.asarray(jnp.finfo(out.dtype).max / 4, out.dtype)
    return jnp.where(jnp.abs(out) < large, out, jnp.where(out > 0, jnp.maximum(out, large), jnp.minimum(out, -large)))


def quotient(a: Any, b: Any) -> Any:
    """Return ``a / b`` by a division, also by a constant, rounded before the next op."""
    a = jnp.asarray(a)
    return rounded(a / jnp.where(a == a, jnp.asarray(b, a.dtype), a))
