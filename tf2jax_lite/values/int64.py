"""64-bit integers where JAX has none: pairs of 32-bit words.

Random generators count in 64 bits. So that they need no 64-bit mode, their keys, counters and states travel as
`Words`; other ops see the low words, which is how JAX narrows 64-bit integers.

`Words` are the first of what is held as several `Planes` beside each other; strings (ops/strings/string_ops.py) are,
too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["Planes", "Words", "beyond_32_bits", "each_word", "from_words", "is_wide", "narrow", "to_words"]

_UINT64 = np.dtype(np.uint64)


class Planes:
    """Values each of which takes several words (uint32), along the last axis of ``data``.

    What only moves elements about moves the words of each place by themselves: see `each_word`.
    """

    data: Any
    is_pytree_handle = True

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of the array of values."""
        return self.data.shape[:-1]

    @property
    def ndim(self) -> int:
        """Rank of the array of values."""
        return len(self.shape)

    def with_data(self, data: Any) -> Any:
        """Returns other values of the kind."""
        raise NotImplementedError

    def words_of(self, value: Any) -> Any:
        """Returns the words of what stands beside such values."""
        raise NotImplementedError

    def narrow(self) -> Any:
        """Returns what JAX has for such values.

        Raises:
          OpError: it has nothing.
        """
        raise NotImplementedError


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Words(Planes):
    """An array of 64-bit integers: the last axis of ``data`` (uint32) holds the low and the high word."""

    data: Any
    dtype: np.dtype = _UINT64

    def astype(self, dtype: Any) -> Words:
        """Returns the same bits as another 64-bit type."""
        return Words(self.data, np.dtype(dtype))

    def with_data(self, data: Any) -> Words:
        """Returns other integers of the type."""
        return Words(data, self.dtype)

    def words_of(self, value: Any) -> Any:
        """Returns the words of integers."""
        return to_words(value)

    def narrow(self) -> Any:
        """Returns the low words, as the 32-bit type that JAX has for these."""
        return lax.bitcast_convert_type(self.data[..., 0], np.uint32 if self.dtype == np.uint64 else np.int32)

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


def beyond_32_bits(value: Any) -> bool:
    """Whether a value is a numpy array of 64-bit integers, some of which JAX's 32-bit type cannot hold."""
    if not is_wide(value) or not value.size:
        return False
    limits = np.iinfo(np.uint32 if value.dtype.kind == "u" else np.int32)
    return bool(value.min() < limits.min or value.max() > limits.max)


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
    """Returns what JAX has for values of several words (`Planes.narrow`); any other value as it is."""
    return value.narrow() if isinstance(value, Planes) else value


def each_word(fn: Callable[..., Any], args: list[Any]) -> Any:
    """Applies a function that only moves elements about to the words of each place.

    Args:
      fn: a function of ``args`` that returns arrays, or tuples and lists of them.
      args: its arguments, some of which are `Planes` of one kind or lists of them; what stands beside them in a list
        is made such.

    Returns:
      The function's results, as such `Planes`.
    """
    kind = next(v for arg in args for v in (arg if isinstance(arg, list) else [arg]) if isinstance(v, Planes))
    words = [_words(arg, kind) for arg in args]
    count = max(w.shape[-1] for found in words for w in found or ())

    def plane(index: int) -> Any:
        chosen = []
        for arg, found in zip(args, words, strict=True):
            taken = [_plane(w, index) for w in found or ()]
            chosen.append(arg if found is None else taken if isinstance(arg, list) else taken[0])
        return fn(*chosen)

    return jax.tree.map(lambda *each: kind.with_data(jnp.stack(each, -1)), *map(plane, range(count)))


def _words(arg: Any, kind: Planes) -> list[Any] | None:
    """Returns the words of what is to be moved, None for any other argument."""
    if isinstance(arg, list):
        return [kind.words_of(v) for v in arg] if any(isinstance(v, Planes) for v in arg) else None
    return [arg.data] if isinstance(arg, Planes) else None


def _plane(words: Any, index: int) -> Any:
    return words[..., index] if index < words.shape[-1] else jnp.zeros(words.shape[:-1], words.dtype)
