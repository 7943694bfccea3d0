"""3x3 convolutions by Winograd F(2x2, 3x3): 16 multiplications, not 36.

Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016. With ``g`` the 3x3 filter and ``d`` the 4x4
values that a tile of 2x2 results depends on,

    tile = A' [(G g G') * (B' d B)] A

where ``*`` is elementwise, so that over channels and tiles it is 16 matrix products. ``B`` and ``A`` hold 0, 1 and -1
only, ``G`` also 1/2: sums of few values, which loses about as much as summing a direct convolution in another
order does (a few units in the last place of the largest value in the tile). One difference: a value that is not
finite, or far larger than its neighbors, reaches all four results of each tile that it is in, not only those whose
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

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, pad, reorder, transpose

_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_COLUMNS_FIRST = np.kron(_G, _G).reshape(4, 4, 9).swapaxes(0, 1).reshape(16, 9)  # rows in the order of the products
_FIRST = (((1,), (0,)), ((), ()))


def is_winograd(conv: ConvParams) -> bool:
    """Return whether a single-group convolution goes by tiles.

    A symbolic batch counts as one example.
    """
    if conv.window != (3, 3) or any(n != 1 for n in (*conv.strides, *conv.lhs_dilation, *conv.rhs_dilation)):
        return False
    channels, outputs = conv.in_channels, conv.out_channels
    if not all(isinstance(n, int) and n >= cost_model.WINOGRAD_MIN_CHANNELS for n in (channels, outputs)):
        return False
    if is_exact(conv.precision):
        return False
    batch = conv.batch if isinstance(conv.batch, int) else 1
    positions = batch * math.prod(conv.result)
    tiles = batch * math.prod(-(-n // 2) for n in conv.result)
    if tiles < cost_model.WINOGRAD_MIN_TILES:
        return False
    if 9 * positions * channels * outputs < cost_model.WINOGRAD_MIN_PRODUCTS:
        return False
    saves = 9 * positions >= cost_model.WINOGRAD_MIN_SAVING * 16 * tiles
    return saves and channels * outputs >= cost_model.WINOGRAD_MIN_PRODUCTS_PER_VALUE * (channels + outputs)


def is_exact(precision: Any) -> bool:
    """Return whether products by zero and of sums are excluded.

    These differ for values that are not finite.
    """
    given = precision if isinstance(precision, tuple) else (precision,)
    return lax.Precision.HIGHEST in given


def _transform_input(r: Sequence[Any]) -> list[Any]:
    """B' times a column of four."""
    return [r[0] - r[2], r[1] + r[2], r[2] - r[1], r[1] - r[3]]


def _transform_output(r: Sequence[Any]) -> list[Any]:
    """Return A' times a column of four."""
    return [r[0] + r[1] + r[2], r[1] - r[2] - r[3]]


def winograd(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `is_winograd` holds, in the dtype of sums.

    XLA compiles few loops here, however large the image: each costs some 0.04 s of compiling, products next to nothing.
    So rows are transformed first, then columns, the transformed values are stacked (unless they are too many for the
    cache), and width and channels are one dimension where padding would otherwise look at both: that costs 0.3 s.
    """
    lhs, rhs = lhs.astype(conv.sum_dtype), rhs.astype(conv.sum_dtype)
    (top, bottom), (left, right) = conv.pads
    height, width = conv.result
    down, across = -(-height // 2), -(-width // 2)
    images = reorder(lhs, conv.lhs_spec, (0, 3, 1, 2))
    batch, channels = images.shape[0], images.shape[3]
    # Rows and columns in pairs, so that each tile is two adjacent pairs.
    lines = lax.reshape(images, (batch, images.shape[1], images.shape[2] * channels))
    lines = pad(lines, (1, 2), ((top, bottom + height % 2), (left * channels, (right + width % 2) * channels)))
    pairs = lax.reshape(lines, (batch, down + 1, 2, (2 * across + 2) * channels))
    rows = jnp.stack(_transform_input([pairs[:, i // 2 : i // 2 + down, i % 2] for i in range(4)]))
    pairs = lax.reshape(rows, (4 * batch * down, across + 1, 2, channels))
    tiles = _transform_input([pairs[:, j // 2 : j // 2 + across, j % 2] for j in range(4)])

    out_first = conv.rhs_spec[0] < conv.rhs_spec[1]
    weights = transpose(rhs, (*conv.rhs_spec[2:], *sorted(conv.rhs_spec[:2])))
    weights = lax.reshape(weights, (9, *weights.shape[2:]))
    contract = (((2,), (2 if out_first else 1,)), ((0,), (0,)))
    count, outputs = batch * down * across, rhs.shape[conv.rhs_spec[0]]
    together = 4 if isinstance(batch, int) and 16 * count * channels <= cost_model.LLC_FLOATS else 1
    products = []
    for j in range(0, 4, together):
        some = lax.reshape(jnp.stack(tiles[j : j + together]), (4 * together, count, channels))
        filters = lax.dot_general(_COLUMNS_FIRST[4 * j : 4 * (j + together)].astype(rhs.dtype), weights, _FIRST)
        part = lax.dot_general(some, filters, contract, precision=conv.precision)
        products += list(lax.reshape(part, (together, 4, count, outputs)))

    results = [_transform_output(column) for column in _transform_output(products)]
    joined = jnp.stack([jnp.stack([column[i] for column in results], 1) for i in range(2)])
    # The row within a tile, the tiles, the column within a tile.
    joined = lax.reshape(joined, (2, batch * down, across, 2, outputs))
    out = lax.reshape(lax.transpose(joined, (1, 0, 2, 3, 4)), (batch, 2 * down, 2 * across, outputs))
    return reorder(out[:, :height, :width], (0, 3, 1, 2), conv.out_spec)
