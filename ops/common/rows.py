"""Indices of true elements, runs of equal rows, and row splits of ragged tensors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.values.static import static_value

MAX_COMPARED_PAIRS = 1 << 22
"""Up to this many pairs of rows are compared pairwise; beyond, equal rows are identified by sorting."""


def starts(rows: Any) -> Any:
    """Return which rows differ from the row before."""
    # It pads instead of slicing: slices of data-dependent dimensions could not be compared.
    rows = jnp.asarray(rows)
    rest = [(0, 0, 0)] * (rows.ndim - 1)
    before = lax.pad(rows, np.zeros((), rows.dtype), [(1, -1, 0), *rest])
    differs = rows != before
    if rest:
        differs = jnp.any(differs, axis=tuple(range(1, rows.ndim)))
    return differs & (lax.iota(np.int32, rows.shape[0]) > 0)


def numbered(rows: Any) -> Any:
    """Return the number of each row's run, int32 from 0."""
    return jnp.cumsum(starts(rows), dtype=np.int32)


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


def nonzero(mask: Any, size: Any, fill_value: Any) -> Any:
    """Return the indices at which a vector is true, as `jnp.nonzero` with ``size``."""
    count = mask.shape[0]
    number = lax.cumsum(lax.convert_element_type(mask, np.int32)) - 1
    out = jnp.full((size,), jnp.asarray(fill_value, np.int32))
    return out.at[jnp.where(mask, number, size)].set(lax.iota(np.int32, count), mode="drop")
