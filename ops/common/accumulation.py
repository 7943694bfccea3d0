"""Sums of 16-bit floats, which are added up in float32: in 16 bits a sum of some thousand numbers stops growing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["in_float32", "total"]


def in_float32(fn: Callable[..., Any], *operands: Any) -> Any:
    """Returns ``fn(*operands)``, one array, of the first one's dtype; 16-bit floats are float32 within."""
    dtype = operands[0].dtype
    if dtype.itemsize > 2 or not jnp.issubdtype(dtype, jnp.floating):
        return fn(*operands)
    return lax.convert_element_type(fn(*(lax.convert_element_type(v, np.float32) for v in operands)), dtype)


def total(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """Returns the sum over axes in ``x``'s dtype, added up in float32 at least."""
    return in_float32(lambda v: jnp.sum(v, axis=axis, dtype=v.dtype), jnp.asarray(x))
