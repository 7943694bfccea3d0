"""Where a mask is true."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.cumulative import cumulative

__all__ = ["places"]


def places(mask: Any, size: Any, missing: Any) -> Any:
    """Returns the places at which a vector is true, in order: what ``jnp.nonzero`` gives, in one pass less.

    Args:
      mask: bools.
      size: how many places there is room for; the first that many count.
      missing: what fills the room that is left.

    Returns:
      int32, shape ``(size,)``.
    """
    count = mask.shape[0]
    number = cumulative(lax.cumsum, lax.convert_element_type(mask, np.int32), 0, False) - 1
    out = jnp.full((size,), jnp.asarray(missing, np.int32))
    return out.at[jnp.where(mask, number, size)].set(lax.iota(np.int32, count), mode="drop")
