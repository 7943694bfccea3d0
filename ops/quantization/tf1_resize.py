"""TF1's bilinear resizing of quantized images (tensor, min, max) in fixed point."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.image._resampling import images_and_size
from tf2jax_lite.ops.image.resize import check_alignment, neighbors, resize_bilinear
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

from .tf1_requantize import scalar

__all__: list[str] = []

_F32 = np.float32
_BITS = {np.dtype(np.uint8): 7, np.dtype(np.int32): 30}
"""Fractional bits of the weights, for each image dtype."""


def _interpolate(first: Any, second: Any, weights: Any, one: Any) -> Any:
    return first * one + (second - first) * weights


@op("QuantizedResizeBilinear", check=check_alignment)
def quantized_resize_bilinear(images, size: Static, min, max, *, align_corners=False, half_pixel_centers=False):
    """Resize quantized images by bilinear interpolation in fixed point.

    TF: core/kernels/quantized_resize_bilinear_op.cc.

    Without JAX's 64-bit mode, qint32 is interpolated in float32.
    """
    ends = jnp.asarray(scalar("min", min)), jnp.asarray(scalar("max", max))
    alignment: dict[str, Any] = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    images, size = images_and_size(images, size)
    if images.dtype == _F32:
        return resize_bilinear(images, size, **alignment), *ends
    if images.dtype not in _BITS:
        raise OpError(f"images of {images.dtype}; TensorFlow has kernels for quint8, qint32 and float32")
    if tuple(images.shape[1:3]) == size:
        return images, *ends
    is_uint8 = images.dtype == np.uint8
    work = np.dtype(np.int32) if is_uint8 else canonical(np.int64)
    floating = not is_uint8 and work == np.int32
    # TensorFlow converts qint32 to float32 first.
    x = images.astype(work) if is_uint8 else images.astype(_F32)
    x = x if floating or is_uint8 else x.astype(work)
    one = _F32(1) if floating else work.type(1 << _BITS[images.dtype])

    def weight(part: Any) -> Any:
        return part if floating else (part * _F32(one)).astype(work)

    (top, bottom, down), (left, right, across) = (
        neighbors(images.shape[axis], size[axis - 1], **alignment) for axis in (1, 2)
    )
    x = _interpolate(x[:, :, left], x[:, :, right], weight(across)[:, None], one)
    above, below = x[:, top], x[:, bottom]
    # The difference is truncated to integer steps before it is weighted.
    difference = jnp.trunc(below - above) if floating else lax.div(below - above, jnp.full_like(above, one))
    out = above + difference * weight(down)[:, None, None]
    half = _F32(0.5) if floating else one // 2
    rounded = jnp.trunc(out + half) if floating else lax.div(out + half, jnp.full_like(out, one))
    if floating:
        rounded = jnp.clip(rounded, _F32(-(2.0**31)), np.nextafter(_F32(2.0**31), _F32(0)))
    return rounded.astype(images.dtype), *ends
