"""Ragged tensors as variants, as loops over the rows of a ragged tensor use them.

A vector of them is `RaggedRows`, the components of one ragged tensor, or a `VariantVector`: a list of `Ragged`, as a
loop builds it. The ops are in variant_ops.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.variant_rows import VariantRow, VariantRows
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import static_value
from tf2jax_lite.values.tensor_list import TensorList


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Ragged(VariantRow):
    """One ragged tensor, or a dense one.

    Attributes:
      parts: row splits, outermost first, and the values.
    """

    kind = "ragged tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Return its arrays."""
        return (self.parts, self.counts), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Ragged:
        """Undo `tree_flatten`."""
        del aux
        return cls(*children)

    def zeros_like(self) -> Ragged:
        """Return zeros with the same splits."""
        return Ragged((*self.parts[:-1], jnp.zeros_like(self.parts[-1])), self.counts)

    def add(self, other: Ragged) -> Ragged:
        """Return the sum of two of the same splits; an unset one counts as zeros."""
        a, b = specs.coerce_all([self, other])
        splits = (
            x if static_value(x) is not None else jnp.maximum(x, y) for x, y in zip(a.parts[:-1], b.parts, strict=False)
        )
        counts = None if a.counts is None else tuple(map(jnp.maximum, a.counts, b.counts))
        return Ragged((*splits, jnp.asarray(a.parts[-1]) + b.parts[-1]), counts)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class RaggedRows(VariantRows):
    """The rows of a ragged tensor: a vector of variants, and the list made of it.

    Attributes:
      splits: row splits, outermost first, at least one.
      values: the values.
    """

    splits: tuple[Any, ...]
    values: Any
    kind = "ragged tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Return its arrays."""
        return (self.splits, self.values), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> RaggedRows:
        """Undo `tree_flatten`."""
        del aux
        return cls(*children)

    @property
    def count(self) -> Any:
        """Number of rows."""
        return self.splits[0].shape[0] - 1

    def row(self, index: Any) -> Ragged:
        """Return a row: not padded if its boundaries are static."""
        position = self.static_index(index)
        splits = [static_value(s) for s in self.splits]
        if position is not None and all(s is not None for s in splits):
            return self._static_row(position, splits)
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

    def _static_row(self, position: int, splits: list[Any]) -> Ragged:
        first, *rest = splits
        begin, end = int(first[position]), int(first[position + 1])
        parts = []
        for inner in rest:
            parts.append(inner[begin : end + 1] - inner[begin])
            begin, end = int(inner[begin]), int(inner[end])
        values = self.values
        if isinstance(values, np.ndarray):
            row = values[begin:end]
        elif is_traced(values):
            row = lax.slice_in_dim(values, begin, end)
        else:  # compiled once for all rows of a length
            row = lax.dynamic_slice_in_dim(values, begin, end - begin)
        return Ragged((*parts, row))

    def as_list(self) -> TensorList:
        """Return its rows as a list, packed if their lengths are static and equal."""
        return (self._uniform() if isinstance(self.count, int) else None) or super().as_list()

    def _uniform(self) -> TensorList | None:
        """Return its rows as a packed list if their lengths are static and equal.

        Otherwise return None.
        """
        splits = static_value(self.splits[0])
        if len(self.splits) > 1 or splits is None or len(splits) < 2 or not isinstance(self.values.shape[0], int):
            return None
        sizes = set(np.diff(splits).tolist())
        if len(sizes) > 1:
            return None
        buffer = self.values.reshape((self.count, *sizes, *self.values.shape[1:]))
        return TensorList(Ragged((buffer,)), self.count)

    def from_tensor(self) -> Any:
        """Return TensorListFromTensor: a packed list if its rows have equal lengths.

        Otherwise it is the value itself.
        """
        return self._uniform() or self


def _longest(splits: Any, total: Any) -> Any:
    """Return an upper bound of the length of a row, of ``total`` values in all rows."""
    found = static_value(splits)
    return total if found is None else int(np.diff(found).max(initial=0))
