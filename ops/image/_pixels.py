"""Pixels of image batches at given coordinates.

Shared by cropping, projection and glimpses.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError


def image_batch(images: Any) -> Any:
    """Return images as an array; raise OpError unless their rank is 4."""
    images = jnp.asarray(images)
    if images.ndim != 4:
        raise OpError(f"images have rank 4, not {images.ndim}")
    return images


def round_half_away(x: Any) -> Any:
    """Round to the nearest integer, halves away from zero as C's round."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def pixels(images: Any, index: Any, rows: Any, columns: Any) -> Any:
    """Return ``images[index, rows, columns]``, with coordinates clipped to the image."""
    starts = jnp.stack(jnp.broadcast_arrays(index, rows, columns), -1).astype(np.int32)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(starts.ndim - 1,), collapsed_slice_dims=(0, 1, 2), start_index_map=(0, 1, 2)
    )
    return lax.gather(images, starts, numbers, (1, 1, 1, images.shape[3]), mode=lax.GatherScatterMode.CLIP)
