"""The first version of AdjustContrast, of old graphs."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.image.color import adjust_contrast_v2
from tf2jax_lite.ops.registry import op


@op("AdjustContrast")
def adjust_contrast(images, contrast_factor, min_value, max_value):
    """Scale the distance to each channel's mean, and clip."""
    scaled = adjust_contrast_v2(jnp.asarray(images).astype(np.float32), contrast_factor)
    return jnp.maximum(jnp.minimum(scaled, max_value), min_value)
