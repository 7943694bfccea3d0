"""What symbolic dimensions come to: how much room they need, and how large they are."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError

from .dim_expr import largest, names, parsed, value
from .tracker import is_found

__all__ = ["Sizes", "is_symbolic"]

# A result is largest where each variable is at its end; so many ends are tried.
_MOST_VARIABLES = 10
_SOME = 1000  # a size


def is_symbolic(shape: Sequence[Any]) -> bool:
    """Whether data decides a dimension of a shape."""
    return any(is_found(d) for d in shape)


class Sizes:
    """The values of the variables in dimensions: the most they can be, and what they are.

    Attributes:
      checks: bool scalars: whether sizes are what they were taken to be.

    Args:
      others: the variables that are not found but given, by name: symbolic dimensions of arguments.
    """

    def __init__(self, others: Mapping[str, Any] | None = None) -> None:
        self._others = dict(others or {})
        self._most: dict[str, Any] = {}
        self._actual: dict[str, Any] = {}
        self.checks: list[Any] = []

    def define(self, name: str, most: Any, actual: Any) -> None:
        """Gives a variable a value: an int32 scalar ``actual``, at most ``most``, which may be a given dimension."""
        self._most[name] = most
        self._actual[name] = actual

    @property
    def values(self) -> dict[str, Any]:
        """What each variable is."""
        return dict(self._actual)

    def given(self, values: Mapping[str, Any]) -> Sizes:
        """Returns the same sizes with other arrays for what the variables are."""
        out = Sizes(self._others)
        out._most.update(self._most)
        out._actual.update(values)
        return out

    def most(self, dim: Any) -> Any:
        """Returns how much room a dimension needs: an int, or a dimension that is given.

        Raises:
          OpError: nothing tells.
        """
        if not is_found(dim):
            return dim
        tree = parsed(str(dim))
        found = sorted(names(tree) - self._others.keys())
        known = {name: self._most[name] for name in found if name in self._most}
        most = None
        if names(tree) == known.keys() and all(isinstance(v, int) for v in known.values()):
            most = largest(tree, known)
        elif len(known) == len(found):
            most = self._with_others(tree, found)
        if most is None:
            raise OpError(f"nothing tells how large the dimension {dim} can be")
        return max(0, most) if isinstance(most, int) else most

    def _with_others(self, tree: ast.expr, found: Sequence[str]) -> Any:
        if "mod" in ast.unparse(tree) or len(found) > _MOST_VARIABLES:
            return None
        # Where it is largest does not depend on how large the given ones are: for these, any number will do.
        sizes = dict.fromkeys(self._others, _SOME)
        ends = [dict(zip(found, end, strict=True)) for end in itertools.product((False, True), repeat=len(found))]

        def tried(end: Mapping[str, bool]) -> int:
            some = {name: self._tried(self._most[name]) if high else 1 for name, high in end.items()}
            return int(value(tree, sizes | some))

        best = max(ends, key=tried)
        return value(tree, self._others | {name: self._most[name] if high else 1 for name, high in best.items()})

    def _tried(self, most: Any) -> int:
        return most if isinstance(most, int) else value(parsed(str(most)), dict.fromkeys(self._others, _SOME))

    def actual(self, dim: Any) -> Any:
        """Returns how large a dimension is: an int, or an int32 scalar."""
        if isinstance(dim, int):
            return dim
        others = {name: jnp.asarray(value).astype(np.int32) for name, value in self._others.items()}
        return value(parsed(str(dim)), others | self._actual)

    def shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the shape of the array that has room for all."""
        return tuple(self.most(d) for d in shape)

    def valid(self, shape: Sequence[Any], axes: Sequence[int] | None = None) -> Any:
        """Returns which elements are there, judged by some axes, or all: a bool array that broadcasts; None for all."""
        found = None
        for axis in range(len(shape)) if axes is None else axes:
            if not is_found(shape[axis]):
                continue
            wide = tuple(self.most(shape[axis]) if i == axis else 1 for i in range(len(shape)))
            there = lax.broadcasted_iota(np.int32, wide, axis) < self.actual(shape[axis])
            found = there if found is None else found & there
        return found

    def filled(self, x: Any, shape: Sequence[Any], value: Any, axes: Sequence[int] | None = None) -> Any:
        """Returns an array with what is not there replaced by one value."""
        there = self.valid(shape, axes)
        return x if there is None else jnp.where(there, x, jnp.asarray(value, x.dtype))
