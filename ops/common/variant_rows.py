"""Variant rows: components of a ragged or sparse tensor as a scalar variant.

There are also vectors of them.

Loops over a ragged or sparse tensor take its rows as variants, and put variants together to a tensor. A `VariantRow` is
one (`tf2jax_lite.ops.ragged.variant`, `tf2jax_lite.ops.sparse.variant`): several arrays, whose leading dimensions may
be dynamic. A vector of them is a `VariantRows`, the concatenated components as one tensor has them, or a
`VariantVector`, which wraps a list.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound, is_data_dependent
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import static_value
from tf2jax_lite.values.tensor_list import TensorList, unset_list
from tf2jax_lite.values.variant import Variant


@dataclasses.dataclass(frozen=True, eq=False)
class VariantRow(Variant):
    """A scalar variant of several arrays. Subclasses are pytrees.

    Attributes:
      parts: its arrays.
      counts: number of valid elements of each part, int32 scalars; the others are zeros. None: all are valid.
      kind: what error messages call it.
    """

    parts: tuple[Any, ...]
    counts: tuple[Any, ...] | None = None
    zeros_are_unset = True
    kind: ClassVar[str] = "value"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as a tensor of variants."""
        return ()

    def resolved(self) -> Self:
        """Return it without padding if its counts are concrete."""
        counts = [n for n in map(static_value, self.counts or ()) if n is not None]
        if self.counts is None or len(counts) < len(self.counts):
            return self
        parts = tuple(part[: int(n)] for part, n in zip(self.parts, counts, strict=True))
        return dataclasses.replace(self, parts=parts, counts=None)

    def with_counts(self) -> Self:
        """Return it with counts."""
        if self.counts is not None:
            return self
        counts = tuple(jnp.asarray(part.shape[0]).astype(np.int32) for part in self.parts)
        return dataclasses.replace(self, counts=counts)

    def padded(self, capacities: list[Any]) -> Self:
        """Return it with the parts padded to these capacities."""
        parts = tuple(pad_or_truncate(part, size) for part, size in zip(self.parts, capacities, strict=True))
        return dataclasses.replace(self, parts=parts, counts=self.with_counts().counts)

    def bounded(self) -> Self:
        """Return it padded to its dimensions' upper bounds, so that a loop can carry it."""
        sizes = [part.shape[0] if part.ndim else 0 for part in self.parts]
        if not any(map(is_data_dependent, sizes)):
            return self
        capacities = [dim_upper_bound(size) for size in sizes]
        if any(size is None for size in capacities):
            raise OpError(
                f"the length of a row of a {self.kind} has no upper bound; convert with "
                "override_config('dynamic_shape_bound', n)"
            )
        return self.padded(capacities)

    def common_spec(self, other: Self) -> Self:
        """Return the spec that both specs coerce to: the larger capacity of each part."""
        if specs.same_spec(self, other):
            return self
        mine, theirs = ([(p.shape[1:], p.dtype, len(p.shape) > 0) for p in x.parts] for x in (self, other))
        if mine != theirs or not all(sized for _, _, sized in mine):
            shapes = f"{specs.format_spec(self)} and {specs.format_spec(other)}"
            raise OpError(f"{self.kind}s of different kinds meet ({shapes})")
        parts = tuple(
            jax.ShapeDtypeStruct((max_dim(p.shape[0], q.shape[0]), *p.shape[1:]), p.dtype)
            for p, q in zip(self.parts, other.parts, strict=True)
        )
        counts = (jax.ShapeDtypeStruct((), np.dtype(np.int32)),) * len(parts)
        return dataclasses.replace(self, parts=parts, counts=counts)

    def coerce(self, spec: Self) -> Self:
        """Return it in a spec that `common_spec` returned."""
        return self if specs.same_spec(self, spec) else self.padded([part.shape[0] for part in spec.parts])


class VariantRows(Variant, abc.ABC):
    """The rows of one tensor as a vector of variants, and as the list made of it.

    Subclasses are pytrees.
    """

    kind: ClassVar[str] = "tensor"

    @property
    @abc.abstractmethod
    def count(self) -> Any:
        """Number of rows."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape as a tensor of variants."""
        return (self.count,)

    @abc.abstractmethod
    def row(self, index: Any) -> VariantRow:
        """Return a row: not padded if its boundaries are static."""

    def static_index(self, index: Any) -> int | None:
        """Return an index as an int if it is static."""
        found = static_value(index)
        if found is not None and isinstance(self.count, int) and not 0 <= int(found) < self.count:
            raise OpError(f"row {int(found)} is out of range for a {self.kind} of {self.count} rows")
        return None if found is None else int(found)

    def zeros_like(self) -> TensorList:
        """Return a list of as many unset elements, which need no splits."""
        return unset_list(self.count)

    def as_list(self) -> TensorList:
        """Return its rows as a list."""
        if not isinstance(self.count, int):
            raise OpError(f"the rows of a {self.kind} are modified as a list, but their number depends on data")
        return TensorList(None, self.count, items=tuple(self.row(np.int32(i)) for i in range(self.count)))

    def from_tensor(self) -> Any:
        """Return the value of TensorListFromTensor: a list, or itself."""
        return self


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class VariantVector(Variant):
    """A vector of variants that came from a list.

    Attributes:
      rows: the list.
    """

    rows: TensorList

    def tree_flatten(self) -> tuple[tuple[TensorList], None]:
        """Return the list."""
        return (self.rows,), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> VariantVector:
        """Undo `tree_flatten`."""
        del aux
        return cls(*children)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape as a tensor of variants."""
        return (self.rows.length, *(self.element.shape if self.element is not None else ()))

    @property
    def element(self) -> VariantRow | None:
        """One of its elements, or all of them stacked; None if none was ever set."""
        elements = (self.rows.buffer, *(self.rows.items or ()))
        return next((v for v in elements if isinstance(v, VariantRow)), None)

    def common_spec(self, other: VariantVector) -> VariantVector:
        """Return the spec that values of both specs can be coerced to: that of the lists."""
        return VariantVector(self.rows.common_spec(other.rows))

    def coerce(self, spec: VariantVector) -> VariantVector:
        """Return it in a spec that `common_spec` returned."""
        return VariantVector(self.rows.coerce(spec.rows))


def is_variant_row_list(value: Any) -> bool:
    """Return whether a value is a list of variant rows."""
    if isinstance(value, VariantRows):
        return True
    if not isinstance(value, TensorList):
        return False
    return isinstance(value.buffer, VariantRow) or any(isinstance(item, VariantRow) for item in value.items or ())


def is_unset(value: Any) -> bool:
    """Return whether a value is a list of which no element was ever set."""
    return isinstance(value, TensorList) and value.buffer is None and not any(v is not None for v in value.items or ())


def concatenate(arrays: list[Any], axis: int = 0) -> Any:
    """Return arrays concatenated, in NumPy if all are static."""
    if all(static_value(v) is not None for v in arrays):
        return np.concatenate([np.asarray(v) for v in arrays], axis)
    return lax.concatenate([jnp.asarray(v) for v in arrays], axis)


def pad_or_truncate(x: Any, size: Any) -> Any:
    """Return an array truncated, or padded with zeros, to a size along its first axis."""
    if x.shape[0] is size or x.shape[0] == size:
        return x
    x = jnp.asarray(x)
    if isinstance(x.shape[0], int) and isinstance(size, int) and size < x.shape[0]:
        return lax.slice_in_dim(x, 0, size)
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, size - x.shape[0], 0), *[(0, 0, 0)] * (x.ndim - 1)])
