"""3x3 convolutions by tiles of 2x2 results, with 16 multiplications in the place of 36.

This is Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray, "Fast algorithms for convolutional neural networks",
2016). With ``g`` the 3x3 filter and ``d`` the 4x4 values that a tile of results depends on,

    tile = A' [(G g G') * (B' d B)] A

where ``*`` is elementwise, so that over channels and tiles it is 16 matrix products. ``B`` and ``A`` hold 0, 1 and -1
only, ``G`` also 1/2: sums of few values, which loses about as much as summing a direct convolution in another
order does (a few units in the last place of the largest value in the tile). What is different: a value that is not
finite, or far larger than its neighbours, reaches all four results of each tile that it is in, not only those whose
window holds it. ``precision=jax.lax.Precision.HIGHEST`` (or ``jax.default_matmul_precision("highest")``) therefore
keeps the direct convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .spelling_layout import Conv, pad, respec, transposed

__all__ = ["is_tiled", "tiled"]

_FEWEST_TILES = 96  # with fewer, transforming the weights takes longer than it saves
_FEWEST_CHANNELS = 32
_CACHED = 1 << 24  # values of transformed tiles that stay in a cache of some 32 MiB
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_FIRST = (((1,), (0,)), ((), ()))
_WIDE = 48  # beyond: so many multiplications for a transformed value pay for the way to memory


def is_tiled(conv: Conv, batch: Any, channels: Any, outputs: Any) -> bool:
    """Returns whether a convolution is written with tiles.

    Args:
      conv: a convolution without groups.
      batch: how many examples; may be symbolic, and counts as one then.
      channels: of the input.
      outputs: channels of the result.
    """
    if conv.window != (3, 3) or any(n != 1 for n in (*conv.strides, *conv.gaps, *conv.rates)):
        return False
    if not all(isinstance(n, int) and n >= _FEWEST_CHANNELS for n in (channels, outputs)) or _exact(conv.precision):
        return False
    tiles = (batch if isinstance(batch, int) else 1) * (-(-conv.result[0] // 2)) * (-(-conv.result[1] // 2))
    cached = 16 * tiles * (channels + outputs) <= _CACHED
    return tiles >= _FEWEST_TILES and (cached or channels * outputs >= _WIDE * (channels + outputs))


def _exact(precision: Any) -> bool:
    given = precision if isinstance(precision, tuple) else (precision,)
    return lax.Precision.HIGHEST in given


def _of_values(r: Sequence[Any]) -> list[Any]:
    """B' times a column of four."""
    return [r[0] - r[2], r[1] + r[2], r[2] - r[1], r[1] - r[3]]


def _of_products(r: Sequence[Any]) -> list[Any]:
    """A' times a column of four."""
    return [r[0] + r[1] + r[2], r[1] - r[2] - r[3]]


def _both(transform: Any, square: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Transforms the columns of a square, then its rows."""
    columns = [transform(column) for column in zip(*square, strict=True)]
    return [transform(row) for row in zip(*columns, strict=True)]


def tiled(lhs: Any, rhs: Any, conv: Conv) -> Any:
    """Returns the convolution of values and weights of one floating dtype; `is_tiled` must hold."""
    height, width = conv.result
    down, across = -(-height // 2), -(-width // 2)
    # Rows and columns in pairs, so that each tile is two neighbouring pairs.
    even = [(lo, hi + n % 2) for (lo, hi), n in zip(conv.pads, conv.result, strict=True)]
    images = respec(pad(lhs, conv.lhs[2:], even), conv.lhs, (0, 3, 1, 2))
    batch, channels = images.shape[0], images.shape[3]
    pairs = lax.reshape(images, (batch, down + 1, 2, across + 1, 2, channels))

    def values(i: int, j: int) -> Any:
        return pairs[:, i // 2 : i // 2 + down, i % 2, j // 2 : j // 2 + across, j % 2]

    out_first = conv.rhs[0] < conv.rhs[1]
    weights = transposed(rhs, (*conv.rhs[2:], *sorted(conv.rhs[:2])))
    contract = (((3,), (1 if out_first else 0,)), ((), ()))
    tiles = _both(_of_values, [[values(i, j) for j in range(4)] for i in range(4)])
    # Elementwise this would be 16 loops to compile; as a product it is one.
    filters = lax.dot_general(np.kron(_G, _G).astype(rhs.dtype), lax.reshape(weights, (9, *weights.shape[2:])), _FIRST)
    products = [
        [lax.dot_general(tiles[i][j], filters[4 * i + j], contract, precision=conv.precision) for j in range(4)]
        for i in range(4)
    ]
    results = _both(_of_products, products)
    joined = jnp.stack([jnp.stack(row, 3) for row in results], 2)
    out = lax.reshape(joined, (batch, 2 * down, 2 * across, joined.shape[-1]))
    return respec(out[:, :height, :width], (0, 3, 1, 2), conv.out)
