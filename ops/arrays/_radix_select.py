"""The n-th smallest along the last axis, without sorting: bit by bit.

The largest number below which there are at most n others is the n-th smallest. It is found from its highest bit to its
lowest, each by counting once along the axis, which XLA makes a fraction of the time that any sort takes.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop

__all__ = ["selected"]


def _ordered(x: Any, word: np.dtype) -> Any:
    """Returns unsigned numbers that are in the order of ``x``: NaN last, -0 before 0."""
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


def selected(x: Any, n: Any) -> Any:
    """Returns the ``n``-th smallest along the last axis.

    Args:
      x: an array of any real dtype, and at least one dimension. NaN counts as the largest, and -0 as less than 0.
      n: a number, from 0; one that is out of range is taken as the nearest in it.

    Returns:
      Values of ``x``'s dtype, of its shape without the last axis.
    """
    word = np.dtype(f"uint{8 * x.dtype.itemsize}")
    ordered, n = _ordered(x, word), jnp.clip(n, 0, x.shape[-1] - 1)

    def with_next_bit(i: Any, found: Any) -> Any:
        larger = found | jnp.left_shift(np.array(1, word), lax.convert_element_type(8 * word.itemsize - 1 - i, word))
        below = jnp.sum(ordered < larger[..., None], axis=-1, dtype=np.int32)
        return jnp.where(below <= n, larger, found)

    found = fori_loop(0, 8 * word.itemsize, with_next_bit, jnp.zeros(x.shape[:-1], word))
    return _value(found, x.dtype)
