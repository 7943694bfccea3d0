"""Sparse tensors as single values: variants, as loops over the rows of a sparse tensor have them.

A vector of them is `SparseRows`, all entries beside each other as the sparse tensor has them, or a `VariantVector`: a
list of `Sparse`, as a loop puts them together. The ops are in serialize.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.variant_rows import VariantRow, VariantRows
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import canonical, known

__all__ = ["Sparse", "SparseRows"]

_DIMENSION = np.dtype(np.int64)


def _is_array(size: Any) -> bool:
    return hasattr(size, "dtype")


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Sparse(VariantRow):
    """One sparse tensor.

    Attributes:
      parts: indices (entries, rank) and values (entries,).
      sizes: of the dense shape, ints or symbolic dimensions where they are known, else scalars.
    """

    sizes: tuple[Any, ...] = ()
    kind = "sparse tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns its arrays; sizes that are known are none."""
        traced = tuple(size if _is_array(size) else None for size in self.sizes)
        return (self.parts, self.counts, traced), tuple(None if _is_array(size) else size for size in self.sizes)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Sparse:
        """Undoes `tree_flatten`."""
        parts, counts, traced = children
        return cls(parts, counts, tuple(t if k is None else k for k, t in zip(aux, traced, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as a tensor of variants: TensorFlow has indices, values and dense shape apart."""
        return (3,)

    def common_form(self, other: Sparse) -> Sparse:
        """Returns the form that both forms fit: see `tf2jax_lite.values.specs`."""
        if specs.same_form(self, other):
            return self
        unknown = jax.ShapeDtypeStruct((), canonical(_DIMENSION))
        pairs = zip(self.sizes, other.sizes, strict=False)
        sizes = tuple(a if not _is_array(a) and not _is_array(b) and a == b else unknown for a, b in pairs)
        mine, theirs = (dataclasses.replace(x, sizes=sizes) for x in (self, other))
        return cast("Sparse", VariantRow.common_form(mine, theirs))

    def fitted(self, form: Sparse) -> Sparse:
        """Returns it in a form that `common_form` gave."""
        pairs = zip(self.sizes, form.sizes, strict=True)
        sizes = tuple(jnp.asarray(a).astype(b.dtype) if _is_array(b) else a for a, b in pairs)
        return cast("Sparse", VariantRow.fitted(dataclasses.replace(self, sizes=sizes), form))


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows(VariantRows):
    """The rows of a sparse tensor: a vector of variants, and the list that is made of it.

    Attributes:
      indices: (entries, rank), in the order of rows.
      values: (entries,).
      sizes: of the dense shape, ints or symbolic dimensions where they are known, else scalars; the first is known.
      splits: where each row begins, and where the last one ends.
    """

    indices: Any
    values: Any
    sizes: tuple[Any, ...]
    splits: Any
    kind = "sparse tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns its arrays; sizes that are known are none."""
        traced = tuple(size if _is_array(size) else None for size in self.sizes)
        known_sizes = tuple(None if _is_array(size) else size for size in self.sizes)
        return (self.indices, self.values, traced, self.splits), known_sizes

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> SparseRows:
        """Undoes `tree_flatten`."""
        indices, values, traced, splits = children
        sizes = tuple(t if k is None else k for k, t in zip(aux, traced, strict=True))
        return cls(indices, values, sizes, splits)

    @property
    def count(self) -> Any:
        """How many rows there are."""
        return self.sizes[0]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape as a tensor of variants."""
        return (self.count, 3)

    def row(self, index: Any) -> Sparse:
        """Returns a row: as it is if it is known where it begins and ends, else padded.

        Raises:
          OpError: the index is known to be out of range.
        """
        place, splits = self.static_index(index), known(self.splits)
        columns = self.indices[:, 1:]
        if place is not None and splits is not None:
            begin, end = int(splits[place]), int(splits[place + 1])
            return Sparse((columns[begin:end], self.values[begin:end]), None, self.sizes[1:])
        index = jnp.asarray(index)
        begin, end = (take(jnp.asarray(self.splits), index + i, 0) for i in (0, 1))
        most = self.values.shape[0] if splits is None else int(np.diff(splits).max(initial=0))
        step = lax.iota(begin.dtype, most)
        places = jnp.where(step < end - begin, begin + step, -1)
        parts = (take(columns, places, 0), take(self.values, places, 0))
        return Sparse(parts, ((end - begin).astype(np.int32),) * 2, self.sizes[1:])
