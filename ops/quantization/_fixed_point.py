"""Rescaling of 32-bit integers by a factor in fixed point, with no integer wider than JAX has without x64."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

__all__ = ["multiplier", "rescaled"]


def multiplier(*scales: Any, over: Any) -> tuple[Any, Any]:
    """Returns the product of scales over another one as a 31-bit fraction and a power of two.

    Scales that are known are taken in float64, others in the widest float that JAX has.

    Raises:
      OpError: a scale is known and not positive.
    """
    values = [static_value(s) for s in (*scales, over)]
    for value in values:
        if value is not None and not (value > 0).all():
            raise OpError(f"scales must be all positive, got {value}")
    if all(value is not None for value in values):
        xp, wide = np, [np.asarray(v, np.float64) for v in values]
    else:
        xp, wide = jnp, [jnp.asarray(s).astype(canonical(np.float64)) for s in (*scales, over)]
    *factors, divisor = wide
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    fraction, shift = xp.frexp(product / divisor)  # pyright: ignore
    fixed = xp.floor(fraction * 2.0**31 + 0.5)
    whole = fixed >= 2**31
    shift = (shift + whole).astype(np.int32)
    fixed = xp.where(whole, 2**30, fixed).astype(np.int32)
    small, large = shift < -31, shift > 30
    fixed = xp.where(small, 0, xp.where(large, 2**31 - 1, fixed))
    return fixed.astype(np.int32), xp.where(small, 0, xp.minimum(shift, 30)).astype(np.int32)


def _product(x: Any, factor: Any) -> tuple[Any, Any]:
    """Returns the 64-bit product of a signed and a nonnegative 32-bit integer: high word, low word."""
    low_half, sixteen = np.uint32(0xFFFF), np.int32(16)
    unsigned = (lax.bitcast_convert_type(v, np.uint32) for v in (x, factor))
    x0, f0 = (v & low_half for v in unsigned)
    x1, f1 = (lax.shift_right_arithmetic(v, jnp.broadcast_to(sixteen, v.shape)) for v in (x, factor))
    lowest = x0 * f0
    # No sum of these leaves its 32 bits.
    inner = x1 * f0.astype(np.int32) + (lowest >> 16).astype(np.int32)
    middle = x0 * f1.astype(np.uint32) + (lax.bitcast_convert_type(inner, np.uint32) & low_half)
    high = x1 * f1 + (inner >> 16) + (middle >> 16).astype(np.int32)
    return high, (middle << 16) | (lowest & low_half)


def rescaled(x: Any, factor: Any, shift: Any) -> Any:
    """Returns x * factor * 2^(shift - 31), halves rounded up, as int32; what does not fit is clamped."""
    x, factor, shift = jnp.broadcast_arrays(*(jnp.asarray(v, np.int32) for v in (x, factor, shift)))
    high, low = _product(x, factor)
    right = 31 - shift
    wide = right > 32
    # Half of what is shifted out is added first.
    half_low = jnp.where(wide, np.uint32(0), np.uint32(1) << jnp.where(wide, 0, right - 1).astype(np.uint32))
    half_high = jnp.where(wide, np.int32(1) << jnp.where(wide, right - 33, 0), 0)
    total = low + half_low
    high = high + half_high + (total < low).astype(np.int32)
    # A shift by a word or more takes the high word alone.
    word = right >= 32
    inside = jnp.where(word, 1, right)
    signed = lax.bitcast_convert_type(
        (total >> inside.astype(np.uint32))
        | (lax.bitcast_convert_type(high, np.uint32) << (32 - inside).astype(np.uint32)),
        np.int32,
    )
    fits = (high >> inside) == (signed >> 31)
    limit = jnp.where(high < 0, np.int32(-(2**31)), np.int32(2**31 - 1))
    return jnp.where(word, high >> jnp.where(word, right - 32, 0), jnp.where(fits, signed, limit))
