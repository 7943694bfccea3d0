"""Tensors of uniform, normal and integer numbers from Philox words, bit for bit TensorFlow's.

A number takes hundreds of operations, for which XLA knows no more than for a sum that they are not to be repeated in
each of its users: floats that are drawn are materialized.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import from_u32_pair, to_u32_pair
from tf2jax_lite.values.static import canonical, dims
from tf2jax_lite.xla_cpu.materialize import materialize

from ._samplers import box_muller, double_units, float_units
from ._samplers import truncated_normal as truncated_normal_numbers
from .philox import bits, block, side_by_side, skip

__all__ = [
    "check_algorithm",
    "full_int",
    "normal",
    "size",
    "state",
    "truncated_normal",
    "uniform",
    "uniform_int",
    "units",
]

_PHILOX, _AUTO = 1, 3


def check_algorithm(alg: Any) -> None:
    """Raises OpError unless an algorithm's number is Philox's, or asks for the device's own, which is Philox."""
    if int(alg) not in (_PHILOX, _AUTO):
        raise OpError(f"random algorithm {int(alg)} is not supported; use 'philox' or 'auto_select'")


def size(shape: Any, *, symbolic: bool = False) -> tuple[tuple[Any, ...], Any]:
    """Returns a static shape as a tuple, and how many elements it has.

    Args:
      shape: a vector of ints, or of symbolic dimensions.
      symbolic: whether symbolic dimensions can be handled.
    """
    wanted = dims(shape)
    if not symbolic and not all(isinstance(d, int) for d in wanted):
        raise OpError("TensorFlow's random bits need a shape known while tracing here, and this one is symbolic")
    return wanted, math.prod(wanted)


def state(key: Any, counter: Any) -> tuple[Any, Any]:
    """Returns the words of the key and counter inputs of an op."""
    return jnp.asarray(to_u32_pair(key)).reshape(-1), jnp.asarray(to_u32_pair(counter)).reshape(-1)


def units(words: Any, dtype: Any) -> Any:
    """Returns floats in [0, 1): the words' low bits as mantissa, minus one. A float64 takes a pair of words each."""
    if dtype == np.float64:
        return double_units(words[..., 0], words[..., 1])
    if dtype == np.float32:
        return float_units(words)
    small = words.astype(np.uint16)
    if dtype == np.float16:
        return lax.bitcast_convert_type((small & np.uint16(0x3FF)) | np.uint16(15 << 10), np.float16) - np.float16(1)
    value = lax.bitcast_convert_type((small & np.uint16(0x7F)) | np.uint16(127 << 7), ml_dtypes.bfloat16)
    return value - jnp.ones((), value.dtype)


def _numbers(words: Any, dtype: Any) -> Any:
    """Returns rows of four words as a vector, or as rows of two for a 64-bit dtype."""
    rows = words.shape[0]
    return words.reshape((2 * rows, 2) if _words_per(dtype) == 2 else (4 * rows,))


def _words_per(dtype: Any) -> int:
    return 2 if np.dtype(dtype).itemsize == 8 else 1


def uniform(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Returns numbers in [0, 1)."""
    wanted, count = size(shape, symbolic=True)
    # Without 64-bit mode a double is drawn as TensorFlow draws a float.
    narrow = canonical(dtype)
    return materialize(
        units(_numbers(bits(key, counter, count * _words_per(narrow)), narrow), narrow)[:count].reshape(wanted)
    )


def normal(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Returns standard normals, by Box and Muller."""
    wanted, count = size(shape, symbolic=True)
    dtype = canonical(dtype)

    def numbers(index: Any) -> tuple[Any, Any]:
        """Returns the two normals of each pair of uniform numbers."""
        if dtype == np.float64:
            words = block(skip(counter, index), (key[0], key[1]))
            return box_muller(double_units(*words[:2]), double_units(*words[2:]))
        words = block(skip(counter, index >> np.uint32(1)), (key[0], key[1]))
        second = (index & np.uint32(1)) != 0
        return box_muller(*(float_units(lax.select(second, words[i + 2], words[i])) for i in (0, 1)))

    return materialize(side_by_side(numbers, -(-count // 2), 2).reshape(-1)[:count].reshape(wanted).astype(dtype))


def truncated_normal(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Returns standard normals within two standard deviations."""
    wanted, count = size(shape)
    dtype = canonical(dtype)
    return truncated_normal_numbers(key, counter, count, dtype).reshape(wanted).astype(dtype)


def full_int(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Returns integers from all of a type's range."""
    wanted, count = size(shape, symbolic=True)
    words = _numbers(bits(key, counter, count * _words_per(dtype)), dtype)
    if _words_per(dtype) == 2:
        return from_u32_pair(words[:count].reshape((*wanted, 2)), dtype)
    return lax.bitcast_convert_type(words[:count], dtype).reshape(wanted)


def uniform_int(shape: Any, key: Any, counter: Any, minval: Any, maxval: Any, dtype: Any) -> Any:
    """Returns integers in [minval, maxval).

    TensorFlow's own numbers also where 64-bit ones are held in 32 bits, if the range has no more than those.
    """
    wide, dtype = np.dtype(dtype).itemsize == 8, canonical(dtype)
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    low, high = jnp.asarray(minval, dtype), jnp.asarray(maxval, dtype)
    span = high.astype(unsigned) - low.astype(unsigned)
    if wide and dtype.itemsize == 4:
        drawn = to_u32_pair(full_int(shape, key, counter, np.uint64))
        left = _remainder(drawn[..., 1], drawn[..., 0], jnp.broadcast_to(span, drawn.shape[:-1]))
        return (low.astype(unsigned) + left).astype(dtype)
    drawn = full_int(shape, key, counter, unsigned)
    return (low.astype(unsigned) + lax.rem(drawn, jnp.broadcast_to(span, drawn.shape))).astype(dtype)


def _remainder(high: Any, low: Any, span: Any) -> Any:
    """Returns the remainder of a 64-bit number, given as words, by a 32-bit one: division bit by bit."""

    def step(i: Any, left: Any) -> Any:
        bit = lax.shift_right_logical(low, jnp.full_like(low, 31 - i)) & np.uint32(1)
        over = left >= np.uint32(1 << 31)
        left = (left << np.uint32(1)) | bit
        return jnp.where(over | (left >= span), left - span, left)

    return fori_loop(0, 32, step, lax.rem(high, span))
