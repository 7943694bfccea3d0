"""The index of a checkpoint, read and checked without TensorFlow.

Some shapes make TensorFlow abort the process.

An index is an uncompressed LevelDB table: blocks of keys and values, an index of blocks, a footer.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tf2jax_lite.frontend.graphdef.protos import message
from tf2jax_lite.support import crc32c
from tf2jax_lite.support.errors import InvalidModelError
from tf2jax_lite.support.limits import read_bytes

__all__ = ["read_index"]

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER = 48
_MOST_DIMENSIONS = 254  # of a TensorFlow tensor


def read_index(file: Path) -> tuple[Any, dict[str, Any]]:
    """Return the header (BundleHeaderProto) and the entries (BundleEntryProto) by key.

    Args:
      file: the ``.index`` file.

    Raises:
      InvalidModelError: the index is damaged, or has shapes that TensorFlow tensors cannot have.
    """
    header, entries = message("BundleHeaderProto")(), {}
    kind = message("BundleEntryProto")
    try:
        for key, value in _entries(read_bytes(file)):
            if key:
                name = key.decode(errors="replace")
                entries[name] = kind.FromString(value)
                _check_entry(name, entries[name])
            else:
                header.MergeFromString(value)
        return header, entries
    except (ValueError, IndexError, DecodeError) as error:
        if isinstance(error, InvalidModelError):
            raise
        raise InvalidModelError(f"{file}: no index of a checkpoint, or a damaged one ({error}).") from error


def _check_entry(name: str, entry: Any) -> None:
    sizes = [dim.size for dim in entry.shape.dim]
    if len(sizes) > _MOST_DIMENSIONS:
        raise ValueError(f"{name!r} has {len(sizes)} dimensions")
    if any(size < 0 for size in sizes) or math.prod(sizes) >= 1 << 62:
        raise ValueError(f"{name!r} has the shape {sizes[:8]}")
    for part in entry.slices:
        if len(part.extent) != len(sizes):
            raise ValueError(f"a part of {name!r} has {len(part.extent)} dimensions of {len(sizes)}")


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError("it does not end as one")
    position = len(data) - _FOOTER
    for _ in range(2):  # the handle of the metaindex block, which is empty
        _, position = _number(data, position)
    start, position = _number(data, position)
    size, _ = _number(data, position)
    for _, handle in _block(data, start, size):
        start, position = _number(handle, 0)
        size, _ = _number(handle, position)
        yield from _block(data, start, size)


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block, whose keys are prefix-compressed."""
    if size < 4 or start + size + 5 > len(data) - _FOOTER:
        raise ValueError("a block lies outside of the file")
    if data[start + size] != 0:
        raise ValueError("a block is compressed, as TensorFlow never writes them")
    (stored,) = struct.unpack_from("<I", data, start + size + 1)
    state = crc32c.update(crc32c.START, np.frombuffer(data, np.uint8, size + 1, start))
    if crc32c.checksum(state) != crc32c.unmasked(stored):
        raise ValueError("the checksum of a block differs")
    end = start + size - 4 - 4 * struct.unpack_from("<I", data, start + size - 4)[0]
    if end < start:
        raise ValueError("a block is too short")
    key, position = b"", start
    while position < end:
        shared, position = _number(data, position)
        rest, position = _number(data, position)
        length, position = _number(data, position)
        if shared > len(key) or position + rest + length > end:
            raise ValueError("a key or a value goes beyond its block")
        key = key[:shared] + data[position : position + rest]
        yield key, data[position + rest : position + rest + length]
        position += rest + length


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint, and the offset of its end."""
    number = 0
    for shift in range(0, 70, 7):
        digit = data[position]
        number |= (digit & 127) << shift
        position += 1
        if digit < 128:
            return number, position
    raise ValueError("a number does not end")
