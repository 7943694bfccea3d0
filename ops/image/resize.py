"""Resizing of images.

Linear methods are two small matrix products, whose weights are known while tracing. A pixel that is inf or NaN
therefore reaches its whole row and column, not only its neighbours as in TensorFlow; on CPU, where the few values that
have a weight are gathered (`resampling`), its neighbours only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.support.limits import check_bytes
from tf2jax_lite.values.static import dims, is_static
from tf2jax_lite.values.symbolic_float import as_float
from tf2jax_lite.xla_cpu.constant_dot import MAX_DENSE, Taps, constant_dot, weights_of

from . import color, crop_and_resize

__all__ = ["check_alignment", "checked", "color", "crop_and_resize", "neighbours", "resize_bilinear"]

_F32 = np.float32
_HIGHEST = lax.Precision.HIGHEST


def check_alignment(attrs: Mapping[str, Any]) -> None:
    """Raises OpError where attributes ask for corners and for centers of pixels that coincide."""
    if attrs.get("align_corners") and attrs.get("half_pixel_centers"):
        raise OpError("align_corners=True and half_pixel_centers=True cannot both hold; set one of them to False")


def checked(images: Any, size: Any) -> tuple[Any, Any]:
    """Returns images as an array and the size they are to have.

    Raises:
      OpError: they do not fit together.
    """
    images, wanted = jnp.asarray(images), dims(size)
    if images.ndim != 4:
        raise OpError(f"images have rank 4, not {images.ndim}")
    if len(wanted) != 2:
        raise OpError(f"a size has two elements, not {len(wanted)}")
    if any(isinstance(d, int) and d <= 0 for d in wanted):
        raise OpError(f"output dimensions must be positive, not {wanted}")
    if _whole(*wanted):  # before the weights are computed
        check_bytes(wanted, images.dtype.itemsize, "a resized image", option="max_result_bytes")
    return images, wanted


def _whole(*sizes: Any) -> bool:
    """Whether all sizes are numbers: with symbolic ones, weights are computed in the trace."""
    return all(isinstance(d, int) for d in sizes)


def _count(size: Any, dtype: Any) -> Any:
    return np.arange(size, dtype=dtype) if isinstance(size, int) else lax.iota(dtype, size)


def _scale(size_in: Any, size_out: Any, align_corners: bool) -> Any:
    if align_corners:
        if _whole(size_out):
            if size_out > 1:
                return as_float(size_in - 1) / _F32(size_out - 1)
        else:
            more = as_float(size_out) > 1
            return jnp.where(
                more, as_float(size_in - 1) / as_float(size_out - 1), as_float(size_in) / as_float(size_out)
            )
    return as_float(size_in) / as_float(size_out)


def _positions(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    """Returns where each output pixel lies in the input, in float32 as TensorFlow's kernels do."""
    out = _count(size_out, _F32)
    scale = _scale(size_in, size_out, align_corners)
    return (out + _F32(0.5)) * scale - _F32(0.5) if half_pixel_centers else out * scale


def neighbours(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> tuple[Any, Any, Any]:
    """Returns the input pixels before and after each output pixel, and how far it is from the one to the other."""
    xp = np if _whole(size_in, size_out) else jnp
    where = _positions(size_in, size_out, align_corners, half_pixel_centers)
    floor = xp.floor(where)
    low = xp.maximum(floor, 0).astype(np.int32)
    return low, xp.minimum(xp.ceil(where).astype(np.int32), size_in - 1), where - floor


def _bilinear_weights(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    low, high, part = (v[:, None] for v in neighbours(size_in, size_out, align_corners, half_pixel_centers))
    if _whole(size_in, size_out):
        return weights_of(np.concatenate([low, high], 1), np.concatenate([1 - part, part], 1), size_in)
    columns = _count(size_in, np.int32)[None, :]
    zero = _F32(0)
    return jnp.where(columns == low, 1 - part, zero) + jnp.where(columns == high, part, zero)


def _is_identity(weights: Any) -> bool:
    if isinstance(weights, Taps):
        return weights.is_identity
    if not isinstance(weights, np.ndarray) or weights.shape[0] != weights.shape[1]:
        return False
    return np.count_nonzero(weights) == len(weights) and bool((np.diagonal(weights) == 1).all())


def _apply(images: Any, rows: Any, columns: Any, precision: Any = _HIGHEST, side: int = 1) -> Any:
    """Multiplies rows and columns of images with weights; ``side=0`` with the transposed weights."""
    images = images.astype(_F32)
    for axis, weights in ((1, rows), (2, columns)):
        if _is_identity(weights):
            continue
        if isinstance(weights, Taps):
            images = weights.of(images, axis) if side else weights.transposed(images, axis)
        elif isinstance(weights, np.ndarray) and _whole(images.shape[axis]):
            images = constant_dot(images, weights, axis, precision, side)
        else:
            images = lax.dot_general(images, weights, (((axis,), (side,)), ((), ())), precision=precision)
            images = lax.transpose(images, (0, 3, 1, 2) if axis == 1 else (0, 1, 3, 2))
    return images


@op("ResizeBilinear", options=("resize_bilinear_precision",), stored=True, check=check_alignment)
def resize_bilinear(
    images: Any,
    size: Static,
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    resize_bilinear_precision: str = "highest",
) -> Any:
    """Resizes by linear interpolation, in float32 whatever the input's type. See tf.raw_ops.ResizeBilinear."""
    images, (height, width) = checked(images, size)
    rows = _bilinear_weights(images.shape[1], height, align_corners, half_pixel_centers)
    columns = _bilinear_weights(images.shape[2], width, align_corners, half_pixel_centers)
    return _apply(images, rows, columns, resize_bilinear_precision)


@op("ResizeBilinearGrad", options=("resize_bilinear_precision",), check=check_alignment)
def resize_bilinear_grad(
    grads: Any,
    original_image: Any,
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    resize_bilinear_precision: str = "highest",
) -> Any:
    """Gradient of ResizeBilinear. See tf.raw_ops.ResizeBilinearGrad."""
    grads = jnp.asarray(grads)
    rows, columns = (
        _bilinear_weights(original_image.shape[i], grads.shape[i], align_corners, half_pixel_centers) for i in (1, 2)
    )
    return _apply(grads, rows, columns, resize_bilinear_precision, side=0).astype(original_image.dtype)


# --- Nearest neighbour


def _nearest(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    xp = np if _whole(size_in, size_out) else jnp
    out = _count(size_out, _F32)
    # No shift back by half a pixel here: flooring does that.
    where = (out + _F32(0.5) if half_pixel_centers else out) * _scale(size_in, size_out, align_corners)
    index = xp.floor(where)
    if align_corners:
        index = index + (where - index >= 0.5)  # C's roundf: halves go away from zero
    return xp.clip(index, 0, size_in - 1).astype(np.int32)


def _repeats(index: Any, size_in: Any) -> int:
    """Returns k if each pixel is taken k times in a row, else 0."""
    if not isinstance(index, np.ndarray) or size_in == 0 or index.size % size_in:
        return 0
    times = index.size // size_in
    return times if np.array_equal(index, np.arange(index.size) // times) else 0


@op("ResizeNearestNeighbor", moves=True, check=check_alignment)
def resize_nearest_neighbor(
    images: Any, size: Static, *, align_corners: bool = False, half_pixel_centers: bool = False
) -> Any:
    """Resizes by taking the nearest pixel. See tf.raw_ops.ResizeNearestNeighbor."""
    out, wanted = checked(images, size)
    for axis, size_out in zip((1, 2), wanted, strict=True):
        size_in = out.shape[axis]
        index = _nearest(size_in, size_out, align_corners, half_pixel_centers)
        times = _repeats(index, size_in)
        if times == 1:
            continue
        if times:  # a whole factor: no gather, and a gradient without scatter
            shape = (*out.shape[: axis + 1], times, *out.shape[axis + 1 :])
            kept = tuple(i for i in range(5) if i != axis + 1)
            wide = lax.broadcast_in_dim(out, shape, kept)
            out = lax.reshape(wide, (*out.shape[:axis], size_in * times, *out.shape[axis + 1 :]))
            continue
        numbers = lax.GatherDimensionNumbers(
            offset_dims=tuple(i for i in range(4) if i != axis), collapsed_slice_dims=(axis,), start_index_map=(axis,)
        )
        sizes = tuple(1 if i == axis else d for i, d in enumerate(out.shape))
        out = lax.gather(out, index[:, None], numbers, sizes, mode=lax.GatherScatterMode.CLIP)
    return out


@op("ResizeNearestNeighborGrad", check=check_alignment)
def resize_nearest_neighbor_grad(
    grads: Any, size: Static, *, align_corners: bool = False, half_pixel_centers: bool = False
) -> Any:
    """Sums gradients over the pixels that a pixel was taken for. See tf.raw_ops.ResizeNearestNeighborGrad."""
    grads, wanted = checked(grads, size)
    half = grads.dtype in (np.dtype(np.float16), np.dtype(jnp.bfloat16))
    out = grads.astype(_F32) if half else grads
    for axis, original in zip((1, 2), wanted, strict=True):
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
    """Returns the matrix of weights of values at ``index``, in the trace: one may come several times."""
    columns, last = _count(size_in, np.int32)[None, :], size_in - 1
    taps = [(jnp.clip(index[:, k : k + 1], 0, last), weights[:, k : k + 1]) for k in range(index.shape[1])]
    return sum(jnp.where(columns == place, weight, _F32(0)) for place, weight in taps)


@functools.cache
def _cubic(a: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns Keys' cubic with parameter ``a`` at distances of x and of x + 1, for x from 0 to 1 in steps of 1/1024."""
    a = float(_F32(a))
    x = (np.arange(1025) / 1024).astype(_F32).astype(np.float64)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near.astype(_F32), far.astype(_F32)


def _bicubic_weights(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    """Weights of resize_bicubic_op.cc: with half pixels what lies outside counts nothing, else the edge is repeated."""
    xp: Any = np if _whole(size_in, size_out) else jnp
    where = _positions(size_in, size_out, align_corners, half_pixel_centers)
    floor = xp.floor(where)
    steps = xp.rint((where - floor) * _F32(1024)).astype(np.int32)
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


@op("ResizeBicubic", stored=True, check=check_alignment)
def resize_bicubic(images: Any, size: Static, *, align_corners: bool = False, half_pixel_centers: bool = False) -> Any:
    """Resizes by cubic interpolation, in float32. See tf.raw_ops.ResizeBicubic."""
    images, (height, width) = checked(images, size)
    rows = _bicubic_weights(images.shape[1], height, align_corners, half_pixel_centers)
    columns = _bicubic_weights(images.shape[2], width, align_corners, half_pixel_centers)
    return _apply(images, rows, columns)


@op("ResizeBicubicGrad", check=check_alignment)
def resize_bicubic_grad(
    grads: Any, original_image: Any, *, align_corners: bool = False, half_pixel_centers: bool = False
) -> Any:
    """Gradient of ResizeBicubic. See tf.raw_ops.ResizeBicubicGrad."""
    grads = jnp.asarray(grads)
    rows, columns = (
        _bicubic_weights(original_image.shape[i], grads.shape[i], align_corners, half_pixel_centers) for i in (1, 2)
    )
    return _apply(grads, rows, columns, side=0).astype(original_image.dtype)


def _area_weights(size_in: Any, size_out: Any, align_corners: bool) -> Any:
    xp: Any = np if _whole(size_in, size_out) else jnp
    scale = _scale(size_in, size_out, align_corners)
    out = _count(size_out, _F32)
    start, end = (out * scale)[:, None], ((out + 1) * scale)[:, None]
    first, last = (v.astype(np.int32) for v in (xp.floor(start), xp.ceil(end)))
    if xp is np:
        index = first + np.arange(max(int((last - first).max(initial=0)), 1), dtype=np.int32)
    else:
        index = _count(size_in + 1, np.int32)[None, :]  # all pixels, and one beyond: rounding may reach it
    # How much of pixel [index, index + 1) lies in [start, end), with resize_area_op.cc's case for "start inside".
    over = index + 1 > end
    covered = xp.where(index < start, xp.where(over, scale, index + 1 - start), xp.where(over, end - index, 1))
    covered = xp.where((index >= first) & (index < last), covered, 0).astype(_F32) / scale
    if xp is np:
        return weights_of(np.clip(index, 0, size_in - 1), covered, size_in)
    beyond = jnp.where(index[:, :-1] == size_in - 1, covered[:, -1:], _F32(0))
    return covered[:, :-1] + beyond


@op("ResizeArea", stored=True)
def resize_area(images: Any, size: Static, *, align_corners: bool = False) -> Any:
    """Resizes by averaging over areas, in float32. See tf.raw_ops.ResizeArea."""
    images, (height, width) = checked(images, size)
    rows = _area_weights(images.shape[1], height, align_corners)
    return _apply(images, rows, _area_weights(images.shape[2], width, align_corners))


# --- Scale and translate


def _lanczos(radius: int) -> Any:
    def kernel(xp: Any, x: Any) -> Any:
        safe = xp.where(x <= 1e-3, 1, x)
        value = radius * xp.sin(np.pi * safe) * xp.sin(np.pi * safe / radius) / (np.pi**2 * safe * safe)
        return xp.where(x > radius, 0, xp.where(x <= 1e-3, 1, value))

    return kernel


def _keys(xp: Any, x: Any) -> Any:
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return xp.where(x >= 2, 0, xp.where(x >= 1, outer, (1.5 * x - 2.5) * x * x + 1))


def _mitchell(xp: Any, x: Any) -> Any:
    outer = ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return xp.where(x >= 2, 0, xp.where(x >= 1, outer, (7 / 6 * x - 2) * x * x + 8 / 9))


# The kernels of sampling_kernels.h: a function of the distance, and the radius beyond which it is zero.
_KERNELS = {
    "lanczos1": (_lanczos(1), 1),
    "lanczos3": (_lanczos(3), 3),
    "lanczos5": (_lanczos(5), 5),
    "gaussian": (lambda xp, x: xp.where(x >= 1.5, 0, xp.exp(-2 * x * x)), 1.5),
    "box": (lambda xp, x: xp.where(x < 0.5, 1, xp.where(x == 0.5, 0.5, 0)), 0.5),
    "triangle": (lambda xp, x: xp.maximum(1 - x, 0), 1),
    "keyscubic": (_keys, 2),
    "mitchellcubic": (_mitchell, 2),
}


def _sampling_weights(
    size_in: Any, size_out: Any, scale: Any, translation: Any, kernel_type: str, antialias: bool
) -> Any:
    """Weights of scale_and_translate_op.cc; an output pixel whose centre lies outside the image gets none.

    Two kernels have jumps. Known scales are worked out in numpy, so that no fused arithmetic moves a pixel across one.
    """
    if kernel_type not in _KERNELS:
        raise OpError(f"there is no kernel_type {kernel_type!r}; there are {', '.join(_KERNELS)}")
    xp = np if is_static(scale) and is_static(translation) and _whole(size_in, size_out) else jnp
    inverse = 1 / scale
    kernel_scale = xp.maximum(inverse, _F32(1)) if antialias else _F32(1)
    sample = (_count(size_out, _F32) + _F32(0.5)) * inverse - inverse * translation
    kernel, radius = _KERNELS[kernel_type]
    index = _count(size_in, np.int32)[None, :]
    if xp is np and size_in * size_out > MAX_DENSE:
        reach = radius * kernel_scale
        index = np.floor(sample - reach)[:, None].astype(np.int32) + np.arange(math.ceil(2 * reach) + 2, dtype=np.int32)
    distance = xp.abs(index.astype(_F32) + _F32(0.5) - sample[:, None])
    weights = kernel(xp, distance * (1 / kernel_scale)).astype(_F32)
    if index.shape[0] != 1:
        weights = np.where((index >= 0) & (index < size_in), weights, _F32(0))
    total = xp.sum(weights, 1, keepdims=True)
    usable = xp.abs(total) >= 1000 * np.finfo(_F32).tiny
    inside = ((sample >= 0) & (sample <= as_float(size_in)))[:, None]
    weights = xp.where(usable & inside, weights / xp.where(usable, total, 1), _F32(0))
    return weights if index.shape[0] == 1 else weights_of(np.clip(index, 0, size_in - 1), np.asarray(weights), size_in)


def _sampling(
    inputs: tuple[Any, Any], outputs: tuple[Any, Any], scale: Any, translation: Any, kernel_type: str, antialias: bool
) -> tuple[Any, Any]:
    # TensorFlow has no gradient for scale and translation.
    scale, translation = (v if is_static(v) else lax.stop_gradient(v) for v in (scale, translation))
    rows, columns = (
        _sampling_weights(inputs[i], outputs[i], scale[i], translation[i], kernel_type, antialias) for i in (0, 1)
    )
    return rows, columns


@op("ScaleAndTranslate", stored=True)
def scale_and_translate(
    images: Any, size: Static, scale: Any, translation: Any, *, kernel_type: str = "lanczos3", antialias: bool = True
) -> Any:
    """Scales and moves images. See tf.raw_ops.ScaleAndTranslate."""
    images, wanted = checked(images, size)
    return _apply(images, *_sampling(images.shape[1:3], wanted, scale, translation, kernel_type, antialias))


@op("ScaleAndTranslateGrad")
def scale_and_translate_grad(
    grads: Any,
    original_image: Any,
    scale: Any,
    translation: Any,
    *,
    kernel_type: str = "lanczos3",
    antialias: bool = True,
) -> Any:
    """Gradient of ScaleAndTranslate. See tf.raw_ops.ScaleAndTranslateGrad."""
    grads, inputs = jnp.asarray(grads), original_image.shape[1:3]
    weights = _sampling(inputs, grads.shape[1:3], scale, translation, kernel_type, antialias)
    return _apply(grads, *weights, side=0).astype(original_image.dtype)
