"""Philox 4x32-10, bit for bit as TensorFlow's CPU kernels use it.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with the seeding of
tensorflow/core/kernels/stateless_random_ops.cc. All in 32-bit words, so that it needs no 64-bit mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import shared
from tf2jax_lite.values.int64 import to_u32_pair
from tf2jax_lite.values.uint64 import product, wrapping

__all__ = ["at", "bits", "block", "scramble", "side_by_side", "skip"]

_M0, _M1 = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_KEY = (np.uint32(0x3EC8F720), np.uint32(0x02461E29))


@shared
def block(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Returns the four words for a counter and a key, each a uint32 array."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    with wrapping():
        for _ in range(10):
            low0, high0 = product(_M0, c0)
            low1, high1 = product(_M1, c2)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = k0 + _W0, k1 + _W1
    return c0, c1, c2, c3


def scramble(seed: Any) -> tuple[Any, Any]:
    """Returns key words (2,) and counter words (4,) for a seed of two integers, as TensorFlow's GenerateKey does."""
    words = jnp.asarray(to_u32_pair(seed))
    mixed = block((words[0, 0], words[0, 1], words[1, 0], words[1, 1]), (jnp.uint32(_KEY[0]), jnp.uint32(_KEY[1])))
    zero = jnp.zeros((), np.uint32)
    return jnp.stack(mixed[:2]), jnp.stack([zero, zero, mixed[2], mixed[3]])


def skip(counter: Any, low: Any, high: Any = 0) -> tuple[Any, Any, Any, Any]:
    """Adds 64-bit numbers, given as words, to a 128-bit counter, with carries."""
    low, high = jnp.asarray(low, np.uint32), jnp.asarray(high, np.uint32)
    c0 = counter[0] + low
    # Wraps as TensorFlow's does: a carry into a high word of ones is lost.
    high = high + (c0 < low).astype(np.uint32)
    c1 = counter[1] + high
    carry = (c1 < high).astype(np.uint32)
    c2 = counter[2] + carry
    c3 = counter[3] + (c2 < carry).astype(np.uint32)
    return c0, c1, c2, c3


def at(counter: Any, index: Any, stride: int) -> tuple[Any, Any, Any, Any]:
    """Returns the counter moved on by ``index * stride``; ``index`` may be an array of uint32."""
    return skip(counter, *product(np.uint32(stride), jnp.asarray(index, np.uint32)))


def side_by_side(fn: Callable[[Any], Sequence[Any]], rows: Any, width: int) -> Any:
    """Returns an array (rows, width): of each row's number ``fn`` gives the columns.

    Not by stacking the columns: XLA's CPU backend computes what it concatenates element by element, a hundred times
    slower than elementwise code that computes all columns for each element and takes one.

    Args:
      fn: elementwise: takes uint32 numbers of any shape, gives ``width`` arrays of that shape.
      rows: how many, an int or a symbolic dimension.
      width: how many columns.
    """
    index, column = (lax.broadcasted_iota(np.uint32, (rows, width), d) for d in (0, 1))
    *others, found = fn(index)
    for i, part in enumerate(others):
        found = lax.select(lax.eq(column, np.uint32(i)), part, found)
    return found


def bits(key: Any, counter: Any, count: Any) -> Any:
    """Returns at least ``count`` 32-bit words, one row of four for each step of the counter.

    Args:
      key: words (2,).
      counter: words (4,).
      count: how many, an int or a symbolic dimension.
    """
    return side_by_side(lambda index: block(skip(counter, index), (key[0], key[1])), -(-count // 4), 4)
