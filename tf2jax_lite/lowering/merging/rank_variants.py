"""Branch results of different ranks, such as rows of losses or a 0.

Their rank is unknown to TensorFlow. They are a tagged union: a value per branch, of which one is valid. Nodes that read
them run on each, in branches with the same index, until results have one shape: the mean of either is a scalar.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.dynamic_shapes.provenance import name_of
from tf2jax_lite.support.errors import LoweringError
from tf2jax_lite.values.static import as_array

from .size_variants import SizeVariants

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
