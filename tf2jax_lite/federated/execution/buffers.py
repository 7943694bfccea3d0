"""Reuse buffers of stacked chunks, and other expensive objects, between rounds.

A chunk is megabytes. For a small model, fresh memory for each costs more than the computation: the system maps and
clears each page, and JAX copies unaligned buffers. On a CPU, JAX reads an aligned buffer without a copy.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = ["Arena", "Pool"]

T = TypeVar("T")

_BOUNDARY = 64  # bytes: alignment of buffers that XLA's CPU backend does not copy


class Arena:
    """Named arrays for one chunk; memory grows to the largest requested."""

    def __init__(self) -> None:
        self._memory: dict[str, np.ndarray] = {}

    def empty(self, name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Return an uninitialized array; it is valid until the next call with this name."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        held = self._memory.get(name)
        if held is None or held.nbytes < size:
            raw = np.zeros(size + _BOUNDARY, np.uint8)
            start = -raw.ctypes.data % _BOUNDARY
            held = self._memory[name] = raw[start : start + size]
        return held[:size].view(dtype).reshape(tuple(shape))


class Pool(Generic[T]):
    """Sets of objects that rounds borrow; concurrent rounds get different ones.

    Args:
      make: makes one.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: list[list[T]] = []
        self._lock = threading.Lock()

    def borrow(self, count: int) -> list[T]:
        """Return ``count`` unused objects."""
        with self._lock:
            found = self._free.pop() if self._free else []
        return [*found[:count], *(self._make() for _ in range(count - len(found)))]

    def give_back(self, used: list[T]) -> None:
        """Return a set of objects that is no longer in use."""
        with self._lock:
            self._free.append(used)
