"""Sparse tensors as variants, as loops over the rows of a sparse tensor use them.

A vector of them is `SparseRows`, the entries of one sparse tensor, or a `VariantVector`: a list of `Sparse`, as a loop
builds it. The ops are in serialize.py.
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
from tf2jax_lite.values.static import canonical, static_value

_DIMENSION = np.dtype(np.int64)


def is_static_size(size: Any) -> bool:
    """Return whether a size is an int or a symbolic dimension, not an array."""
    return not hasattr(size, "dtype")


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Sparse(VariantRow):
    """One sparse tensor.

    Attributes:
      parts: indices (entries, rank) and values (entries,).
      sizes: the dense shape: ints or symbolic dimensions where static, else scalars.
    """

    sizes: tuple[Any, ...] = ()
    kind = "sparse tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return its arrays; static sizes are auxiliary data."""
        traced = tuple(None if is_static_size(size) else size for size in self.sizes)
        return (self.parts, self.counts, traced), tuple(size if is_static_size(size) else None for size in self.sizes)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Sparse:
        """Undo `tree_flatten`."""
        parts, counts, traced = children
        return cls(parts, counts, tuple(t if k is None else k for k, t in zip(aux, traced, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as a vector of three variants: indices, values and dense shape."""
        return (3,)

    def common_spec(self, other: Sparse) -> Sparse:
        """Return the spec that both specs coerce to: sizes that differ are traced."""
        if specs.same_spec(self, other):
            return self
        unknown = jax.ShapeDtypeStruct((), canonical(_DIMENSION))
        pairs = zip(self.sizes, other.sizes, strict=False)
        sizes = tuple(a if is_static_size(a) and is_static_size(b) and a == b else unknown for a, b in pairs)
        mine, theirs = (dataclasses.replace(x, sizes=sizes) for x in (self, other))
        return cast("Sparse", VariantRow.common_spec(mine, theirs))

    def coerce(self, spec: Sparse) -> Sparse:
        """Return it in a spec that `common_spec` returned."""
        pairs = zip(self.sizes, spec.sizes, strict=True)
        sizes = tuple(a if is_static_size(b) else jnp.asarray(a).astype(b.dtype) for a, b in pairs)
        return cast("Sparse", VariantRow.coerce(dataclasses.replace(self, sizes=sizes), spec))


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows(VariantRows):
    """The rows of a sparse tensor: a vector of variants, and the list made of it.

    Attributes:
      indices: (entries, rank), in the order of rows.
      values: (entries,).
      sizes: the dense shape: ints or symbolic dimensions where static, else scalars; the first is static.
      splits: the row splits.
    """

    indices: Any
    values: Any
    sizes: tuple[Any, ...]
    splits: Any
    kind = "sparse tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return its arrays; static sizes are auxiliary data."""
        traced = tuple(None if is_static_size(size) else size for size in self.sizes)
        static_sizes = tuple(size if is_static_size(size) else None for size in self.sizes)
        return (self.indices, self.values, traced, self.splits), static_sizes

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> SparseRows:
        """Undo `tree_flatten`."""
        indices, values, traced, splits = children
        sizes = tuple(t if k is None else k for k, t in zip(aux, traced, strict=True))
        return cls(indices, values, sizes, splits)

    @property
    def count(self) -> Any:
        """Number of rows."""
        return self.sizes[0]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape as a tensor of variants."""
        return (self.count, 3)

    def row(self, index: Any) -> Sparse:
        """Return a row: not padded if its boundaries are static."""
        position, splits = self.static_index(index), static_value(self.splits)
        columns = self.indices[:, 1:]
        if position is not None and splits is not None:
            begin, end = int(splits[position]), int(splits[position + 1])
            return Sparse((columns[begin:end], self.values[begin:end]), None, self.sizes[1:])
        index = jnp.asarray(index)
        begin, end = (take(jnp.asarray(self.splits), index + i, 0) for i in (0, 1))
        max_length = self.values.shape[0] if splits is None else int(np.diff(splits).max(initial=0))
        step = lax.iota(begin.dtype, max_length)
        positions = jnp.where(step < end - begin, begin + step, -1)
        parts = (take(columns, positions, 0), take(self.values, positions, 0))
        return Sparse(parts, ((end - begin).astype(np.int32),) * 2, self.sizes[1:])
