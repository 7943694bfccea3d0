"""Bounding boxes drawn on images.

TF: core/kernels/image/draw_bounding_box_op.cc.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError

# DefaultColorTable of draw_bounding_box_op.cc.
_COLORS = np.array(
    [
        [1, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1],
        [0.5, 0, 0, 1],
        [0, 0, 0.5, 1],
        [0, 1, 1, 1],
        [1, 0, 1, 1],
    ],
    np.float32,
)


def _draw(images: Any, boxes: Any, colors: Any) -> Any:
    images, boxes = jnp.asarray(images), jnp.asarray(boxes)
    if images.ndim != 4 or boxes.ndim != 3:
        raise OpError(f"images have rank 4 and boxes rank 3, not {images.ndim} and {boxes.ndim}")
    height, width, depth = images.shape[1:]
    if depth not in (1, 3, 4) or boxes.shape[2] != 4:
        raise OpError(
            f"{depth} channels and {boxes.shape[2]} coordinates: 1, 3 or 4 channels, 4 coordinates are needed"
        )
    if boxes.shape[1] == 0:
        return images
    scale = jnp.stack([jnp.asarray(d).astype(np.float32) for d in (height - 1, width - 1) * 2])
    corners = (boxes * scale).astype(np.int32)
    top, left, bottom, right = (corners[..., i] for i in range(4))
    # A box with exchanged corners is not drawn; lines outside of the image are dropped.
    number = jnp.where((top <= bottom) & (left <= right), lax.iota(np.int32, boxes.shape[1]), -1)
    horizontal = _lines(number, (top, bottom), (left, right), height, width)
    vertical = _lines(number, (left, right), (top, bottom), width, height)
    last = jnp.maximum(horizontal, jnp.swapaxes(vertical, 1, 2))
    return jnp.where((last >= 0)[..., None], colors[last % len(colors)], images)


def _lines(number: Any, rows: tuple[Any, Any], ends: tuple[Any, Any], size: Any, length: Any) -> Any:
    """Return the highest number of the lines through each pixel, or -1."""
    pixel, (first, last) = lax.iota(np.int32, length), (e[..., None] for e in ends)
    lines = jnp.where((pixel >= first) & (pixel <= last), number[..., None], -1)
    drawn = jnp.full((number.shape[0], size, length), -1, np.int32)
    for row in rows:
        row = jnp.where(row < 0, size, row)  # a negative index would count from the end
        drawn = jax.vmap(lambda d, r, line: d.at[r].max(line, mode="drop"))(drawn, row, lines)
    return drawn


@op("DrawBoundingBoxes")
def draw_bounding_boxes(images, boxes):
    """Draw boxes in default colors, later ones over earlier ones."""
    table = np.where(np.arange(4) == 0, 1, _COLORS) if images.shape[-1] == 1 else _COLORS
    return _draw(images, boxes, jnp.asarray(table[:, : images.shape[-1]]).astype(images.dtype))


@op("DrawBoundingBoxesV2")
def draw_bounding_boxes_v2(images, boxes, colors):
    """Draw boxes in given colors, which are used cyclically."""
    colors = jnp.asarray(colors)
    if colors.ndim != 2 or colors.shape[1] < images.shape[-1]:
        raise OpError(f"colors have to be a matrix of {images.shape[-1]} columns or more, not {tuple(colors.shape)}")
    if colors.shape[0] == 0:
        return draw_bounding_boxes(images, boxes)
    return _draw(images, boxes, colors[:, : images.shape[-1]].astype(images.dtype))
