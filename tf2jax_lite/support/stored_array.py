"""Arrays that stay in a file until they are read, piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import crc32c
from .errors import InvalidModelError
from .limits import MAX_DIMENSIONS

_CHUNK_BYTES = 1 << 22


class StoredArray:
    """An array in a file: shape and dtype without the values.

    ``numpy.asarray`` reads it; `chunks` reads it with little memory.

    Args:
      checksum: CRC-32C of the bytes.
    """

    def __init__(
        self,
        file: Path,
        offset: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        *,
        checksum: int,
        name: str,
        converted: np.dtype | None = None,
    ):
        if len(shape) > MAX_DIMENSIONS:
            raise InvalidModelError(f"{file}: {name!r} has {len(shape)} dimensions; at most {MAX_DIMENSIONS} are read.")
        self.shape = shape
        self.dtype = dtype if converted is None else converted
        self._file = file
        self._offset = offset
        self._stored = dtype
        self._checksum = checksum
        self._name = name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the values."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"StoredArray({self._name!r}, {self.dtype}{list(self.shape)})"

    def astype(self, dtype: Any) -> StoredArray:
        """Return the array in another dtype, converted when it is read."""
        return StoredArray(
            self._file,
            self._offset,
            self.shape,
            self._stored,
            checksum=self._checksum,
            name=self._name,
            converted=np.dtype(dtype),
        )

    def chunks(self) -> Iterator[np.ndarray]:
        """Yield the elements in C order, as vectors that hold until the next is taken."""
        left = self.size * self._stored.itemsize
        buffer = np.empty(min(left, _CHUNK_BYTES), np.uint8)
        state = crc32c.START
        try:
            with self._file.open("rb", buffering=0) as stream:
                stream.seek(self._offset)
                while left:
                    piece = buffer[: min(left, buffer.size)]
                    _fill(stream, piece)
                    state = crc32c.update(state, piece)
                    left -= piece.size
                    values = piece.view(self._stored)
                    yield values if self.dtype == self._stored else values.astype(self.dtype)
        except OSError as error:
            raise InvalidModelError(f"{self._file}: {self._name!r} cannot be read ({error}).") from error
        if crc32c.checksum(state) != self._checksum:
            raise InvalidModelError(f"{self._file}: {self._name!r} is damaged: its checksum differs.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a stored array must be read")
        values = np.empty(self.size, self.dtype if dtype is None else dtype)
        position = 0
        for chunk in self.chunks():
            values[position : position + chunk.size] = chunk
            position += chunk.size
        return values.reshape(self.shape)


def _fill(stream: Any, piece: np.ndarray) -> None:
    position = 0
    while position < piece.size:
        count = stream.readinto(piece.data[position:])
        if not count:
            raise OSError("the file is too short")
        position += count
