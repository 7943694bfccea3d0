"""The index of a checkpoint, read and checked without TensorFlow.

Some shapes make TensorFlow abort the process, and so does a key that occurs twice. Here an index has one reading: what
a scan of the whole table finds is what TensorFlow's searches find.

An index is a LevelDB table: blocks of keys and values, an index of blocks, a footer. Blocks may be compressed (Snappy),
as TensorFlow 1.1 and Google's builds write them.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tf2jax_lite.frontend.graphdef.protos import message
from tf2jax_lite.support import crc32c
from tf2jax_lite.support.errors import InvalidModelError, LimitError
from tf2jax_lite.support.limits import MAX_DIMENSIONS

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER = 48
_DTYPES = frozenset((*range(1, 20), *range(21, 26), *range(29, 34)))  # types_pb2.DataType but resources and references
_VERSION = 1  # of the format (kTensorBundleVersion)
_MAX_BYTES = 1 << 28
_ENTRY_BYTES, _MESSAGE_FACTOR = 512, 32  # memory of an entry, and of its message per byte of the file (measured: 24)


def read_index(file: Path, data: bytes) -> tuple[Any, dict[str, Any]]:
    """Return the header (BundleHeaderProto) and the entries (BundleEntryProto) by key."""
    kind = message("BundleEntryProto")
    try:
        table = _entries(data)
        first, value = next(table, (None, b""))
        if first != b"":
            raise ValueError("it has no header")
        header = message("BundleHeaderProto").FromString(value)
        if header.version.min_consumer > _VERSION or _VERSION in header.version.bad_consumers:
            raise ValueError(f"a reader of version {header.version.min_consumer} is needed")
        entries = {key.decode(errors="surrogateescape"): kind.FromString(value) for key, value in table}
        for name, entry in entries.items():
            _check_entry(name, entry, entries)
        return header, entries
    except LimitError as error:
        raise LimitError(f"{file}: {error}") from error
    except (ValueError, IndexError, DecodeError) as error:
        if isinstance(error, InvalidModelError):
            raise
        raise InvalidModelError(f"{file}: not an index of a checkpoint that can be read ({error}).") from error


def _check_entry(name: str, entry: Any, entries: dict[str, Any]) -> None:
    if entry.dtype not in _DTYPES:  # TensorFlow ends the process over others, references among them
        raise ValueError(f"{name!r} has the dtype {entry.dtype}")
    sizes = [dim.size for dim in entry.shape.dim]
    if len(sizes) > MAX_DIMENSIONS:
        raise ValueError(f"{name!r} has {len(sizes)} dimensions")
    if entry.shape.unknown_rank or any(size < 0 for size in sizes) or math.prod(sizes) >= 1 << 62:
        raise ValueError(f"{name!r} has the shape {sizes[:8]}")
    keys = set()
    for part in entry.slices:
        extents = [(e.start, e.length if e.WhichOneof("has_length_hack") else -1) for e in part.extent]
        if len(extents) != len(sizes):
            raise ValueError(f"a part of {name!r} has {len(extents)} dimensions of {len(sizes)}")
        for (start, length), size in zip(extents, sizes, strict=True):
            if (length != -1 and not 0 <= start <= start + length <= size) or (length == -1 and start):
                raise ValueError(f"a part of {name!r} lies outside of it")
        shape = [size if length == -1 else length for (_, length), size in zip(extents, sizes, strict=True)]
        keys.add(key := slice_key(name, extents))
        stored = entries.get(key)
        fits = stored is not None and (stored.dtype, [d.size for d in stored.shape.dim]) == (entry.dtype, shape)
        if not fits or entries[key].slices:
            raise ValueError(f"a part of {name!r} is missing, or has another shape or dtype")
    if len(keys) != len(entry.slices):  # over which TensorFlow ends the process
        raise ValueError(f"a part of {name!r} occurs twice")


def slice_key(name: str, extents: list[tuple[int, int]]) -> str:
    """Return the key of a part of a tensor, TensorFlow's ``EncodeTensorNameSlice``.

    Args:
      extents: start and length for each dimension; a length of -1 is the whole dimension.
    """
    text = re.sub(
        rb"[\0\xff]", lambda found: found[0] + bytes([255 - found[0][0]]), name.encode(errors="surrogateescape")
    )
    numbers = b"".join(_ordered(number) for extent in extents for number in extent)
    count = bytes([1, len(extents)]) if extents else b"\0"
    return (b"\0" + text + b"\0\1" + count + numbers).decode(errors="surrogateescape")


def _ordered(number: int) -> bytes:
    """Return a signed integer as bytes of the same order, LevelDB's OrderedCode."""
    bits = (~number if number < 0 else number).bit_length()
    length = bits // 7 + 1
    code = number & ((1 << 8 * length) - 1)
    header = ((1 << length) - 1) << (7 * length)
    return (code ^ header).to_bytes(length, "big")


def check_lengths(data: Any, count: int, are_strings: bool) -> None:
    """Check strings or variants, whose announced lengths TensorFlow allocates.

    Args:
      data: the bytes of a tensor: the lengths of all strings, a checksum, all strings; or each variant's length,
        content and checksum.

    Raises:
      ValueError, IndexError: there are fewer bytes.
    """
    position = total = 0
    for _ in range(count):
        length, position = _number(data, position)
        if are_strings:
            total += length
        else:
            position += length + 4
    if position + total > len(data):
        raise ValueError("it announces more than there is")


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a LevelDB table, which are in order."""
    return _Table(data).entries()


class _Table:
    """A LevelDB table.

    Restarts, keys and blocks must be in the order of LevelDB's writer.
    """

    def __init__(self, data: bytes):
        self._data = data
        self._left = _MAX_BYTES

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        data = self._data
        if len(data) < _FOOTER or data[-8:] != _MAGIC:
            raise ValueError("it does not end as one")
        position = len(data) - _FOOTER
        for _ in range(2):  # the handle of the metaindex block, which is empty
            _, position = _number(data, position)
        index, position = _number(data, position)
        size, _ = _number(data, position)
        end, last = 0, None
        for highest, handle in self._block(index, size, len(data) - _FOOTER):
            start, position = _number(handle, 0)
            size, _ = _number(handle, position)
            if start < end:
                raise ValueError("blocks overlap")
            end = start + size + 5
            for key, value in self._block(start, size, index):
                if (last is not None and key <= last) or key > highest:
                    raise ValueError("keys do not increase")
                last = key
                yield key, value
            last = highest  # the index leads to a block for keys up to this one

    def _block(self, start: int, size: int, stop: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values of a block, whose keys are prefix-compressed."""
        block = self._unpacked(start, size, stop)
        (count,) = struct.unpack_from("<I", block, len(block) - 4)
        end = len(block) - 4 - 4 * count
        if end < 0:
            raise ValueError("a block is too short")
        restarts = np.frombuffer(block, "<u4", count, end)
        key, position, restart = b"", 0, 0
        while position < end:
            shared, at = _number(block, position)
            rest, at = _number(block, at)
            length, at = _number(block, at)
            if shared > len(key) or at + rest + length > end:
                raise ValueError("a key or a value goes beyond its block")
            if restart < count and restarts[restart] == position and not shared:
                restart += 1
            elif not restart:
                raise ValueError("a block does not begin with a restart")
            self._take(_ENTRY_BYTES + shared + rest + _MESSAGE_FACTOR * length)
            key = key[:shared] + block[at : at + rest]
            position = at + rest + length
            yield key, block[at + rest : position]
        if not restart or restart != count:
            raise ValueError("the restarts of a block are no entries")

    def _unpacked(self, start: int, size: int, stop: int) -> bytes:
        data = self._data
        if start + size + 5 > stop:
            raise ValueError("a block lies outside of its place in the file")
        (stored,) = struct.unpack_from("<I", data, start + size + 1)
        state = crc32c.update(crc32c.START, np.frombuffer(data, np.uint8, size + 1, start))
        if crc32c.checksum(state) != crc32c.unmasked(stored):
            raise ValueError("the checksum of a block differs")
        block, kind = data[start : start + size], data[start + size]
        if kind > 1:
            raise ValueError(f"a block has the compression {kind}")
        if kind:
            announced, _ = _number(block, 0)
            self._take(announced)
            block = unpack_snappy(block)
        if len(block) < 4:
            raise ValueError("a block is too short")
        return block

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise LimitError(f"its entries take more than {_MAX_BYTES} bytes of memory.")


def unpack_snappy(data: bytes) -> bytes:
    """Unpack Snappy's raw format.

    Memory is at most the announced size.

    Source: https://github.com/google/snappy/blob/main/format_description.txt.
    """
    size, position = _number(data, 0)
    out = bytearray()
    while position < len(data):
        tag = data[position]
        kind, count = tag & 3, tag >> 2
        position += 1
        if kind == 0:  # a literal; its length may follow in 1 to 4 bytes
            extra = max(count - 59, 0)
            if extra:
                count = int.from_bytes(data[position : position + extra], "little")
            position += extra
            piece = data[position : position + count + 1]
            position += count + 1
            if position > len(data):
                raise ValueError("a compressed block is cut short")
        else:  # a copy of bytes that are before it
            width = (1, 2, 4)[kind - 1]
            if position + width > len(data):
                raise ValueError("a compressed block is cut short")
            offset = int.from_bytes(data[position : position + width], "little")
            position += width
            if kind == 1:
                offset, count = offset | tag >> 5 << 8, (count & 7) + 3
            if not 0 < offset <= len(out):
                raise ValueError("a compressed block refers to bytes before it")
            begin = len(out) - offset
            piece = (out[begin : begin + count + 1] * (count // offset + 1))[: count + 1]
        if len(out) + len(piece) > size:
            raise ValueError("a compressed block is larger than it announces")
        out += piece
    if len(out) != size:
        raise ValueError("a compressed block is smaller than it announces")
    return bytes(out)


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint of at most 64 bits, and the offset of its end."""
    number = 0
    for shift in range(0, 70, 7):
        digit = data[position]
        number |= (digit & 127) << shift
        position += 1
        if digit < 128:
            return number, position
    raise ValueError("a number does not end")
