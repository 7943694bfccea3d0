"""64-bit integers without JAX's 64-bit mode: pairs of uint32 words.

Random generators count in 64 bits. Outside 64-bit mode their keys, counters and states are `U32Pair` values; ops that
have no rule for pairs get the low words, which is how JAX truncates 64-bit integers.

`U32Pair` is one kind of `WordArray`. Strings are the other: `tf2jax_lite.ops.strings.string_ops`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .static import DType, Shape

_UINT64 = np.dtype(np.uint64)


class WordArray:
    """An array with several uint32 words per element, on the last axis of ``data``.

    Ops that only move elements are applied to each word separately: see `per_word`.
    """

    data: Any
    is_pytree_handle = True

    @property
    def shape(self) -> Shape:
        """Shape of the array of elements."""
        return self.data.shape[:-1]

    @property
    def ndim(self) -> int:
        """Rank of the array of elements."""
        return len(self.shape)

    def with_data(self, data: Any) -> Self:
        """Return other elements of the same type."""
        raise NotImplementedError

    def words_of(self, value: Any) -> Any:
        """Return the words of another value, converted to this type."""
        raise NotImplementedError

    def to_32_bits(self) -> Any:
        """Return the elements as an array that JAX has a dtype for."""
        raise NotImplementedError


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class U32Pair(WordArray):
    """An array of 64-bit integers; the last axis of ``data`` is (low, high) uint32."""

    data: Any
    dtype: DType = _UINT64

    def astype(self, dtype: Any) -> U32Pair:
        """Return the same bits as another 64-bit type."""
        return U32Pair(self.data, np.dtype(dtype))

    def with_data(self, data: Any) -> U32Pair:
        """Return other integers of the same dtype."""
        return U32Pair(data, self.dtype)

    def words_of(self, value: Any) -> Any:
        """Return the words of integers."""
        return to_u32_pair(value)

    def to_32_bits(self) -> Any:
        """Return the low words as int32 or uint32."""
        return lax.bitcast_convert_type(self.data[..., 0], np.uint32 if self.dtype == np.uint64 else np.int32)

    def tree_flatten(self) -> Any:
        """Return the words as the only child."""
        return (self.data,), self.dtype

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> U32Pair:
        """Undo `tree_flatten`."""
        return cls(children[0], aux)


def is_int64(value: Any) -> bool:
    """Return whether a value is a NumPy array of 64-bit integers.

    JAX would truncate them to the low words.
    """
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iu" and value.dtype.itemsize == 8


def exceeds_32_bits(value: Any) -> bool:
    """Return whether a value is a NumPy array with integers that exceed 32 bits."""
    if not is_int64(value) or not value.size:
        return False
    # Python's integers compare ten times as fast as NumPy's scalars, which iinfo has.
    low, high = (0, 2**32 - 1) if value.dtype.kind == "u" else (-(2**31), 2**31 - 1)
    return int(value.min()) < low or int(value.max()) > high


def to_u32_pair(value: Any) -> Any:
    """Return integers as words: uint32 of shape (..., 2), low word first."""
    if isinstance(value, U32Pair):
        return value.data
    if is_int64(value):
        return np.stack([value.astype(np.uint32), (value.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)], -1)
    value = jnp.asarray(value)
    if value.dtype.itemsize == 8:
        return lax.bitcast_convert_type(value, np.uint32)
    if jnp.issubdtype(value.dtype, jnp.signedinteger):
        high = lax.shift_right_arithmetic(value.astype(np.int32), np.int32(31)).astype(np.uint32)
    else:
        high = jnp.zeros_like(value, np.uint32)
    return jnp.stack([value.astype(np.uint32), high], axis=-1)


def from_u32_pair(words: Any, dtype: Any = _UINT64) -> Any:
    """Return uint32 words (..., 2) as 64-bit integers; as `U32Pair` in 32-bit mode."""
    dtype = np.dtype(dtype)
    if jax.config.jax_enable_x64:
        return lax.bitcast_convert_type(jnp.asarray(words), dtype)
    return U32Pair(jnp.asarray(words), dtype)


def to_32_bits(value: Any) -> Any:
    """Return a `WordArray` as an array of a JAX dtype; any other value unchanged."""
    return value.to_32_bits() if isinstance(value, WordArray) else value


def per_word(fn: Callable[..., Any], args: list[Any]) -> Any:
    """Apply a function that only moves elements to each word separately.

    Args:
      fn: a function of ``args`` that returns arrays, or tuples and lists of arrays.
      args: its arguments. Some are `WordArray`s of one kind, or lists of them; other values in such a list are
        converted to that kind.

    Returns:
      The function's results as `WordArray`s of that kind.
    """
    kind = next(v for arg in args for v in (arg if isinstance(arg, list) else [arg]) if isinstance(v, WordArray))
    words = [_words(arg, kind) for arg in args]
    count = max(w.shape[-1] for arrays in words for w in arrays or ())

    def apply(index: int) -> Any:
        chosen = []
        for arg, arrays in zip(args, words, strict=True):
            taken = [_word(w, index) for w in arrays or ()]
            chosen.append(arg if arrays is None else taken if isinstance(arg, list) else taken[0])
        return fn(*chosen)

    return jax.tree.map(lambda *each: kind.with_data(jnp.stack(each, -1)), *map(apply, range(count)))


def _words(arg: Any, kind: WordArray) -> list[Any] | None:
    """Return the words of an argument with `WordArray`s, None for any other argument."""
    if isinstance(arg, list):
        return [kind.words_of(v) for v in arg] if any(isinstance(v, WordArray) for v in arg) else None
    return [arg.data] if isinstance(arg, WordArray) else None


def _word(words: Any, index: int) -> Any:
    return words[..., index] if index < words.shape[-1] else jnp.zeros(words.shape[:-1], words.dtype)
