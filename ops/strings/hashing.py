"""Hashes of strings of bytes, bit for bit those of TensorFlow: Fingerprint64, Hash64, SipHash, and how two are joined.

FarmHash (farmhashna, https://github.com/google/farmhash) is what tensorflow/core/platform/fingerprint.h calls
Fingerprint64; Hash64 is that of tensorflow/tsl/platform/hash.cc (MurmurHash64A with another seed); SipHash-2-4 is
Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).

Each works on rows of bytes with room for the longest, whose lengths may be data, in numpy or JAX.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.values.uint64 import U64, choose, from_small, number

__all__ = ["Rows", "farm", "joined", "murmur", "sip"]

_K0, _K1, _K2 = (number(k) for k in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
_MURMUR = number(0xC6A4A7935BD1E995)


class Rows:
    """Strings of bytes: one row of words for each, and how many bytes of it count.

    What is read lies at places that are known, counted from the start of a row or from its end: rows are brought
    together at their ends once, by one gather.

    Args:
      words: uint32 of shape (..., n), numpy or JAX: four bytes in each, the first of them its lowest.
      length: whole numbers of the leading shape, or one for all (an int), numpy or JAX; at most 4 n.
    """

    def __init__(self, words: Any, length: Any):
        self.static = isinstance(length, int)
        on_host = isinstance(words, np.ndarray) and (self.static or isinstance(length, np.ndarray | np.generic))
        self._xp: Any = np if on_host else jnp
        more = max(2, words.shape[-1] + words.shape[-1] % 2) - words.shape[-1]
        self._words = self._xp.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, more)])
        self.room: Any = length if self.static else 4 * words.shape[-1]
        self.places: Any = length if self.static else self._xp.asarray(length).astype(np.int32)
        self.length = self._xp.broadcast_to(self._xp.asarray(length).astype(np.uint32), words.shape[:-1])
        self.size = from_small(self.length)
        self._last: Any = None

    def word(self, place: Any) -> Any:
        """Returns the four bytes at a multiple of four from the start, as a word; zeros past the end."""
        place = place // 4
        if isinstance(place, int):
            count = self._words.shape[-1]
            return self._words[..., place] if place < count else self._words[..., 0] * np.uint32(0)
        return lax.dynamic_index_in_dim(self._words, place, axis=-1, keepdims=False)

    def start(self, place: Any) -> U64:
        """Returns the eight bytes at a multiple of four from the start, as a number."""
        return U64(self.word(place), self.word(place + 4))

    def end(self, place: int) -> U64:
        """Returns the eight bytes from ``place``, a multiple of four, before the end; anything if there are less."""
        last = self._tail()
        return U64(last[..., -(place // 4)], last[..., 1 - place // 4] if place > 4 else last[..., 0] * np.uint32(0))

    def _tail(self) -> Any:
        """Returns the last bytes of each row, as many as anything reads."""
        if self._last is None:
            count = next(n for n in (2, 4, 8, 16) if 4 * n >= self.room or n == 16)
            xp, first = self._xp, self.places - 4 * count
            place = xp.clip((first if self.static else first[..., None]) // 4 + np.arange(count + 1), 0, None)
            place = xp.minimum(place, self._words.shape[-1] - 1)
            taken = xp.take_along_axis(self._words, xp.broadcast_to(place, (*self.length.shape, count + 1)), axis=-1)
            bits = (self.length[..., None] & np.uint32(3)) * np.uint32(8)
            # Shifting by 32, as it would be for no bits, is not defined.
            upper = (taken[..., 1:] << np.uint32(1)) << (np.uint32(31) - bits)
            self._last = (taken[..., :-1] >> bits) | upper
        return self._last

    def repeat(self, count: int, body: Any, state: Any) -> Any:
        """Runs ``body(i, state)`` so many times, in a loop where it is traced: rows may be long."""
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

    def any_of(self, low: int, high: int) -> bool:
        """Whether a row can have a length between two."""
        return low <= self.places <= high if self.static else low <= self.room


def _mixed(value: U64) -> U64:
    return value ^ (value >> 47)


def joined(first: U64, second: U64) -> U64:
    """Returns the fingerprint of two fingerprints: tensorflow/core/platform/fingerprint.h's FingerprintCat64."""
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
    if rows.any_of(1, 3):
        word = rows.word(0)
        first, middle, last = (
            (word >> (np.uint32(8) * place)) & np.uint32(0xFF)
            for place in (rows.length * np.uint32(0), (rows.length & np.uint32(3)) >> np.uint32(1), _before(rows))
        )
        y = first + (middle << np.uint32(8))
        z = rows.length + (last << np.uint32(2))
        short = _mixed((from_small(y) * _K2) ^ (from_small(z) * _K0)) * _K2
        result = choose(rows.length > 0, short, _K2)
    if rows.any_of(4, 7):
        factor = _K2 + (length << 1)
        a = length + (from_small(rows.word(0)) << 3)
        result = choose(rows.length >= 4, _pair(a, from_small(rows.end(4).low), factor), result)
    if rows.any_of(8, 16):
        factor = _K2 + (length << 1)
        a, b = rows.start(0) + _K2, rows.end(8)
        c, d = b.rotated(37) * factor + a, (a.rotated(25) + b) * factor
        result = choose(rows.length >= 8, _pair(c, d, factor), result)
    return result


def _before(rows: Rows) -> Any:
    """Returns where the last byte is of rows of no more than four."""
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
    """Takes up 64 bytes; the last of them are taken up in another way."""
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
    blocks = (rows.places - 1) // 64 if rows.static else (rows.places - 1) >> 6

    def body(i: Any, state: Any) -> Any:
        after = _block([rows.start(i * 64 + 8 * k) for k in range(8)], state, _K1, lambda word: word)
        return after if rows.static else [choose(i < blocks, a, b) for a, b in zip(after, state, strict=True)]

    x, y, z, v0, v1, w0, w1 = rows.repeat(blocks if rows.static else (rows.room - 1) // 64, body, state)
    factor = _K1 + (U64(z.low & np.uint32(0xFF), z.high * np.uint32(0)) << 1)
    w0 = w0 + from_small((rows.length - np.uint32(1)) & np.uint32(63))
    v0 = v0 + w0
    w0 = w0 + v0
    nine, last = number(9), [rows.end(64 - 8 * k) for k in range(8)]
    state = _block(last, [x, y, z, v0, v1, w0, w1], factor, lambda word: word * nine)
    z, y, x, v0, v1, w0, w1 = state
    return _pair(_pair(v0, w0, factor) + _mixed(y) * _K0 + x, _pair(v1, w1, factor) + z, factor)


def farm(rows: Rows) -> U64:
    """Returns Fingerprint64 of each row."""
    result = _to_16(rows)
    for low, high, of in ((17, 32, _to_32), (33, 64, _to_64), (65, 1 << 62, _longer)):
        if rows.any_of(low, high):
            result = of(rows) if rows.static else choose(rows.length >= low, of(rows), result)
    return _spread(result, rows)


def _spread(value: U64, rows: Rows) -> U64:
    zero = rows.length * np.uint32(0)
    return U64(value.low + zero, value.high + zero)


# ---- MurmurHash ----


def murmur(rows: Rows) -> U64:
    """Returns Hash64 of each row."""
    state = [number(0xDECAFCAFFE) ^ (rows.size * _MURMUR)]
    words = rows.places // 8 if rows.static else rows.places >> 3

    def body(i: Any, state: Any) -> Any:
        taken = rows.start(i * 8) * _MURMUR
        after = (state[0] ^ ((taken ^ (taken >> 47)) * _MURMUR)) * _MURMUR
        return [after if rows.static else choose(i < words, after, state[0])]

    (state,) = rows.repeat(rows.room // 8, body, state)
    rest = _rest(rows)
    state = choose((rows.length & np.uint32(7)) > 0, (state ^ rest) * _MURMUR, state)
    state = (state ^ (state >> 47)) * _MURMUR
    return _spread(state ^ (state >> 47), rows)


def _rest(rows: Rows) -> U64:
    """Returns the up to seven bytes that follow the last whole eight, zeros after them."""
    last = rows.end(8)
    # They are the highest of the last eight: what is before them goes out at the bottom.
    unwanted = np.uint32(8) - (rows.length & np.uint32(7))
    for step in (1, 2, 4):
        last = choose((unwanted & np.uint32(step)) > 0, last >> (8 * step), last)
    last = choose((rows.length & np.uint32(7)) > 0, last, number(0))
    return choose(rows.length < 8, rows.start(0), last)  # there are no eight


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
    """Returns SipHash-2-4 of each row with a key of two numbers: StrongKeyedHash."""
    first, second = (number(k) for k in key)
    start = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    state = [number(s) ^ k for s, k in zip(start, (first, second, first, second), strict=True)]
    words = rows.places // 8 if rows.static else rows.places >> 3

    def body(i: Any, state: Any) -> Any:
        after = _absorbed(state, rows.start(i * 8))
        return after if rows.static else [choose(i < words, a, b) for a, b in zip(after, state, strict=True)]

    state = rows.repeat(rows.room // 8, body, state)
    rest = _rest(rows)
    rest = U64(rest.low, rest.high | (rows.length << np.uint32(24)))
    a, b, c, d = _absorbed(state, rest)
    a, b, c, d = _rounds([a, b, c ^ number(0xFF), d], 4)
    return _spread(a ^ b ^ c ^ d, rows)
