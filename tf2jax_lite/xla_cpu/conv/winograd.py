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

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .params import Conv, pad, respec, transposed

__all__ = ["is_exact", "is_tiled", "tiled"]

_FEWEST_TILES = 96  # with fewer, transforming the weights takes longer than it saves
_FEWEST_CHANNELS, _FEWEST_PRODUCTS = 128, 190 << 20
_FEWEST_PAID = 80  # multiplications that each transformed value takes part in
_LEAST_SAVED = 1.75  # multiplications of the direct convolution for each: fewer where tiles reach over the edges
_NEAR = 1 << 22  # transformed values that are stacked: 16 MiB
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_COLUMNS_FIRST = np.kron(_G, _G).reshape(4, 4, 9).swapaxes(0, 1).reshape(16, 9)  # rows as the products' tiles lie
_FIRST = (((1,), (0,)), ((), ()))


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
    if not all(isinstance(n, int) and n >= _FEWEST_CHANNELS for n in (channels, outputs)) or is_exact(conv.precision):
        return False
    places = (batch if isinstance(batch, int) else 1) * math.prod(conv.result)
    tiles = (batch if isinstance(batch, int) else 1) * math.prod(-(-n // 2) for n in conv.result)
    if tiles < _FEWEST_TILES or 9 * places * channels * outputs < _FEWEST_PRODUCTS:
        return False
    saves = 9 * places >= _LEAST_SAVED * 16 * tiles
    return saves and channels * outputs >= _FEWEST_PAID * (channels + outputs)


def is_exact(precision: Any) -> bool:
    """Returns whether products by zero and of sums are ruled out, for what is not finite: at highest precision."""
    given = precision if isinstance(precision, tuple) else (precision,)
    return lax.Precision.HIGHEST in given


def _of_values(r: Sequence[Any]) -> list[Any]:
    """B' times a column of four."""
    return [r[0] - r[2], r[1] + r[2], r[2] - r[1], r[1] - r[3]]


def _of_products(r: Sequence[Any]) -> list[Any]:
    """A' times a column of four."""
    return [r[0] + r[1] + r[2], r[1] - r[2] - r[3]]


def tiled(lhs: Any, rhs: Any, conv: Conv) -> Any:
    """Returns the convolution of values and weights of one floating dtype; `is_tiled` must hold.

    XLA compiles few loops here, however large the image: each costs some 0.04 s of compiling, products next to nothing.
    So rows are transformed first, then columns, what is transformed is stacked (unless it is too large to stay near the
    processor), and width and channels are one dimension where padding would otherwise look at both: that costs 0.3 s.
    """
    (top, bottom), (left, right) = conv.pads
    height, width = conv.result
    down, across = -(-height // 2), -(-width // 2)
    images = respec(lhs, conv.lhs, (0, 3, 1, 2))
    batch, channels = images.shape[0], images.shape[3]
    # Rows and columns in pairs, so that each tile is two neighbouring pairs.
    lines = lax.reshape(images, (batch, images.shape[1], images.shape[2] * channels))
    lines = pad(lines, (1, 2), ((top, bottom + height % 2), (left * channels, (right + width % 2) * channels)))
    pairs = lax.reshape(lines, (batch, down + 1, 2, (2 * across + 2) * channels))
    rows = jnp.stack(_of_values([pairs[:, i // 2 : i // 2 + down, i % 2] for i in range(4)]))
    pairs = lax.reshape(rows, (4 * batch * down, across + 1, 2, channels))
    tiles = _of_values([pairs[:, j // 2 : j // 2 + across, j % 2] for j in range(4)])

    out_first = conv.rhs[0] < conv.rhs[1]
    weights = transposed(rhs, (*conv.rhs[2:], *sorted(conv.rhs[:2])))
    weights = lax.reshape(weights, (9, *weights.shape[2:]))
    contract = (((2,), (2 if out_first else 1,)), ((0,), (0,)))
    count, outputs = batch * down * across, rhs.shape[conv.rhs[0]]
    together = 4 if isinstance(batch, int) and 16 * count * channels <= _NEAR else 1
    products = []
    for j in range(0, 4, together):
        some = lax.reshape(jnp.stack(tiles[j : j + together]), (4 * together, count, channels))
        filters = lax.dot_general(_COLUMNS_FIRST[4 * j : 4 * (j + together)].astype(rhs.dtype), weights, _FIRST)
        part = lax.dot_general(some, filters, contract, precision=conv.precision)
        products += list(lax.reshape(part, (together, 4, count, outputs)))

    results = [_of_products(column) for column in _of_products(products)]
    joined = jnp.stack([jnp.stack([column[i] for column in results], 1) for i in range(2)])
    # The row within a tile, the tiles, the column within a tile.
    joined = lax.reshape(joined, (2, batch * down, across, 2, outputs))
    out = lax.reshape(lax.transpose(joined, (1, 0, 2, 3, 4)), (batch, 2 * down, 2 * across, outputs))
    return respec(out[:, :height, :width], (0, 3, 1, 2), conv.out)
