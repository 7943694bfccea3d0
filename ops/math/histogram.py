"""Counting: bincounts, histograms of equal bins, bucketize.

Kernels: bincount_op.cc, histogram_op.cc, bucketize_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value


def _bins(size: Any, bound: int | DynamicShapes | None) -> Any:
    """Return the number of bins, or the bound if the size is traced."""
    value = static_value(size)
    if value is not None:
        if value.size != 1 or int(value.reshape(())) < 0:
            raise OpError(f"size must be one number >= 0, got {value}")
        return int(value.reshape(()))
    if isinstance(bound, DynamicShapes):
        return bound.as_dim(jnp.reshape(size, ()))
    if bound is None:
        raise UnboundedError("the number of bins depends on traced values; pass a fixed size")
    return bound


def _count(values: Any, weights: Any, size: Any, bins: int, binary: bool) -> Any:
    """Add up weights (or ones) by bin; elements outside of ``[0, size)`` are dropped."""
    one = jnp.asarray(1, weights.dtype)
    update = one if binary or weights.size == 0 else jnp.asarray(weights)
    # A bin beyond ``size`` must not count in the padding that a bound adds.
    inside = lax.bitwise_and(lax.ge(values, lax.full_like(values, 0)), lax.lt(values, jnp.asarray(size, values.dtype)))
    index = jnp.where(inside, values, bins)
    zeros = jnp.zeros((bins,), weights.dtype)
    return zeros.at[index].set(update, mode="drop") if binary else zeros.at[index].add(update, mode="drop")


def _check_not_negative(values: Any) -> None:
    static = static_value(values)
    if static is not None and static.size and static.min() < 0:
        raise OpError("bin numbers must not be negative")


def _check_weights(values: Any, weights: Any) -> None:
    if weights.ndim and weights.size == 0:
        return
    if tuple(weights.shape) != tuple(values.shape):
        raise OpError(f"weights of shape {weights.shape} for values of shape {values.shape}")


@op("Bincount")
def bincount(arr, size, weights, *, bound: Bound):
    """Count integers, or add up their weights.

    Args:
      arr: ints of any shape. A negative one is an error if static, and dropped if traced.
      size: scalar int >= 0, the number of bins; larger integers are dropped.

    Returns:
      ``[size]``, of the weights' dtype.
    """
    _check_not_negative(arr)
    _check_weights(arr, weights)
    return _count(jnp.ravel(arr), jnp.ravel(weights), size, _bins(size, bound), False)


@op("DenseBincount")
def dense_bincount(x, size, weights, *, binary_output=False, bound: Bound):
    """Count the integers of a vector, or of each row of a matrix.

    Args:
      x: ints, ``[n]`` or ``[rows, n]``; see `bincount`, also for ``size``, ``weights`` and ``bound``.
    """
    if x.ndim > 2:
        raise OpError(f"input must have rank 0, 1 or 2, not {x.ndim}")
    _check_not_negative(x)
    _check_weights(x, weights)
    bins = _bins(size, bound)
    if x.ndim < 2:
        return _count(jnp.ravel(x), jnp.ravel(weights), size, bins, binary_output)
    if weights.size == 0:
        return jax.vmap(lambda row: _count(row, jnp.ravel(weights), size, bins, binary_output))(jnp.asarray(x))
    rows = jax.vmap(lambda row, weight: _count(row, weight, size, bins, binary_output))
    return rows(jnp.asarray(x), jnp.asarray(weights))


def _count_rows(rows: Any, count: int, values: Any, weights: Any, size: Any, bins: int, binary: bool) -> Any:
    """Add up weights by row and bin, as `_count` does by bin."""
    weights = jnp.ravel(weights)
    update = jnp.asarray(1, weights.dtype) if binary or weights.size == 0 else weights
    inside = lax.bitwise_and(lax.ge(values, lax.full_like(values, 0)), lax.lt(values, jnp.asarray(size, values.dtype)))
    index = (rows, jnp.where(inside, values, bins))
    zeros = jnp.zeros((count, bins), weights.dtype)
    return zeros.at[index].set(update, mode="drop") if binary else zeros.at[index].add(update, mode="drop")


@op("SparseBincount")
def sparse_bincount(indices, values, dense_shape: Static, size, weights, *, binary_output=False, bound: Bound):
    """Count the integers of a sparse vector, or of each row of a sparse matrix.

    Args:
      values: ``[nnz]``, ints; see `bincount`, also for ``size`` and ``bound``.
    """
    shape = np.asarray(dense_shape)
    if shape.shape not in ((1,), (2,)):
        raise OpError(f"a sparse tensor of rank 1 or 2 is expected, dense_shape is {shape}")
    _check_not_negative(values)
    _check_weights(values, weights)
    bins = _bins(size, bound)
    if shape.size == 1:
        return _count(jnp.ravel(values), jnp.ravel(weights), size, bins, binary_output)
    rows = jnp.asarray(indices)[:, 0]
    return _count_rows(rows, int(shape[0]), jnp.asarray(values), weights, size, bins, binary_output)


@op("RaggedBincount")
def ragged_bincount(splits, values, size, weights, *, binary_output=False, bound: Bound):
    """Count the integers of each row of a ragged matrix.

    Args:
      values: ``[n]``, ints; see `bincount`, also for ``size`` and ``bound``.
    """
    _check_not_negative(values)
    if weights.ndim > 1 and weights.size == values.size:
        weights = weights.reshape(-1)  # tf.math.bincount passes a matrix if all rows have one length
    _check_weights(values, weights)
    bins = _bins(size, bound)
    count = splits.shape[0] - 1
    rows = jnp.searchsorted(jnp.asarray(splits), lax.iota(canonical(np.int64), values.shape[0]), side="right") - 1
    return _count_rows(rows, count, jnp.asarray(values), weights, size, bins, binary_output)


@op("HistogramFixedWidth")
def histogram_fixed_width(values, value_range, nbins: Static, *, dtype=np.int32):
    """Count values in bins of equal width.

    Bin boundaries are computed in float64, in float32 without ``jax_enable_x64``.

    TF: core/kernels/histogram_op.cc.

    Args:
      value_range: ``[2]``, the lower end of the first bin and the upper end of the last one, increasing.
    """
    nbins = int(nbins)
    if nbins <= 0:
        raise OpError(f"nbins must be positive, got {nbins}")
    limits = static_value(value_range)
    if limits is not None and not limits[0] < limits[1]:
        raise OpError(f"value_range must be increasing, got {limits}")
    values, value_range = jnp.ravel(values), jnp.asarray(value_range)
    dtype_of_bounds = canonical(np.float64)
    low = value_range[0]
    # The kernel's formula, which no range overflows; another one moves values at bin boundaries. `once` keeps XLA from
    # multiplying with reciprocals, and from dividing the difference.
    bounds = lax.convert_element_type(value_range, dtype_of_bounds)
    first, last = materialize(bounds / materialize(jnp.full((2,), nbins, dtype_of_bounds)))
    step = materialize(jnp.broadcast_to(last - first, values.shape))
    above = jnp.maximum(values, low)
    if dtype_of_bounds == np.float64 or jnp.issubdtype(values.dtype, jnp.floating):
        offset = lax.convert_element_type(above, dtype_of_bounds) - lax.convert_element_type(low, dtype_of_bounds)
    else:
        offset = lax.convert_element_type(above - low, dtype_of_bounds)  # float32 rounds large integers
    index = lax.convert_element_type(jnp.minimum(offset / step, nbins - 1), np.int32)
    if jnp.issubdtype(values.dtype, jnp.floating):
        index = jnp.where(jnp.isnan(values), nbins, index)
    return jnp.zeros((nbins,), canonical(dtype)).at[index].add(1, mode="drop")


@op("Bucketize")
def bucketize(x, *, boundaries):
    """Return the number of boundaries at or below each element.

    TF: core/kernels/bucketize_op.cc.
    """
    limits = np.asarray(boundaries, np.float32)
    if np.any(limits[1:] < limits[:-1]):
        raise OpError("boundaries must be sorted")
    is_float = jnp.issubdtype(x.dtype, jnp.floating)
    x = lax.convert_element_type(x, jnp.promote_types(x.dtype, np.float32) if is_float else np.float32)
    if limits.size > 64:
        return jnp.searchsorted(limits.astype(x.dtype), x, side="right").astype(np.int32)
    # NaN is not below any boundary, so it comes after the last one.
    above = x[..., None] < limits.astype(x.dtype)
    return jnp.sum(~above, axis=-1, dtype=np.int32)
