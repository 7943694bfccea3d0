"""Parts of an array whose sizes data decides."""

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

__all__ = ["known_split", "open_split"]


def open_split(value: Any, size_splits: Any, sizes: list[Entry], axis: int, tracker: DynamicShapes) -> list[Any]:
    """Splits an array along an axis into parts of sizes that are traced, or known in part.

    Where they are not as much together as there is, for which TensorFlow raises an error, what is computed is NaN.

    Args:
      value: an array of any shape and dtype.
      size_splits: a vector of integers, one of which may be -1.
      sizes: what is known of its entries.
      axis: a dimension of the array.
      tracker: gives the parts their sizes.
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
            places = lax.iota(np.int32, dim)
        else:
            key = ("split", str(whole), name_of(size_splits), i)  # of all that is split so
            # More than there is room for, which shows, where nothing fits.
            count = jnp.where(fits, counts[i], total + 1)
            places = tracker.prefix(lax.iota(np.int32, whole), count, key, size_splits, is_sure=False)
        out.append(take(value, places + starts[i], axis))
    tracker.record_split([part.shape[axis] for part in out], whole)
    return out


def known_split(value: Any, sizes: list[Any], axis: int, tracker: DynamicShapes) -> list[Any]:
    """Splits an array along an axis into parts of sizes of which one is what others leave: n - 1 and 1.

    Where less than nothing is left, for which TensorFlow raises an error, what is computed is NaN.

    Args:
      value: an array of any shape and dtype.
      sizes: a dimension for each part; together they are the array's.
      axis: a dimension of the array.
      tracker: keeps in mind that the parts are the whole.
    """
    start, out = jnp.zeros((), np.int32), []
    for dim in sizes:
        count = jnp.asarray(dim).astype(np.int32)
        places = lax.iota(np.int32, size := as_size(dim))
        if not is_size(dim):
            places = truncate_p.bind(places, count, dim=size, name="", is_sure=True)
        out.append(take(value, places + start, axis))
        start = start + count
    tracker.record_split([part.shape[axis] for part in out], value.shape[axis])
    return out
