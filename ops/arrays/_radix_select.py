"""Selection of the n-th smallest element along the last axis, without sorting.

Radix select, one bit at a time: the n-th smallest element is the largest number with at most n elements below it. Its
bits are found from the highest to the lowest, each by counting along the axis, which XLA does in a fraction of the
time of a sort.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop


def _ordered(x: Any, word: np.dtype) -> Any:
    """Return unsigned integers in the order of ``x``: NaN last, -0 before 0."""
    top = np.array(1 << (8 * word.itemsize - 1), word)
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return x
    if jnp.issubdtype(x.dtype, jnp.signedinteger):
        return lax.bitcast_convert_type(x, word) ^ top
    bits = lax.bitcast_convert_type(jnp.where(x != x, jnp.asarray(np.nan, x.dtype), x), word)
    return jnp.where(bits >= top, ~bits, bits | top)


def _value(ordered: Any, dtype: np.dtype) -> Any:
    word = np.dtype(ordered.dtype)
    top = np.array(1 << (8 * word.itemsize - 1), word)
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        return ordered
    if jnp.issubdtype(dtype, jnp.floating):
        return lax.bitcast_convert_type(jnp.where(ordered >= top, ordered ^ top, ~ordered), dtype)
    return lax.bitcast_convert_type(ordered ^ top, dtype)


def nth_smallest(x: Any, n: Any) -> Any:
    """Return the ``n``-th smallest element along the last axis.

    Args:
      x: ``[..., size]``, any real dtype. NaN counts as the largest, and -0 as less than 0.
      n: scalar int, from 0; clamped to ``[0, size)``.
    """
    word = np.dtype(f"uint{8 * x.dtype.itemsize}")
    ordered, n = _ordered(x, word), jnp.clip(n, 0, x.shape[-1] - 1)

    def with_next_bit(i: Any, prefix: Any) -> Any:
        larger = prefix | jnp.left_shift(np.array(1, word), lax.convert_element_type(8 * word.itemsize - 1 - i, word))
        below = jnp.sum(ordered < larger[..., None], axis=-1, dtype=np.int32)
        return jnp.where(below <= n, larger, prefix)

    prefix = fori_loop(0, 8 * word.itemsize, with_next_bit, jnp.zeros(x.shape[:-1], word))
    return _value(prefix, x.dtype)
