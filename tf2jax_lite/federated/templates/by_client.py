"""The state of each client on the server."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import jax

PyTree = Any


@jax.tree_util.register_pytree_node_class
class ByClient(Mapping[Hashable, PyTree]):
    """State per client on the server.

    An immutable mapping from client ids, in order of insertion.

    Args:
      like: the state of a client without an entry; entries have its structure, shapes and dtypes.
      entries: id to entry.
    """

    def __init__(self, like: PyTree, entries: Mapping[Hashable, PyTree] | None = None):
        self.like = like
        self._entries = dict(entries or {})

    def __getitem__(self, client_id: Hashable) -> PyTree:
        return self._entries[client_id]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"ByClient({len(self)} clients)"

    def of(self, client_id: Hashable) -> PyTree:
        """Return a client's entry, or the default for clients without one."""
        return self._entries.get(client_id, self.like)

    def updated(self, entries: Mapping[Hashable, PyTree]) -> ByClient:
        """Return a mapping with these entries added or replaced."""
        return ByClient(self.like, {**self._entries, **entries})

    def tree_flatten(self) -> tuple[Any, tuple[Hashable, ...]]:
        """Return children and ids, for JAX."""
        return (self.like, *self._entries.values()), tuple(self._entries)

    @classmethod
    def tree_unflatten(cls, ids: tuple[Hashable, ...], children: Any) -> ByClient:
        """Put children and ids together again, for JAX."""
        like, *entries = children
        return cls(like, dict(zip(ids, entries, strict=True)))
