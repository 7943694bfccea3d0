"""The gradient of Tile in old graphs."""

from __future__ import annotations

import jax.numpy as jnp

from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims
from tf2jax_lite.values.types import Array


@op("TileGrad")
def tile_grad(input: Array, multiples: Static) -> Array:
    """Sum tiles. TF: tf.raw_ops.TileGrad.

    Args:
      input: [n0 d0, n1 d1, ...].
      multiples: static [n0, n1, ...].

    Returns:
      [d0, d1, ...].

    Raises:
      OpError: the shape does not divide into tiles.
    """
    input, counts = jnp.asarray(input), dims(multiples)
    if len(counts) != input.ndim or any(n < 1 or d % n != 0 for n, d in zip(counts, input.shape, strict=False)):
        raise OpError(f"a tensor of shape {tuple(input.shape)} is not made of {list(counts)} tiles")
    parts = [size for n, d in zip(counts, input.shape, strict=True) for size in (n, d // n)]
    return total(input.reshape(parts), tuple(range(0, 2 * input.ndim, 2)))
