"""Functions applied to examples when they are read.

Source: BatchPreprocessor, ClientPreprocessor of fedjax.core.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

Examples = Mapping[str, np.ndarray]
_IMMUTABLE = (str, bytes, int, float, type(None))


def own_copy(examples: Mapping[str, Any], *, only_stored: bool = False) -> dict[str, Any]:
    """Return a dict and arrays for a function that may write to them.

    Args:
      examples: dict of arrays; those of JAX stay as they are.
      only_stored: leave out writable arrays, which no data set holds: `check_examples` makes stored ones read-only.
    """
    return {
        name: _copied(value) if isinstance(value, np.ndarray) and not (only_stored and value.flags.writeable) else value
        for name, value in examples.items()
    }


def _copied(array: np.ndarray) -> np.ndarray:
    if array.dtype == object and any(not isinstance(item, _IMMUTABLE) for item in array.flat):
        return copy.deepcopy(array)  # lists of different lengths
    return array.copy()


class BatchPreprocessor:
    """A chain of functions ``examples -> examples``, applied to batches.

    Args:
      fns: the functions, the first one applied first. Each takes and returns a dict of arrays whose leading sizes are
        equal, and must treat every example alone: how examples are put into batches must not matter.
    """

    def __init__(self, fns: Iterable[Callable[[Examples], Examples]] = ()):
        self.fns = tuple(fns)

    def __call__(self, examples: Examples) -> dict[str, Any]:
        """Return the examples after all functions.

        Each function gets copies, and may write to them.
        """
        for fn in self.fns:
            examples = fn(own_copy(examples))
        return dict(examples) if self.fns else own_copy(examples, only_stored=True)

    def __bool__(self) -> bool:
        """Return whether there is any function."""
        return bool(self.fns)

    def __eq__(self, other: object) -> bool:
        """Return whether the functions are the same."""
        return isinstance(other, BatchPreprocessor) and self.fns == other.fns

    def __hash__(self) -> int:
        return hash(self.fns)

    def append(self, fn: Callable[[Examples], Examples]) -> BatchPreprocessor:
        """Return a new chain that ends with ``fn``."""
        return BatchPreprocessor((*self.fns, fn))

    def __repr__(self) -> str:
        return f"BatchPreprocessor({list(self.fns)})"


class ClientPreprocessor:
    """A chain of functions ``(client_id, examples) -> examples``.

    It is applied when a client's examples are read.

    Args:
      fns: the functions, the first one applied first. Unlike a batch's, they may add, drop and reorder examples.
    """

    def __init__(self, fns: Iterable[Callable[[Any, Examples], Examples]] = ()):
        self._fns = tuple(fns)

    def __call__(self, client_id: Any, examples: Examples) -> dict[str, Any]:
        """Return the client's examples after all functions.

        Each function gets copies, and may write to them.
        """
        for fn in self._fns:
            examples = fn(client_id, own_copy(examples))
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
