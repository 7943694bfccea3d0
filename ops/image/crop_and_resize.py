"""Crops, projections and glimpses of images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.common.rounding import product, quotient
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims
from tf2jax_lite.values.symbolic_float import as_float

_F32 = np.float32


def _rank4(images: Any) -> Any:
    images = jnp.asarray(images)
    if images.ndim != 4:
        raise OpError(f"images have rank 4, not {images.ndim}")
    return images


def _round(x: Any) -> Any:
    """Rounds halves away from zero, as C does."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def _pixels(images: Any, index: Any, rows: Any, columns: Any) -> Any:
    """Returns ``images[index, rows, columns]``; what lies outside is the nearest pixel."""
    where = jnp.stack(jnp.broadcast_arrays(index, rows, columns), -1).astype(np.int32)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(where.ndim - 1,), collapsed_slice_dims=(0, 1, 2), start_index_map=(0, 1, 2)
    )
    return lax.gather(images, where, numbers, (1, 1, 1, images.shape[3]), mode=lax.GatherScatterMode.CLIP)


# --- Crops


def _sample_positions(low: Any, high: Any, size_in: Any, size_out: int, by_ratio: bool) -> Any:
    """Returns where the pixels of a crop lie in the image, one row for each box.

    A position on a pixel or on an edge of the image depends on the rounding, so that is TensorFlow's: its kernel of the
    gradient with respect to boxes multiplies by a ratio where the others divide (``by_ratio``).
    """
    last = as_float(size_in - 1)
    if size_out == 1:
        return product(_F32(0.5) * (low + high), last)[:, None]
    if by_ratio:
        ratio = last / _F32(size_out - 1) if isinstance(size_in, int) else quotient(last, _F32(size_out - 1))
        step = product(high - low, ratio)
    else:
        step = quotient(product(high - low, last), _F32(size_out - 1))
    return product(low, last)[:, None] + product(np.arange(size_out, dtype=_F32), step[:, None])


def _sampled(
    image: Any, boxes: Any, index: Any, size: tuple[int, int], outside: float, nearest: bool, by_ratio: bool = False
) -> Any:
    height, width = image.shape[1:3]
    rows = _sample_positions(boxes[:, 0], boxes[:, 2], height, size[0], by_ratio)[:, :, None]
    columns = _sample_positions(boxes[:, 1], boxes[:, 3], width, size[1], by_ratio)[:, None, :]
    inside = (rows >= 0) & (rows <= as_float(height - 1)) & (columns >= 0) & (columns <= as_float(width - 1))
    take = partial(_pixels, image, index[:, None, None])
    if nearest:
        crops = take(_round(rows), _round(columns)).astype(_F32)
    else:
        top, left = jnp.floor(rows), jnp.floor(columns)
        bottom, right = jnp.ceil(rows), jnp.ceil(columns)
        down, across = (rows - top)[..., None], (columns - left)[..., None]
        upper_left, upper_right = take(top, left).astype(_F32), take(top, right).astype(_F32)
        lower_left, lower_right = take(bottom, left).astype(_F32), take(bottom, right).astype(_F32)
        upper = upper_left + (upper_right - upper_left) * across
        lower = lower_left + (lower_right - lower_left) * across
        crops = upper + (lower - upper) * down
    return jnp.where(inside[..., None], crops, _F32(outside))


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def _crop(image: Any, boxes: Any, index: Any, size: tuple[int, int], outside: float, nearest: bool) -> Any:
    return _sampled(image, boxes, index, size, outside, nearest)


def _crop_jvp(size: Any, outside: Any, nearest: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (image, boxes, index), (dimage, dboxes, _) = primals, tangents
    result = _crop(image, boxes, index, size, outside, nearest)
    tangent = jnp.zeros_like(result)
    if type(dimage) is not SymbolicZero and dimage.dtype != jax.dtypes.float0:
        tangent += jax.jvp(lambda v: _sampled(v, boxes, index, size, outside, nearest), (image,), (dimage,))[1]
    if type(dboxes) is not SymbolicZero:
        # TensorFlow differentiates with respect to boxes as if the method were bilinear.
        tangent += jax.jvp(lambda v: _sampled(image, v, index, size, outside, False, True), (boxes,), (dboxes,))[1]
    return result, tangent


_crop.defjvp(_crop_jvp, symbolic_zeros=True)


def _crop_arguments(image: Any, boxes: Any, box_ind: Any, method: str) -> tuple[Any, Any, Any]:
    image, boxes, box_ind = _rank4(image), jnp.asarray(boxes), jnp.asarray(box_ind)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or box_ind.ndim != 1:
        raise OpError(f"boxes are rows of 4 with one index each, not {tuple(boxes.shape)} and {tuple(box_ind.shape)}")
    if method not in ("bilinear", "nearest"):
        raise OpError(f"method must be 'bilinear' or 'nearest', not {method!r}")
    return image, boxes, box_ind


@op("CropAndResize")
def crop_and_resize(
    image: Any,
    boxes: Any,
    box_ind: Any,
    crop_size: Static,
    *,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Any:
    """Cuts boxes out of images and resizes them. See tf.raw_ops.CropAndResize.

    An index of no image, an error in TensorFlow, takes the nearest one; boxes that are not finite are extrapolated.
    """
    image, boxes, box_ind = _crop_arguments(image, boxes, box_ind, method)
    height, width = dims(crop_size)
    if height <= 0 or width <= 0:
        raise OpError(f"crop dimensions must be positive, not {height} and {width}")
    return _crop(image, boxes, box_ind, (height, width), extrapolation_value, method == "nearest")


@op("CropAndResizeGradImage")
def crop_and_resize_grad_image(
    grads: Any, boxes: Any, box_ind: Any, image_size: Static, *, T: Any, method: str = "bilinear"
) -> Any:
    """Gradient of CropAndResize by the images. See tf.raw_ops.CropAndResizeGradImage."""
    grads = jnp.asarray(grads)
    image, boxes, box_ind = _crop_arguments(jnp.zeros(dims(image_size), _F32), boxes, box_ind, method)
    size = grads.shape[1:3]
    _, pull = jax.vjp(lambda v: _sampled(v, boxes, box_ind, size, 0.0, method == "nearest"), image)
    return pull(grads)[0].astype(np.dtype(T))


@op("CropAndResizeGradBoxes")
def crop_and_resize_grad_boxes(grads: Any, image: Any, boxes: Any, box_ind: Any, *, method: str = "bilinear") -> Any:
    """Gradient of CropAndResize by the boxes. See tf.raw_ops.CropAndResizeGradBoxes."""
    grads = jnp.asarray(grads)
    image, boxes, box_ind = _crop_arguments(image, boxes, box_ind, method)
    _, pull = jax.vjp(lambda v: _sampled(image, v, box_ind, grads.shape[1:3], 0.0, False, True), boxes)
    return pull(grads)[0]


# --- Projections


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
    """MapCoordinate of image_ops.h: where a coordinate outside the image reads."""
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
        here = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        return jnp.where(here[..., None], _pixels(images, batch, row, column), fill)

    if interpolation == "NEAREST":
        result = read(_round(rows), _round(columns))
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
    # TensorFlow's gradient is the picture of the gradients under the inverse transform, not the adjoint. What goes
    # forwards is the adjoint of that, as in its ForwardAccumulator; transforms and fill_value have no derivative.
    transforms = lax.stop_gradient(transforms)
    ones = jnp.ones((transforms.shape[0], 1), transforms.dtype)
    inverse = jnp.linalg.inv(jnp.concatenate([transforms, ones], 1).reshape(transforms.shape[0], 3, 3))
    flat = inverse.reshape(transforms.shape[0], 9)

    def back(grads: Any) -> Any:
        return _project(grads, flat[:, :8] / flat[:, 8:], images.shape[1:3], interpolation, mode, 0)

    return result, linear_transpose(back, result, tangents[0], flat)


@op("ImageProjectiveTransformV3")
def image_projective_transform_v3(
    images: Any,
    transforms: Any,
    output_shape: Static,
    fill_value: Any,
    *,
    interpolation: str,
    fill_mode: str = "CONSTANT",
) -> Any:
    """Applies projective transforms to images. See tf.raw_ops.ImageProjectiveTransformV3.

    The gradient is TensorFlow's, which applies the inverse transform; there is none by the transforms.
    """
    images, transforms, fill = _rank4(images), jnp.asarray(transforms), jnp.asarray(fill_value)
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
def image_projective_transform_v2(
    images: Any, transforms: Any, output_shape: Static, *, interpolation: str, fill_mode: str = "CONSTANT"
) -> Any:
    """As ImageProjectiveTransformV3, filled with 0. See tf.raw_ops.ImageProjectiveTransformV2."""
    return image_projective_transform_v3(
        images, transforms, output_shape, np.zeros((), _F32), interpolation=interpolation, fill_mode=fill_mode
    )


# --- Glimpses


def _glimpse(
    input: Any,
    size: Any,
    offsets: Any,
    centered: bool,
    normalized: bool,
    uniform: bool,
    noise: str,
    key: Any,
    old: bool,
) -> Any:
    images, offsets = _rank4(input), jnp.asarray(offsets)
    if uniform and noise not in ("", "uniform"):
        raise OpError("uniform_noise and noise cannot be given at the same time")
    noise = noise or ("uniform" if uniform else "gaussian")
    if noise not in ("uniform", "gaussian", "zero"):
        raise OpError(f"noise must be 'uniform', 'gaussian' or 'zero', not {noise!r}")
    window = dims(size)
    extent, half = np.array(images.shape[1:3], _F32), np.array(window, _F32) / 2
    corner = offsets * extent if normalized else offsets
    if old:
        corner = (corner / 2 + extent / 2 if centered else corner) - half
    elif centered:
        corner = corner / 2 + extent / 2 - half if normalized else corner + extent / 2
    corner = corner.astype(np.int32)  # towards zero, as in C
    rows = (corner[:, :1] + np.arange(window[0], dtype=np.int32))[:, :, None]
    columns = (corner[:, 1:] + np.arange(window[1], dtype=np.int32))[:, None, :]
    inside = (rows >= 0) & (rows < images.shape[1]) & (columns >= 0) & (columns < images.shape[2])
    batch = lax.iota(np.int32, images.shape[0])[:, None, None]
    seen = _pixels(images, batch, rows, columns)
    if noise == "zero":
        around = jnp.zeros_like(seen)
    elif noise == "uniform":
        low, high = (f(images, (1, 2, 3), keepdims=True) for f in (jnp.min, jnp.max))
        around = low + jax.random.uniform(key, seen.shape, seen.dtype) * (high - low)
    else:
        mean, deviation = (f(images, (1, 2), keepdims=True) for f in (jnp.mean, jnp.std))
        low, high = (f(images, (1, 2), keepdims=True) for f in (jnp.min, jnp.max))
        around = jnp.clip(mean + jax.random.normal(key, seen.shape, seen.dtype) * deviation, low, high)
    return jnp.where(inside[..., None], seen, around)


def _noisy(attrs: Mapping[str, Any]) -> bool:
    return attrs.get("noise") != "zero"


@op("ExtractGlimpse", needs_key=_noisy)
def extract_glimpse(
    input: Any,
    size: Static,
    offsets: Any,
    *,
    centered: bool = True,
    normalized: bool = True,
    uniform_noise: bool = True,
    noise: str = "uniform",
    key: Any,
) -> Any:
    """Cuts windows out of images, noise around them. See tf.raw_ops.ExtractGlimpse.

    The noise has TensorFlow's distribution, not its numbers (it seeds them by the clock).
    """
    return _glimpse(
        input,
        size,
        offsets,
        centered=centered,
        normalized=normalized,
        uniform=uniform_noise,
        noise=noise,
        key=key,
        old=True,
    )


@op("ExtractGlimpseV2", needs_key=_noisy)
def extract_glimpse_v2(
    input: Any,
    size: Static,
    offsets: Any,
    *,
    centered: bool = True,
    normalized: bool = True,
    uniform_noise: bool = True,
    noise: str = "uniform",
    key: Any,
) -> Any:
    """As ExtractGlimpse, with offsets that mean a corner unless centered and normalized. See its raw op."""
    return _glimpse(
        input,
        size,
        offsets,
        centered=centered,
        normalized=normalized,
        uniform=uniform_noise,
        noise=noise,
        key=key,
        old=False,
    )
