"""Single values of parts that are each as long as data decides, and vectors of such values: what variants hold.

Rows of ragged and of sparse tensors are such values (ops/ragged/variant.py, ops/sparse/variant.py), as loops take them
and put them together. A vector of them is a `PartedRows`, all beside each other as one tensor has them, or a
`PartedVector`, a list.
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
from tf2jax_lite.values.static import known
from tf2jax_lite.values.tensor_list import TensorList

__all__ = ["Parted", "PartedRows", "PartedVector", "cut_to", "is_list_of_parted", "is_unset", "unset_like"]


@dataclasses.dataclass(frozen=True, eq=False)
class Parted:
    """One value. What derives from it is a pytree.

    Attributes:
      parts: its arrays.
      counts: how many elements of each part are there, whole numbers; the rest is zeros. None: all are.
      kind: what messages call it.
    """

    parts: tuple[Any, ...]
    counts: tuple[Any, ...] | None = None
    is_pytree_handle = True
    kind: ClassVar[str] = "value"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as a tensor of variants."""
        return ()

    def settled(self) -> Self:
        """Returns it without padding where it is known how much is there."""
        counts = [n for n in map(known, self.counts or ()) if n is not None]
        if self.counts is None or len(counts) < len(self.counts):
            return self
        parts = tuple(part[: int(n)] for part, n in zip(self.parts, counts, strict=True))
        return dataclasses.replace(self, parts=parts, counts=None)

    def with_counts(self) -> Self:
        """Returns it with counts."""
        if self.counts is not None:
            return self
        counts = tuple(jnp.asarray(part.shape[0]).astype(np.int32) for part in self.parts)
        return dataclasses.replace(self, counts=counts)

    def padded(self, sizes: list[Any]) -> Self:
        """Returns it with as much room in each part."""
        parts = tuple(cut_to(part, size) for part, size in zip(self.parts, sizes, strict=True))
        return dataclasses.replace(self, parts=parts, counts=self.with_counts().counts)

    def bounded(self) -> Self:
        """Returns it with room for the most there can be, so that a loop may hand it on.

        Raises:
          OpError: nothing tells how much that is.
        """
        sizes = [part.shape[0] if part.ndim else 0 for part in self.parts]
        if not any(map(is_data_dependent, sizes)):
            return self
        rooms = [dim_upper_bound(size) for size in sizes]
        if any(size is None for size in rooms):
            raise OpError(
                f"nothing tells how long a row of a {self.kind} can be; convert with "
                "override_config('dynamic_shape_bound', n)"
            )
        return self.padded(rooms)

    def common_form(self, other: Self) -> Self:
        """Returns the form that both forms fit: see `tf2jax_lite.values.specs`.

        Raises:
          OpError: they differ in more than how long they are.
        """
        if specs.same_form(self, other):
            return self
        mine, theirs = ([(p.shape[1:], p.dtype, len(p.shape) > 0) for p in x.parts] for x in (self, other))
        if mine != theirs or not all(sized for _, _, sized in mine):
            raise OpError(f"{self.kind}s of different kinds meet ({specs.shown(self)} and {specs.shown(other)})")
        parts = tuple(
            jax.ShapeDtypeStruct((max_dim(p.shape[0], q.shape[0]), *p.shape[1:]), p.dtype)
            for p, q in zip(self.parts, other.parts, strict=True)
        )
        counts = (jax.ShapeDtypeStruct((), np.dtype(np.int32)),) * len(parts)
        return dataclasses.replace(self, parts=parts, counts=counts)

    def fitted(self, form: Self) -> Self:
        """Returns it in a form that `common_form` gave."""
        return self if specs.same_form(self, form) else self.padded([part.shape[0] for part in form.parts])


class PartedRows(abc.ABC):
    """A vector of values that one tensor holds, and the list that is made of it. What derives from it is a pytree."""

    is_pytree_handle = True
    kind: ClassVar[str] = "tensor"

    @property
    @abc.abstractmethod
    def count(self) -> Any:
        """How many rows there are."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape as a tensor of variants."""
        return (self.count,)

    @abc.abstractmethod
    def row(self, index: Any) -> Parted:
        """Returns a row: as it is if it is known where it begins and ends, else padded.

        Raises:
          OpError: the index is known to be out of range.
        """

    def known_place(self, index: Any) -> int | None:
        """Returns an index if it is known.

        Raises:
          OpError: it is out of range.
        """
        place = known(index)
        if place is not None and isinstance(self.count, int) and not 0 <= int(place) < self.count:
            raise OpError(f"row {int(place)} is out of range for a {self.kind} of {self.count} rows")
        return None if place is None else int(place)

    def as_list(self) -> TensorList:
        """Returns its rows as a list.

        Raises:
          OpError: their number is not known.
        """
        if not isinstance(self.count, int):
            raise OpError(f"a list is changed of rows of a {self.kind} whose number depends on data")
        return TensorList(None, self.count, items=tuple(self.row(np.int32(i)) for i in range(self.count)))

    def listed(self) -> Any:
        """Returns what the list is that is made of it."""
        return self


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class PartedVector:
    """A vector of variants that came from a list.

    Attributes:
      rows: the list.
    """

    rows: TensorList
    is_pytree_handle = True

    def tree_flatten(self) -> tuple[tuple[TensorList], None]:
        """Returns the list."""
        return (self.rows,), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> PartedVector:
        """Undoes `tree_flatten`."""
        del aux
        return cls(*children)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape as a tensor."""
        return (self.rows.length, *(self.element.shape if self.element is not None else ()))

    @property
    def element(self) -> Parted | None:
        """One of its elements, or all of them stacked; None if none was ever set."""
        elements = (self.rows.buffer, *(self.rows.items or ()))
        return next((v for v in elements if isinstance(v, Parted)), None)

    def common_form(self, other: PartedVector) -> PartedVector:
        """Returns the form that both forms fit: see `tf2jax_lite.values.specs`."""
        return PartedVector(self.rows.common_form(other.rows))

    def fitted(self, form: PartedVector) -> PartedVector:
        """Returns it in a form that `common_form` gave."""
        return PartedVector(self.rows.fitted(form.rows))


def is_list_of_parted(value: Any) -> bool:
    """Whether a value is a list of variants of parts."""
    if isinstance(value, PartedRows):
        return True
    if not isinstance(value, TensorList):
        return False
    return isinstance(value.buffer, Parted) or any(isinstance(item, Parted) for item in value.items or ())


def is_unset(value: Any) -> bool:
    """Whether a value is a list of which no element was ever set."""
    return isinstance(value, TensorList) and value.buffer is None and not any(v is not None for v in value.items or ())


def unset_like(value: Any) -> TensorList:
    """Returns a list of as many elements, none of them set: gradients of 0, which need no splits."""
    if isinstance(value, TensorList) and value.is_traced:
        raise OpError("gradients of variants in a list whose length depends on data")
    count = value.count if isinstance(value, PartedRows) else value.length
    return TensorList(None, count, items=(None,) * count if isinstance(count, int) else None)


def cut_to(x: Any, size: Any) -> Any:
    """Returns an array cut, or padded with zeros, to a size along its first axis."""
    if x.shape[0] is size or x.shape[0] == size:
        return x
    x = jnp.asarray(x)
    if isinstance(x.shape[0], int) and isinstance(size, int) and size < x.shape[0]:
        return lax.slice_in_dim(x, 0, size)
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, size - x.shape[0], 0), *[(0, 0, 0)] * (x.ndim - 1)])
