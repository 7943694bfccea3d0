"""Branch results of different sizes or ranks.

`SizeVariants`: the result has a data-dependent size. A branch returns it padded to the largest size, and its actual
size. Another conditional with the same index, such as the second of two ``if is_training:``, sees the size of its own
branch.

`RankVariants`: results such as rows of losses or a 0, whose rank is unknown to TensorFlow. They are a tagged union: a
value per branch, of which one is valid. Nodes that read them run on each, in branches with the same index, until
results have one shape: the mean of either is a scalar.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
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
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.values.static import as_array


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


_MAX_VARIANTS = 16


@dataclasses.dataclass(frozen=True)
class RankVariants:
    """A tagged union of values of several ranks.

    Attributes:
      factors: traced int32 scalars whose combination is the tag, each with the number of its values.
      values: the values for all tags, the last factor changing first: arrays (zeros where another tag is taken), or
        static NumPy arrays.
      refusal: the error where one value is needed and shapes differ.
    """

    factors: tuple[tuple[Any, int], ...]
    values: tuple[Any, ...]
    refusal: LoweringError

    @property
    def index(self) -> Any:
        """The tag as one traced int32 scalar."""
        (index, _), *others = self.factors
        for other, count in others:
            index = index * count + other
        return index

    @property
    def dtype(self) -> Any:
        """The dtype of all values."""
        return self.values[0].dtype

    def value_at(self, which: Mapping[Any, int]) -> Any:
        """Return the value for the values of the factors, given by the factors' names."""
        number = 0
        for index, count in self.factors:
            number = number * count + which[name_of(index)]
        return self.values[number]

    def resolved(self) -> Any:
        """Return the value that is taken."""
        arrays = [jnp.asarray(as_array(v)) for v in self.values]
        if len({v.shape for v in arrays}) > 1:
            raise self.refusal
        return lax.select_n(jnp.broadcast_to(self.index, arrays[0].shape), *arrays)

    @staticmethod
    def can_hold(column: Sequence[Any]) -> bool:
        """Return whether results of branches are arrays of one dtype.

        Args:
          column: for each branch a `jax.ShapeDtypeStruct`, or anything else.
        """
        return all(isinstance(v, jax.ShapeDtypeStruct) for v in column) and len({v.dtype for v in column}) == 1


@dataclasses.dataclass(frozen=True)
class RankLayout:
    """The layout in which branches return `RankVariants`, with zeros for others.

    Attributes:
      specs: for each branch a `jax.ShapeDtypeStruct`, or `SizeVariants` if it creates data-dependent sizes.
      static: for each branch its value if that is static, else None.
      problem: the error message where one value is needed.
    """

    specs: tuple[Any, ...]
    static: tuple[Any, ...]
    mark: int
    problem: str

    @classmethod
    def of(cls, column: Sequence[Any], static: Sequence[Any], tracker: Any, mark: int, problem: str) -> RankLayout:
        """Return the layout for results of some specs."""
        specs = tuple(SizeVariants.of_branch(spec, tracker, mark) or spec for spec in column)
        return cls(specs, tuple(static), mark, problem)

    def pack(self, branch: int, value: Any) -> list[Any]:
        """Return a branch's values for its result, without static ones."""
        out = []
        for i, (spec, static) in enumerate(zip(self.specs, self.static, strict=True)):
            own = value if i == branch else None
            if static is None and isinstance(spec, SizeVariants):
                out += spec.pack(own)
            elif static is None:
                out.append(jnp.zeros(spec.shape, spec.dtype) if own is None else own)
        return out

    def unpack(self, results: Iterator[Any], index: Any, tracker: Any) -> tuple[Any, ...]:
        """Return all branches' results, given the values from `pack`."""
        found = []
        for spec, static in zip(self.specs, self.static, strict=True):
            if static is not None:
                found.append(static)
            elif isinstance(spec, SizeVariants):
                found.append(spec.unpack(results, index, tracker, self.mark))
            else:
                found.append(next(results))
        return tuple(found)


def expand_variants(inputs: Sequence[Any]) -> tuple[RankVariants, list[list[Any]]] | None:
    """Return a node's inputs for each tag of its tagged unions.

    Returns:
      A `RankVariants` without values, and the inputs for each tag; None if no input is a tagged union.
    """
    variants = [v for v in inputs if isinstance(v, RankVariants)]
    if not variants:
        return None
    factors = {name_of(index): (index, count) for v in variants for index, count in v.factors}
    counts = [count for _, count in factors.values()]
    if math.prod(counts) > _MAX_VARIANTS:
        raise variants[0].refusal
    given = []
    for numbers in itertools.product(*map(range, counts)):
        which = dict(zip(factors, numbers, strict=True))
        given.append([v.value_at(which) if isinstance(v, RankVariants) else v for v in inputs])
    return RankVariants(tuple(factors.values()), (), variants[0].refusal), given
