"""Arrays of strings: static NumPy object arrays, or traced padded bytes.

JAX has no strings.

Traced strings are formatted from traced integers. They can be joined, hashed and printed (Keras's Hashing layer does
so), but they cannot be results of a converted function, or operands of arithmetic.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import OpError
from tf2jax_lite.support.limits import check_bytes
from tf2jax_lite.values.int64 import WordArray, from_u32_pair
from tf2jax_lite.values.uint64 import U64

from . import hashing

_PER_CHARACTER = 6  # bytes: as uint8, as uint32, and in words
_OBJECT, _INT64 = np.dtype(object), np.dtype(np.int64)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class ByteStrings(WordArray):
    """An array of strings; ``data`` (uint32) holds length and bytes, four a word."""

    data: Any
    dtype = _OBJECT

    @property
    def length(self) -> Any:
        """Number of bytes of each string, int32."""
        return self.data[..., 0].astype(np.int32)

    @property
    def capacity(self) -> int:
        """Maximum number of bytes of a string."""
        return 4 * (self.data.shape[-1] - 1)

    @property
    def bytes(self) -> Any:
        """The bytes, uint32 of shape (..., capacity); zeros after the last."""
        words = self.data[..., 1:, None] >> np.arange(0, 32, 8, dtype=np.uint32)
        return (words & np.uint32(0xFF)).reshape(*self.shape, self.capacity)

    def rows(self) -> hashing.Rows:
        """Return the strings as operands of hash functions."""
        return hashing.Rows(self.data[..., 1:], self.length)

    def with_data(self, data: Any) -> ByteStrings:
        """Return other strings."""
        return ByteStrings(data)

    def words_of(self, value: Any) -> Any:
        """Return the words of strings."""
        return as_strings(value).data

    def to_32_bits(self) -> Any:
        """Raise OpError: JAX has no string arrays."""
        raise OpError(
            "strings that are not known while tracing reach what JAX would have to compute; they can be joined, moved "
            "about, hashed and printed, and JAX has no string arrays"
        )

    def tree_flatten(self) -> Any:
        """Return the words as the only child."""
        return (self.data,), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> ByteStrings:
        """Undo `tree_flatten`."""
        return cls(children[0])


StringArray: TypeAlias = np.ndarray | ByteStrings
"""Strings: static ones are an object array of bytes."""


def is_text(value: Any) -> bool:
    """Return whether a value is an array of strings, static or traced."""
    return isinstance(value, ByteStrings) or (isinstance(value, np.ndarray) and value.dtype == _OBJECT)


def packed(text: Any, length: Any) -> ByteStrings:
    """Return strings of integer bytes (..., capacity); ``length`` truncates them."""
    text, length = jnp.asarray(text).astype(np.uint32), jnp.asarray(length)
    text = jnp.where(jnp.arange(text.shape[-1]) < length[..., None], text, np.uint32(0))
    return ByteStrings(jnp.concatenate([length.astype(np.uint32)[..., None], pack_words(text)], axis=-1))


def pack_words(text: Any) -> Any:
    """Return bytes (uint32, little-endian) packed into words, four in each."""
    xp: Any = np if isinstance(text, np.ndarray) else jnp
    text = xp.pad(text, [(0, 0)] * (text.ndim - 1) + [(0, -text.shape[-1] % 4)])
    words = text.reshape(*text.shape[:-1], -(-text.shape[-1] // 4), 4) << np.arange(0, 32, 8, dtype=np.uint32)
    return words[..., 0] | words[..., 1] | words[..., 2] | words[..., 3]


def _table(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return static strings as words, padded to one length, and their lengths."""
    lengths = np.array([len(item) for item in value.flat], np.int32)
    shape = (value.size, int(max(lengths, default=0)))
    check_bytes(shape, _PER_CHARACTER, "a table of strings")
    rows = np.zeros(shape, np.uint8)
    for row, item in zip(rows, value.flat, strict=True):
        row[: len(item)] = np.frombuffer(item, np.uint8)
    words = pack_words(rows.astype(np.uint32))
    return words.reshape(*value.shape, words.shape[-1]), lengths.reshape(value.shape)


def as_strings(value: Any) -> ByteStrings:
    """Return static or traced strings as a `ByteStrings`."""
    if isinstance(value, ByteStrings):
        return value
    if not is_text(value):
        raise OpError(f"expected strings, got {getattr(value, 'dtype', type(value).__name__)}")
    words, lengths = _table(value)
    return ByteStrings(jnp.asarray(np.concatenate([lengths.astype(np.uint32)[..., None], words], axis=-1)))


def as_rows(value: Any) -> hashing.Rows:
    """Return strings as operands of hash functions, in NumPy if they are static."""
    if isinstance(value, np.ndarray) and is_text(value):
        return hashing.Rows(*_table(value))
    return as_strings(value).rows()


def to_numpy(value: ByteStrings) -> np.ndarray:
    """Return strings of concrete data as an object array of bytes."""
    text, length = np.asarray(value.bytes).astype(np.uint8), np.asarray(value.length)
    out = np.empty(length.shape, _OBJECT)
    for index in np.ndindex(length.shape):
        out[index] = text[index].tobytes()[: length[index]]
    return out


def from_u64(value: U64) -> Any:
    """Return integers below 2^63 as int64, of NumPy, JAX, or as a `U32Pair`."""
    if not isinstance(value.low, jax.Array):
        return (np.asarray(value.high).astype(np.int64) << 32) | np.asarray(value.low).astype(np.int64)
    return from_u32_pair(jnp.stack([value.low, value.high], axis=-1), _INT64)


def encoded(text: str) -> bytes:
    """Return the bytes of an attribute's text, which need not be valid UTF-8."""
    return text.encode("utf-8", "surrogateescape")
