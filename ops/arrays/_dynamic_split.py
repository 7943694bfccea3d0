"""SplitV into parts of data-dependent sizes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import as_size, is_size
from tf2jax_lite.dynamic_shapes.primitives import truncate_p
from tf2jax_lite.dynamic_shapes.provenance import Entry, name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes

from .gather import take


def dynamic_split(value: Any, size_splits: Any, sizes: list[Entry], axis: int, tracker: DynamicShapes) -> list[Any]:
    """Split an array along an axis into parts of traced sizes.

    Results are NaN if the sizes do not add up to the axis, where TensorFlow raises an error.

    Args:
      size_splits: a vector of integers, of which one may be -1.
      sizes: the provenance of its entries.
      tracker: assigns the parts their dimensions.
    """
    whole = value.shape[axis]
    total = jnp.asarray(whole).astype(np.int32)
    counts = jnp.asarray(size_splits).astype(np.int32)
    counts = jnp.where(counts == -1, total - jnp.sum(jnp.where(counts == -1, 0, counts)), counts)
    fits = (jnp.sum(counts) == total) & jnp.all(counts >= 0)
    starts = jnp.cumsum(counts) - counts
    out = []
    for i, size in enumerate(sizes):
        if (dim := tracker.dim_of(size)) is not None and is_size(dim):
            indices = lax.iota(np.int32, dim)
        else:
            key = ("split", str(whole), name_of(size_splits), i)  # one dimension for all arrays that are split so
            # A count above the capacity invalidates the part.
            count = jnp.where(fits, counts[i], total + 1)
            indices = tracker.prefix(lax.iota(np.int32, whole), count, key, size_splits, is_sure=False)
        out.append(take(value, indices + starts[i], axis))
    tracker.record_split([part.shape[axis] for part in out], whole)
    return out


def split_with_remainder(value: Any, sizes: list[Any], axis: int, tracker: DynamicShapes) -> list[Any]:
    """Split an array along an axis into parts of symbolic sizes, such as n - 1 and 1.

    Results are NaN if the remainder is negative, where TensorFlow raises an error.

    Args:
      sizes: a dimension for each part; their sum is the size of the axis.
      tracker: records that the parts make up the whole.
    """
    start, out = jnp.zeros((), np.int32), []
    for dim in sizes:
        count = jnp.asarray(dim).astype(np.int32)
        indices = lax.iota(np.int32, size := as_size(dim))
        if not is_size(dim):
            indices = truncate_p.bind(indices, count, dim=size, name="", is_sure=True)
        out.append(take(value, indices + start, axis))
        start = start + count
    tracker.record_split([part.shape[axis] for part in out], value.shape[axis])
    return out
