"""Shifts, bitwise logic and bit counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import op
from tf2jax_lite.values.int64 import U32Pair, is_int64, to_32_bits, to_u32_pair


@op("LeftShift", int64="pair")
def left_shift(x, y):
    """Shift left; counts are clamped to the width.

    TF: core/kernels/cwise_op_left_shift.cc.

    Without 64-bit mode, uint64 and `Words` keep both words: keys of random generators are composed so.
    """
    is_64_bit = isinstance(x, U32Pair) or any(is_int64(v) and v.dtype == np.uint64 for v in (x, y))
    if is_64_bit and not jax.config.jax_enable_x64:
        return _shifted_words(jnp.asarray(to_u32_pair(x)), jnp.asarray(to_u32_pair(y)), getattr(x, "dtype", np.uint64))
    x, y = jnp.broadcast_arrays(jnp.asarray(to_32_bits(x)), jnp.asarray(to_32_bits(y)))
    return lax.shift_left(x, _clamped(y))


def _shifted_words(x: Any, y: Any, dtype: Any) -> U32Pair:
    low, high, count = x[..., 0], x[..., 1], y[..., 0]
    negative = lax.bitcast_convert_type(y[..., 1], np.int32) < 0
    count = jnp.where(
        negative, np.uint32(0), jnp.where(y[..., 1] > 0, np.uint32(63), jnp.minimum(count, np.uint32(63)))
    )
    low, high, count = jnp.broadcast_arrays(low, high, count)
    # XLA shifts by 32 and more give 0.
    carried = lax.shift_right_logical(low, np.uint32(32) - count) | lax.shift_left(low, count - np.uint32(32))
    words = jnp.stack([lax.shift_left(low, count), lax.shift_left(high, count) | carried], -1)
    return U32Pair(words, np.dtype(dtype if np.dtype(dtype).itemsize == 8 else np.uint64))


def _bitwise(name: str, summary: str, fn: Callable[..., Any]) -> None:
    def run(x, y):
        dtypes = [v.dtype for v in (x, y) if isinstance(v, U32Pair)]
        if dtypes:
            return U32Pair(fn(jnp.asarray(to_u32_pair(x)), jnp.asarray(to_u32_pair(y))), dtypes[0])
        return fn(jnp.asarray(x), jnp.asarray(y))

    run.__doc__ = f"Return the bitwise {summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, int64="pair")(run)


_bitwise("BitwiseAnd", "and", jnp.bitwise_and)
_bitwise("BitwiseOr", "or", jnp.bitwise_or)
_bitwise("BitwiseXor", "exclusive or", jnp.bitwise_xor)


@op("RightShift")
def right_shift(x, y):
    """Shift right, with the sign; counts are clamped to the width."""
    x, y = jnp.broadcast_arrays(jnp.asarray(x), jnp.asarray(y))
    signed = jnp.issubdtype(x.dtype, jnp.signedinteger)
    return (lax.shift_right_arithmetic if signed else lax.shift_right_logical)(x, _clamped(y))


def _clamped(y: Any) -> Any:
    bits = np.dtype(y.dtype).itemsize * 8
    return jnp.clip(y, 0, bits - 1).astype(y.dtype)


@op("PopulationCount")
def population_count(x):
    """Return the number of set bits, uint8."""
    return lax.population_count(jnp.asarray(x)).astype(np.uint8)


@op("Invert")
def invert(x):
    """Invert all bits."""
    return lax.bitwise_not(jnp.asarray(x))
