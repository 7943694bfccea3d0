"""What rounds use again and again: memory that chunks are stacked in, and whatever else is dear to make.

A chunk is megabytes. Fresh memory for each costs more than what is computed on it, for a small model: each page is
mapped and cleared by the system, and JAX copies what does not begin on a boundary of its own. On a CPU, a buffer that
begins there is read where it lies.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = ["Arena", "Pool"]

T = TypeVar("T")

_BOUNDARY = 64  # bytes: what XLA's CPU backend asks of memory that it does not copy


class Arena:
    """Named arrays for one chunk; a name's memory grows to the largest that was asked for."""

    def __init__(self) -> None:
        self._memory: dict[str, np.ndarray] = {}

    def empty(self, name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Returns an array whose contents are whatever was there before; it is valid until the name is asked again."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        held = self._memory.get(name)
        if held is None or held.nbytes < size:
            raw = np.zeros(size + _BOUNDARY, np.uint8)
            start = -raw.ctypes.data % _BOUNDARY
            held = self._memory[name] = raw[start : start + size]
        return held[:size].view(dtype).reshape(tuple(shape))


class Pool(Generic[T]):
    """Sets of things that rounds borrow. Rounds that run at the same time, in threads, get different ones.

    Args:
      make: makes one.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: list[list[T]] = []
        self._lock = threading.Lock()

    def borrow(self, count: int) -> list[T]:
        """Returns ``count`` of them that nobody else uses."""
        with self._lock:
            found = self._free.pop() if self._free else []
        return [*found[:count], *(self._make() for _ in range(count - len(found)))]

    def give_back(self, used: list[T]) -> None:
        """Takes a set back, with which nothing is being computed any more."""
        with self._lock:
            self._free.append(used)
