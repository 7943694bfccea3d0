"""Colors of images, and boxes drawn on them."""

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


def _channels(images: Any, least: int) -> tuple[Any, list[Any]]:
    images = jnp.asarray(images)
    if images.ndim < least:
        raise OpError(f"images have rank {least} or more, not {images.ndim}")
    if images.shape[-1] != 3:
        raise OpError(f"images must have 3 channels, not {images.shape[-1]}")
    return images, [images[..., i] for i in range(3)]


def _extremes(r: Any, g: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """Returns the largest and the smallest, by selects: the gradient goes to one of equals, red first."""
    red = (r >= b) & (r >= g)
    green = ~red & (g >= b)
    largest = lax.select(red, r, lax.select(green, g, b))
    smallest = lax.select((r < b) & (r < g), r, lax.select((g <= r) & (g < b), g, b))
    return red, green, largest, smallest


def _masked(channels: list[Any], flow: Any) -> list[Any]:
    """Returns the channels, with gradients only where ``flow`` says."""
    keep = flow if isinstance(flow, list) else [flow] * 3
    return [lax.select(f, c, lax.stop_gradient(c)) for c, f in zip(channels, keep, strict=True)]


def _hue(channels: list[Any]) -> Any:
    """Returns the hue in [0, 1), 0 for grey."""
    red, green, largest, _ = _extremes(*channels)
    # TensorFlow's gradient of the hue is 0 where no channel is positive.
    r, g, b = _masked(channels, largest > 0)
    _, _, largest, smallest = _extremes(r, g, b)
    spread = largest - smallest
    colored = spread > 0
    norm = 1 / (jnp.where(colored, spread, 1) * 6)
    third = jnp.asarray(1 / 3, r.dtype)
    hue = lax.select(
        red, norm * (g - b), lax.select(green, norm * (b - r) + third, norm * (r - g) + jnp.asarray(2 / 3, r.dtype))
    )
    hue = jnp.where(colored, hue, 0)
    return jnp.where(hue < 0, hue + 1, hue)


def _saturation(channels: list[Any]) -> Any:
    # TensorFlow's gradient of the saturation leaves out channels that are not positive.
    _, _, largest, smallest = _extremes(*_masked(channels, [c > 0 for c in channels]))
    lit = largest > 0
    return jnp.where(lit, (largest - smallest) / jnp.where(lit, largest, 1), 0)


def _ramps(hue6: Any) -> tuple[Any, Any, Any]:
    """Returns how much of red, green and blue a hue in [0, 6] has."""
    return (
        jnp.clip(jnp.abs(hue6 - 3) - 1, 0, 1),
        jnp.clip(2 - jnp.abs(hue6 - 2), 0, 1),
        jnp.clip(2 - jnp.abs(hue6 - 4), 0, 1),
    )


def _to_rgb(hue: Any, saturation: Any, value: Any) -> Any:
    return jnp.stack([(1 - saturation + saturation * ramp) * value for ramp in _ramps(hue * 6)], -1)


@op("RGBToHSV")
def rgb_to_hsv(images: Any) -> Any:
    """Converts red, green, blue to hue, saturation, value. See tf.raw_ops.RGBToHSV."""
    _, channels = _channels(images, 1)
    return jnp.stack([_hue(channels), _saturation(channels), _extremes(*channels)[2]], -1)


@op("HSVToRGB")
def hsv_to_rgb(images: Any) -> Any:
    """Converts hue, saturation, value to red, green, blue. See tf.raw_ops.HSVToRGB."""
    _, (hue, saturation, value) = _channels(images, 1)
    return _to_rgb(hue, saturation, value)


@op("AdjustHue")
def adjust_hue(images: Any, delta: Any) -> Any:
    """Turns the hue, a full circle being 1. See tf.raw_ops.AdjustHue."""
    images, channels = _channels(images, 3)
    wide = [c.astype(np.float32) for c in channels]
    _, _, largest, smallest = _extremes(*wide)
    hue = jnp.mod(_hue(wide) * 6 + jnp.asarray(delta) * 6, 6)
    spread = largest - smallest
    return jnp.stack([smallest + ramp * spread for ramp in _ramps(hue)], -1).astype(images.dtype)


@op("AdjustSaturation")
def adjust_saturation(images: Any, scale: Any) -> Any:
    """Scales the saturation. See tf.raw_ops.AdjustSaturation."""
    images, channels = _channels(images, 3)
    wide = [c.astype(np.float32) for c in channels]
    saturation = jnp.clip(_saturation(wide) * jnp.asarray(scale), 0, 1)
    return _to_rgb(_hue(wide), saturation, _extremes(*wide)[2]).astype(images.dtype)


@op("AdjustContrastv2")
def adjust_contrast_v2(images: Any, contrast_factor: Any) -> Any:
    """Scales the distance to each channel's mean over the image. See tf.raw_ops.AdjustContrastv2."""
    images = jnp.asarray(images)
    if images.ndim < 3:
        raise OpError(f"images have rank 3 or more, not {images.ndim}")
    wide = images.astype(np.float32)
    mean = jnp.mean(wide, axis=(-3, -2), keepdims=True)
    return ((wide - mean) * jnp.asarray(contrast_factor) + mean).astype(images.dtype)


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
    # A box that is upside down is not drawn, and one beside the image does not show.
    number = jnp.where((top <= bottom) & (left <= right), lax.iota(np.int32, boxes.shape[1]), -1)
    across = _lines(number, (top, bottom), (left, right), height, width)
    down = _lines(number, (left, right), (top, bottom), width, height)
    last = jnp.maximum(across, jnp.swapaxes(down, 1, 2))
    return jnp.where((last >= 0)[..., None], colors[last % len(colors)], images)


def _lines(number: Any, places: tuple[Any, Any], ends: tuple[Any, Any], size: Any, length: Any) -> Any:
    """Returns the highest number of the lines through each pixel, -1 where there is none.

    Args:
      number: of each line, ``[batch, lines]``.
      places: two rows in which lines of this number are.
      ends: the first and the last pixel of both.
      size: how many rows there are.
      length: how long they are.

    Returns:
      int32 ``[batch, size, length]``.
    """
    pixel, (first, last) = lax.iota(np.int32, length), (e[..., None] for e in ends)
    lines = jnp.where((pixel >= first) & (pixel <= last), number[..., None], -1)
    drawn = jnp.full((number.shape[0], size, length), -1, np.int32)
    for place in places:
        inside = jnp.where(place < 0, size, place)  # a negative place would count from the end
        drawn = jax.vmap(lambda d, at, line: d.at[at].max(line, mode="drop"))(drawn, inside, lines)
    return drawn


@op("DrawBoundingBoxes")
def draw_bounding_boxes(images: Any, boxes: Any) -> Any:
    """Draws boxes, later ones over earlier ones. See tf.raw_ops.DrawBoundingBoxes."""
    table = np.where(np.arange(4) == 0, 1, _COLORS) if images.shape[-1] == 1 else _COLORS
    return _draw(images, boxes, jnp.asarray(table[:, : images.shape[-1]]).astype(images.dtype))


@op("DrawBoundingBoxesV2")
def draw_bounding_boxes_v2(images: Any, boxes: Any, colors: Any) -> Any:
    """Draws boxes in given colors, taken in turn. See tf.raw_ops.DrawBoundingBoxesV2."""
    colors = jnp.asarray(colors)
    if colors.ndim != 2 or colors.shape[1] < images.shape[-1]:
        raise OpError(f"colors have to be a matrix of {images.shape[-1]} columns or more, not {tuple(colors.shape)}")
    if colors.shape[0] == 0:
        return draw_bounding_boxes(images, boxes)
    return _draw(images, boxes, colors[:, : images.shape[-1]].astype(images.dtype))
