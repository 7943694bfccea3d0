"""Ragged tensors as single values: variants, as TensorFlow has rows that a loop over a ragged tensor takes and makes.

A vector of them is `RaggedRows`, all rows beside each other as the ragged tensor has them, or a `VariantVector`: a list
of `Ragged`, as a loop puts them together. The ops are in variant_ops.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax

from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.variant_rows import VariantRow, VariantRows
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import known
from tf2jax_lite.values.tensor_list import TensorList

__all__ = ["Ragged", "RaggedRows"]


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Ragged(VariantRow):
    """One ragged tensor, or a dense one.

    Attributes:
      parts: row splits, outermost first, and the values.
    """

    kind = "ragged tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Returns its arrays."""
        return (self.parts, self.counts), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Ragged:
        """Undoes `tree_flatten`."""
        del aux
        return cls(*children)

    def zeros_like(self) -> Ragged:
        """Returns one of the same splits, of zeros."""
        return Ragged((*self.parts[:-1], jnp.zeros_like(self.parts[-1])), self.counts)

    def added(self, other: Ragged) -> Ragged:
        """Returns the sum of two of the same splits; what is unset, and so 0 in all, is added, too."""
        a, b = specs.aligned([self, other])
        splits = (x if known(x) is not None else jnp.maximum(x, y) for x, y in zip(a.parts[:-1], b.parts, strict=False))
        counts = None if a.counts is None else tuple(map(jnp.maximum, a.counts, b.counts))
        return Ragged((*splits, jnp.asarray(a.parts[-1]) + b.parts[-1]), counts)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class RaggedRows(VariantRows):
    """The rows of a ragged tensor: a vector of variants, and the list that is made of it.

    Attributes:
      splits: row splits, outermost first, at least one.
      values: the values.
    """

    splits: tuple[Any, ...]
    values: Any
    kind = "ragged tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Returns its arrays."""
        return (self.splits, self.values), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> RaggedRows:
        """Undoes `tree_flatten`."""
        del aux
        return cls(*children)

    @property
    def count(self) -> Any:
        """How many rows there are."""
        return self.splits[0].shape[0] - 1

    def row(self, index: Any) -> Ragged:
        """Returns a row: as it is if it is known where it begins and ends, else padded.

        Raises:
          OpError: the index is known to be out of range.
        """
        place = self.static_index(index)
        splits = [known(s) for s in self.splits]
        if place is not None and all(s is not None for s in splits):
            return self._known_row(place, splits)
        index = jnp.asarray(index)
        first, *rest = map(jnp.asarray, self.splits)
        begin, end = (take(first, index + i, 0) for i in (0, 1))
        parts, counts = [], []
        for above, inner in zip(self.splits, rest, strict=False):
            size = _longest(above, inner.shape[0] - 1) + 1
            step = lax.iota(inner.dtype, size)
            from_begin = take(inner, begin, 0)
            parts.append(jnp.where(step <= end - begin, take(inner, begin + step, 0) - from_begin, 0))
            counts.append((end - begin + 1).astype(np.int32))
            begin, end = from_begin, take(inner, end, 0)
        step = lax.iota(begin.dtype, _longest(self.splits[-1], self.values.shape[0]))
        parts.append(take(self.values, jnp.where(step < end - begin, begin + step, -1), 0))
        return Ragged(tuple(parts), (*counts, (end - begin).astype(np.int32)))

    def _known_row(self, place: int, splits: list[Any]) -> Ragged:
        first, *rest = splits
        begin, end = int(first[place]), int(first[place + 1])
        parts = []
        for inner in rest:
            parts.append(inner[begin : end + 1] - inner[begin])
            begin, end = int(inner[begin]), int(inner[end])
        whole = self.values
        if isinstance(whole, np.ndarray):
            row = whole[begin:end]
        elif isinstance(whole, core.Tracer):
            row = lax.slice_in_dim(whole, begin, end)
        else:  # compiled once for all rows of a length
            row = lax.dynamic_slice_in_dim(whole, begin, end - begin)
        return Ragged((*parts, row))

    def as_list(self) -> TensorList:
        """Returns its rows as a list, packed if they are known to be equally long.

        Raises:
          OpError: their number is not known.
        """
        return (self._uniform() if isinstance(self.count, int) else None) or super().as_list()

    def _uniform(self) -> TensorList | None:
        """Returns its rows as a packed list if they are known to be equally long; None if not."""
        splits = known(self.splits[0])
        if len(self.splits) > 1 or splits is None or len(splits) < 2 or not isinstance(self.values.shape[0], int):
            return None
        sizes = set(np.diff(splits).tolist())
        if len(sizes) > 1:
            return None
        buffer = self.values.reshape((self.count, *sizes, *self.values.shape[1:]))
        return TensorList(Ragged((buffer,)), self.count)

    def listed(self) -> Any:
        """Returns what the list is that is made of it: itself, unless its rows are equally long."""
        return self._uniform() or self


def _longest(splits: Any, most: Any) -> Any:
    """Returns how long the longest row can be, of ``most`` values together."""
    found = known(splits)
    return most if found is None else int(np.diff(found).max(initial=0))
