"""The Philox 4x32-10 generator, bit for bit as in TensorFlow's CPU kernels.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with the seeding of
core/kernels/stateless_random_ops.cc. Computed on 32-bit words, so that JAX's 64-bit mode is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import shared
from tf2jax_lite.values.int64 import product, to_u32_pair, wrapping

_M0, _M1 = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_KEY = (np.uint32(0x3EC8F720), np.uint32(0x02461E29))


@shared
def block(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the four output words for a counter and a key, arrays of one shape."""
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
    """Return key [2] and counter [4] for a seed of two integers, as GenerateKey."""
    return philox_key(seed)


@shared  # the name of the equation, by which exported source calls a function of its own
def philox_key(seed: Any) -> tuple[Any, Any]:
    """See `scramble`."""
    words = jnp.asarray(to_u32_pair(seed))
    mixed = block((words[0, 0], words[0, 1], words[1, 0], words[1, 1]), (jnp.uint32(_KEY[0]), jnp.uint32(_KEY[1])))
    zero = jnp.zeros((), np.uint32)
    return jnp.stack(mixed[:2]), jnp.stack([zero, zero, mixed[2], mixed[3]])


def from_jax_key(key: Any) -> tuple[Any, Any]:
    """Return a Philox key (uint32 [2]) and counter (uint32 [4]) drawn from a JAX key."""
    words = jax.random.bits(key, (6,), np.uint32)
    return words[:2], words[2:]


def skip(counter: Any, low: Any, high: Any = 0) -> tuple[Any, Any, Any, Any]:
    """Return a 128-bit counter advanced by numbers (words), as PhiloxRandom::Skip."""
    low, high = jnp.asarray(low, np.uint32), jnp.asarray(high, np.uint32)
    c0 = counter[0] + low
    # Overflows as TensorFlow's: a carry into a high word of ones is lost.
    high = high + (c0 < low).astype(np.uint32)
    c1 = counter[1] + high
    carry = (c1 < high).astype(np.uint32)
    c2 = counter[2] + carry
    c3 = counter[3] + (c2 < carry).astype(np.uint32)
    return c0, c1, c2, c3


def at(counter: Any, index: Any, stride: int) -> tuple[Any, Any, Any, Any]:
    """Return the counter advanced by ``index * stride``; ``index`` may be an array."""
    return skip(counter, *product(np.uint32(stride), jnp.asarray(index, np.uint32)))


def stack_columns(fn: Callable[[Any], Sequence[Any]], rows: Any, width: int) -> Any:
    """Return an array [rows, width]; ``fn`` computes columns from row numbers.

    Elementwise, computing all columns for each element and selecting one. ``jnp.stack`` is a hundred times slower:
    XLA's CPU backend computes the operands of a concatenation element by element.

    Args:
      fn: an elementwise function from uint32 row numbers of any shape to ``width`` arrays of that shape.
      width: number of columns.
    """
    index, column = (lax.broadcasted_iota(np.uint32, (rows, width), d) for d in (0, 1))
    *others, out = fn(index)
    for i, part in enumerate(others):
        out = lax.select(lax.eq(column, np.uint32(i)), part, out)
    return out


def bits(key: Any, counter: Any, count: Any) -> Any:
    """Return at least ``count`` 32-bit words, four for each step of the counter."""
    return stack_columns(lambda index: block(skip(counter, index), (key[0], key[1])), -(-count // 4), 4)
