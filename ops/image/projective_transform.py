"""Projective transforms of images.

The gradient is TensorFlow's: it applies the inverse transform to the cotangent, which is not the adjoint.

TF: core/kernels/image/image_ops.cc.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims
from tf2jax_lite.values.symbolic_float import as_float

from ._pixels import image_batch, pixels, round_half_away

_F32 = np.float32


def _mirror(x: Any, size: Any) -> Any:
    period = as_float(2 * size)
    before = period * jnp.trunc(-x / period) + x
    before = jnp.where(before < as_float(-size), before + period, -before - 1)
    after = x - period * jnp.trunc(x / period)
    after = jnp.where(after >= as_float(size), period - after - 1, after)
    return jnp.where(x < 0, before, jnp.where(x > as_float(size - 1), after, x))


def _wrap(x: Any, size: Any) -> Any:
    last = as_float(size - 1)
    before = x + as_float(size) * (jnp.trunc(-x / last) + 1)
    after = x - as_float(size) * jnp.trunc(x / last)
    return jnp.where(x < 0, before, jnp.where(x > last, after, x))


def _map_coordinate(x: Any, size: Any, mode: str) -> Any:
    """Map coordinates outside of the image into it, as MapCoordinate of image_ops.h."""
    if mode == "CONSTANT":
        return x
    if mode in ("REFLECT", "WRAP"):
        fold = _mirror if mode == "REFLECT" else _wrap
        if isinstance(size, int):
            inside = jnp.zeros_like(x) if size <= 1 else fold(x, size)
        else:
            inside = jnp.where(as_float(size) <= 1, _F32(0), fold(x, size))
        x = jnp.where((x < 0) | (x > as_float(size - 1)), inside, x)
    return jnp.clip(x, 0, as_float(size - 1))


def _project(images: Any, transforms: Any, size: tuple[Any, Any], interpolation: str, mode: str, fill: Any) -> Any:
    height, width = images.shape[1:3]
    a = [transforms[:, i, None, None] for i in range(8)]
    y = lax.iota(_F32, size[0])[None, :, None]
    x = lax.iota(_F32, size[1])[None, None, :]
    projection = a[6] * x + a[7] * y + 1
    finite = projection != 0
    divisor = jnp.where(finite, projection, 1)
    columns = _map_coordinate((a[0] * x + a[1] * y + a[2]) / divisor, width, mode)
    rows = _map_coordinate((a[3] * x + a[4] * y + a[5]) / divisor, height, mode)
    batch = lax.iota(np.int32, images.shape[0])[:, None, None]
    fill = jnp.asarray(fill).astype(images.dtype)

    def read(row: Any, column: Any) -> Any:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        return jnp.where(inside[..., None], pixels(images, batch, row, column), fill)

    if interpolation == "NEAREST":
        result = read(round_half_away(rows), round_half_away(columns))
    else:
        top, left = jnp.floor(rows), jnp.floor(columns)
        down, across = (rows - top)[..., None], (columns - left)[..., None]
        upper = (1 - across) * read(top, left).astype(_F32) + across * read(top, left + 1).astype(_F32)
        lower = (1 - across) * read(top + 1, left).astype(_F32) + across * read(top + 1, left + 1).astype(_F32)
        result = ((1 - down) * upper + down * lower).astype(images.dtype)
    return jnp.where(finite[..., None], result, fill)


@partial(jax.custom_jvp, nondiff_argnums=(2, 4, 5))
def _projective(images: Any, transforms: Any, size: Any, fill: Any, interpolation: str, mode: str) -> Any:
    return _project(images, transforms, size, interpolation, mode, fill)


@_projective.defjvp
def _(size: Any, interpolation: str, mode: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    images, transforms, fill = primals
    result = _projective(images, transforms, size, fill, interpolation, mode)
    # TensorFlow's gradient applies the inverse transform to the cotangent, which is not the adjoint. The tangent is the
    # adjoint of that, as in its ForwardAccumulator; transforms and fill_value have no derivative.
    transforms = lax.stop_gradient(transforms)
    ones = jnp.ones((transforms.shape[0], 1), transforms.dtype)
    inverse = jnp.linalg.inv(jnp.concatenate([transforms, ones], 1).reshape(transforms.shape[0], 3, 3))
    flat = inverse.reshape(transforms.shape[0], 9)

    def backward(grads: Any) -> Any:
        return _project(grads, flat[:, :8] / flat[:, 8:], images.shape[1:3], interpolation, mode, 0)

    return result, linear_transpose(backward, result, tangents[0], flat)


@op("ImageProjectiveTransformV3")
def image_projective_transform_v3(
    images, transforms, output_shape: Static, fill_value, *, interpolation, fill_mode="CONSTANT"
):
    """Apply projective transforms to images.

    The gradient is TensorFlow's, which applies the inverse transform; it is 0 with respect to the transforms.

    Args:
      transforms: float32 [batch or 1, 8], the first entries of 3x3 matrices from output to input coordinates.
    """
    images, transforms, fill = image_batch(images), jnp.asarray(transforms), jnp.asarray(fill_value)
    if transforms.ndim != 2 or transforms.shape[1] != 8:
        raise OpError(f"transforms are rows of 8, not {tuple(transforms.shape)}")
    if interpolation not in ("NEAREST", "BILINEAR"):
        raise OpError(f"interpolation must be 'NEAREST' or 'BILINEAR', not {interpolation!r}")
    if fill_mode not in ("REFLECT", "WRAP", "CONSTANT", "NEAREST"):
        raise OpError(f"fill_mode must be REFLECT, WRAP, CONSTANT or NEAREST, not {fill_mode!r}")
    size = dims(output_shape)
    if jnp.issubdtype(images.dtype, jnp.floating):
        return _projective(images, transforms, size, fill, interpolation, fill_mode)
    return _project(images, transforms, size, interpolation, fill_mode, fill)


@op("ImageProjectiveTransformV2")
def image_projective_transform_v2(images, transforms, output_shape: Static, *, interpolation, fill_mode="CONSTANT"):
    """Apply projective transforms to images, filled with 0.

    As `image_projective_transform_v3`.
    """
    return image_projective_transform_v3(
        images, transforms, output_shape, np.zeros((), _F32), interpolation=interpolation, fill_mode=fill_mode
    )
