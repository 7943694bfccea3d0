"""Sizes that data decides: the most that they can be, and arrays read where they may have no element."""

from __future__ import annotations

import functools
import re
import weakref
from typing import Any

import numpy as np
from jax import export, lax

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, Primitive, max_dim, min_dim, register

from .dim_expr import FOUND, MOST_TRIED, SIZES, largest, names, parsed, value

__all__ = [
    "MOST",
    "as_size",
    "at_least",
    "constant_size",
    "equal_where_enough",
    "greater",
    "is_found",
    "is_size",
    "lesser",
    "limits",
    "most",
]

_MOST_VALUES = 1 << 20  # of a variable that are tried

MOST: weakref.WeakKeyDictionary[export.SymbolicScope, dict[str, int]] = weakref.WeakKeyDictionary()
"""The most that each variable of a scope can be, where that is a number."""


def most(dim: Any) -> int | None:
    """Returns the most that a dimension can be, which may be less than nothing; None if no number tells."""
    if not is_found(dim):
        return dim if isinstance(dim, int) else None
    text, known = str(dim), MOST.get(dim.scope, {})
    found = names(parsed(text))
    return _largest(text, tuple((name, known[name]) for name in sorted(found))) if found <= known.keys() else None


@functools.lru_cache(maxsize=4096)
def _largest(text: str, known: tuple[tuple[str, int], ...]) -> int | None:
    return largest(parsed(text), dict(known))


def limits(dim: Any) -> tuple[float, float]:
    """Returns the least and the most that a number or a dimension can be; infinity where nothing tells."""
    if isinstance(dim, int):
        return dim, dim
    least, greatest = most(-dim), most(dim)
    return -np.inf if least is None else -least, np.inf if greatest is None else greatest


def lesser(a: Any, b: Any) -> Any:
    """Returns the lesser of two numbers or dimensions: one of them where what they can be tells."""
    if _is_at_most(a, b):
        return a
    return b if _is_at_most(b, a) else min_dim(a, b)


def constant_size(dim: Any) -> Any:
    """Return the number that a dimension is whatever its variables are, or the dimension if nothing tells one.

    Of n values filled up to ten, ``n + max(10 - n, 0)`` is 10 if n is at most that.
    """
    if not is_found(dim) or "max(" not in (text := str(dim)):
        return dim
    tree, known = parsed(text), MOST.get(dim.scope, {})
    found = sorted(names(tree))
    if len(found) == 1:
        number = _only_value(text, found[0], known.get(found[0]))
        return dim if number is None else number
    variables = {name: export.symbolic_shape(name, scope=dim.scope)[0] for name in found}
    simpler = value(tree, variables, {"max": greater, "min": lesser})
    return simpler if isinstance(simpler, int) else dim


@functools.lru_cache(maxsize=4096)
def _only_value(text: str, name: str, greatest: int | None) -> int | None:
    """Return the one value that an expression has for all of its variable's, at most ``greatest``, if it has one."""
    if greatest is None:
        if re.search(r"[*^]|mod|floordiv", text):
            return None
        # A sum of minima and maxima does not change its slope any more beyond the numbers in it.
        greatest = sum(map(int, re.findall(r"\b\d+\b", text))) + 3
    if greatest > _MOST_VALUES:
        return None
    found = np.unique(value(parsed(text), {name: np.arange(1, greatest + 1)}))
    return int(found[0]) if found.size == 1 else None


def greater(a: Any, b: Any) -> Any:
    """Return the greater of two numbers or dimensions: one of them where their limits tell."""
    if _is_at_most(b, a):
        return a
    return b if _is_at_most(a, b) else max_dim(a, b)


def _is_at_most(a: Any, b: Any) -> bool:
    if not is_found(a) and not is_found(b):  # what JAX knows
        return False
    greatest = most(a - b)
    return greatest is not None and greatest <= 0


@functools.lru_cache(maxsize=4096)
def equal_where_enough(a: Any, b: Any) -> bool:
    """Whether two dimensions are of the same variables and equal wherever those are large, as far as was tried.

    Of n rows, the first ``max(n - 2, 0)`` and the last 2 are n together, but where n is below 2.

    Args:
      a: a dimension.
      b: another one.
    """
    trees = [parsed(str(dim)) for dim in (a, b)]
    found = sorted(names(trees[0]))
    if not 0 < len(found) <= MOST_TRIED or set(found) != names(trees[1]):
        return False
    # What is taken off is one of the numbers in them, or several.
    enough = sum(int(number) for number in re.findall(r"\b\d+\b", f"{a} {b}"))
    tried = np.meshgrid(*[np.array(SIZES) + enough] * len(found))
    one, other = (value(tree, dict(zip(found, tried, strict=True))) for tree in trees)
    return bool(np.all(one == other))


@functools.lru_cache(maxsize=4096)
def is_found(dim: Any) -> bool:
    """Whether data decides a dimension, be it in part."""
    return not isinstance(dim, int) and re.search(rf"\b{FOUND}\d", str(dim)) is not None


def at_least(x: Any, axis: int, least: Any) -> Any:
    """Returns an array that is ``least`` long at least, so that JAX lets it be read there: zeros follow if they must.

    TensorFlow fails where an index is out of range, and JAX where it could be: of a size that data decides, any could.

    Args:
      x: an array. Where its size along ``axis`` is known to do, it comes back as it is.
      axis: a dimension of it.
      least: a size: a number, or one that data decides.
    """
    size = x.shape[axis]
    if (isinstance(size, int) and not is_found(least)) or _reaches(size, least):
        return x
    if is_found(size) or is_found(least):
        return _longer.bind(x, axis=axis, least=least)
    return _padded(x, axis=axis, least=least)


def as_size(dim: Any) -> Any:
    """Returns what is to be a size as one: where data decides it and JAX cannot tell that it is not below 0, it is 0.

    TensorFlow fails where it is below 0.
    """
    if not is_found(dim) or is_size(dim):
        return dim
    return 0 if _is_at_most(dim, 0) else max_dim(dim, 0)


def is_size(dim: Any) -> bool:
    """Whether JAX can tell that a dimension is not below 0."""
    return _reaches(dim, 0)


def _reaches(size: Any, least: int) -> bool:
    try:
        return size >= least
    except InconclusiveDimensionOperation:
        return False


def _padded(x: Any, *, axis: int, least: int) -> Any:
    more = max_dim(x.shape[axis], least) - x.shape[axis]
    return lax.pad(x, np.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])


def _longer_shape(x: Any, *, axis: int, least: int) -> Any:
    return x.update(shape=(*x.shape[:axis], max_dim(x.shape[axis], least), *x.shape[axis + 1 :]))


def _batched(args: Any, dims: Any, *, axis: int, least: int) -> Any:
    return _longer.bind(*args, axis=axis + (axis >= dims[0]), least=least), dims[0]


_longer = Primitive("longer")
register(
    _longer,
    abstract=_longer_shape,
    linear=lambda ct, x, *, axis, least: [lax.slice_in_dim(ct, 0, x.aval.shape[axis], axis=axis)],
    batch=_batched,
)
