"""Resizing of images."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import Static, op
from .values import dims


def _scale(size_in: int, size_out: int, align_corners: bool) -> np.float32:
    if align_corners and size_out > 1:
        return np.float32(np.float32(size_in - 1) / np.float32(size_out - 1))
    return np.float32(np.float32(size_in) / np.float32(size_out))


def _positions(size_in: int, size_out: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    out = np.arange(size_out, dtype=np.float32)
    scale = _scale(size_in, size_out, align_corners)
    if half_pixel_centers:
        return (out + np.float32(0.5)) * scale - np.float32(0.5)
    return out * scale


def _bilinear_weights(size_in: int, size_out: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    where = _positions(size_in, size_out, align_corners, half_pixel_centers)
    floor = np.floor(where)
    low = np.maximum(floor, 0).astype(int)
    high = np.minimum(np.ceil(where), size_in - 1).astype(int)
    part = (where - floor).astype(np.float32)
    weights = np.zeros((size_out, size_in), np.float32)
    rows = np.arange(size_out)
    np.add.at(weights, (rows, np.minimum(low, size_in - 1)), 1 - part)
    np.add.at(weights, (rows, high), part)
    return weights


@op("ResizeBilinear", options=("resize_bilinear_precision",))
def resize_bilinear(
    images: Any,
    size: Static,
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    resize_bilinear_precision: str = "highest",
) -> Any:
    """Resizes by linear interpolation, as two small matrix products. See tf.raw_ops.ResizeBilinear."""
    images = jnp.asarray(images)
    dtype = images.dtype if images.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    height, width = (int(d) for d in dims(size))
    rows = _bilinear_weights(images.shape[1], height, align_corners, half_pixel_centers).astype(np.float32)
    columns = _bilinear_weights(images.shape[2], width, align_corners, half_pixel_centers).astype(np.float32)
    # TensorFlow interpolates in float32 whatever the input's type.
    out = jnp.einsum("nhwc,Hh,Ww->nHWc", images.astype(np.float32), rows, columns, precision=resize_bilinear_precision)
    del dtype
    return out


@op("ResizeNearestNeighbor")
def resize_nearest_neighbor(
    images: Any, size: Static, *, align_corners: bool = False, half_pixel_centers: bool = False
) -> Any:
    """Resizes by taking the nearest pixel. See tf.raw_ops.ResizeNearestNeighbor."""
    out = jnp.asarray(images)
    for axis, wanted in zip((1, 2), dims(size), strict=True):
        size_in = out.shape[axis]
        scale = _scale(size_in, int(wanted), align_corners)
        where = np.arange(int(wanted), dtype=np.float32)
        where = ((where + np.float32(0.5)) if half_pixel_centers else where) * scale
        index = np.round(where) if align_corners else np.floor(where)
        index = np.clip(index, 0, size_in - 1).astype(np.int32)
        out = lax.gather(
            out,
            index[:, None],
            lax.GatherDimensionNumbers(
                offset_dims=tuple(i for i in range(4) if i != axis),
                collapsed_slice_dims=(axis,),
                start_index_map=(axis,),
            ),
            tuple(1 if i == axis else d for i, d in enumerate(out.shape)),
            mode=lax.GatherScatterMode.CLIP,
        )
    return out
