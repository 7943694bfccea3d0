"""Ops that TensorFlow no longer writes, but of which graphs of its first years are made.

Those that only changed their name (``BatchCholesky``) are beside what they are called today.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.image.color import adjust_contrast_v2
from tf2jax_lite.ops.linalg.decompositions import self_adjoint_eig
from tf2jax_lite.ops.linalg.matmul import as_matrix
from tf2jax_lite.ops.nn.conv import conv3d_backprop_filter, conv3d_backprop_input
from tf2jax_lite.ops.quantization.quantize_dequantize import quantize_and_dequantize_v2
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, dims_array

from .registry import Static, op


@op("BatchNormWithGlobalNormalization")
def batch_norm_with_global_normalization(
    t: Any, m: Any, v: Any, beta: Any, gamma: Any, *, variance_epsilon: float, scale_after_normalization: bool
) -> Any:
    """Normalizes by given means and variances of channels, the last axis; ``gamma`` may be left out.

    The Inception networks of 2015 have it. See tf.raw_ops.BatchNormWithGlobalNormalization.
    """
    t, m, v, beta, gamma = map(jnp.asarray, (t, m, v, beta, gamma))
    if t.ndim != 4 or any(vector.ndim != 1 for vector in (m, v, beta, gamma)):
        raise OpError("t must have 4 dimensions, and m, v, beta and gamma one each")
    factor = lax.rsqrt(v + jnp.asarray(variance_epsilon, v.dtype))
    if scale_after_normalization:
        factor = factor * gamma
    return (t - m) * factor + beta


@op("BatchNormWithGlobalNormalizationGrad")
def batch_norm_with_global_normalization_grad(
    t: Any, m: Any, v: Any, gamma: Any, backprop: Any, *, variance_epsilon: float, scale_after_normalization: bool
) -> tuple[Any, ...]:
    """Returns the gradients by t, m, v, beta and gamma. See tf.raw_ops.BatchNormWithGlobalNormalizationGrad."""

    def forward(*operands: Any) -> Any:
        return batch_norm_with_global_normalization(
            *operands, variance_epsilon=variance_epsilon, scale_after_normalization=scale_after_normalization
        )

    t, m, v, gamma = map(jnp.asarray, (t, m, v, gamma))
    return jax.vjp(forward, t, m, v, jnp.zeros_like(m), gamma)[1](jnp.asarray(backprop))


@op("Conv3DBackpropInput", heavy=True)
def conv3d_backprop_input_v1(
    input: Any, filter: Any, out_backprop: Any, *, strides: Sequence[int], padding: str, dilations: Sequence[int] = ()
) -> Any:
    """The gradient by volumes that are given for their shape. See tf.raw_ops.Conv3DBackpropInput."""
    sizes = dims_array(input.shape)
    return conv3d_backprop_input(sizes, filter, out_backprop, strides=strides, padding=padding, dilations=dilations)


@op("Conv3DBackpropFilter", heavy=True)
def conv3d_backprop_filter_v1(
    input: Any, filter: Any, out_backprop: Any, *, strides: Sequence[int], padding: str, dilations: Sequence[int] = ()
) -> Any:
    """The gradient by a filter that is given for its shape. See tf.raw_ops.Conv3DBackpropFilter."""
    sizes = dims_array(filter.shape)
    return conv3d_backprop_filter(input, sizes, out_backprop, strides=strides, padding=padding, dilations=dilations)


@op("SelfAdjointEig", "BatchSelfAdjointEig")
def self_adjoint_eig_v1(input: Any) -> Any:
    """Returns a row of eigenvalues above the eigenvectors. See tf.raw_ops.SelfAdjointEig."""
    values, vectors = self_adjoint_eig(as_matrix(input, square=True))
    return jnp.concatenate([values[..., None, :], vectors], axis=-2)


@op("MatrixExponential")
def matrix_exponential(input: Any) -> Any:
    """Exponentials of matrices; NaN of ones whose norm is 300,000 and more. See tf.raw_ops.MatrixExponential."""
    return jax.scipy.linalg.expm(as_matrix(input, square=True))


@op("TileGrad")
def tile_grad(input: Any, multiples: Static) -> Any:
    """Sums tiles. See tf.raw_ops.TileGrad."""
    input, counts = jnp.asarray(input), dims(multiples)
    if len(counts) != input.ndim or any(n < 1 or d % n != 0 for n, d in zip(counts, input.shape, strict=False)):
        raise OpError(f"a tensor of shape {tuple(input.shape)} is not made of {list(counts)} tiles")
    parts = [size for n, d in zip(counts, input.shape, strict=True) for size in (n, d // n)]
    return total(input.reshape(parts), tuple(range(0, 2 * input.ndim, 2)))


@op("QuantizeAndDequantize")
def quantize_and_dequantize(
    input: Any,
    *,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    input_min: float = 0.0,
    input_max: float = 0.0,
) -> Any:
    """Rounds to quantized values; the gradient passes all. See tf.raw_ops.QuantizeAndDequantize."""
    low, high = (np.asarray(v, np.float32).astype(input.dtype) for v in (input_min, input_max))
    return quantize_and_dequantize_v2(
        input, low, high, signed_input=signed_input, num_bits=num_bits, range_given=range_given
    )


@op("AdjustContrast")
def adjust_contrast(images: Any, contrast_factor: Any, min_value: Any, max_value: Any) -> Any:
    """Scales the distance to each channel's mean, within limits. See tf.raw_ops.AdjustContrast."""
    scaled = adjust_contrast_v2(jnp.asarray(images).astype(np.float32), contrast_factor)
    return jnp.maximum(jnp.minimum(scaled, max_value), min_value)


@op("RandomCrop", needs_key=True)
def random_crop(image: Any, size: Static, *, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Cuts a part of a size out of an image. See tf.raw_ops.RandomCrop."""
    image, wanted = jnp.asarray(image), dims(size)
    if image.ndim != 3 or len(wanted) != 2:
        raise OpError(f"a size of height and width and an image of rank 3 are needed, not {list(wanted)}, {image.ndim}")
    for axis, (length, part) in enumerate(zip(image.shape, wanted, strict=False)):
        if isinstance(part, int) and (part < 0 or (isinstance(length, int) and part > length)):
            raise OpError(f"a size of {list(wanted)} does not fit into an image of {tuple(image.shape[:2])}")
        start = jax.random.randint(jax.random.fold_in(key, axis), (), 0, jnp.asarray(length - part + 1))
        image = lax.dynamic_slice_in_dim(image, start, part, axis)
    return image
