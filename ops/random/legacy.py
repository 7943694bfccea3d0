"""RandomCrop, of old graphs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims


@op("RandomCrop")
def random_crop(image, size: Static, *, seed=0, seed2=0, key: Key):
    """Crop an image at a random position.

    Returns:
      [size[0], size[1], channels].
    """
    image, wanted = jnp.asarray(image), dims(size)
    if image.ndim != 3 or len(wanted) != 2:
        raise OpError(f"a size of height and width and an image of rank 3 are needed, not {list(wanted)}, {image.ndim}")
    for axis, (length, part) in enumerate(zip(image.shape, wanted, strict=False)):
        if isinstance(part, int) and (part < 0 or (isinstance(length, int) and part > length)):
            raise OpError(f"a size of {list(wanted)} does not fit into an image of {tuple(image.shape[:2])}")
        start = jax.random.randint(jax.random.fold_in(key, axis), (), 0, jnp.asarray(length - part + 1))
        image = lax.dynamic_slice_in_dim(image, start, part, axis)
    return image
