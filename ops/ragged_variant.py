"""Ragged tensors as single values: variants, as TensorFlow has rows that a loop over a ragged tensor takes and makes.

A vector of them is `RaggedRows`, all rows beside each other as the ragged tensor has them, or a `RaggedVector`: a list
of `Ragged`, as a loop puts them together. The ops are in ragged_variant_ops.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax

from tf2jax_lite.errors import OpError

from . import forms
from .gather import take
from .tensor_list import TensorList
from .values import known

__all__ = ["Ragged", "RaggedRows", "RaggedVector", "cut_to", "is_list_of_ragged", "is_unset", "unset_like"]


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """One ragged tensor, or a dense one.

    Attributes:
      parts: row splits, outermost first, and the values.
      counts: how many elements of each part are there, whole numbers; the rest is zeros. None: all are.
    """

    parts: tuple[Any, ...]
    counts: tuple[Any, ...] | None = None
    is_pytree_handle = True

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Returns its arrays."""
        return (self.parts, self.counts), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Ragged:
        """Undoes `tree_flatten`."""
        del aux
        return cls(*children)

    def settled(self) -> Ragged:
        """Returns it without padding where it is known how much is there."""
        counts = [n for n in map(known, self.counts or ()) if n is not None]
        if self.counts is None or len(counts) < len(self.counts):
            return self
        return Ragged(tuple(part[: int(n)] for part, n in zip(self.parts, counts, strict=True)))

    def with_counts(self) -> Ragged:
        """Returns it with counts."""
        if self.counts is not None:
            return self
        return Ragged(self.parts, tuple(jnp.asarray(part.shape[0]).astype(np.int32) for part in self.parts))

    def padded(self, sizes: list[Any]) -> Ragged:
        """Returns it with as much room in each part."""
        parts = tuple(cut_to(part, size) for part, size in zip(self.parts, sizes, strict=True))
        return Ragged(parts, self.with_counts().counts)

    def common_form(self, other: Ragged) -> Ragged:
        """Returns the form that both forms fit: see `tf2jax_lite.ops.forms`.

        Raises:
          OpError: they differ in more than how long they are.
        """
        if forms.same_form(self, other):
            return self
        mine, theirs = ([(p.shape[1:], p.dtype, len(p.shape) > 0) for p in x.parts] for x in (self, other))
        if mine != theirs or not all(sized for _, _, sized in mine):
            raise OpError(f"ragged tensors of different kinds meet ({forms.shown(self)} and {forms.shown(other)})")
        parts = tuple(
            jax.ShapeDtypeStruct((core.max_dim(p.shape[0], q.shape[0]), *p.shape[1:]), p.dtype)
            for p, q in zip(self.parts, other.parts, strict=True)
        )
        return Ragged(parts, (jax.ShapeDtypeStruct((), np.dtype(np.int32)),) * len(parts))

    def fitted(self, form: Ragged) -> Ragged:
        """Returns it in a form that `common_form` gave."""
        return self if forms.same_form(self, form) else self.padded([part.shape[0] for part in form.parts])

    def zeros_like(self) -> Ragged:
        """Returns one of the same splits, of zeros."""
        return Ragged((*self.parts[:-1], jnp.zeros_like(self.parts[-1])), self.counts)

    def added(self, other: Ragged) -> Ragged:
        """Returns the sum of two of the same splits; what is unset, and so 0 in all, is added, too."""
        a, b = forms.aligned([self, other])
        splits = (x if known(x) is not None else jnp.maximum(x, y) for x, y in zip(a.parts[:-1], b.parts, strict=False))
        counts = None if a.counts is None else tuple(map(jnp.maximum, a.counts, b.counts))
        return Ragged((*splits, jnp.asarray(a.parts[-1]) + b.parts[-1]), counts)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class RaggedRows:
    """The rows of a ragged tensor: a vector of variants, and the list that is made of it.

    Attributes:
      splits: row splits, outermost first, at least one.
      values: the values.
    """

    splits: tuple[Any, ...]
    values: Any
    is_pytree_handle = True

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

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape as a tensor of variants."""
        return (self.count,)

    def row(self, index: Any) -> Ragged:
        """Returns a row: as it is if it is known where it begins and ends, else padded.

        Raises:
          OpError: the index is known to be out of range.
        """
        place = known(index)
        if place is not None and isinstance(self.count, int) and not 0 <= int(place) < self.count:
            raise OpError(f"row {int(place)} is out of range for a ragged tensor of {self.count} rows")
        splits = [known(s) for s in self.splits]
        if place is not None and all(s is not None for s in splits):
            return self._known_row(int(place), splits)
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
        elif isinstance(whole, jax.core.Tracer):
            row = lax.slice_in_dim(whole, begin, end)
        else:  # compiled once for all rows of a length
            row = lax.dynamic_slice_in_dim(whole, begin, end - begin)
        return Ragged((*parts, row))

    def as_list(self) -> TensorList:
        """Returns its rows as a list.

        Raises:
          OpError: their number is not known.
        """
        if not isinstance(self.count, int):
            raise OpError("a list is changed of rows of a ragged tensor whose number depends on data")
        uniform = self._uniform()
        if uniform is not None:
            return uniform
        return TensorList(None, self.count, items=tuple(self.row(np.int32(i)) for i in range(self.count)))

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


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class RaggedVector:
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
    def tree_unflatten(cls, aux: Any, children: Any) -> RaggedVector:
        """Undoes `tree_flatten`."""
        del aux
        return cls(*children)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape as a tensor."""
        return (self.rows.length,)

    def common_form(self, other: RaggedVector) -> RaggedVector:
        """Returns the form that both forms fit: see `tf2jax_lite.ops.forms`."""
        return RaggedVector(self.rows.common_form(other.rows))

    def fitted(self, form: RaggedVector) -> RaggedVector:
        """Returns it in a form that `common_form` gave."""
        return RaggedVector(self.rows.fitted(form.rows))


def is_list_of_ragged(value: Any) -> bool:
    """Whether a value is a list of variants that are ragged tensors."""
    if isinstance(value, RaggedRows):
        return True
    if not isinstance(value, TensorList):
        return False
    return isinstance(value.buffer, Ragged) or any(isinstance(item, Ragged) for item in value.items or ())


def is_unset(value: Any) -> bool:
    """Whether a value is a list of which no element was ever set."""
    return isinstance(value, TensorList) and value.buffer is None and not any(v is not None for v in value.items or ())


def unset_like(value: Any) -> TensorList:
    """Returns a list of as many elements, none of them set: gradients of 0, which need no splits."""
    if isinstance(value, TensorList) and value.is_traced:
        raise OpError("gradients of ragged tensors in a list whose length depends on data")
    count = value.count if isinstance(value, RaggedRows) else value.length
    return TensorList(None, count, items=(None,) * count if isinstance(count, int) else None)


def cut_to(x: Any, size: Any) -> Any:
    """Returns an array cut, or padded with zeros, to a size along its first axis."""
    if x.shape[0] is size or x.shape[0] == size:
        return x
    x = jnp.asarray(x)
    if isinstance(x.shape[0], int) and isinstance(size, int) and size < x.shape[0]:
        return lax.slice_in_dim(x, 0, size)
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, size - x.shape[0], 0), *[(0, 0, 0)] * (x.ndim - 1)])


def _longest(splits: Any, most: Any) -> Any:
    """Returns how long the longest row can be, of ``most`` values together."""
    found = known(splits)
    return most if found is None else int(np.diff(found).max(initial=0))
