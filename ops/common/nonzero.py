"""Indices of the true elements of a mask."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.cumulative import cumulative


def nonzero(mask: Any, size: Any, fill_value: Any) -> Any:
    """Return the indices at which a vector is true, in ascending order.

    ``jnp.nonzero(mask, size=size, fill_value=fill_value)`` with one pass over the mask less.

    Args:
      size: length of the result; further indices are dropped.
      fill_value: pads a result that is too short.
    """
    count = mask.shape[0]
    number = cumulative(lax.cumsum, lax.convert_element_type(mask, np.int32), 0, False) - 1
    out = jnp.full((size,), jnp.asarray(fill_value, np.int32))
    return out.at[jnp.where(mask, number, size)].set(lax.iota(np.int32, count), mode="drop")
