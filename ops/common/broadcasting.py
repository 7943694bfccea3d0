"""Broadcasting of operands for ``jax.lax`` primitives, and comparison of shapes.

A dimension is an int where its size is static, and an expression of symbolic dimensions otherwise, whose comparison
with another one may be inconclusive. Shapes are compared where they are ints.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MAX_FOLDED = 1024
"""Elements of the largest array that constant folding makes; larger ones are made in the trace, without a constant."""


def is_int(value: Any) -> bool:
    """Return whether a dimension is static."""
    return isinstance(value, (int, np.integer))


def is_zero(value: Any) -> bool:
    """Return whether a dimension is statically 0."""
    return is_int(value) and value == 0


def is_small(shape: tuple[Any, ...]) -> bool:
    """Return whether a shape is static and has at most `MAX_FOLDED` elements."""
    return all(map(is_int, shape)) and math.prod(shape) <= MAX_FOLDED


def compatible(shape: Any, other: Any, skip: int | None = None) -> bool:
    """Return whether two shapes may be equal, but for the dimension ``skip``."""
    return len(shape) == len(other) and all(
        i == skip or not (is_int(a) and is_int(b)) or a == b for i, (a, b) in enumerate(zip(shape, other, strict=True))
    )


def array(x: Any) -> Any:
    """Return ``jnp.asarray(x)``, which takes a microsecond to trace for an array."""
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def number(value: Any, dtype: Any) -> Any:
    """Return a number as a NumPy scalar, a literal in the jaxpr; a symbol as an array."""
    if isinstance(value, (int, float, np.number)):
        return np.asarray(value, dtype)[()]
    return jnp.asarray(value, dtype)


def pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Return two arrays, broadcast to their common shape."""
    x, y = array(x), array(y)
    if x.shape == y.shape:
        return x, y
    shape = jnp.broadcast_shapes(x.shape, y.shape)
    return _broadcast_to(x, shape), _broadcast_to(y, shape)


def matched(x: Any, y: Any) -> tuple[Any, Any]:
    """Return two arrays as operands of ``jax.lax`` primitives that broadcast.

    The primitives broadcast scalars and dimensions of size 1. That saves an equation, and several in derivatives. Only
    for primitives such as ``lax.add``, not for ``lax.select`` nor for functions with custom derivatives.

    Args:
      x: an array; a static scalar becomes a literal.
      y: an array whose shape broadcasts with that of ``x``.
    """
    if isinstance(y, np.ndarray) and not y.ndim:
        return array(x), y[()]
    if isinstance(x, np.ndarray) and not x.ndim:
        return x[()], array(y)
    x, y = array(x), array(y)
    if x.ndim == y.ndim or not x.ndim or not y.ndim:
        if x.shape != y.shape:
            jnp.broadcast_shapes(x.shape, y.shape)
        return x, y
    return pair(x, y)


def _broadcast_to(x: Any, shape: tuple[Any, ...]) -> Any:
    """Broadcast in one equation; ``jnp.broadcast_to`` traces three times as long."""
    if x.shape == shape:
        return x
    first = len(shape) - x.ndim
    if x.shape == shape[first:]:
        return lax.broadcast_in_dim(x, shape, tuple(range(first, len(shape))))
    return jnp.broadcast_to(x, shape)
