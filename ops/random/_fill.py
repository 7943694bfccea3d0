"""Tensors of uniform, normal and integer numbers from Philox words.

They are bit for bit TensorFlow's. Floats are materialized: a number takes hundreds of operations, which XLA would
otherwise fuse into each of its uses.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import shared
from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import from_u32_pair, to_u32_pair
from tf2jax_lite.values.static import canonical, dims
from tf2jax_lite.xla_cpu.materialize import materialize

from . import _normal
from ._uniform import uint32_to_float, uint64_to_double, unit_floats
from .philox import bits, block, skip, stack_columns

_PHILOX, _AUTO = 1, 3


def check_algorithm(alg: Any) -> None:
    """Raise OpError unless ``alg`` is Philox (1) or auto_select (3)."""
    if int(alg) not in (_PHILOX, _AUTO):
        raise OpError(f"random algorithm {int(alg)} is not supported; use 'philox' or 'auto_select'")


def size(shape: Any, *, symbolic: bool = False) -> tuple[tuple[Any, ...], Any]:
    """Return a static shape as a tuple, and its number of elements.

    Args:
      shape: a vector of ints or symbolic dimensions.
      symbolic: whether symbolic dimensions are supported.

    Raises:
      OpError: a dimension is symbolic and not supported.
    """
    sizes = dims(shape)
    if not symbolic and not all(isinstance(d, int) for d in sizes):
        raise OpError("this sampler of TensorFlow's random bits needs a static shape, and this one is symbolic")
    return sizes, math.prod(sizes)


def state(key: Any, counter: Any) -> tuple[Any, Any]:
    """Return the key (uint32 [2]) and counter (uint32 [4]) inputs of an op as words."""
    return jnp.asarray(to_u32_pair(key)).reshape(-1), jnp.asarray(to_u32_pair(counter)).reshape(-1)


def _numbers(words: Any, dtype: Any) -> Any:
    """Reshape rows of four words to a vector, or to rows of two for a 64-bit dtype."""
    rows = words.shape[0]
    return words.reshape((2 * rows, 2) if _words_per(dtype) == 2 else (4 * rows,))


def _words_per(dtype: Any) -> int:
    return 2 if np.dtype(dtype).itemsize == 8 else 1


def uniform(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return uniform numbers in [0, 1)."""
    sizes, count = size(shape, symbolic=True)
    # Without 64-bit mode a double is drawn as TensorFlow draws a float.
    dtype = canonical(dtype)
    return philox_uniform(key, counter, sizes=sizes, count=count, dtype=dtype)


@shared  # the name of the equation, by which exported source calls a function of its own
def philox_uniform(key: Any, counter: Any, *, sizes: Any, count: Any, dtype: Any) -> Any:
    """See `uniform`."""
    words = _numbers(bits(key, counter, count * _words_per(dtype)), dtype)
    return materialize(unit_floats(words, dtype)[:count].reshape(sizes))


def normal(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return standard normals by Box and Muller's transform."""
    sizes, count = size(shape, symbolic=True)
    dtype = canonical(dtype)

    def pair(index: Any) -> tuple[Any, Any]:
        if dtype == np.float64:
            words = block(skip(counter, index), (key[0], key[1]))
            return _normal.box_muller(uint64_to_double(*words[:2]), uint64_to_double(*words[2:]))
        words = block(skip(counter, index >> np.uint32(1)), (key[0], key[1]))
        second = (index & np.uint32(1)) != 0
        units = (uint32_to_float(lax.select(second, words[i + 2], words[i])) for i in (0, 1))
        return _normal.box_muller(*units)

    return materialize(stack_columns(pair, -(-count // 2), 2).reshape(-1)[:count].reshape(sizes).astype(dtype))


def truncated_normal(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return standard normals within two standard deviations."""
    sizes, count = size(shape)
    dtype = canonical(dtype)
    return _normal.truncated_normal(key, counter, count, dtype).reshape(sizes).astype(dtype)


def full_int(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return integers from the full range of ``dtype``."""
    sizes, count = size(shape, symbolic=True)
    words = _numbers(bits(key, counter, count * _words_per(dtype)), dtype)
    if _words_per(dtype) == 2:
        return from_u32_pair(words[:count].reshape((*sizes, 2)), dtype)
    return lax.bitcast_convert_type(words[:count], dtype).reshape(sizes)


def uniform_int(shape: Any, key: Any, counter: Any, minval: Any, maxval: Any, dtype: Any) -> Any:
    """Return integers in [minval, maxval).

    Without 64-bit mode, 64-bit integers are TensorFlow's, too, if the range has at most 2**32 of them.
    """
    is_int64, dtype = np.dtype(dtype).itemsize == 8, canonical(dtype)
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    low, high = jnp.asarray(minval, dtype), jnp.asarray(maxval, dtype)
    span = high.astype(unsigned) - low.astype(unsigned)
    if is_int64 and dtype.itemsize == 4:
        words = to_u32_pair(full_int(shape, key, counter, np.uint64))
        offset = _remainder(words[..., 1], words[..., 0], jnp.broadcast_to(span, words.shape[:-1]))
        return (low.astype(unsigned) + offset).astype(dtype)
    words = full_int(shape, key, counter, unsigned)
    return (low.astype(unsigned) + lax.rem(words, jnp.broadcast_to(span, words.shape))).astype(dtype)


def _remainder(high: Any, low: Any, span: Any) -> Any:
    """Return the remainder of a 64-bit number by a 32-bit one.

    The number is given as words; long division in base 2.
    """

    def step(i: Any, remainder: Any) -> Any:
        bit = lax.shift_right_logical(low, jnp.full_like(low, 31 - i)) & np.uint32(1)
        overflow = remainder >= np.uint32(1 << 31)
        remainder = (remainder << np.uint32(1)) | bit
        return jnp.where(overflow | (remainder >= span), remainder - span, remainder)

    return fori_loop(0, 32, step, lax.rem(high, span))
