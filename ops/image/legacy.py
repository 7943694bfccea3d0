"""The first version of AdjustContrast, of old graphs."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.image.color import adjust_contrast_v2
from tf2jax_lite.ops.registry import op
from tf2jax_lite.values.types import Array


@op("AdjustContrast")
def adjust_contrast(images: Array, contrast_factor: Array, min_value: Array, max_value: Array) -> Array:
    """Scale the distance to each channel's mean, and clip.

    TF: tf.raw_ops.AdjustContrast.
    """
    scaled = adjust_contrast_v2(jnp.asarray(images).astype(np.float32), contrast_factor)
    return jnp.maximum(jnp.minimum(scaled, max_value), min_value)
