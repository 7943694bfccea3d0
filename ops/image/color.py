"""Color conversion and adjustment: HSV, hue, saturation and contrast.

Derivatives follow TensorFlow's gradient of RGBToHSV where channels are equal or not positive.

TF: core/kernels/image/colorspace_op.cc.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError


def _channels(images: Any, min_rank: int) -> tuple[Any, list[Any]]:
    images = jnp.asarray(images)
    if images.ndim < min_rank:
        raise OpError(f"images have rank {min_rank} or more, not {images.ndim}")
    if images.shape[-1] != 3:
        raise OpError(f"images must have 3 channels, not {images.shape[-1]}")
    return images, [images[..., i] for i in range(3)]


def _extremes(r: Any, g: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """Return masks of red and green maxima, the maximum and the minimum."""
    # Gradients go to one of equal channels, to red first.
    red = (r >= b) & (r >= g)
    green = ~red & (g >= b)
    largest = lax.select(red, r, lax.select(green, g, b))
    smallest = lax.select((r < b) & (r < g), r, lax.select((g <= r) & (g < b), g, b))
    return red, green, largest, smallest


def _masked(channels: list[Any], mask: Any) -> list[Any]:
    """Return the channels with gradients only where their mask is True."""
    masks = mask if isinstance(mask, list) else [mask] * 3
    return [lax.select(m, c, lax.stop_gradient(c)) for c, m in zip(channels, masks, strict=True)]


def _hue(channels: list[Any]) -> Any:
    """Return the hue in [0, 1), 0 for gray."""
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
    # TensorFlow's gradient of the saturation is 0 for channels that are not positive.
    _, _, largest, smallest = _extremes(*_masked(channels, [c > 0 for c in channels]))
    lit = largest > 0
    return jnp.where(lit, (largest - smallest) / jnp.where(lit, largest, 1), 0)


def _ramps(hue6: Any) -> tuple[Any, Any, Any]:
    """Return the red, green and blue components in [0, 1] of a hue in [0, 6]."""
    return (
        jnp.clip(jnp.abs(hue6 - 3) - 1, 0, 1),
        jnp.clip(2 - jnp.abs(hue6 - 2), 0, 1),
        jnp.clip(2 - jnp.abs(hue6 - 4), 0, 1),
    )


def _to_rgb(hue: Any, saturation: Any, value: Any) -> Any:
    return jnp.stack([(1 - saturation + saturation * ramp) * value for ramp in _ramps(hue * 6)], -1)


@op("RGBToHSV")
def rgb_to_hsv(images):
    """Convert red, green, blue to hue, saturation, value."""
    _, channels = _channels(images, 1)
    return jnp.stack([_hue(channels), _saturation(channels), _extremes(*channels)[2]], -1)


@op("HSVToRGB")
def hsv_to_rgb(images):
    """Convert hue, saturation, value to red, green, blue."""
    _, (hue, saturation, value) = _channels(images, 1)
    return _to_rgb(hue, saturation, value)


@op("AdjustHue")
def adjust_hue(images, delta):
    """Rotate the hue by ``delta``, 1 for a full circle.

    TF: core/kernels/image/adjust_hue_op.cc.
    """
    images, channels = _channels(images, 3)
    floats = [c.astype(np.float32) for c in channels]
    _, _, largest, smallest = _extremes(*floats)
    hue = jnp.mod(_hue(floats) * 6 + jnp.asarray(delta) * 6, 6)
    spread = largest - smallest
    return jnp.stack([smallest + ramp * spread for ramp in _ramps(hue)], -1).astype(images.dtype)


@op("AdjustSaturation")
def adjust_saturation(images, scale):
    """Scale the saturation.

    TF: core/kernels/image/adjust_saturation_op.cc.
    """
    images, channels = _channels(images, 3)
    floats = [c.astype(np.float32) for c in channels]
    saturation = jnp.clip(_saturation(floats) * jnp.asarray(scale), 0, 1)
    return _to_rgb(_hue(floats), saturation, _extremes(*floats)[2]).astype(images.dtype)


@op("AdjustContrastv2")
def adjust_contrast_v2(images, contrast_factor):
    """Scale the difference to each channel's mean over the image.

    TF: core/kernels/image/adjust_contrast_op.cc.
    """
    images = jnp.asarray(images)
    if images.ndim < 3:
        raise OpError(f"images have rank 3 or more, not {images.ndim}")
    floats = images.astype(np.float32)
    mean = jnp.mean(floats, axis=(-3, -2), keepdims=True)
    return ((floats - mean) * jnp.asarray(contrast_factor) + mean).astype(images.dtype)


@op("AdjustContrast")
def adjust_contrast(images, contrast_factor, min_value, max_value):
    """Scale the distance to each channel's mean, and clip."""
    scaled = adjust_contrast_v2(jnp.asarray(images).astype(np.float32), contrast_factor)
    return jnp.maximum(jnp.minimum(scaled, max_value), min_value)
