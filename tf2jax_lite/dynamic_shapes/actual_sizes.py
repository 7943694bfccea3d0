"""Evaluate symbolic dimensions: capacity (static) and actual size (run time)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError

from .bounds import is_data_dependent
from .dim_expr import has_no_extreme_corner, largest, names_in, value

_SAMPLE = 1000  # a size


def is_symbolic(shape: Sequence[Any]) -> bool:
    """Return whether a shape has a data-dependent dimension."""
    return any(is_data_dependent(d) for d in shape)


class Sizes:
    """The upper bounds and the run-time values of the variables in dimensions.

    Attributes:
      checks: bool scalars, one per assumption about sizes: whether it holds.

    Args:
      others: the symbolic dimensions of arguments, by name; they are not data-dependent.
    """

    def __init__(self, others: Mapping[str, Any] | None = None) -> None:
        self._others = dict(others or {})
        self._bounds: dict[str, Any] = {}
        self._actual: dict[str, Any] = {}
        self.checks: list[Any] = []

    def define(self, name: str, bound: Any, actual: Any) -> None:
        """Define a variable.

        Args:
          actual: its value, an int32 scalar.
        """
        self._bounds[name] = bound
        self._actual[name] = actual

    @property
    def values(self) -> dict[str, Any]:
        """The value of each variable."""
        return dict(self._actual)

    def with_values(self, values: Mapping[str, Any]) -> Sizes:
        """Return the same upper bounds with other values of the variables, and no checks."""
        out = Sizes(self._others)
        out._bounds.update(self._bounds)
        out._actual.update(values)
        return out

    def capacity(self, dim: Any) -> Any:
        """Return the upper bound of a dimension: an int, or a dimension of ``others``."""
        if not is_data_dependent(dim):
            return dim
        found = sorted(names_in(dim) - self._others.keys())
        known = {name: self._bounds[name] for name in found if name in self._bounds}
        bound = None
        if names_in(dim) == known.keys() and all(isinstance(v, int) for v in known.values()):
            bound = largest(dim, known)
        elif len(known) == len(found):
            bound = self._with_others(dim, found)
        if bound is None:
            raise OpError(f"the dimension {dim} has no known upper bound")
        return max(0, bound) if isinstance(bound, int) else bound

    def _with_others(self, dim: Any, found: Sequence[str]) -> Any:
        if has_no_extreme_corner(dim):
            return None
        # The corner of the maximum does not depend on the values of the others: a sample of those finds it.
        sizes = dict.fromkeys(self._others, _SAMPLE)
        corners = [dict(zip(found, at, strict=True)) for at in itertools.product((False, True), repeat=len(found))]

        def sampled(corner: Mapping[str, bool]) -> int:
            samples = {name: self._sampled(self._bounds[name]) if high else 1 for name, high in corner.items()}
            return int(value(dim, sizes | samples))

        best = max(corners, key=sampled)
        return value(dim, self._others | {name: self._bounds[name] if high else 1 for name, high in best.items()})

    def _sampled(self, bound: Any) -> int:
        return value(bound, dict.fromkeys(self._others, _SAMPLE))

    def actual(self, dim: Any) -> Any:
        """Return the run-time size of a dimension: an int, or an int32 scalar."""
        if isinstance(dim, int):
            return dim
        others = {name: jnp.asarray(value).astype(np.int32) for name, value in self._others.items()}
        return value(dim, others | self._actual)

    def padded_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the shape with each dimension replaced by its capacity."""
        return tuple(self.capacity(d) for d in shape)

    def valid(self, shape: Sequence[Any], axes: Sequence[int] | None = None) -> Any:
        """Return a mask of the valid elements; None if all are valid.

        The padded axes are ``axes``, all by default. The mask is a bool array that broadcasts to the padded shape.
        """
        found = None
        for axis in range(len(shape)) if axes is None else axes:
            if not is_data_dependent(shape[axis]):
                continue
            extent = tuple(self.capacity(shape[axis]) if i == axis else 1 for i in range(len(shape)))
            valid = lax.broadcasted_iota(np.int32, extent, axis) < self.actual(shape[axis])
            found = valid if found is None else found & valid
        return found

    def filled(self, x: Any, shape: Sequence[Any], value: Any, axes: Sequence[int] | None = None) -> Any:
        """Return a padded array with ``value`` in its padding along axes (all)."""
        valid = self.valid(shape, axes)
        return x if valid is None else jnp.where(valid, x, jnp.asarray(value, x.dtype))
