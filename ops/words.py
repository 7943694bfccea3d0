"""64-bit integers where JAX has none: pairs of 32-bit words.

Random generators count in 64 bits. So that they need no 64-bit mode, their keys, counters and states travel as
`Words`; other ops see the low words, which is how JAX narrows 64-bit integers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["Words", "each_word", "from_words", "is_wide", "narrow", "to_words"]

_UINT64 = np.dtype(np.uint64)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Words:
    """An array of 64-bit integers: the last axis of ``data`` (uint32) holds the low and the high word."""

    data: Any
    dtype: np.dtype = _UINT64
    is_pytree_handle = True

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of the array of numbers."""
        return self.data.shape[:-1]

    @property
    def ndim(self) -> int:
        """Rank of the array of numbers."""
        return len(self.shape)

    def astype(self, dtype: Any) -> Words:
        """Returns the same bits as another 64-bit type."""
        return Words(self.data, np.dtype(dtype))

    def tree_flatten(self) -> Any:
        """Returns the words as the only child."""
        return (self.data,), self.dtype

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Words:
        """Undoes `tree_flatten`."""
        return cls(children[0], aux)


def is_wide(value: Any) -> bool:
    """Whether a value is a numpy array of 64-bit integers, of which JAX would keep the low words."""
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iu" and value.dtype.itemsize == 8


def to_words(value: Any) -> Any:
    """Returns integers as 32-bit words: uint32 of shape (..., 2), low word first."""
    if isinstance(value, Words):
        return value.data
    if is_wide(value):
        return np.stack([value.astype(np.uint32), (value.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)], -1)
    value = jnp.asarray(value)
    if value.dtype.itemsize == 8:
        return lax.bitcast_convert_type(value, np.uint32)
    if jnp.issubdtype(value.dtype, jnp.signedinteger):
        high = lax.shift_right_arithmetic(value.astype(np.int32), np.int32(31)).astype(np.uint32)
    else:
        high = jnp.zeros_like(value, np.uint32)
    return jnp.stack([value.astype(np.uint32), high], axis=-1)


def from_words(words: Any, dtype: Any = _UINT64) -> Any:
    """Returns words as 64-bit integers in 64-bit mode, else as `Words`."""
    dtype = np.dtype(dtype)
    if jax.config.jax_enable_x64:
        return lax.bitcast_convert_type(jnp.asarray(words), dtype)
    return Words(jnp.asarray(words), dtype)


def narrow(value: Any) -> Any:
    """Returns `Words` as an array of the 32-bit type that JAX has for theirs; any other value as it is."""
    if not isinstance(value, Words):
        return value
    return lax.bitcast_convert_type(value.data[..., 0], np.uint32 if value.dtype == np.uint64 else np.int32)


def each_word(fn: Callable[..., Any], args: list[Any]) -> Any:
    """Applies a function that only moves elements about to the low words and to the high words.

    Args:
      fn: a function of ``args`` that returns arrays, or tuples and lists of them.
      args: its arguments, some of which are `Words` or lists of them; 64-bit integers beside them count as such.

    Returns:
      The function's results, as `Words`.
    """
    found = [v for arg in args for v in (arg if isinstance(arg, list) else [arg]) if isinstance(v, Words)]
    moved = {id(arg) for arg in args if isinstance(arg, list) and any(isinstance(v, Words) for v in arg)}

    def plane(index: int) -> Any:
        def one(value: Any, wide: bool) -> Any:
            return to_words(value)[..., index] if wide or isinstance(value, Words) else value

        chosen = [[one(v, id(a) in moved) for v in a] if isinstance(a, list) else one(a, False) for a in args]
        return fn(*chosen)

    dtype = found[0].dtype
    return jax.tree.map(lambda low, high: Words(jnp.stack([low, high], -1), dtype), plane(0), plane(1))
