"""Scalars in TensorBoard's event files, written without TensorFlow or TensorBoard.

Formats: TFRecord (length, masked CRC-32C, data, masked CRC-32C) of tensorflow.Event messages
(tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["EventWriter"]


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


class EventWriter:
    """Appends scalars to a new event file.

    Args:
      directory: where the file is made; TensorBoard's ``--logdir``.
    """

    def __init__(self, directory: str | Path):
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{time.time_ns() % 10**9}"
        self._file = (folder / name).open("xb")
        self._write(_bytes_field(3, b"brain.Event:2"))

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write scalars by tag, float32, of one step (0 or more)."""
        summary = b""
        for tag, value in values.items():
            one = _bytes_field(1, tag.encode()) + struct.pack("<Bf", 2 << 3 | 5, value)
            summary += _bytes_field(1, one)
        self._write(_varint(2 << 3) + _varint(step) + _bytes_field(5, summary))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, event: bytes) -> None:
        self._file.write(_record(struct.pack("<Bd", 1 << 3 | 1, time.time()) + event))
        self._file.flush()
