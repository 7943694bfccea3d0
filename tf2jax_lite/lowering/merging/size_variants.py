"""Results whose sizes differ between branches: they have a data-dependent size.

A branch returns its result padded to the largest size, and its actual size. Another conditional with the same index,
such as the second of two ``if is_training:``, sees the size of its own branch.
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


class SizeVariantsError(UnboundedError):
    """Branches have results of different sizes, and values decide between them."""

    def __init__(self, problem: str):
        OpError.__init__(self, problem)


@dataclasses.dataclass(frozen=True)
class SizeVariants:
    """A result whose sizes differ between branches.

    Attributes:
      sizes: for each axis along which branches differ, the size in each branch.
    """

    shape: tuple[Any, ...]
    dtype: Any
    sizes: dict[int, tuple[Any, ...]]

    @classmethod
    def of_results(cls, column: list[Any]) -> SizeVariants | None:
        """Return the variants of branch results; None if more than sizes differ.

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
                bounds = [dim_upper_bound(n) if is_data_dependent(n) else n for n in sizes[axis]]
                if any(bound is None for bound in bounds):
                    return None
                shape[axis] = functools.reduce(max_dim, bounds)
        return cls(tuple(shape), arrays[0].dtype, sizes)

    @classmethod
    def of_branch(cls, spec: jax.ShapeDtypeStruct, tracker: DynamicShapes | None, mark: int) -> SizeVariants | None:
        """Return a branch's result with dynamic sizes; None without such sizes."""
        if tracker is None:
            return None
        shape, sizes = list(spec.shape), {}
        for axis, size in enumerate(spec.shape):
            if tracker.is_later(size, mark):
                sizes[axis] = (size,)
                shape[axis] = dim_upper_bound(size)
        return cls(tuple(shape), spec.dtype, sizes) if sizes and None not in shape else None

    def pack(self, value: Any) -> list[Any]:
        """Return a branch's zero-padded result, and its sizes that vary by branch."""
        if value is None:
            return [jnp.zeros(self.shape, self.dtype), *[np.int32(0)] * len(self.sizes)]
        padding = [(0, bound - size, 0) for size, bound in zip(value.shape, self.shape, strict=True)]
        sizes = [jnp.asarray(value.shape[axis]).astype(np.int32) for axis in self.sizes]
        return [lax.pad(value, jnp.zeros((), self.dtype), padding), *sizes]

    def unpack(self, results: Iterator[Any], index: Any, tracker: DynamicShapes, mark: int) -> Any:
        """Return the taken branch's result, given the values from `pack`.

        Args:
          mark: the `DynamicShapes.mark` from before the branches; their own sizes have no meaning outside.
        """
        value, which = next(results), name_of(index)
        for axis, sizes in self.sizes.items():
            indices = lax.iota(np.int32, self.shape[axis])
            first = tracker.prefix(indices, next(results), ("branch", which, *sizes), index)
            tracker.symbolic_bounds[first.shape[0]] = functools.reduce(max_dim, sizes)
            if not any(tracker.is_later(n, mark) for n in sizes):
                tracker.branch_sizes[first.shape[0]] = (which, sizes)
            value = take(value, first, axis)
        return value


def in_branch(value: Any, tracker: DynamicShapes, index: Any, branch: int) -> Any:
    """Return a value in a branch, with sizes of that index as the branch's."""
    if not tracker.branch_sizes or not isinstance(value, jax.Array):
        return value
    which = name_of(index)
    for axis, dim in enumerate(value.shape):
        chosen, sizes = tracker.branch_sizes.get(dim, (None, ()))
        if chosen == which:
            value = _resized(value, axis, sizes[branch])
    return value


def _resized(x: Any, axis: int, size: Any) -> Any:
    if isinstance(size, int):
        return lax.slice_in_dim(ensure_length(x, axis, size), 0, size, axis=axis)
    return take(x, lax.iota(np.int32, size), axis)
