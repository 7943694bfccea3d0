"""Products of images with matrices of weights for rows and columns.

Shared by the resizing ops. An inf or NaN pixel affects its whole row and column, not only its neighbors as in
TensorFlow. On CPU, where the few nonzero weights are gathered (`xla_cpu.constant_dot`), it affects its neighbors only.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError
from tf2jax_lite.support.limits import check_bytes
from tf2jax_lite.values.static import dims
from tf2jax_lite.xla_cpu.constant_dot import Taps, constant_dot

_F32 = np.float32
_HIGHEST = lax.Precision.HIGHEST


def images_and_size(images: Any, size: Any) -> tuple[Any, Any]:
    """Return images as an array, and the requested size as (height, width).

    Raises:
      OpError: the rank of ``images`` is not 4, the size is not two positive numbers, or the result would be larger
        than the option ``max_result_bytes``.
    """
    images, size = jnp.asarray(images), dims(size)
    if images.ndim != 4:
        raise OpError(f"images have rank 4, not {images.ndim}")
    if len(size) != 2:
        raise OpError(f"a size has two elements, not {len(size)}")
    if any(isinstance(d, int) and d <= 0 for d in size):
        raise OpError(f"output dimensions must be positive, not {size}")
    if are_static(*size):  # before the weights are computed
        check_bytes(size, images.dtype.itemsize, "a resized image", option="max_result_bytes")
    return images, size


def are_static(*sizes: Any) -> bool:
    """Return whether all sizes are ints.

    With symbolic sizes, weights are computed in the trace.
    """
    return all(isinstance(d, int) for d in sizes)


def pixel_range(size: Any, dtype: Any) -> Any:
    return np.arange(size, dtype=dtype) if isinstance(size, int) else lax.iota(dtype, size)


def _is_identity(weights: Any) -> bool:
    if isinstance(weights, Taps):
        return weights.is_identity
    if not isinstance(weights, np.ndarray) or weights.shape[0] != weights.shape[1]:
        return False
    return np.count_nonzero(weights) == len(weights) and bool((np.diagonal(weights) == 1).all())


def apply_weights(images: Any, rows: Any, columns: Any, side: int = 1) -> Any:
    """Multiply rows and columns of images by matrices of weights.

    With ``side=0``, by the transposed matrices.
    """
    images = images.astype(_F32)
    for axis, weights in ((1, rows), (2, columns)):
        if _is_identity(weights):
            continue
        if isinstance(weights, Taps):
            images = weights.of(images, axis) if side else weights.transposed(images, axis)
        elif isinstance(weights, np.ndarray) and are_static(images.shape[axis]):
            images = constant_dot(images, weights, axis, _HIGHEST, side)
        else:
            images = lax.dot_general(images, weights, (((axis,), (side,)), ((), ())), precision=_HIGHEST)
            images = lax.transpose(images, (0, 3, 1, 2) if axis == 1 else (0, 1, 3, 2))
    return images
