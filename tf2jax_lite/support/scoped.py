"""Values that apply to a ``with`` block in the current thread or task."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(eq=False)
class _Entry(Generic[T]):
    value: T
    ended: bool = False


class Scoped(Generic[T]):
    """Active values, innermost last: none in threads, the creator's in tasks.

    Blocks may end in any order, and in another thread than they began in, as blocks in generators do; tokens of a
    ContextVar do not support that. (While a generator is suspended inside of a block, its value is active for its
    caller, as with ``numpy.errstate``.)
    """

    def __init__(self, name: str):
        self._entries: contextvars.ContextVar[tuple[_Entry[T], ...]] = contextvars.ContextVar(name, default=())

    def values(self) -> tuple[T, ...]:
        """Return the active values of this context."""
        return tuple([entry.value for entry in self._entries.get() if not entry.ended])

    @contextlib.contextmanager
    def holding(self, value: T) -> Iterator[None]:
        """Make a value active for a ``with`` block."""
        entry = _Entry(value)
        self._entries.set((*self._entries.get(), entry))
        try:
            yield
        finally:
            # A token of the ContextVar would restore the values before the block, including those of a block that began
            # before it and has ended since.
            here = self._entries.get()
            if any(e is entry for e in here):
                self._entries.set(tuple([e for e in here if e is not entry]))
            else:
                entry.ended = True  # ended in another context: contexts that still have the entry must ignore it
