"""ScaleAndTranslate: resampling by a kernel.

As in scale_and_translate_op.cc and sampling_kernels.h.

TF: core/kernels/image/scale_and_translate_op.cc.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import is_static
from tf2jax_lite.values.symbolic_float import as_float
from tf2jax_lite.xla_cpu import cost_model
from tf2jax_lite.xla_cpu.constant_dot import weights_of

from ._resampling import apply_weights, are_static, images_and_size, pixel_range

_F32 = np.float32


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
    """Return the weights of scale_and_translate_op.cc.

    Weights of output pixels centered outside the image are 0. Two kernels are discontinuous. Weights of static scales
    are computed by numpy, as fused arithmetic could move a pixel across a discontinuity.
    """
    if kernel_type not in _KERNELS:
        raise OpError(f"kernel_type {kernel_type!r} must be one of {', '.join(_KERNELS)}")
    xp = np if is_static(scale) and is_static(translation) and are_static(size_in, size_out) else jnp
    inverse = 1 / scale
    kernel_scale = xp.maximum(inverse, _F32(1)) if antialias else _F32(1)
    sample = (pixel_range(size_out, _F32) + _F32(0.5)) * inverse - inverse * translation
    kernel, radius = _KERNELS[kernel_type]
    index = pixel_range(size_in, np.int32)[None, :]
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
