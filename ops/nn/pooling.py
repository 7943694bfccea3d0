"""Max and average pooling in two and three dimensions.

TF: core/kernels/maxpooling_op.cc, core/kernels/pooling_ops_3d.cc.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import canonical, dims

from ._pooling import argmax_of, avg_pool_of, gather, image_size, max_pool_of, max_with_ties, window_max, window_of


@op("MaxPool", pattern=Pattern.MATERIALIZED)
def max_pool(input, *, ksize, strides, padding, explicit_paddings=(), data_format="NHWC"):
    """Compute the maximum of each window."""
    return max_pool_of(input, ksize, strides, padding, explicit_paddings, data_format)


@op("MaxPoolV2", pattern=Pattern.MATERIALIZED)
def max_pool_v2(input, ksize: Static, strides: Static, *, padding, data_format="NHWC"):
    """Compute the maximum of each window."""
    return max_pool_of(input, dims(ksize), dims(strides), padding, (), data_format)


@op("AvgPool", pattern=Pattern.MATERIALIZED)
def avg_pool(value, *, ksize, strides, padding, data_format="NHWC"):
    """Compute the mean of each window, without padding.

    TF: core/kernels/avgpooling_op.cc.
    """
    return avg_pool_of(value, ksize, strides, padding, data_format)


@op("AvgPool3D", pattern=Pattern.MATERIALIZED)
def avg_pool3d(input, *, ksize, strides, padding, data_format="NDHWC"):
    """Compute the mean of each window of volumes, without padding."""
    return avg_pool_of(input, ksize, strides, padding, data_format)


@op("MaxPoolWithArgmax", pattern=Pattern.MATERIALIZED)
def max_pool_with_argmax(input, *, ksize, strides, Targmax=np.int64, padding, include_batch_in_index=False):
    """Compute the maximum of each window and its flat index.

    Indices are within a batch element, or with ``include_batch_in_index`` within the whole array.
    """
    x = jnp.asarray(input)
    index = argmax_of(x, window_of(x, ksize, strides, padding, (), "NHWC"))
    out, dtype = gather(x, index), canonical(Targmax)
    index = lax.convert_element_type(index, dtype)
    if include_batch_in_index:
        index = index + lax.broadcasted_iota(dtype, (x.shape[0], 1, 1, 1), 0) * image_size(x, dtype)
    return out, index


@op("MaxPool3D", pattern=Pattern.MATERIALIZED)
def max_pool3d(input, *, ksize, strides, padding, data_format="NDHWC"):
    """Compute the maximum of each window of volumes.

    Every element that equals the maximum gets the whole gradient, as in TensorFlow.
    """
    x = jnp.asarray(input)
    window = window_of(x, ksize, strides, padding, (), data_format)
    if any(not isinstance(p, int) for pair in window.padding for p in pair):
        return window_max(x, window)  # symbolic padding: not hashable, as custom_jvp needs it
    return max_with_ties(x, window)
