"""Base classes of variant scalars that consist of several arrays, and of vectors of them.

A `VariantRow` is a row of a ragged or sparse tensor (ops/ragged/variant.py, ops/sparse/variant.py): arrays whose
leading dimension may be data-dependent, as loops carry them. A vector of rows is a `VariantRows`, with the components
concatenated as in the tensor, or a `VariantVector`, a TensorList of rows.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax

from tf2jax_lite.dynamic_shapes.bounds import is_found, most
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import known
from tf2jax_lite.values.tensor_list import TensorList

__all__ = ["VariantRow", "VariantRows", "VariantVector", "is_unset", "is_variant_list", "resize", "unset_like"]


@dataclasses.dataclass(frozen=True, eq=False)
class VariantRow:
    """A variant scalar. Subclasses are pytrees.

    Attributes:
      parts: its arrays.
      counts: the number of valid leading elements of each part, int32 scalars; the rest is zeros. None: all are valid.
      kind: its name in messages.
    """

    parts: tuple[Any, ...]
    counts: tuple[Any, ...] | None = None
    is_pytree_handle = True
    kind: ClassVar[str] = "value"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as a tensor of variants."""
        return ()

    def settled(self) -> Self:
        """Return it without padding if its counts are static."""
        counts = [n for n in map(known, self.counts or ()) if n is not None]
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

    def padded(self, sizes: list[Any]) -> Self:
        """Return it with a capacity for each part."""
        parts = tuple(resize(part, size) for part, size in zip(self.parts, sizes, strict=True))
        return dataclasses.replace(self, parts=parts, counts=self.with_counts().counts)

    def bounded(self) -> Self:
        """Return it with static capacities, so that a loop may carry it.

        Raises:
          OpError: a size has no upper bound.
        """
        sizes = [part.shape[0] if part.ndim else 0 for part in self.parts]
        if not any(map(is_found, sizes)):
            return self
        capacities = [most(size) for size in sizes]
        if any(size is None for size in capacities):
            raise OpError(
                f"a row of a {self.kind} has no upper bound of its length; convert with "
                "override_config('dynamic_shape_bound', n)"
            )
        return self.padded(capacities)

    def common_form(self, other: Self) -> Self:
        """Return the join of two specs: see `tf2jax_lite.values.specs`.

        Raises:
          OpError: they differ in more than their lengths.
        """
        if specs.same_form(self, other):
            return self
        mine, theirs = ([(p.shape[1:], p.dtype, len(p.shape) > 0) for p in x.parts] for x in (self, other))
        if mine != theirs or not all(sized for _, _, sized in mine):
            raise OpError(f"{self.kind}s of different kinds meet ({specs.shown(self)} and {specs.shown(other)})")
        parts = tuple(
            jax.ShapeDtypeStruct((core.max_dim(p.shape[0], q.shape[0]), *p.shape[1:]), p.dtype)
            for p, q in zip(self.parts, other.parts, strict=True)
        )
        counts = (jax.ShapeDtypeStruct((), np.dtype(np.int32)),) * len(parts)
        return dataclasses.replace(self, parts=parts, counts=counts)

    def fitted(self, form: Self) -> Self:
        """Return it coerced to a result of `common_form`."""
        return self if specs.same_form(self, form) else self.padded([part.shape[0] for part in form.parts])


class VariantRows(abc.ABC):
    """A vector of rows of one tensor, and the list made of it. Subclasses are pytrees."""

    is_pytree_handle = True
    kind: ClassVar[str] = "tensor"

    @property
    @abc.abstractmethod
    def count(self) -> Any:
        """The number of rows."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape as a tensor of variants."""
        return (self.count,)

    @abc.abstractmethod
    def row(self, index: Any) -> VariantRow:
        """Return a row, padded unless its start and end are static.

        Raises:
          OpError: a static index is out of range.
        """

    def static_index(self, index: Any) -> int | None:
        """Return an index if it is static, else None.

        Raises:
          OpError: it is out of range.
        """
        static = known(index)
        if static is None:
            return None
        if isinstance(self.count, int) and not 0 <= int(static) < self.count:
            raise OpError(f"row {int(static)} is out of range for a {self.kind} of {self.count} rows")
        return int(static)

    def as_list(self) -> TensorList:
        """Return the rows as a list.

        Raises:
          OpError: their number is not static.
        """
        if not isinstance(self.count, int):
            raise OpError(f"rows of a {self.kind} cannot become a list: their number depends on data")
        return TensorList(None, self.count, items=tuple(self.row(np.int32(i)) for i in range(self.count)))

    def listed(self) -> Any:
        """Return the value of the list that is made of it."""
        return self


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class VariantVector:
    """A vector of variants that is a list.

    Attributes:
      rows: the list.
    """

    rows: TensorList
    is_pytree_handle = True

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
        """One of the elements, or all of them stacked; None if none was ever set."""
        elements = (self.rows.buffer, *(self.rows.items or ()))
        return next((v for v in elements if isinstance(v, VariantRow)), None)

    def common_form(self, other: VariantVector) -> VariantVector:
        """Return the join of two specs: see `tf2jax_lite.values.specs`."""
        return VariantVector(self.rows.common_form(other.rows))

    def fitted(self, form: VariantVector) -> VariantVector:
        """Return it coerced to a result of `common_form`."""
        return VariantVector(self.rows.fitted(form.rows))


def is_variant_list(value: Any) -> bool:
    """Return whether a value is a list of variant rows."""
    if isinstance(value, VariantRows):
        return True
    if not isinstance(value, TensorList):
        return False
    return isinstance(value.buffer, VariantRow) or any(isinstance(item, VariantRow) for item in value.items or ())


def is_unset(value: Any) -> bool:
    """Return whether a value is a list of which no element was ever set."""
    return isinstance(value, TensorList) and value.buffer is None and not any(v is not None for v in value.items or ())


def unset_like(value: Any) -> TensorList:
    """Return a list of as many unset elements: a gradient of 0 without row splits."""
    if isinstance(value, TensorList) and value.is_traced:
        raise OpError("gradients of variants in a list whose length depends on data")
    count = value.count if isinstance(value, VariantRows) else value.length
    return TensorList(None, count, items=(None,) * count if isinstance(count, int) else None)


def resize(x: Any, size: Any) -> Any:
    """Return an array truncated, or padded with zeros, to a size along its first axis."""
    if x.shape[0] is size or x.shape[0] == size:
        return x
    x = jnp.asarray(x)
    if isinstance(x.shape[0], int) and isinstance(size, int) and size < x.shape[0]:
        return lax.slice_in_dim(x, 0, size)
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, size - x.shape[0], 0), *[(0, 0, 0)] * (x.ndim - 1)])
