"""Hashes of byte strings, bit for bit those of TensorFlow.

Functions: Fingerprint64, Hash64, SipHash, FingerprintCat64.

FarmHash (farmhashna, https://github.com/google/farmhash) is what tensorflow/core/platform/fingerprint.h calls
Fingerprint64; Hash64 is that of tensorflow/tsl/platform/hash.cc (MurmurHash64A with another seed); SipHash-2-4 is
Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).

They work on rows of bytes padded to a capacity, whose lengths may be traced, in NumPy or JAX.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.values.int64 import U64, choose, from_small, number

_K0, _K1, _K2 = (number(k) for k in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
_MURMUR = number(0xC6A4A7935BD1E995)


class Rows:
    """Byte strings: one row of words each, and the number of valid bytes.

    Reads are at static offsets from the start of a row or from its end. For the latter, rows are aligned at their ends
    once, by one gather.

    Args:
      words: uint32 of shape (..., n), NumPy or JAX: four bytes in each, little-endian.
      length: integers of the leading shape, or an int for all rows, NumPy or JAX; at most 4 n.
    """

    def __init__(self, words: Any, length: Any):
        self.static = isinstance(length, int)
        on_host = isinstance(words, np.ndarray) and (self.static or isinstance(length, np.ndarray | np.generic))
        self._xp: Any = np if on_host else jnp
        more = max(2, words.shape[-1] + words.shape[-1] % 2) - words.shape[-1]
        self._words = self._xp.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, more)])
        self.capacity: Any = length if self.static else 4 * words.shape[-1]
        self.byte_count: Any = length if self.static else self._xp.asarray(length).astype(np.int32)
        self.length = self._xp.broadcast_to(self._xp.asarray(length).astype(np.uint32), words.shape[:-1])
        self.size = from_small(self.length)
        self._last: Any = None

    def word(self, offset: Any) -> Any:
        """Return four bytes as a word, at an offset divisible by 4; zeros past the end."""
        offset = offset // 4
        if isinstance(offset, int):
            count = self._words.shape[-1]
            return self._words[..., offset] if offset < count else self._words[..., 0] * np.uint32(0)
        return lax.dynamic_index_in_dim(self._words, offset, axis=-1, keepdims=False)

    def start(self, offset: Any) -> U64:
        """Return eight bytes as an integer, at an offset (divisible by 4) from the start."""
        return U64(self.word(offset), self.word(offset + 4))

    def end(self, offset: int) -> U64:
        """Return the eight bytes at an offset from the end; undefined for shorter rows."""
        last = self._tail()
        return U64(last[..., -(offset // 4)], last[..., 1 - offset // 4] if offset > 4 else last[..., 0] * np.uint32(0))

    def _tail(self) -> Any:
        """Return the last words of each row, as many as the hashes read."""
        if self._last is None:
            count = next(n for n in (2, 4, 8, 16) if 4 * n >= self.capacity or n == 16)
            xp, first = self._xp, self.byte_count - 4 * count
            offset = xp.clip((first if self.static else first[..., None]) // 4 + np.arange(count + 1), 0, None)
            offset = xp.minimum(offset, self._words.shape[-1] - 1)
            taken = xp.take_along_axis(self._words, xp.broadcast_to(offset, (*self.length.shape, count + 1)), axis=-1)
            bits = (self.length[..., None] & np.uint32(3)) * np.uint32(8)
            # A shift by 32, needed for 0 bits, is undefined.
            upper = (taken[..., 1:] << np.uint32(1)) << (np.uint32(31) - bits)
            self._last = (taken[..., :-1] >> bits) | upper
        return self._last

    def repeat(self, count: int, body: Any, state: Any) -> Any:
        """Run ``body(i, state)`` ``count`` times, in a loop if traced: rows may be long."""
        if self._xp is np or count < 3:
            for i in range(count):
                state = body(i, state)
            return state
        words, tree = jax.tree.flatten([(s.low, s.high) for s in state])
        words = [jnp.broadcast_to(w, self.length.shape) for w in words]

        def step(i: Any, words: Any) -> Any:
            after = body(i, [U64(*pair) for pair in jax.tree.unflatten(tree, words)])
            return jax.tree.leaves([(s.low, s.high) for s in after])

        words = fori_loop(0, count, step, words)
        return [U64(*pair) for pair in jax.tree.unflatten(tree, words)]

    def may_have_length(self, low: int, high: int) -> bool:
        """Return whether a row can have a length in [low, high]."""
        return low <= self.byte_count <= high if self.static else low <= self.capacity


def _mixed(value: U64) -> U64:
    return value ^ (value >> 47)


def joined(first: U64, second: U64) -> U64:
    """Return the fingerprint of two fingerprints: FingerprintCat64."""
    result = first ^ _MURMUR
    result = result ^ (_mixed(second * _MURMUR) * _MURMUR)
    result = _mixed(result * _MURMUR) * _MURMUR
    return _mixed(result)


# ---- FarmHash ----


def _pair(u: U64, v: U64, factor: U64) -> U64:
    a = _mixed((u ^ v) * factor)
    return _mixed((v ^ a) * factor) * factor


def _to_16(rows: Rows) -> U64:
    length = rows.size
    result = _K2
    if rows.may_have_length(1, 3):
        word = rows.word(0)
        first, middle, last = (
            (word >> (np.uint32(8) * offset)) & np.uint32(0xFF)
            for offset in (rows.length * np.uint32(0), (rows.length & np.uint32(3)) >> np.uint32(1), _before(rows))
        )
        y = first + (middle << np.uint32(8))
        z = rows.length + (last << np.uint32(2))
        short = _mixed((from_small(y) * _K2) ^ (from_small(z) * _K0)) * _K2
        result = choose(rows.length > 0, short, _K2)
    if rows.may_have_length(4, 7):
        factor = _K2 + (length << 1)
        a = length + (from_small(rows.word(0)) << 3)
        result = choose(rows.length >= 4, _pair(a, from_small(rows.end(4).low), factor), result)
    if rows.may_have_length(8, 16):
        factor = _K2 + (length << 1)
        a, b = rows.start(0) + _K2, rows.end(8)
        c, d = b.rotated(37) * factor + a, (a.rotated(25) + b) * factor
        result = choose(rows.length >= 8, _pair(c, d, factor), result)
    return result


def _before(rows: Rows) -> Any:
    """Return the index of the last byte of rows of at most four bytes."""
    return (rows.length - np.uint32(1)) & np.uint32(3)


def _to_32(rows: Rows) -> U64:
    factor = _K2 + (rows.size << 1)
    a, b = rows.start(0) * _K1, rows.start(8)
    c, d = rows.end(8) * factor, rows.end(16) * _K2
    return _pair((a + b).rotated(43) + c.rotated(30) + d, a + (b + _K2).rotated(18) + c, factor)


def _to_64(rows: Rows) -> U64:
    factor = _K2 + (rows.size << 1)
    a, b = rows.start(0) * _K2, rows.start(8)
    c, d = rows.end(8) * factor, rows.end(16) * _K2
    y = (a + b).rotated(43) + c.rotated(30) + d
    z = _pair(y, a + (b + _K2).rotated(18) + c, factor)
    e, f = rows.start(16) * factor, rows.start(24)
    g, h = (y + rows.end(32)) * factor, (z + rows.end(24)) * factor
    return _pair((e + f).rotated(43) + g.rotated(30) + h, e + (f + a).rotated(18) + g, factor)


def _weak(words: list[U64], a: U64, b: U64) -> tuple[U64, U64]:
    w, x, y, z = words
    a = a + w
    b = (b + a + z).rotated(21)
    start = a
    a = a + x + y
    return a + z, b + a.rotated(44) + start


def _block(words: list[U64], state: Any, factor: U64, more: Any) -> Any:
    """Absorb 64 bytes; ``more`` differs for the last block."""
    x, y, z, v0, v1, w0, w1 = state
    x = (x + y + v0 + words[1]).rotated(37) * factor
    y = (y + v1 + words[6]).rotated(42) * factor
    x = x ^ more(w1)
    y = y + more(v0) + words[5]
    z = (z + w0).rotated(33) * factor
    v0, v1 = _weak(words[:4], v1 * factor, x + w0)
    w0, w1 = _weak(words[4:], z + w1, y + words[2])
    return [z, y, x, v0, v1, w0, w1]


def _longer(rows: Rows) -> U64:
    seed, zero = number(81), number(0)
    y = seed * _K1 + number(113)
    z = _mixed(y * _K2 + number(113)) * _K2
    state = [seed * _K2 + rows.start(0), y, z, zero, zero, zero, zero]
    blocks = (rows.byte_count - 1) // 64 if rows.static else (rows.byte_count - 1) >> 6

    def body(i: Any, state: Any) -> Any:
        after = _block([rows.start(i * 64 + 8 * k) for k in range(8)], state, _K1, lambda word: word)
        return after if rows.static else [choose(i < blocks, a, b) for a, b in zip(after, state, strict=True)]

    x, y, z, v0, v1, w0, w1 = rows.repeat(blocks if rows.static else (rows.capacity - 1) // 64, body, state)
    factor = _K1 + (U64(z.low & np.uint32(0xFF), z.high * np.uint32(0)) << 1)
    w0 = w0 + from_small((rows.length - np.uint32(1)) & np.uint32(63))
    v0 = v0 + w0
    w0 = w0 + v0
    nine, last = number(9), [rows.end(64 - 8 * k) for k in range(8)]
    state = _block(last, [x, y, z, v0, v1, w0, w1], factor, lambda word: word * nine)
    z, y, x, v0, v1, w0, w1 = state
    return _pair(_pair(v0, w0, factor) + _mixed(y) * _K0 + x, _pair(v1, w1, factor) + z, factor)


def farm(rows: Rows) -> U64:
    """Return Fingerprint64 of each row."""
    result = _to_16(rows)
    for low, high, of in ((17, 32, _to_32), (33, 64, _to_64), (65, 1 << 62, _longer)):
        if rows.may_have_length(low, high):
            result = of(rows) if rows.static else choose(rows.length >= low, of(rows), result)
    return _spread(result, rows)


def _spread(value: U64, rows: Rows) -> U64:
    zero = rows.length * np.uint32(0)
    return U64(value.low + zero, value.high + zero)


# ---- MurmurHash ----


def murmur(rows: Rows) -> U64:
    """Return Hash64 of each row."""
    state = [number(0xDECAFCAFFE) ^ (rows.size * _MURMUR)]
    words = rows.byte_count // 8 if rows.static else rows.byte_count >> 3

    def body(i: Any, state: Any) -> Any:
        taken = rows.start(i * 8) * _MURMUR
        after = (state[0] ^ ((taken ^ (taken >> 47)) * _MURMUR)) * _MURMUR
        return [after if rows.static else choose(i < words, after, state[0])]

    (state,) = rows.repeat(rows.capacity // 8, body, state)
    rest = _rest(rows)
    state = choose((rows.length & np.uint32(7)) > 0, (state ^ rest) * _MURMUR, state)
    state = (state ^ (state >> 47)) * _MURMUR
    return _spread(state ^ (state >> 47), rows)


def _rest(rows: Rows) -> U64:
    """Return the up to seven bytes after the last full eight, then zeros."""
    last = rows.end(8)
    # They are the high bytes of the last eight: earlier bytes are shifted out.
    unwanted = np.uint32(8) - (rows.length & np.uint32(7))
    for step in (1, 2, 4):
        last = choose((unwanted & np.uint32(step)) > 0, last >> (8 * step), last)
    last = choose((rows.length & np.uint32(7)) > 0, last, number(0))
    return choose(rows.length < 8, rows.start(0), last)  # rows of fewer than eight bytes


# ---- SipHash ----


def _rounds(state: Any, count: int) -> Any:
    a, b, c, d = state
    for _ in range(count):
        a, c = a + b, c + d
        b, d = b.rotated(64 - 13) ^ a, d.rotated(64 - 16) ^ c
        a = a.rotated(32)
        c, a = c + b, a + d
        b, d = b.rotated(64 - 17) ^ c, d.rotated(64 - 21) ^ a
        c = c.rotated(32)
    return [a, b, c, d]


def _absorbed(state: Any, word: U64) -> Any:
    a, b, c, d = _rounds([*state[:3], state[3] ^ word], 2)
    return [a ^ word, b, c, d]


def sip(rows: Rows, key: tuple[int, int]) -> U64:
    """Return SipHash-2-4 of each row with a key of two numbers: StrongKeyedHash."""
    first, second = (number(k) for k in key)
    start = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    state = [number(s) ^ k for s, k in zip(start, (first, second, first, second), strict=True)]
    words = rows.byte_count // 8 if rows.static else rows.byte_count >> 3

    def body(i: Any, state: Any) -> Any:
        after = _absorbed(state, rows.start(i * 8))
        return after if rows.static else [choose(i < words, a, b) for a, b in zip(after, state, strict=True)]

    state = rows.repeat(rows.capacity // 8, body, state)
    rest = _rest(rows)
    rest = U64(rest.low, rest.high | (rows.length << np.uint32(24)))
    a, b, c, d = _absorbed(state, rest)
    a, b, c, d = _rounds([a, b, c ^ number(0xFF), d], 4)
    return _spread(a ^ b ^ c ^ d, rows)
