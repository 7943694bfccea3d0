"""Row splits of ragged tensors: the row of each value."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.values.static import known

__all__ = ["array_module", "row_of", "search"]


def array_module(*values: Any) -> Any:
    """Return NumPy if every value is static, else `jax.numpy`."""
    return np if all(known(v) is not None for v in values) else jnp


def search(ordered: Any, query: Any, side: Any) -> Any:
    """Return ``searchsorted(ordered, query, side)``.

    A symbolic length cannot be bisected, so all pairs are compared.
    """
    if array_module(ordered, query) is np:
        return np.searchsorted(ordered, query, side=side)
    ordered, query = jnp.asarray(ordered), jnp.asarray(query)
    if isinstance(ordered.shape[0], int):
        return jnp.searchsorted(ordered, query, side=side)
    less = lax.le if side == "right" else lax.lt
    count, number = ordered.shape[0], query.shape[0]
    grid = (count, number)
    pairs = less(
        lax.broadcast_in_dim(ordered, grid, (0,)), lax.broadcast_in_dim(query, grid, (1,)).astype(ordered.dtype)
    )
    return jnp.sum(pairs, axis=0, dtype=np.int32)


def row_of(splits: Any, count: Any) -> Any:
    """Return the row of each of ``count`` values.

    Args:
      splits: ``[rows + 1]``, row splits.
      count: number of values; those past the last split get ``rows``.
    """
    static = known(splits)
    if static is not None and isinstance(count, int):
        return search(static[1:], np.arange(count), "right").astype(static.dtype)
    splits = jnp.asarray(splits)
    return search(splits[1:], lax.iota(splits.dtype, count), "right").astype(splits.dtype)
