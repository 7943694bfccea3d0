"""RandomIndexShuffle: a pseudorandom permutation, one index at a time.

It is computed by the block cipher Simon.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value

_CONSTANT, _SEQUENCE = 0xFFFFFFFC, 0x7369F885192C0EF5


def _rotate_left(x: Any, by: int, width: Any, mask: Any) -> Any:
    return ((x << np.uint32(by)) | (x >> (width - np.uint32(by)))) & mask


def _mix(x: Any, width: Any, mask: Any) -> Any:
    one, eight, two = (_rotate_left(x, by, width, mask) for by in (1, 8, 2))
    return (one & eight) ^ two


def _round_keys(seed: Any, width: Any, mask: Any, rounds: int) -> list[Any]:
    """Return the round keys of the Simon cipher for words of ``width`` bits."""
    keys = [seed[..., i] & mask for i in range(3)]
    for i in range(3, rounds):
        last = keys[i - 1]
        third, fourth = (((last >> np.uint32(r)) | (last << (width - np.uint32(r)))) & mask for r in (3, 4))
        # Words shorter than the sequence contain only its first bits.
        bit = jnp.where(width > i - 3, np.uint32(_SEQUENCE >> (i - 3) & 1), np.uint32(0))
        keys.append((np.uint32(_CONSTANT) & mask) ^ bit ^ keys[i - 3] ^ third ^ fourth)
    return keys


@op("RandomIndexShuffle")
def random_index_shuffle(index, seed, max_index, *, rounds=4):
    """Return the position of an index in a permutation of 0 to max_index.

    TF: core/kernels/random_index_shuffle_ops.cc.

    A Simon cipher over a power of four of integers, repeated until the result is in the range (Black and Rogaway,
    2002).

    Args:
      max_index: largest index, scalar or [n].
    """
    if rounds < 4 or rounds % 2:
        raise OpError(f"rounds must be even and at least 4, got {rounds}")
    static_index, static_max = static_value(index), static_value(max_index)
    if static_index is not None and static_max is not None and np.any(static_index > static_max):
        raise OpError("an index is larger than max_index")
    index, seed, max_index = jnp.asarray(index), jnp.asarray(seed), jnp.asarray(max_index)
    if index.ndim > 1 or max_index.ndim > 1 or seed.ndim not in (1, 2) or seed.shape[-1] != 3:
        raise OpError(
            "index and max_index must be scalars or vectors, seed a vector of three or rows of three, got shapes "
            f"{index.shape}, {max_index.shape}, {seed.shape}"
        )
    shape = jnp.broadcast_shapes(index.shape, max_index.shape, seed.shape[:-1])
    unsigned = np.dtype(f"uint{8 * index.dtype.itemsize}")
    value, largest = (jnp.broadcast_to(v, shape).astype(unsigned) for v in (index, max_index))
    one = np.ones((), unsigned)
    bits = np.asarray(8 * unsigned.itemsize, unsigned) - lax.clz(jnp.maximum(largest, one) - one)
    # Half of the bits of the largest index, but at least eight, which the rotations need.
    width = jnp.maximum((bits + one) // np.asarray(2, unsigned), np.asarray(8, unsigned)).astype(np.uint32)
    mask = np.uint32(0xFFFFFFFF) >> (np.uint32(32) - width)
    keys = _round_keys(seed.astype(np.uint32), width, mask, rounds)
    shift = width.astype(unsigned)

    @jax.jit
    def encrypt(value: Any) -> Any:
        left, right = (value >> shift).astype(np.uint32) & mask, value.astype(np.uint32) & mask
        for i in range(0, rounds, 2):
            left = left ^ _mix(right, width, mask) ^ keys[i]
            right = right ^ _mix(left, width, mask) ^ keys[i + 1]
        return (left.astype(unsigned) << shift) | right.astype(unsigned)

    def step(value: Any) -> Any:
        return jnp.where(value > largest, encrypt(value), value)

    shuffled = while_loop(lambda value: jnp.any(value > largest), step, encrypt(value))
    return jnp.where(largest == 0, jnp.zeros_like(shuffled), shuffled).astype(index.dtype)
