"""Row splits of ragged tensors: from row lengths, and the row of each value."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.values.static import static_value


def array_module(*values: Any) -> Any:
    """Return NumPy if all values are static, else jax.numpy."""
    return np if all(static_value(v) is not None for v in values) else jnp


def search(ordered: Any, query: Any, side: Any) -> Any:
    """Return searchsorted; for a symbolic length by comparing all pairs."""
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


def from_lengths(lengths: Any) -> Any:
    """Return the row splits of rows of these lengths, static if the lengths are."""
    found = static_value(lengths)
    if found is not None:
        return np.concatenate([[0], np.cumsum(found)])
    zero = jnp.zeros(1, lengths.dtype)
    return lax.concatenate([zero, jnp.cumsum(lengths, dtype=lengths.dtype)], 0)


def row_of(splits: Any, count: Any) -> Any:
    """Return the row of each of ``count`` values; the number of rows past the end."""
    found = static_value(splits)
    if found is not None and isinstance(count, int):
        return search(found[1:], np.arange(count), "right").astype(found.dtype)
    splits = jnp.asarray(splits)
    return search(splits[1:], lax.iota(splits.dtype, count), "right").astype(splits.dtype)
