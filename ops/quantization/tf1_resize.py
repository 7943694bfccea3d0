"""Resizing of quantized images that come with their range."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.image.resize import check_alignment, checked, neighbours, resize_bilinear
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

from .tf1_requantize import scalar

__all__: list[str] = []

_F32 = np.float32
_BITS = {np.dtype(np.uint8): 7, np.dtype(np.int32): 30}
"""How many bits weights have after the point."""


def _between(first: Any, second: Any, weights: Any, one: Any) -> Any:
    return first * one + (second - first) * weights


@op("QuantizedResizeBilinear", check=check_alignment)
def quantized_resize_bilinear(
    images: Any,
    size: Static,
    min: Any,
    max: Any,
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> tuple[Any, Any, Any]:
    """Resizes by linear interpolation in fixed point. See tf.raw_ops.QuantizedResizeBilinear.

    Without JAX's 64-bit mode, qint32 is interpolated in float32.
    """
    ends = jnp.asarray(scalar("min", min)), jnp.asarray(scalar("max", max))
    aligned: dict[str, Any] = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    images, wanted = checked(images, size)
    if images.dtype == _F32:
        return resize_bilinear(images, size, **aligned), *ends
    if images.dtype not in _BITS:
        raise OpError(f"images of {images.dtype}; TensorFlow has kernels for quint8, qint32 and float32")
    if tuple(images.shape[1:3]) == wanted:
        return images, *ends
    small = images.dtype == np.uint8
    wide = np.dtype(np.int32) if small else canonical(np.int64)
    floating = not small and wide == np.int32
    # TensorFlow reads qint32 as float32.
    x = images.astype(wide) if small else images.astype(_F32)
    x = x if floating or small else x.astype(wide)
    one = _F32(1) if floating else wide.type(1 << _BITS[images.dtype])

    def weight(part: Any) -> Any:
        return part if floating else (part * _F32(one)).astype(wide)

    (top, bottom, down), (left, right, across) = (
        neighbours(images.shape[axis], wanted[axis - 1], **aligned) for axis in (1, 2)
    )
    x = _between(x[:, :, left], x[:, :, right], weight(across)[:, None], one)
    above, below = x[:, top], x[:, bottom]
    # The difference is cut to whole steps before it is weighed.
    cut = jnp.trunc(below - above) if floating else lax.div(below - above, jnp.full_like(above, one))
    out = above + cut * weight(down)[:, None, None]
    half = _F32(0.5) if floating else one // 2
    whole = jnp.trunc(out + half) if floating else lax.div(out + half, jnp.full_like(out, one))
    if floating:
        whole = jnp.clip(whole, _F32(-(2.0**31)), np.nextafter(_F32(2.0**31), _F32(0)))
    return whole.astype(images.dtype), *ends
