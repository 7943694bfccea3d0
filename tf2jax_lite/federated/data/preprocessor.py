"""Functions applied to examples when they are read.

Source: BatchPreprocessor, ClientPreprocessor of fedjax.core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

__all__ = [
    "BatchPreprocessor",
    "ClientPreprocessor",
    "Examples",
    "NoOpBatchPreprocessor",
    "NoOpClientPreprocessor",
]

Examples = Mapping[str, np.ndarray]


class BatchPreprocessor:
    """A chain of functions ``examples -> examples``, applied to batches.

    Args:
      fns: the functions, the first one applied first. Each takes and returns a dict of arrays whose leading sizes are
        equal, and must treat every example alone: how examples are put into batches must not matter.
    """

    def __init__(self, fns: Iterable[Callable[[Examples], Examples]] = ()):
        self._fns = tuple(fns)

    def __call__(self, examples: Examples) -> dict[str, Any]:
        """Return the examples after all functions."""
        for fn in self._fns:
            examples = fn(examples)
        return dict(examples)

    def append(self, fn: Callable[[Examples], Examples]) -> BatchPreprocessor:
        """Return a new chain that ends with ``fn``."""
        return BatchPreprocessor((*self._fns, fn))

    def __repr__(self) -> str:
        return f"BatchPreprocessor({list(self._fns)})"


class ClientPreprocessor:
    """A chain of functions ``(client_id, examples) -> examples``.

    It is applied when a client's examples are read.

    Args:
      fns: the functions, the first one applied first. Unlike a batch's, they may add, drop and reorder examples.
    """

    def __init__(self, fns: Iterable[Callable[[Any, Examples], Examples]] = ()):
        self._fns = tuple(fns)

    def __call__(self, client_id: Any, examples: Examples) -> dict[str, Any]:
        """Return the client's examples after all functions."""
        for fn in self._fns:
            examples = fn(client_id, examples)
        return dict(examples)

    def __bool__(self) -> bool:
        """Return whether there is any function; without, sizes are known unread."""
        return bool(self._fns)

    def append(self, fn: Callable[[Any, Examples], Examples]) -> ClientPreprocessor:
        """Return a new chain that ends with ``fn``."""
        return ClientPreprocessor((*self._fns, fn))

    def __repr__(self) -> str:
        return f"ClientPreprocessor({list(self._fns)})"


NoOpBatchPreprocessor = BatchPreprocessor()
NoOpClientPreprocessor = ClientPreprocessor()
