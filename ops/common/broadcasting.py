"""Operands of elementwise operations: brought to shapes that ``jax.lax`` takes, in as few equations as there can be."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.reductions import broadcast, repeats_long_rows

__all__ = ["array", "matched", "number", "pair", "widened"]


def array(x: Any) -> Any:
    """Returns ``jnp.asarray(x)``, which costs a microsecond of tracing for what is an array."""
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def number(value: Any, dtype: Any) -> Any:
    """Returns a number as a scalar of ``dtype`` (a literal where it is used), a symbolic size as an array."""
    if isinstance(value, (int, float, np.number)):
        return np.asarray(value, dtype)[()]
    return jnp.asarray(value, dtype)


def pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns two arrays, each broadcast to the shape of both.

    Args:
      x: an array.
      y: an array whose shape broadcasts with that of ``x``.

    Raises:
      ValueError: the shapes do not broadcast.
    """
    x, y = array(x), array(y)
    if x.shape == y.shape:
        return x, y
    shape = jnp.broadcast_shapes(x.shape, y.shape)
    return widened(x, shape), widened(y, shape)


def matched(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns two arrays as operations of ``jax.lax`` take them that broadcast dimensions of size 1, and scalars.

    That is an equation less, and for derivatives several. For ``lax.add`` and its like alone: not for ``lax.select``,
    nor for functions with derivatives of their own.

    Args:
      x: an array; a scalar known while tracing becomes a literal.
      y: an array whose shape broadcasts with that of ``x``.

    Raises:
      ValueError: the shapes do not broadcast.
    """
    if isinstance(y, np.ndarray) and not y.ndim:
        return array(x), y[()]
    if isinstance(x, np.ndarray) and not x.ndim:
        return x[()], array(y)
    x, y = array(x), array(y)
    if x.ndim == y.ndim or not x.ndim or not y.ndim:
        if x.shape != y.shape:
            shape = jnp.broadcast_shapes(x.shape, y.shape)
            if x.ndim == y.ndim and (repeats_long_rows(x.shape, shape) or repeats_long_rows(y.shape, shape)):
                return widened(x, shape), widened(y, shape)
        return x, y
    return pair(x, y)


def widened(x: Any, shape: tuple[Any, ...]) -> Any:
    """Broadcasts in one equation; what jnp does takes three times as long to trace.

    Args:
      x: an array.
      shape: the shape of the result.
    """
    if x.shape == shape:
        return x
    if repeats_long_rows(x.shape, shape):
        return broadcast(x, shape)
    first = len(shape) - x.ndim
    if x.shape == shape[first:]:
        return lax.broadcast_in_dim(x, shape, tuple(range(first, len(shape))))
    return jnp.broadcast_to(x, shape)
