"""Results of branches that have other sizes in other branches: a size that data decides.

What a branch gave comes with room for the largest, and with its size. Another branch that the same number picks, such
as the second of two ``if is_training:``, sees the size that goes with it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound, ensure_length, is_data_dependent
from tf2jax_lite.dynamic_shapes.provenance import name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.support.errors import OpError

__all__ = ["Uneven", "UnevenError", "as_within"]


class UnevenError(UnboundedError):
    """Branches have results of different sizes: which of them it is depends on values."""

    def __init__(self, problem: str):
        OpError.__init__(self, problem)


@dataclasses.dataclass(frozen=True)
class Uneven:
    """A result that has other sizes in other branches: it has room for the largest.

    Attributes:
      shape: that of the room.
      dtype: its dtype.
      sizes: for each dimension in which branches differ, the size in each of them.
    """

    shape: tuple[Any, ...]
    dtype: Any
    sizes: dict[int, tuple[Any, ...]]

    @classmethod
    def of(cls, column: list[Any]) -> Uneven | None:
        """Returns what results of branches meet in; None if it is not their sizes alone that differ.

        Args:
          column: for each branch a `jax.ShapeDtypeStruct`, None if it has no such result, or anything else.
        """
        arrays = [v for v in column if v is not None]
        if not all(isinstance(v, jax.ShapeDtypeStruct) for v in arrays):
            return None
        if len({(v.ndim, v.dtype) for v in arrays}) > 1:
            return None
        shape, sizes = list(arrays[0].shape), {}
        for axis, size in enumerate(shape):
            if any(v.shape[axis] != size for v in arrays):
                sizes[axis] = tuple(size if v is None else v.shape[axis] for v in column)
                rooms = [dim_upper_bound(n) if is_data_dependent(n) else n for n in sizes[axis]]
                if any(room is None for room in rooms):
                    return None
                shape[axis] = functools.reduce(max_dim, rooms)
        return cls(tuple(shape), arrays[0].dtype, sizes)

    @classmethod
    def local(cls, form: jax.ShapeDtypeStruct, tracker: DynamicShapes | None, mark: int) -> Uneven | None:
        """Returns how a branch alone gives something of sizes that it finds; None if it finds none.

        Args:
          form: what it gives.
          tracker: the sizes that data decides.
          mark: what `DynamicShapes.mark` was before the branch.
        """
        if tracker is None:
            return None
        shape, sizes = list(form.shape), {}
        for axis, size in enumerate(form.shape):
            if tracker.is_later(size, mark):
                sizes[axis] = (size,)
                shape[axis] = dim_upper_bound(size)
        return cls(tuple(shape), form.dtype, sizes) if sizes and None not in shape else None

    def padded(self, value: Any) -> list[Any]:
        """Returns a branch's result with zeros up to the room, and its sizes where branches differ."""
        if value is None:
            return [jnp.zeros(self.shape, self.dtype), *[np.int32(0)] * len(self.sizes)]
        more = [(0, room - size, 0) for size, room in zip(value.shape, self.shape, strict=True)]
        sizes = [jnp.asarray(value.shape[axis]).astype(np.int32) for axis in self.sizes]
        return [lax.pad(value, jnp.zeros((), self.dtype), more), *sizes]

    def cut(self, results: Iterator[Any], index: Any, tracker: DynamicShapes, mark: int) -> Any:
        """Returns of what the branches returned by `padded` the result of the one that was taken.

        Args:
          results: that, and what follows.
          index: which branch was taken.
          tracker: the sizes that data decides.
          mark: what `DynamicShapes.mark` was before the branches: outside, nothing knows of what they found.
        """
        value, which = next(results), name_of(index)
        for axis, sizes in self.sizes.items():
            places = lax.iota(np.int32, self.shape[axis])
            first = tracker.prefix(places, next(results), ("branch", which, *map(str, sizes)), index)
            tracker.symbolic_bounds[str(first.shape[0])] = functools.reduce(max_dim, sizes)
            if not any(tracker.is_later(n, mark) for n in sizes):
                tracker.branch_sizes[str(first.shape[0])] = (which, sizes)
            value = take(value, first, axis)
        return value


def as_within(value: Any, tracker: DynamicShapes, index: Any, branch: int) -> Any:
    """Returns a value as a branch sees it: sizes that a choice by the same index left open are known there.

    Args:
      value: of the surroundings.
      tracker: the sizes that data decides.
      index: what picks the branch.
      branch: its number.
    """
    if not tracker.branch_sizes or not isinstance(value, jax.Array):
        return value
    which = name_of(index)
    for axis, dim in enumerate(value.shape):
        chosen, sizes = tracker.branch_sizes.get(str(dim), (None, ()))
        if chosen == which:
            value = _resized(value, axis, sizes[branch])
    return value


def _resized(x: Any, axis: int, size: Any) -> Any:
    if isinstance(size, int):
        return lax.slice_in_dim(ensure_length(x, axis, size), 0, size, axis=axis)
    return take(x, lax.iota(np.int32, size), axis)
