"""Bounds of data-dependent dimensions, and arrays padded to a known length."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np
from jax import export, lax

from tf2jax_lite.jaxprs import compat
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.jaxprs.interval import Interval

from .dim_expr import (
    DYNAMIC,
    MAX_SAMPLED_VARIABLES,
    SIZES,
    is_linear,
    largest,
    names_in,
    numbers_in,
    operations_in,
    value,
    variable,
)
from .primitives import extend_p

_MAX_ENUMERATED = 1 << 20  # values of a variable

VARIABLE_BOUNDS: weakref.WeakKeyDictionary[export.SymbolicScope, dict[str, int]] = weakref.WeakKeyDictionary()
"""The upper bounds of the variables of a scope, where they are numbers."""


def dim_upper_bound(dim: Any) -> int | None:
    """Return a dimension's, or a difference's, upper bound, or None."""
    if not is_data_dependent(dim):
        return dim if isinstance(dim, int) else None
    found, known = names_in(dim), VARIABLE_BOUNDS.get(dim.scope, {})
    return _largest(dim, tuple((name, known[name]) for name in sorted(found))) if found <= known.keys() else None


@functools.lru_cache(maxsize=4096)
def _largest(dim: Any, known: tuple[tuple[str, int], ...]) -> int | None:
    return largest(dim, dict(known))


def dim_interval(dim: Any) -> Interval:
    """Return the interval of a number or a dimension; unknown bounds are infinite."""
    if isinstance(dim, int):
        return Interval(dim, dim)
    lower, upper = dim_upper_bound(-dim), dim_upper_bound(dim)
    return Interval(-np.inf if lower is None else -lower, np.inf if upper is None else upper)


def min_dim(a: Any, b: Any) -> Any:
    """Return the minimum of two dimensions: one of them where bounds decide."""
    if _is_at_most(a, b):
        return a
    return b if _is_at_most(b, a) else compat.min_dim(a, b)


def constant_size(dim: Any) -> Any:
    """Return a dimension's value if it is constant, else the dimension.

    If n is at most 10, ``n + max(10 - n, 0)`` is 10: n values padded to ten.
    """
    if not is_data_dependent(dim) or "max" not in operations_in(dim):
        return dim
    found, known = sorted(names_in(dim)), VARIABLE_BOUNDS.get(dim.scope, {})
    if len(found) == 1:
        number = _only_value(dim, found[0], known.get(found[0]))
        return dim if number is None else number
    variables = {name: variable(name, dim.scope) for name in found}
    simpler = value(dim, variables, {"max": max_dim, "min": min_dim})
    return simpler if isinstance(simpler, int) else dim


@functools.lru_cache(maxsize=4096)
def _only_value(dim: Any, name: str, bound: int | None) -> int | None:
    """Return an expression's value if its variable, up to ``bound``, has no effect."""
    if bound is None:
        if not is_linear(dim):
            return None
        # A sum of minima and maxima is linear beyond the sum of the numbers in it.
        bound = sum(map(abs, numbers_in(dim))) + 3
    if bound > _MAX_ENUMERATED:
        return None
    found = np.unique(value(dim, {name: np.arange(1, bound + 1)}))
    return int(found[0]) if found.size == 1 else None


def max_dim(a: Any, b: Any) -> Any:
    """Return the maximum of two dimensions: one of them where bounds decide."""
    if _is_at_most(b, a):
        return a
    return b if _is_at_most(a, b) else compat.max_dim(a, b)


def _is_at_most(a: Any, b: Any) -> bool:
    if not is_data_dependent(a) and not is_data_dependent(b):  # JAX decides
        return False
    bound = dim_upper_bound(a - b)
    return bound is not None and bound <= 0


@functools.lru_cache(maxsize=4096)
def equal_where_large(a: Any, b: Any) -> bool:
    """Return whether two dimensions are equal for all large samples.

    They must have the same variables. ``max(n - 2, 0) + 2`` is n, except for n below 2.
    """
    found = sorted(names_in(a))
    if not 0 < len(found) <= MAX_SAMPLED_VARIABLES or set(found) != names_in(b):
        return False
    # No difference in them is more than the sum of their numbers.
    start = sum(abs(number) for dim in (a, b) for number in numbers_in(dim))
    samples = np.meshgrid(*[np.array(SIZES) + start] * len(found))
    one, other = (value(dim, dict(zip(found, samples, strict=True))) for dim in (a, b))
    return bool(np.all(one == other))


def is_data_dependent(dim: Any) -> bool:
    """Return whether a dimension, or a part of it, is data-dependent."""
    return not isinstance(dim, int) and any(name.startswith(DYNAMIC) for name in names_in(dim))


def ensure_length(x: Any, axis: int, least: Any) -> Any:
    """Return an array zero-padded to at least ``least`` along an axis.

    TensorFlow fails if an index is out of range. JAX fails while tracing if it could be, as in a dynamic dimension.
    """
    size = x.shape[axis]
    if (isinstance(size, int) and not is_data_dependent(least)) or _reaches(size, least):
        return x
    if is_data_dependent(size) or is_data_dependent(least):
        return extend_p.bind(x, axis=axis, least=least)
    return _padded(x, axis=axis, least=least)


def as_size(dim: Any) -> Any:
    """Return ``max(dim, 0)`` if ``dim`` is dynamic and may be negative, else ``dim``.

    TensorFlow fails for negative ones.
    """
    if not is_data_dependent(dim) or is_size(dim):
        return dim
    return 0 if _is_at_most(dim, 0) else compat.max_dim(dim, 0)


def is_size(dim: Any) -> bool:
    """Return whether JAX knows that a dimension is at least 0."""
    return _reaches(dim, 0)


def _reaches(size: Any, least: int) -> bool:
    try:
        return size >= least
    except InconclusiveDimensionOperation:
        return False


def _padded(x: Any, *, axis: int, least: int) -> Any:
    more = compat.max_dim(x.shape[axis], least) - x.shape[axis]
    return lax.pad(x, np.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])
