"""Image resizing by the bilinear, nearest, bicubic and area methods.

All methods but the nearest one are products with a matrix of weights for rows and one for columns (`_resampling`).

TF: core/kernels/image/resize_bilinear_op.cc, core/kernels/image/resize_nearest_neighbor_op.cc,
core/kernels/image/resize_bicubic_op.cc.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.symbolic_float import as_float
from tf2jax_lite.xla_cpu.constant_dot import weights_of

from ._resampling import apply_weights, are_static, images_and_size, pixel_range

_F32 = np.float32


def check_alignment(attrs: Mapping[str, Any]) -> None:
    """Raise OpError if align_corners and half_pixel_centers are both True."""
    if attrs.get("align_corners") and attrs.get("half_pixel_centers"):
        raise OpError("align_corners=True and half_pixel_centers=True cannot both hold; set one of them to False")


def _scale(size_in: Any, size_out: Any, align_corners: bool) -> Any:
    if align_corners:
        if are_static(size_out):
            if size_out > 1:
                return as_float(size_in - 1) / _F32(size_out - 1)
        else:
            aligned = as_float(size_out) > 1
            return jnp.where(
                aligned, as_float(size_in - 1) / as_float(size_out - 1), as_float(size_in) / as_float(size_out)
            )
    return as_float(size_in) / as_float(size_out)


def _coordinates(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    """Return the input coordinate of each output pixel.

    In float32, as in TensorFlow's kernels.
    """
    out = pixel_range(size_out, _F32)
    scale = _scale(size_in, size_out, align_corners)
    return (out + _F32(0.5)) * scale - _F32(0.5) if half_pixel_centers else out * scale


def neighbors(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> tuple[Any, Any, Any]:
    """Return the input pixels below and above each output pixel's coordinate.

    The third result is the weight of the pixel above.
    """
    xp = np if are_static(size_in, size_out) else jnp
    coordinate = _coordinates(size_in, size_out, align_corners, half_pixel_centers)
    floor = xp.floor(coordinate)
    low = xp.maximum(floor, 0).astype(np.int32)
    return low, xp.minimum(xp.ceil(coordinate).astype(np.int32), size_in - 1), coordinate - floor


def _bilinear_weights(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    low, high, part = (v[:, None] for v in neighbors(size_in, size_out, align_corners, half_pixel_centers))
    if are_static(size_in, size_out):
        return weights_of(np.concatenate([low, high], 1), np.concatenate([1 - part, part], 1), size_in)
    columns = pixel_range(size_in, np.int32)[None, :]
    zero = _F32(0)
    return jnp.where(columns == low, 1 - part, zero) + jnp.where(columns == high, part, zero)


@op("ResizeBilinear", pattern=Pattern.MATERIALIZED, check=check_alignment)
def resize_bilinear(
    images,
    size: Static,
    *,
    align_corners=False,
    half_pixel_centers=False,
):
    """Resize by bilinear interpolation.

    Args:
      images: [batch, height, width, channels].
      size: static ints (height, width).

    Returns:
      float32 [batch, *size, channels].

    Raises:
      OpError: the rank or the size is invalid, or the result exceeds max_result_bytes.
    """
    images, (height, width) = images_and_size(images, size)
    rows = _bilinear_weights(images.shape[1], height, align_corners, half_pixel_centers)
    columns = _bilinear_weights(images.shape[2], width, align_corners, half_pixel_centers)
    return apply_weights(images, rows, columns)


@op("ResizeBilinearGrad", check=check_alignment)
def resize_bilinear_grad(
    grads,
    original_image,
    *,
    align_corners=False,
    half_pixel_centers=False,
):
    """Compute the gradient of `resize_bilinear`."""
    grads = jnp.asarray(grads)
    rows, columns = (
        _bilinear_weights(original_image.shape[i], grads.shape[i], align_corners, half_pixel_centers) for i in (1, 2)
    )
    return apply_weights(grads, rows, columns, side=0).astype(original_image.dtype)


# --- Nearest neighbor


def _nearest(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    xp = np if are_static(size_in, size_out) else jnp
    out = pixel_range(size_out, _F32)
    # Not shifted back by half a pixel: the floor has the same effect.
    coordinate = (out + _F32(0.5) if half_pixel_centers else out) * _scale(size_in, size_out, align_corners)
    index = xp.floor(coordinate)
    if align_corners:
        index = index + (coordinate - index >= 0.5)  # C's roundf: halves away from zero
    return xp.clip(index, 0, size_in - 1).astype(np.int32)


def _repeats(index: Any, size_in: Any) -> int:
    """Return k if each pixel is repeated k times in a row, else 0."""
    if not isinstance(index, np.ndarray) or size_in == 0 or index.size % size_in:
        return 0
    times = index.size // size_in
    return times if np.array_equal(index, np.arange(index.size) // times) else 0


@op("ResizeNearestNeighbor", pattern=Pattern.INJECTIVE, check=check_alignment)
def resize_nearest_neighbor(images, size: Static, *, align_corners=False, half_pixel_centers=False):
    """Resize by selecting the nearest pixel.

    Args:
      images: [batch, height, width, channels].
      size: static ints (height, width).

    Returns:
      [batch, *size, channels]; the images' dtype.

    Raises:
      OpError: the rank or the size is invalid, or the result exceeds max_result_bytes.
    """
    out, sizes = images_and_size(images, size)
    for axis, size_out in zip((1, 2), sizes, strict=True):
        size_in = out.shape[axis]
        index = _nearest(size_in, size_out, align_corners, half_pixel_centers)
        times = _repeats(index, size_in)
        if times == 1:
            continue
        if times:  # an integer factor: no gather, and a gradient without scatter
            shape = (*out.shape[: axis + 1], times, *out.shape[axis + 1 :])
            repeated = lax.broadcast_in_dim(out, shape, tuple(i for i in range(5) if i != axis + 1))
            out = lax.reshape(repeated, (*out.shape[:axis], size_in * times, *out.shape[axis + 1 :]))
            continue
        numbers = lax.GatherDimensionNumbers(
            offset_dims=tuple(i for i in range(4) if i != axis), collapsed_slice_dims=(axis,), start_index_map=(axis,)
        )
        sizes = tuple(1 if i == axis else d for i, d in enumerate(out.shape))
        out = lax.gather(out, index[:, None], numbers, sizes, mode=lax.GatherScatterMode.CLIP)
    return out


@op("ResizeNearestNeighborGrad", check=check_alignment)
def resize_nearest_neighbor_grad(grads, size: Static, *, align_corners=False, half_pixel_centers=False):
    """Compute the gradient of `resize_nearest_neighbor`.

    Args:
      grads: [batch, height, width, channels].
      size: static ints (height, width) of the original images.

    Returns:
      [batch, *size, channels]; the dtype of ``grads``.

    Raises:
      OpError: the rank or the size is invalid, or the result exceeds max_result_bytes.
    """
    grads, sizes = images_and_size(grads, size)
    half = grads.dtype in (np.dtype(np.float16), np.dtype(jnp.bfloat16))
    out = grads.astype(_F32) if half else grads
    for axis, original in zip((1, 2), sizes, strict=True):
        index = _nearest(original, grads.shape[axis], align_corners, half_pixel_centers)
        zeros = jnp.zeros(tuple(original if i == axis else d for i, d in enumerate(out.shape)), out.dtype)
        numbers = lax.ScatterDimensionNumbers(
            update_window_dims=tuple(i for i in range(4) if i != axis),
            inserted_window_dims=(axis,),
            scatter_dims_to_operand_dims=(axis,),
        )
        out = lax.scatter_add(
            zeros, index[:, None], out, numbers, indices_are_sorted=True, mode=lax.GatherScatterMode.CLIP
        )
    return out.astype(grads.dtype)


# --- Cubic and area


def _dense(index: Any, weights: Any, size_in: Any) -> Any:
    """Return the traced matrix of weights for taps at ``index``, which may repeat."""
    columns, last = pixel_range(size_in, np.int32)[None, :], size_in - 1
    taps = [(jnp.clip(index[:, k : k + 1], 0, last), weights[:, k : k + 1]) for k in range(index.shape[1])]
    return sum(jnp.where(columns == column, weight, _F32(0)) for column, weight in taps)


@functools.cache
def _cubic(a: float) -> tuple[np.ndarray, np.ndarray]:
    """Return Keys' cubic kernel with parameter ``a`` at x and at x + 1.

    x is from 0 to 1 in steps of 1/1024.
    """
    a = float(_F32(a))
    x = (np.arange(1025) / 1024).astype(_F32).astype(np.float64)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near.astype(_F32), far.astype(_F32)


def _bicubic_weights(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    """Return the weights of resize_bicubic_op.cc.

    Outside of the image weights are 0 with half_pixel_centers; else the edge pixel is repeated.
    """
    xp: Any = np if are_static(size_in, size_out) else jnp
    coordinate = _coordinates(size_in, size_out, align_corners, half_pixel_centers)
    floor = xp.floor(coordinate)
    steps = xp.rint((coordinate - floor) * _F32(1024)).astype(np.int32)
    near, far = map(xp.asarray, _cubic(-0.5 if half_pixel_centers else -0.75))
    taps = xp.stack([far[steps], near[steps], near[1024 - steps], far[1024 - steps]], 1)
    index = floor.astype(np.int32)[:, None] + np.arange(-1, 3, dtype=np.int32)
    if half_pixel_centers:
        taps = xp.where((index >= 0) & (index < size_in), taps, _F32(0))
        total = taps.sum(1, keepdims=True, dtype=_F32)
        safe = xp.abs(total) >= 1000 * np.finfo(_F32).tiny
        taps = xp.where(safe, taps / xp.where(safe, total, _F32(1)), taps)
    if xp is jnp:
        return _dense(index, taps, size_in)
    return weights_of(np.clip(index, 0, size_in - 1), taps, size_in)


@op("ResizeBicubic", pattern=Pattern.MATERIALIZED, check=check_alignment)
def resize_bicubic(images, size: Static, *, align_corners=False, half_pixel_centers=False):
    """Resize by bicubic interpolation.

    Args:
      images: [batch, height, width, channels].
      size: static ints (height, width).

    Returns:
      float32 [batch, *size, channels].

    Raises:
      OpError: the rank or the size is invalid, or the result exceeds max_result_bytes.
    """
    images, (height, width) = images_and_size(images, size)
    rows = _bicubic_weights(images.shape[1], height, align_corners, half_pixel_centers)
    columns = _bicubic_weights(images.shape[2], width, align_corners, half_pixel_centers)
    return apply_weights(images, rows, columns)


@op("ResizeBicubicGrad", check=check_alignment)
def resize_bicubic_grad(grads, original_image, *, align_corners=False, half_pixel_centers=False):
    """Compute the gradient of `resize_bicubic`."""
    grads = jnp.asarray(grads)
    rows, columns = (
        _bicubic_weights(original_image.shape[i], grads.shape[i], align_corners, half_pixel_centers) for i in (1, 2)
    )
    return apply_weights(grads, rows, columns, side=0).astype(original_image.dtype)


def _area_weights(size_in: Any, size_out: Any, align_corners: bool) -> Any:
    xp: Any = np if are_static(size_in, size_out) else jnp
    scale = _scale(size_in, size_out, align_corners)
    out = pixel_range(size_out, _F32)
    start, end = (out * scale)[:, None], ((out + 1) * scale)[:, None]
    first, last = (v.astype(np.int32) for v in (xp.floor(start), xp.ceil(end)))
    if xp is np:
        index = first + np.arange(max(int((last - first).max(initial=0)), 1), dtype=np.int32)
    else:
        index = pixel_range(size_in + 1, np.int32)[None, :]  # all pixels, and the next one, which rounding may reach
    # The part of pixel [index, index + 1) within [start, end); the first case as in resize_area_op.cc.
    over = index + 1 > end
    covered = xp.where(index < start, xp.where(over, scale, index + 1 - start), xp.where(over, end - index, 1))
    covered = xp.where((index >= first) & (index < last), covered, 0).astype(_F32) / scale
    if xp is np:
        return weights_of(np.clip(index, 0, size_in - 1), covered, size_in)
    beyond = jnp.where(index[:, :-1] == size_in - 1, covered[:, -1:], _F32(0))
    return covered[:, :-1] + beyond


@op("ResizeArea", pattern=Pattern.MATERIALIZED)
def resize_area(images, size: Static, *, align_corners=False):
    """Resize by averaging over areas.

    TF: core/kernels/image/resize_area_op.cc.

    Args:
      images: [batch, height, width, channels].
      size: static ints (height, width).

    Returns:
      float32 [batch, *size, channels].

    Raises:
      OpError: the rank or the size is invalid, or the result exceeds max_result_bytes.
    """
    images, (height, width) = images_and_size(images, size)
    rows = _area_weights(images.shape[1], height, align_corners)
    return apply_weights(images, rows, _area_weights(images.shape[2], width, align_corners))
