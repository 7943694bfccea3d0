"""Pixels of images at given coordinates: crops, glimpses, projective transforms.

The gradient of a projective transform is TensorFlow's: it applies the inverse transform to the cotangent, which is not
the adjoint. Glimpses have noise outside of the image.

TF: core/kernels/image/crop_and_resize_op.cc, core/kernels/image/image_ops.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tf2jax_lite.jaxprs.materialize import materialize, materialize_if_traced
from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.common.precision import product, quotient
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims
from tf2jax_lite.values.symbolic_float import as_float


def image_batch(images: Any) -> Any:
    """Return images as an array; raise OpError unless their rank is 4."""
    images = jnp.asarray(images)
    if images.ndim != 4:
        raise OpError(f"images have rank 4, not {images.ndim}")
    return images


def round_half_away(x: Any) -> Any:
    """Round to the nearest integer, halves away from zero as C's round."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def pixels(images: Any, index: Any, rows: Any, columns: Any) -> Any:
    """Return ``images[index, rows, columns]``, with coordinates clipped to the image."""
    starts = jnp.stack(jnp.broadcast_arrays(index, rows, columns), -1).astype(np.int32)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(starts.ndim - 1,), collapsed_slice_dims=(0, 1, 2), start_index_map=(0, 1, 2)
    )
    return lax.gather(images, starts, numbers, (1, 1, 1, images.shape[3]), mode=lax.GatherScatterMode.CLIP)


_F32 = np.float32


def _sample_positions(low: Any, high: Any, size_in: Any, size_out: int, by_ratio: bool) -> Any:
    """Return the coordinates of crops' pixels, float32 [boxes, size_out]."""
    # Whether a coordinate is on a pixel or within the image depends on the last bit, so that rounding is TensorFlow's:
    # the kernel of the gradient with respect to boxes multiplies by a ratio where the others divide (``by_ratio``).
    last = as_float(size_in - 1)
    if size_out == 1:
        return product(_F32(0.5) * (low + high), last)[:, None]
    if by_ratio:
        ratio = last / _F32(size_out - 1) if isinstance(size_in, int) else quotient(last, _F32(size_out - 1))
        step = product(high - low, ratio)
    else:
        step = quotient(product(high - low, last), _F32(size_out - 1))
    return product(low, last)[:, None] + product(np.arange(size_out, dtype=_F32), step[:, None])


def _grid(image: Any, boxes: Any, size: tuple[int, ...], by_ratio: bool = False) -> tuple[Any, Any]:
    """Return coordinates, float32 [boxes, rows] and [boxes, columns]."""
    # Materialized, as XLA would compute them again for each channel.
    height, width = image.shape[1:3]
    rows = _sample_positions(boxes[:, 0], boxes[:, 2], height, size[0], by_ratio)
    columns = _sample_positions(boxes[:, 1], boxes[:, 3], width, size[1], by_ratio)
    return materialize(rows), materialize(columns)


def _is_inside(image: Any, rows: Any, columns: Any) -> Any:
    """Return whether coordinates are within the image."""
    height, width = image.shape[1:3]
    return (rows >= 0) & (rows <= as_float(height - 1)) & (columns >= 0) & (columns <= as_float(width - 1))


def _lines(image: Any, index: Any, rows: Any, columns: Any) -> tuple[Any, Any, Any, Any]:
    """Return left and right pixels above and below coordinates, and both distances."""
    gather = partial(pixels, image, index[:, None, None])
    top, left, bottom, right = jnp.floor(rows), jnp.floor(columns), jnp.ceil(rows), jnp.ceil(columns)
    upper, lower = ([gather(at, left).astype(_F32), gather(at, right).astype(_F32)] for at in (top, bottom))
    return upper, lower, (rows - top)[..., None], (columns - left)[..., None]


def _sampled(image: Any, boxes: Any, index: Any, size: tuple[int, ...], extrapolation: float, nearest: bool) -> Any:
    rows, columns = _grid(image, boxes, size)
    rows, columns = rows[:, :, None], columns[:, None, :]
    if nearest:
        crops = pixels(image, index[:, None, None], round_half_away(rows), round_half_away(columns)).astype(_F32)
    else:
        upper, lower, down, across = _lines(image, index, rows, columns)
        upper, lower = (left + (right - left) * across for left, right in (upper, lower))
        crops = upper + (lower - upper) * down
    return jnp.where(_is_inside(image, rows, columns)[..., None], crops, _F32(extrapolation))


def _tangent_of_boxes(image: Any, boxes: Any, index: Any, size: tuple[int, ...], dboxes: Any) -> Any:
    """Return the bilinear derivative of crops along ``dboxes``, whatever the method."""
    (rows, columns), tangents = jax.jvp(lambda v: _grid(image, v, size, True), (boxes,), (dboxes,))
    rows, columns = rows[:, :, None], columns[:, None, :]
    inside = _is_inside(image, rows, columns)
    tangent: Any = _F32(0)
    for axis, along in enumerate(tangents):
        # Each axis has an image of its own: pixels that both read would be written to memory.
        own = materialize_if_traced(image) if axis else image
        upper, lower, *distances = _lines(own, index, rows, columns)
        starts, ends = zip(upper, lower, strict=True) if axis else (upper, lower)
        first, second = (end - start for start, end in zip(starts, ends, strict=True))
        derivative = first + (second - first) * distances[1 - axis]
        # Outside of the image neither pixels nor cotangents, which meet in sums over channels, have to be finite.
        along = jnp.where(inside, jnp.expand_dims(along, 2 - axis), _F32(0))
        tangent += jnp.where(inside[..., None], derivative, _F32(0)) * along[..., None]
    return tangent


def _blended(image: Any, boxes: Any, index: Any, size: tuple[int, ...]) -> Any:
    """Return bilinear crops, 0 outside of the image, by pairs of pixels.

    These are the values of `_sampled` up to rounding. XLA's scatter, the transpose of a gather, takes most of a
    gradient's time; it adds up one window here for two pixels there. Upper and lower rows are one after the other, as
    values for 2x2 windows take twice the memory: of more than 32 MiB the system provides each page again in each call.

    Args:
      boxes: as `crop_and_resize` takes them.
      index: its ``box_ind``.
      size: height and width of crops.
    """
    starts, weights = [], []
    inside: Any = True
    spans = [min(n, 2) for n in image.shape[1:3]]
    for i, (length, span, at) in enumerate(zip(image.shape[1:3], spans, _grid(image, boxes, size), strict=True)):
        at = jnp.expand_dims(at, 2 - i)
        inside &= (at >= 0) & (at <= length - 1)
        start = jnp.clip(jnp.floor(at), 0, length - span)
        starts.append(start)
        weights.append(jnp.stack([1 - (at - start), at - start][:span], -1))
    numbers = lax.GatherDimensionNumbers(offset_dims=(3, 4), collapsed_slice_dims=(0, 1), start_index_map=(0, 1, 2))

    def of_row(total: Any, row: Any) -> tuple[Any, None]:
        first, by_row = row
        at = jnp.stack(jnp.broadcast_arrays(index[:, None, None], first, starts[1]), -1).astype(np.int32)
        pair = lax.gather(image, at, numbers, (1, 1, spans[1], image.shape[3]), mode=lax.GatherScatterMode.CLIP)
        weight = jnp.where(inside[..., None], by_row[..., None] * weights[1], _F32(0))[..., None]
        # Pixels without a weight take no part, even if they or their cotangents are not finite.
        return total + jnp.sum(jnp.where(weight == 0, _F32(0), pair.astype(_F32)) * weight, 3), None

    rows = jnp.stack([starts[0] + i for i in range(spans[0])]), jnp.moveaxis(weights[0], -1, 0)
    # Weights as residuals would be of all channels.
    of_row = jax.checkpoint(of_row, prevent_cse=False)
    return scan(of_row, jnp.zeros((*index.shape, *size, image.shape[3]), _F32), rows)[0]


def _of_image(image: Any, boxes: Any, index: Any, size: tuple[int, ...], nearest: bool) -> Any:
    """Return crops, 0 outside of the image, in a form with fast derivatives."""
    if nearest or not all(isinstance(n, int) and n > 0 for n in image.shape[1:3]):
        return _sampled(image, boxes, index, size, 0.0, nearest)
    return _blended(image, boxes, index, size)


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def _crop(image: Any, boxes: Any, index: Any, size: tuple[int, ...], extrapolation: float, nearest: bool) -> Any:
    return _sampled(image, boxes, index, size, extrapolation, nearest)


def _crop_jvp(size: Any, extrapolation: Any, nearest: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (image, boxes, index), (dimage, dboxes, _) = primals, tangents
    result = _crop(image, boxes, index, size, extrapolation, nearest)
    tangent = jnp.zeros_like(result)
    if type(dimage) is not SymbolicZero and dimage.dtype != jax.dtypes.float0:
        tangent += jax.jvp(lambda v: _of_image(v, boxes, index, size, nearest), (image,), (dimage,))[1]
    if type(dboxes) is not SymbolicZero:
        tangent += _tangent_of_boxes(image, boxes, index, size, dboxes)
    return result, tangent


_crop.defjvp(_crop_jvp, symbolic_zeros=True)


def _crop_arguments(image: Any, boxes: Any, box_ind: Any, method: str) -> tuple[Any, Any, Any]:
    image, boxes, box_ind = image_batch(image), jnp.asarray(boxes), jnp.asarray(box_ind)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or box_ind.ndim != 1:
        raise OpError(f"boxes are rows of 4 with one index each, not {tuple(boxes.shape)} and {tuple(box_ind.shape)}")
    if method not in ("bilinear", "nearest"):
        raise OpError(f"method must be 'bilinear' or 'nearest', not {method!r}")
    return image, boxes, box_ind


@op("CropAndResize")
def crop_and_resize(image, boxes, box_ind, crop_size: Static, *, method="bilinear", extrapolation_value=0.0):
    """Crop boxes from images and resize them.

    An index out of range, an error in TensorFlow, is clipped; boxes that are not finite are extrapolated.

    Args:
      boxes: float32 [boxes, 4], (y1, x1, y2, x2) normalized to [0, 1].
    """
    image, boxes, box_ind = _crop_arguments(image, boxes, box_ind, method)
    height, width = dims(crop_size)
    if height <= 0 or width <= 0:
        raise OpError(f"crop dimensions must be positive, not {height} and {width}")
    # Materialized for its cotangent, which both derivatives read.
    return materialize(_crop(image, boxes, box_ind, (height, width), extrapolation_value, method == "nearest"))


@op("CropAndResizeGradImage")
def crop_and_resize_grad_image(grads, boxes, box_ind, image_size: Static, *, T, method="bilinear"):
    """Compute the gradient of `crop_and_resize` with respect to the images.

    Args:
      boxes: float32 [boxes, 4], (y1, x1, y2, x2) normalized to [0, 1].
    """
    grads = jnp.asarray(grads)
    image, boxes, box_ind = _crop_arguments(jnp.zeros(dims(image_size), _F32), boxes, box_ind, method)
    size = grads.shape[1:3]
    _, pull = jax.vjp(lambda v: _of_image(v, boxes, box_ind, size, method == "nearest"), image)
    return pull(grads)[0].astype(np.dtype(T))


@op("CropAndResizeGradBoxes")
def crop_and_resize_grad_boxes(grads, image, boxes, box_ind, *, method="bilinear"):
    """Compute the gradient of `crop_and_resize` with respect to the boxes."""
    grads = jnp.asarray(grads)
    image, boxes, box_ind = _crop_arguments(image, boxes, box_ind, method)
    _, pull = jax.vjp(lambda v: _tangent_of_boxes(image, boxes, box_ind, grads.shape[1:3], v), jnp.zeros_like(boxes))
    return pull(grads)[0]


def _glimpse(
    input: Any,
    size: Any,
    offsets: Any,
    centered: bool,
    normalized: bool,
    uniform: bool,
    noise: str,
    key: Any,
    version: int,
) -> Any:
    images, offsets = image_batch(input), jnp.asarray(offsets)
    if uniform and noise not in ("", "uniform"):
        raise OpError("uniform_noise and noise cannot be given at the same time")
    noise = noise or ("uniform" if uniform else "gaussian")
    if noise not in ("uniform", "gaussian", "zero"):
        raise OpError(f"noise must be 'uniform', 'gaussian' or 'zero', not {noise!r}")
    window = dims(size)
    image_size, half = np.array(images.shape[1:3], _F32), np.array(window, _F32) / 2
    corner = offsets * image_size if normalized else offsets
    if version == 1:
        corner = (corner / 2 + image_size / 2 if centered else corner) - half
    elif centered:
        corner = corner / 2 + image_size / 2 - half if normalized else corner + image_size / 2
    corner = corner.astype(np.int32)  # towards zero, as in C
    rows = (corner[:, :1] + np.arange(window[0], dtype=np.int32))[:, :, None]
    columns = (corner[:, 1:] + np.arange(window[1], dtype=np.int32))[:, None, :]
    inside = (rows >= 0) & (rows < images.shape[1]) & (columns >= 0) & (columns < images.shape[2])
    batch = lax.iota(np.int32, images.shape[0])[:, None, None]
    inner = pixels(images, batch, rows, columns)
    if noise == "zero":
        outer = jnp.zeros_like(inner)
    elif noise == "uniform":
        low, high = (f(images, (1, 2, 3), keepdims=True) for f in (jnp.min, jnp.max))
        outer = low + jax.random.uniform(key, inner.shape, inner.dtype) * (high - low)
    else:
        mean, deviation = (f(images, (1, 2), keepdims=True) for f in (jnp.mean, jnp.std))
        low, high = (f(images, (1, 2), keepdims=True) for f in (jnp.min, jnp.max))
        outer = jnp.clip(mean + jax.random.normal(key, inner.shape, inner.dtype) * deviation, low, high)
    return jnp.where(inside[..., None], inner, outer)


def _noisy(attrs: Mapping[str, Any]) -> bool:
    return attrs.get("noise") != "zero"


def _register(name: str, version: int) -> None:
    @op(name, draws=_noisy)
    def call(
        input,
        size: Static,
        offsets,
        *,
        centered=True,
        normalized=True,
        uniform_noise=True,
        noise="uniform",
        key: Key | None,
    ):
        """Extract windows from images, with noise outside of the image.

        TF: core/kernels/image/attention_ops.cc.

        The noise has TensorFlow's distribution, not its bits, which depend on the time.

        Args:
          offsets: float32 [batch, 2], (y, x) of each window; in version 2 of its corner unless ``centered`` and
            ``normalized``.
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
            version=version,
        )


_register("ExtractGlimpse", 1)
_register("ExtractGlimpseV2", 2)


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
