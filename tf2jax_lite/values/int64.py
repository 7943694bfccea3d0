"""64-bit integers without JAX's 64-bit mode: pairs of uint32 words.

Random generators count in 64 bits. Outside 64-bit mode their keys, counters and states are `U32Pair` values; ops that
have no rule for pairs get the low words, which is how JAX truncates 64-bit integers.

Unsigned arithmetic on the two words, for hashes, takes NumPy or JAX arrays; operations on NumPy arrays stay in NumPy.

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

_HALF = np.uint32(0xFFFF)


def wrapping() -> Any:
    """Return a context in which NumPy does not warn of (intended) integer overflow."""
    return np.errstate(over="ignore")


def product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the low and the high word of the product of two words (uint32)."""
    if isinstance(a, jax.Array) and not isinstance(b, jax.Array):
        a, b = b, a
    if isinstance(b, jax.Array) and hasattr(lax, "mulhi"):  # since JAX 0.10; it compiles in half the time
        if np.ndim(a) or isinstance(a, jax.Array):
            a, b = jnp.broadcast_arrays(a, b)
        return lax.mul(a, b), lax.mulhi(a, b)
    a_low, a_high = a & _HALF, a >> np.uint32(16)
    b_low, b_high = b & _HALF, b >> np.uint32(16)
    low = a_low * b_low
    middle = a_high * b_low + (low >> np.uint32(16))
    cross = a_low * b_high + (middle & _HALF)
    return b * a, a_high * b_high + (middle >> np.uint32(16)) + (cross >> np.uint32(16))


@dataclasses.dataclass(frozen=True)
class U64:
    """Integers modulo 2^64 as uint32 arrays or NumPy scalars of low and high words."""

    low: Any
    high: Any

    def __add__(self, other: U64) -> U64:
        low = self.low + other.low
        return U64(low, self.high + other.high + (low < other.low).astype(np.uint32))

    def __mul__(self, other: U64) -> U64:
        low, high = product(other.low, self.low)
        return U64(low, high + other.low * self.high + other.high * self.low)

    def __xor__(self, other: U64) -> U64:
        return U64(self.low ^ other.low, self.high ^ other.high)

    def __rshift__(self, by: int) -> U64:
        if by >= 32:
            return U64(self.high >> np.uint32(by - 32), np.zeros_like(self.high) if _is_host(self) else _zero(self))
        rest = np.uint32(32 - by)
        return U64((self.low >> np.uint32(by)) | (self.high << rest), self.high >> np.uint32(by)) if by else self

    def __lshift__(self, by: int) -> U64:
        flipped = U64(self.high, self.low)
        if by >= 32:
            return U64(np.zeros_like(self.low) if _is_host(self) else _zero(self), flipped.high << np.uint32(by - 32))
        rest = np.uint32(32 - by)
        return U64(self.low << np.uint32(by), (self.high << np.uint32(by)) | (self.low >> rest)) if by else self

    def rotated(self, by: int) -> U64:
        """Return the integers with their bits rotated to the right, 0 < ``by`` < 64."""
        low, high = (self.low, self.high) if by < 32 else (self.high, self.low)
        by %= 32
        if not by:
            return U64(low, high)
        down, up = np.uint32(by), np.uint32(32 - by)
        return U64((low >> down) | (high << up), (high >> down) | (low << up))

    def __mod__(self, divisor: int) -> U64:
        """Return the remainders of division by an int in [1, 2^63]."""
        if divisor & (divisor - 1) == 0:
            mask = number(divisor - 1)
            return U64(self.low & mask.low, self.high & mask.high)
        if divisor <= 1 << 16:
            by, rest = np.uint32(divisor), self.high * np.uint32(0)
            for word in (self.high, self.low):
                for half in (word >> np.uint32(16), word & _HALF):
                    rest = ((rest << np.uint32(16)) | half) % by
            return U64(rest, rest * np.uint32(0))
        return _remainder(self, number(divisor))


def _remainder(value: U64, divisor: U64) -> U64:
    """Divide bit by bit."""
    # Remainders stay below 2^63, so that doubling one does not overflow.

    def step(_: int, state: Any) -> Any:
        left, rest = (U64(*pair) for pair in state)
        rest = rest << 1
        rest = U64(rest.low | (left.high >> np.uint32(31)), rest.high)
        less = (rest.high < divisor.high) | ((rest.high == divisor.high) & (rest.low < divisor.low))
        taken = U64(rest.low - divisor.low, rest.high - divisor.high - (rest.low < divisor.low).astype(np.uint32))
        rest = choose(less, rest, taken)
        left = left << 1
        return (left.low, left.high), (rest.low, rest.high)

    zero = value.low * np.uint32(0)
    state: Any = (value.low, value.high), (zero, zero)
    if _is_host(value):
        for i in range(64):
            state = step(i, state)
    else:
        state = lax.fori_loop(0, 64, step, state)
    return U64(*state[1])


def _is_host(value: U64) -> bool:
    return not isinstance(value.low, jax.Array) and not isinstance(value.high, jax.Array)


def _zero(value: U64) -> Any:
    return jnp.zeros_like(jnp.asarray(value.low))


def number(value: int) -> U64:
    """Return a static integer."""
    return U64(np.uint32(value & 0xFFFFFFFF), np.uint32(value >> 32 & 0xFFFFFFFF))


def from_small(value: Any) -> U64:
    """Return 32-bit words (uint32) as 64-bit integers."""
    return U64(value, value * np.uint32(0))


def choose(condition: Any, yes: U64, no: U64) -> U64:
    """Return the integers of ``yes`` where the condition holds, else those of ``no``."""
    parts = (condition, yes.low, yes.high, no.low, no.high)
    xp: Any = jnp if any(isinstance(part, jax.Array) for part in parts) else np
    return U64(xp.where(condition, yes.low, no.low), xp.where(condition, yes.high, no.high))


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
