"""Arrays of strings; formatting, joining, lengths, hash buckets, fingerprints.

JAX has no strings: they are static NumPy object arrays, or traced padded bytes. Traced strings are formatted from
traced integers. They can be joined, hashed and printed (Keras's Hashing layer does so), but they cannot be results of a
converted function, or operands of arithmetic.

TF: core/kernels/string_to_hash_bucket_fast_op.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Unconverted
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.support.limits import check_bytes
from tf2jax_lite.values.int64 import U64, U32Pair, WordArray, choose, from_u32_pair, number, to_u32_pair, wrapping
from tf2jax_lite.values.static import is_static, static_value

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


_BLANK, _ZERO, _MINUS, _PLUS = (np.uint32(ord(c)) for c in " 0-+")


# ---- formatting ----


def _printf(
    input: Any,
    *,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
) -> Any:
    _check_format(input.dtype, precision, scientific, shortest, fill)
    dtype = input.dtype
    inexact = jnp.issubdtype(dtype, jnp.inexact)
    kind = "e" if scientific else "g" if shortest else "f"
    digits = f".{precision}" if precision >= 0 else ""
    flag = fill if width >= 0 else ""
    size = str(width) if width >= 0 else ""

    def one(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value.rjust(max(width, 0)) if flag != "-" else value.ljust(max(width, 0))
        if dtype == np.bool_:
            return b"true" if value else b"false"
        if jnp.issubdtype(dtype, jnp.complexfloating):
            parts = (f"%{digits}{kind}" % float(p) for p in (value.real, value.imag))
            return f"({','.join(parts)})".encode()
        if inexact:
            # C pads NaN and infinity with blanks, never zeros.
            plain = flag if np.isfinite(value) or flag != "0" else ""
            return (f"%{plain}{size}{digits}{kind}" % float(value)).encode()
        plain = "" if flag in ("+", " ") and dtype.kind == "u" else flag  # unsigned integers have no sign
        return (f"%{plain}{size}d" % int(value)).encode()

    out = np.empty(input.shape, object)
    out.reshape(-1)[:] = [one(v) for v in input.reshape(-1)]
    return out


def _check_format(dtype: Any, precision: int, scientific: bool, shortest: bool, fill: str) -> None:
    if scientific and shortest:
        raise OpError("scientific and shortest notation exclude each other")
    if fill not in ("", " ", "0", "-", "+"):
        raise OpError(f"fill {fill!r} is not supported")
    if jnp.issubdtype(dtype, jnp.inexact) or dtype.kind == "O":
        return
    if precision >= 0:
        raise OpError(f"precision is not supported for {dtype}")
    if scientific or shortest:
        raise OpError(f"scientific and shortest notation are not supported for {dtype}")


@op("AsString", fold=_printf, int64="pair")
def as_string(input: Unconverted, *, precision=-1, scientific=False, shortest=False, width=-1, fill=""):
    """Format numbers as text. TF: core/kernels/as_string_op.cc."""
    found = static_value(input)
    if found is not None:
        return _printf(found, precision=precision, scientific=scientific, shortest=shortest, width=width, fill=fill)
    if isinstance(input, ByteStrings):
        raise OpError("strings that are not known while tracing cannot be padded to a width")
    _check_format(input.dtype, precision, scientific, shortest, fill)
    if input.dtype == np.bool_:
        words = as_strings(np.array([b"false", b"true"], object)).data
        return ByteStrings(words[input.astype(np.int32)])
    if not jnp.issubdtype(input.dtype, jnp.integer):
        raise OpError(
            f"{input.dtype} that is not known while tracing cannot become text, only integers and booleans can; JAX "
            "has no string arrays"
        )
    return _format_integers(input, width, fill if width >= 0 else "")


def _format_integers(value: Any, width: int, flag: str) -> ByteStrings:
    """Format traced integers as C's printf does."""
    size = 8 if isinstance(value, U32Pair) else value.dtype.itemsize
    words = jnp.asarray(to_u32_pair(value))
    negative = (words[..., 1] >> np.uint32(31)) != 0 if jnp.issubdtype(value.dtype, jnp.signedinteger) else None
    left = U64(words[..., 0], words[..., 1])
    if negative is not None:
        left = choose(negative, U64(~left.low, ~left.high) + number(1), left)
    max_digits = {1: 3, 2: 5, 4: 10, 8: 20}[size]
    digits, count = _decimals(left, max_digits)
    signed = jnp.zeros(count.shape, bool) if negative is None else negative
    sign = jnp.where(signed, _MINUS, _PLUS)
    prefix = jnp.ones_like(count) if flag == "+" and negative is not None else signed.astype(np.int32)
    fill_width = jnp.maximum(width - prefix - count, 0)
    no_fill = jnp.zeros_like(fill_width)
    blanks = fill_width if flag in ("", " ", "+") else no_fill
    zeros = fill_width if flag == "0" else no_fill
    if flag == " " and negative is not None:  # C writes a blank in the position of the sign
        blanks = jnp.maximum(blanks, 1 - prefix)
    start = blanks + prefix + zeros
    length = start + count + (fill_width if flag == "-" else no_fill)
    position = jnp.arange(max(width, max_digits + 1))
    blanks, prefix, start, end = (v[..., None] for v in (blanks, prefix, start, start + count))
    digit = jnp.take_along_axis(digits, jnp.clip(end - 1 - position, 0, digits.shape[-1] - 1), axis=-1)
    text = jnp.where(position < blanks + prefix, sign[..., None], jnp.where(position < start, _ZERO, digit + _ZERO))
    text = jnp.where((position < blanks) | (position >= end), _BLANK, text)
    return packed(text, length)


def _decimals(value: U64, max_digits: int) -> tuple[Any, Any]:
    """Return decimal digits on a new last axis, lowest first, and their number."""
    parts = [value.high >> np.uint32(16), value.high & np.uint32(0xFFFF)] if max_digits > 10 else []
    parts += [value.low >> np.uint32(16), value.low & np.uint32(0xFFFF)]
    four, digits = np.uint32(10000), []
    for _ in range(0, max_digits, 4):
        rest, quotients = jnp.zeros_like(value.low), []
        for part in parts:  # long division, 16 bits at a time
            rest = (rest << np.uint32(16)) | part
            quotients.append(rest // four)
            rest = rest % four
        parts = quotients
        digits += [rest // np.uint32(10**k) % np.uint32(10) for k in range(4)]
    stacked = jnp.stack(digits, axis=-1)
    count = jnp.max(jnp.where(stacked > 0, jnp.arange(1, len(digits) + 1), 1), axis=-1)
    return stacked, count.astype(np.int32)


# ---- joining and lengths ----


def _string_join(inputs: list[Any], *, separator: str = "") -> Any:
    shape = _shape_of_join(inputs)
    out = np.full(shape, b"", object)
    if not inputs:
        return out
    parts = [np.broadcast_to(v, shape).reshape(-1) for v in inputs]
    out.reshape(-1)[:] = [encoded(separator).join(row) for row in zip(*parts, strict=True)]
    return out


def _shape_of_join(inputs: list[Any]) -> Any:
    shape = next((v.shape for v in inputs if v.ndim), ())
    if any(v.ndim and v.shape != shape for v in inputs):
        raise OpError(f"the shapes {[v.shape for v in inputs]} are neither equal nor scalar")
    return shape


@op("StringJoin", fold=_string_join, int64="pair")
def string_join(inputs: Unconverted, *, separator=""):
    """Join strings element by element.

    TF: core/kernels/string_join_op.cc.
    """
    for value in inputs:
        as_strings(value)
    shape = _shape_of_join(inputs)
    parts: list[Any] = []
    for value in inputs:
        if parts and separator:
            parts.append(as_strings(np.array(encoded(separator), object)))
        parts.append(as_strings(value))
    text, length = parts[0].bytes, parts[0].length
    text, length = jnp.broadcast_to(text, (*shape, text.shape[-1])), jnp.broadcast_to(length, shape)
    for part in parts[1:]:
        more, count = part.bytes, jnp.broadcast_to(part.length, shape)
        if not part.capacity:
            continue
        more = jnp.broadcast_to(more, (*shape, part.capacity))
        position = jnp.arange(text.shape[-1] + part.capacity)
        old = jnp.pad(text, [(0, 0)] * len(shape) + [(0, part.capacity)])
        new = jnp.take_along_axis(more, jnp.clip(position - length[..., None], 0, part.capacity - 1), axis=-1)
        text = jnp.where(position < length[..., None], old, new)
        length = length + count
    return packed(text, length)


def _string_length(input: Any, *, unit: str = "BYTE") -> Any:
    rows = as_rows(input)
    if unit == "BYTE":
        return np.asarray(rows.length).astype(np.int32)
    return _characters(rows, np)


def _characters(rows: hashing.Rows, xp: Any) -> Any:
    """Count the bytes that are not UTF-8 continuation bytes."""
    total = rows.length
    for position in range(0, rows.capacity, 4):
        word = rows.word(position)
        for i in range(4):  # zeros past the end are no continuation bytes
            total = total - ((word >> np.uint32(8 * i) & np.uint32(0xC0)) == 0x80).astype(np.uint32)
    return xp.asarray(total).astype(np.int32)


@op("StringLength", fold=_string_length, int64="pair")
def string_length(input: Unconverted, *, unit="BYTE"):
    """Return the numbers of bytes, or of UTF-8 characters, int32.

    TF: core/kernels/string_length_op.cc.
    """
    rows = as_rows(input)
    return rows.length.astype(np.int32) if unit == "BYTE" else _characters(rows, jnp)


# ---- hashes ----


def _fast(input: Any, *, num_buckets: int) -> Any:
    with wrapping():
        return from_u64(hashing.farm(as_rows(input)) % num_buckets)


def _plain(string_tensor: Any, *, num_buckets: int) -> Any:
    with wrapping():
        return from_u64(hashing.murmur(as_rows(string_tensor)) % num_buckets)


def _strong(input: Any, *, num_buckets: int, key: list[int]) -> Any:
    if len(key) != 2:
        raise OpError(f"the key must be two numbers, got {list(key)}")
    with wrapping():
        return from_u64(hashing.sip(as_rows(input), (key[0], key[1])) % num_buckets)


@op("StringToHashBucketFast", fold=_fast, int64="pair")
def string_to_hash_bucket_fast(input: Unconverted, *, num_buckets):
    """Return FarmHash's Fingerprint64 modulo a number, int64."""
    return _fast(input, num_buckets=num_buckets)


@op("StringToHashBucket", fold=_plain, int64="pair")
def string_to_hash_bucket(string_tensor: Unconverted, *, num_buckets):
    """Return TensorFlow's Hash64 modulo a number, int64.

    TF: core/kernels/string_to_hash_bucket_op.cc.
    """
    return _plain(string_tensor, num_buckets=num_buckets)


@op("StringToHashBucketStrong", fold=_strong, int64="pair")
def string_to_hash_bucket_strong(input: Unconverted, *, num_buckets, key):
    """Return SipHash-2-4 modulo a number, int64."""
    return _strong(input, num_buckets=num_buckets, key=key)


def _fingerprint(data: Any, method: Any, *, T: Any = None) -> Any:
    if method.reshape(-1)[0] != b"farmhash64":
        raise UnsupportedAttributeError(f"fingerprint method {method.reshape(-1)[0]!r}: there is farmhash64 only")
    if data.ndim < 1:
        raise OpError("a fingerprint is taken of rows, not of a scalar")
    with wrapping():
        if is_text(data):
            found = _octets(hashing.farm(as_rows(data)))
            if data.ndim == 1:
                return found
            data = found
        text = _bytes(data)
        text = text.reshape(text.shape[0], int(np.prod(text.shape[1:])))
        return _octets(hashing.farm(hashing.Rows(pack_words(text.astype(np.uint32)), text.shape[-1])))


def _octets(value: U64) -> Any:
    xp: Any = jnp if isinstance(value.low, jax.Array) else np
    words = xp.stack([value.low, value.high], axis=-1)[..., None] >> np.arange(0, 32, 8, dtype=np.uint32)
    return (words & np.uint32(0xFF)).astype(np.uint8).reshape(*words.shape[:-2], 8)


def _bytes(data: Any) -> Any:
    """Return the bytes of numbers along a new last axis."""
    if is_static(data):
        data = np.ascontiguousarray(data)
        return data.view(np.uint8).reshape(*data.shape, data.dtype.itemsize)
    if isinstance(data, U32Pair):
        data = data.data
    if data.dtype == np.bool_:
        data = data.astype(np.uint8)
    if jnp.issubdtype(data.dtype, jnp.complexfloating):
        data = jnp.stack([data.real, data.imag], axis=-1)
    out = jax.lax.bitcast_convert_type(data, np.uint8)
    return out[..., None] if data.dtype.itemsize == 1 else out


@op("Fingerprint", fold=_fingerprint, int64="pair")
def fingerprint(data: Unconverted, method: Static, *, T=None):
    """Return FarmHash's Fingerprint64 of the bytes of each row.

    TF: core/kernels/fingerprint_op.cc.

    Args:
      data: [n, ...]; strings are hashed one by one first.
      method: static; only farmhash64.

    Returns:
      uint8 [n, 8], low byte first.
    """
    declared = None if T is None else np.dtype(T)
    if declared is not None and not is_static(data) and not isinstance(data, WordArray) and declared != data.dtype:
        if declared.kind not in "iu" or declared.itemsize != 8:
            raise OpError(
                f"the bytes of {declared} are hashed, which JAX holds as {data.dtype} outside its 64-bit mode"
            )
        data = U32Pair(jnp.asarray(to_u32_pair(data)), declared)
    return _fingerprint(data, method)
