"""Image resizing by the bilinear, nearest, bicubic and area methods, or a kernel.

All methods but the nearest one are products with a matrix of weights for rows and one for columns. An inf or NaN pixel
affects its whole row and column, not only its neighbors as in TensorFlow. On CPU, where the few nonzero weights are
gathered (`xla_cpu.constant_dot`), it affects its neighbors only.

TF: core/kernels/image: resize_bilinear_op.cc, resize_nearest_neighbor_op.cc, resize_bicubic_op.cc,
scale_and_translate_op.cc, sampling_kernels.h.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.support.limits import check_result
from tf2jax_lite.values.static import dims, is_static
from tf2jax_lite.values.symbolic_float import as_float
from tf2jax_lite.xla_cpu import cost_model
from tf2jax_lite.xla_cpu.constant_dot import Taps, constant_dot, weights_of

_F32 = np.float32
_HIGHEST = lax.Precision.HIGHEST


def images_and_size(images: Any, size: Any) -> tuple[Any, Any]:
    """Return images as an array, and the requested size as (height, width)."""
    images, size = jnp.asarray(images), dims(size)
    if images.ndim != 4:
        raise OpError(f"images have rank 4, not {images.ndim}")
    if len(size) != 2:
        raise OpError(f"a size has two elements, not {len(size)}")
    if any(isinstance(d, int) and d <= 0 for d in size):
        raise OpError(f"output dimensions must be positive, not {size}")
    if are_static(*size):  # before the weights are computed
        check_result(size, images.dtype.itemsize, "a resized image")
    return images, size


def are_static(*sizes: Any) -> bool:
    """Return whether all sizes are ints; else weights are computed in the trace."""
    return all(isinstance(d, int) for d in sizes)


def _pixel_range(size: Any, dtype: Any) -> Any:
    return np.arange(size, dtype=dtype) if isinstance(size, int) else lax.iota(dtype, size)


def _is_identity(weights: Any) -> bool:
    if isinstance(weights, Taps):
        return weights.is_identity
    if not isinstance(weights, np.ndarray) or weights.shape[0] != weights.shape[1]:
        return False
    return np.count_nonzero(weights) == len(weights) and bool((np.diagonal(weights) == 1).all())


def apply_weights(images: Any, rows: Any, columns: Any, precision: Any = _HIGHEST, side: int = 1) -> Any:
    """Multiply rows and columns by weights, by transposed ones with ``side=0``."""
    images = images.astype(_F32)
    for axis, weights in ((1, rows), (2, columns)):
        if _is_identity(weights):
            continue
        if isinstance(weights, Taps):
            images = weights.of(images, axis) if side else weights.transposed(images, axis)
        elif isinstance(weights, np.ndarray) and are_static(images.shape[axis]):
            images = constant_dot(images, weights, axis, precision, side)
        else:
            images = lax.dot_general(images, weights, (((axis,), (side,)), ((), ())), precision=precision)
            images = lax.transpose(images, (0, 3, 1, 2) if axis == 1 else (0, 1, 3, 2))
    return images


def check_alignment(attrs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> None:
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
    """Return the float32 input coordinate of each output pixel."""
    out = _pixel_range(size_out, _F32)
    scale = _scale(size_in, size_out, align_corners)
    return (out + _F32(0.5)) * scale - _F32(0.5) if half_pixel_centers else out * scale


def neighbors(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> tuple[Any, Any, Any]:
    """Return pixels below and above output pixels, and the weight of those above."""
    xp = np if are_static(size_in, size_out) else jnp
    coordinate = _coordinates(size_in, size_out, align_corners, half_pixel_centers)
    floor = xp.floor(coordinate)
    low = xp.maximum(floor, 0).astype(np.int32)
    return low, xp.minimum(xp.ceil(coordinate).astype(np.int32), size_in - 1), coordinate - floor


def _bilinear_weights(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    low, high, part = (v[:, None] for v in neighbors(size_in, size_out, align_corners, half_pixel_centers))
    if are_static(size_in, size_out):
        return weights_of(np.concatenate([low, high], 1), np.concatenate([1 - part, part], 1), size_in)
    columns = _pixel_range(size_in, np.int32)[None, :]
    zero = _F32(0)
    return jnp.where(columns == low, 1 - part, zero) + jnp.where(columns == high, part, zero)


_ALIGNMENT = {"align_corners": False, "half_pixel_centers": False}


def _register(name: str, weights: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Register resizing by matrices of weights, and its gradient; return the former."""

    @op(
        name,
        inputs="images size:Static",
        attributes=_ALIGNMENT | options,
        pattern=Pattern.MATERIALIZED,
        check=check_alignment,
    )
    def resize(images, size, *, align_corners=False, half_pixel_centers=False, resize_bilinear_precision="highest"):
        """Resize by interpolation."""
        images, sizes = images_and_size(images, size)
        rows, columns = (weights(images.shape[i + 1], sizes[i], align_corners, half_pixel_centers) for i in range(2))
        return apply_weights(images, rows, columns, resize_bilinear_precision)

    @op(f"{name}Grad", inputs="grads original_image", attributes=_ALIGNMENT | options, check=check_alignment)
    def grad(*, grads, original_image, align_corners, half_pixel_centers, resize_bilinear_precision="highest"):
        """Compute the gradient of `resize`."""
        grads = jnp.asarray(grads)
        rows, columns = (
            weights(original_image.shape[i], grads.shape[i], align_corners, half_pixel_centers) for i in (1, 2)
        )
        return apply_weights(grads, rows, columns, resize_bilinear_precision, side=0).astype(original_image.dtype)

    return resize


resize_bilinear = _register("ResizeBilinear", _bilinear_weights, **{"resize_bilinear_precision:Option": "highest"})


# --- Nearest neighbor


def _nearest(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    xp = np if are_static(size_in, size_out) else jnp
    out = _pixel_range(size_out, _F32)
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
    """Resize by selecting the nearest pixel."""
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
      size: static ints (height, width) of the original images.
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
    columns, last = _pixel_range(size_in, np.int32)[None, :], size_in - 1
    taps = [(jnp.clip(index[:, k : k + 1], 0, last), weights[:, k : k + 1]) for k in range(index.shape[1])]
    return sum(jnp.where(columns == column, weight, _F32(0)) for column, weight in taps)


@functools.cache
def _cubic(a: float) -> tuple[np.ndarray, np.ndarray]:
    """Return Keys' cubic kernel of parameter ``a`` at x (in 1/1024) and at x + 1."""
    a = float(_F32(a))
    x = (np.arange(1025) / 1024).astype(_F32).astype(np.float64)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near.astype(_F32), far.astype(_F32)


def _bicubic_weights(size_in: Any, size_out: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    """Return the weights of resize_bicubic_op.cc."""
    # Outside of the image weights are 0 with half_pixel_centers; else the edge pixel is repeated.
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


_register("ResizeBicubic", _bicubic_weights)


def _area_weights(size_in: Any, size_out: Any, align_corners: bool) -> Any:
    xp: Any = np if are_static(size_in, size_out) else jnp
    scale = _scale(size_in, size_out, align_corners)
    out = _pixel_range(size_out, _F32)
    start, end = (out * scale)[:, None], ((out + 1) * scale)[:, None]
    first, last = (v.astype(np.int32) for v in (xp.floor(start), xp.ceil(end)))
    if xp is np:
        index = first + np.arange(max(int((last - first).max(initial=0)), 1), dtype=np.int32)
    else:
        index = _pixel_range(size_in + 1, np.int32)[None, :]  # all pixels, and the next one, which rounding may reach
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
    """
    images, (height, width) = images_and_size(images, size)
    rows = _area_weights(images.shape[1], height, align_corners)
    return apply_weights(images, rows, _area_weights(images.shape[2], width, align_corners))


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


# The kernels of sampling_kernels.h: a function of the distance, and its radius of support.
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
    """Return the weights of scale_and_translate_op.cc."""
    # Weights of output pixels centered outside the image are 0. Two kernels are discontinuous. Weights of static scales
    # are computed by numpy, as fused arithmetic could move a pixel across a discontinuity.
    if kernel_type not in _KERNELS:
        raise OpError(f"kernel_type {kernel_type!r} must be one of {', '.join(_KERNELS)}")
    xp = np if is_static(scale) and is_static(translation) and are_static(size_in, size_out) else jnp
    inverse = 1 / scale
    kernel_scale = xp.maximum(inverse, _F32(1)) if antialias else _F32(1)
    sample = (_pixel_range(size_out, _F32) + _F32(0.5)) * inverse - inverse * translation
    kernel, radius = _KERNELS[kernel_type]
    index = _pixel_range(size_in, np.int32)[None, :]
    if xp is np and size_in * size_out > cost_model.CONSTANT_DOT_MAX_DENSE:
        support = radius * kernel_scale
        taps = np.arange(math.ceil(2 * support) + 2, dtype=np.int32)
        index = np.floor(sample - support)[:, None].astype(np.int32) + taps
    distance = xp.abs(index.astype(_F32) + _F32(0.5) - sample[:, None])
    weights = kernel(xp, distance * (1 / kernel_scale)).astype(_F32)
    if index.shape[0] != 1:
        weights = np.where((index >= 0) & (index < size_in), weights, _F32(0))
    total = xp.sum(weights, 1, keepdims=True)
    normalizes = xp.abs(total) >= 1000 * np.finfo(_F32).tiny
    inside = ((sample >= 0) & (sample <= as_float(size_in)))[:, None]
    weights = xp.where(normalizes & inside, weights / xp.where(normalizes, total, 1), _F32(0))
    return weights if index.shape[0] == 1 else weights_of(np.clip(index, 0, size_in - 1), np.asarray(weights), size_in)


def _sampling(
    inputs: tuple[Any, ...], outputs: tuple[Any, ...], scale: Any, translation: Any, kernel_type: str, antialias: bool
) -> tuple[Any, Any]:
    # TensorFlow has no gradient for scale and translation.
    scale, translation = (v if is_static(v) else lax.stop_gradient(v) for v in (scale, translation))
    rows, columns = (
        _sampling_weights(inputs[i], outputs[i], scale[i], translation[i], kernel_type, antialias) for i in (0, 1)
    )
    return rows, columns


@op("ScaleAndTranslate", pattern=Pattern.MATERIALIZED)
def scale_and_translate(images, size: Static, scale, translation, *, kernel_type="lanczos3", antialias=True):
    """Scale and translate images, resampled by a kernel.

    The gradient is 0 with respect to scale and translation, as TensorFlow has none.

    Args:
      scale: float32 [2], output pixels per input pixel.
      translation: float32 [2], in output pixels.
    """
    images, size = images_and_size(images, size)
    return apply_weights(images, *_sampling(images.shape[1:3], size, scale, translation, kernel_type, antialias))


@op("ScaleAndTranslateGrad")
def scale_and_translate_grad(grads, original_image, scale, translation, *, kernel_type="lanczos3", antialias=True):
    """Compute the gradient of `scale_and_translate` with respect to the images."""
    grads, inputs = jnp.asarray(grads), original_image.shape[1:3]
    weights = _sampling(inputs, grads.shape[1:3], scale, translation, kernel_type, antialias)
    return apply_weights(grads, *weights, side=0).astype(original_image.dtype)
