"""Fixed-point rescaling of int32 by a float factor.

It uses 32-bit integers, so that JAX's 64-bit mode is not needed.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value


def multiplier(*scales: Any, over: Any) -> tuple[Any, Any]:
    """Return a quotient of scales as a 31-bit fraction and a power of two.

    The dividend is the product of ``scales``. Static scales are computed in float64, others in the widest float dtype
    that JAX has.

    Args:
      *scales: float32 arrays that broadcast.
      over: the divisor, float32.

    Returns:
      int32 fraction and int32 exponent, as QuantizeMultiplier of uniform_quant_ops/math_utils.h.
    """
    values = [static_value(s) for s in (*scales, over)]
    for value in values:
        if value is not None and not (value > 0).all():
            raise OpError(f"scales must be all positive, got {value}")
    if all(value is not None for value in values):
        xp, doubles = np, [np.asarray(v, np.float64) for v in values]
    else:
        xp, doubles = jnp, [jnp.asarray(s).astype(canonical(np.float64)) for s in (*scales, over)]
    *factors, divisor = doubles
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    fraction, shift = xp.frexp(product / divisor)  # pyright: ignore
    fixed = xp.floor(fraction * 2.0**31 + 0.5)
    overflows = fixed >= 2**31
    shift = (shift + overflows).astype(np.int32)
    fixed = xp.where(overflows, 2**30, fixed).astype(np.int32)
    small, large = shift < -31, shift > 30
    fixed = xp.where(small, 0, xp.where(large, 2**31 - 1, fixed))
    return fixed.astype(np.int32), xp.where(small, 0, xp.minimum(shift, 30)).astype(np.int32)


def _product(x: Any, factor: Any) -> tuple[Any, Any]:
    """Return the 64-bit product of a signed and a nonnegative 32-bit integer.

    The result is its high and its low word.
    """
    low_half, sixteen = np.uint32(0xFFFF), np.int32(16)
    unsigned = (lax.bitcast_convert_type(v, np.uint32) for v in (x, factor))
    x0, f0 = (v & low_half for v in unsigned)
    x1, f1 = (lax.shift_right_arithmetic(v, jnp.broadcast_to(sixteen, v.shape)) for v in (x, factor))
    lowest = x0 * f0
    # None of these sums overflows 32 bits.
    inner = x1 * f0.astype(np.int32) + (lowest >> 16).astype(np.int32)
    middle = x0 * f1.astype(np.uint32) + (lax.bitcast_convert_type(inner, np.uint32) & low_half)
    high = x1 * f1 + (inner >> 16) + (middle >> 16).astype(np.int32)
    return high, (middle << 16) | (lowest & low_half)


def rescaled(x: Any, factor: Any, shift: Any) -> Any:
    """Return ``x * factor * 2**(shift - 31)`` as int32.

    Halves are rounded up; overflow saturates.
    """
    x, factor, shift = jnp.broadcast_arrays(*(jnp.asarray(v, np.int32) for v in (x, factor, shift)))
    high, low = _product(x, factor)
    right = 31 - shift
    beyond = right > 32
    # Half of the last place is added before the shift.
    half_low = jnp.where(beyond, np.uint32(0), np.uint32(1) << jnp.where(beyond, 0, right - 1).astype(np.uint32))
    half_high = jnp.where(beyond, np.int32(1) << jnp.where(beyond, right - 33, 0), 0)
    total = low + half_low
    high = high + half_high + (total < low).astype(np.int32)
    # A shift by a word or more uses the high word only.
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
