"""Results that have another rank in another branch, such as rows of losses, or the number 0 where there are none.

To TensorFlow their rank is unknown. They are carried as what each branch gives, of which only one is there, and what
takes them runs on each, in branches by the same number, until results are of one shape: the mean of either is a number.
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

from .size_variants import Uneven

__all__ = ["Alternatives", "Choice", "alternatives"]

_MOST_ALTERNATIVES = 16


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values.

    Attributes:
      factors: what decides which: traced int32 scalars, each with how many numbers it can be.
      values: for all that those can be, the last changing first, arrays (zeros where another is taken), or numpy arrays
        that are known.
      refusal: what is raised where one value is needed and their shapes differ.
    """

    factors: tuple[tuple[Any, int], ...]
    values: tuple[Any, ...]
    refusal: LoweringError

    @property
    def index(self) -> Any:
        """The number of the value that is taken: a traced int32 scalar."""
        (index, _), *others = self.factors
        for other, count in others:
            index = index * count + other
        return index

    @property
    def dtype(self) -> Any:
        """The dtype of all."""
        return self.values[0].dtype

    def of(self, which: Mapping[Any, int]) -> Any:
        """Returns the value for what the factors are, by their names."""
        number = 0
        for index, count in self.factors:
            number = number * count + which[name_of(index)]
        return self.values[number]

    def settled(self) -> Any:
        """Returns the value that is taken, where all are of one shape.

        Raises:
          LoweringError: they are not.
        """
        arrays = [jnp.asarray(as_array(v)) for v in self.values]
        if len({v.shape for v in arrays}) > 1:
            raise self.refusal
        return lax.select_n(jnp.broadcast_to(self.index, arrays[0].shape), *arrays)

    @staticmethod
    def fits(column: Sequence[Any]) -> bool:
        """Whether results of branches differ in nothing but their ranks and sizes.

        Args:
          column: for each branch a `jax.ShapeDtypeStruct`, or anything else.
        """
        return all(isinstance(v, jax.ShapeDtypeStruct) for v in column) and len({v.dtype for v in column}) == 1


@dataclasses.dataclass(frozen=True)
class Alternatives:
    """How branches return what is a `Choice`: each its own, and zeros for what others give.

    Attributes:
      forms: for each branch a `jax.ShapeDtypeStruct`, or how it gives something of sizes that it finds.
      known: for each branch its value if that is known, else None.
      mark: what `DynamicShapes.mark` was before the branches.
      problem: what is wrong where one value is needed.
    """

    forms: tuple[Any, ...]
    known: tuple[Any, ...]
    mark: int
    problem: str

    @classmethod
    def of(cls, column: Sequence[Any], known: Sequence[Any], tracker: Any, mark: int, problem: str) -> Alternatives:
        """Returns how results of some forms are returned."""
        forms = tuple(Uneven.local(form, tracker, mark) or form for form in column)
        return cls(forms, tuple(known), mark, problem)

    def spread(self, branch: int, value: Any) -> list[Any]:
        """Returns what a branch returns that gives ``value``; known ones are left out."""
        out = []
        for i, (form, known) in enumerate(zip(self.forms, self.known, strict=True)):
            own = value if i == branch else None
            if known is None and isinstance(form, Uneven):
                out += form.padded(own)
            elif known is None:
                out.append(jnp.zeros(form.shape, form.dtype) if own is None else own)
        return out

    def collected(self, results: Iterator[Any], index: Any, tracker: Any) -> tuple[Any, ...]:
        """Returns the values of what branches returned by `spread`."""
        found = []
        for form, known in zip(self.forms, self.known, strict=True):
            if known is not None:
                found.append(known)
            elif isinstance(form, Uneven):
                found.append(form.cut(results, index, tracker, self.mark))
            else:
                found.append(next(results))
        return tuple(found)


def alternatives(inputs: Sequence[Any]) -> tuple[Choice, list[list[Any]]] | None:
    """Returns what a node takes in each of the branches that its inputs are of; None if they are of none.

    Returns:
      A `Choice` without values, and for each of its values what the node takes.

    Raises:
      LoweringError: there are too many.
    """
    choices = [v for v in inputs if isinstance(v, Choice)]
    if not choices:
        return None
    factors = {name_of(index): (index, count) for v in choices for index, count in v.factors}
    counts = [count for _, count in factors.values()]
    if math.prod(counts) > _MOST_ALTERNATIVES:
        raise choices[0].refusal
    given = []
    for numbers in itertools.product(*map(range, counts)):
        which = dict(zip(factors, numbers, strict=True))
        given.append([v.of(which) if isinstance(v, Choice) else v for v in inputs])
    return Choice(tuple(factors.values()), (), choices[0].refusal), given
