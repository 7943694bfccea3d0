"""Segment reductions of gathered rows, and their gradients.

Kernels: segment_reduction_ops_impl.h in tensorflow/core/kernels. 16-bit floats are accumulated in float32.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import UnboundedError
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound, StaticBound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, static_value
from tf2jax_lite.values.types import Array

from .segment import check_ids, per_slice, segment_count, segment_reduce, segment_sizes


def _scale(kind: str, ids: Any, count: Any, dtype: Any) -> Any:
    """Return the divisor of each segment, in ``dtype``."""
    number = lax.convert_element_type(jnp.maximum(segment_sizes(ids, count), 1), dtype)
    return lax.sqrt(number) if kind == "SqrtN" else number


def _sparse(kind: str, data: Any, indices: Any, segment_ids: Any, count: Any) -> Any:
    if data.ndim == 0:
        raise OpError("data must have at least one dimension")
    check_ids(segment_ids, indices.shape[0], count if isinstance(count, int) else None)

    def reduced(rows: Any) -> Any:
        total = segment_reduce("Sum", rows, segment_ids, count)
        if kind == "Sum":
            return total
        scale = per_slice(_scale(kind, segment_ids, count, total.dtype), total)
        return lax.div(total, jnp.broadcast_to(scale, total.shape))

    return in_float32(reduced, take(jnp.asarray(data), indices, 0))  # TensorFlow's kernels do so, too


@op("SparseSegmentSum")
def sparse_segment_sum(
    data: Any, indices: Any, segment_ids: Any, *, sparse_gradient: bool = False, bound: Bound
) -> Any:
    """Sum gathered rows by segment. TF: tf.raw_ops.SparseSegmentSum.

    Args:
      data: ``[n, ...]``.
      indices: ``[m]``, rows of ``data``; out of range see `take`.
      segment_ids: ``[m]``, ascending ints; see `segment_sum`.
      sparse_gradient: unused: it chooses how TensorFlow represents the gradient.
      bound: see `segment_sum`.

    Raises:
      OpError: shapes do not match, a static index is out of range, or static ids are negative or not ascending.
      UnboundedError: traced ids without a bound.
    """
    del sparse_gradient
    return _sparse("Sum", data, indices, segment_ids, segment_count(segment_ids, bound))


@op("SparseSegmentMean")
def sparse_segment_mean(
    data: Any, indices: Any, segment_ids: Any, *, sparse_gradient: bool = False, bound: Bound
) -> Any:
    """Average gathered rows by segment.

    TF: tf.raw_ops.SparseSegmentMean. See `sparse_segment_sum`.
    """
    del sparse_gradient
    return _sparse("Mean", data, indices, segment_ids, segment_count(segment_ids, bound))


@op("SparseSegmentSqrtN")
def sparse_segment_sqrt_n(
    data: Any, indices: Any, segment_ids: Any, *, sparse_gradient: bool = False, bound: Bound
) -> Any:
    """Sum gathered rows over the root of their number.

    TF: tf.raw_ops.SparseSegmentSqrtN. See `sparse_segment_sum`.
    """
    del sparse_gradient
    return _sparse("SqrtN", data, indices, segment_ids, segment_count(segment_ids, bound))


@op("SparseSegmentSumWithNumSegments")
def sparse_segment_sum_n(
    data: Array, indices: Array, segment_ids: Array, num_segments: Static, *, sparse_gradient: bool = False
) -> Array:
    """Sum gathered rows by segment.

    TF: tf.raw_ops.SparseSegmentSumWithNumSegments. See `sparse_segment_sum`.
    """
    del sparse_gradient
    return _sparse("Sum", data, indices, segment_ids, dims(num_segments)[0])


@op("SparseSegmentMeanWithNumSegments")
def sparse_segment_mean_n(
    data: Array, indices: Array, segment_ids: Array, num_segments: Static, *, sparse_gradient: bool = False
) -> Array:
    """Average gathered rows by segment.

    TF: tf.raw_ops.SparseSegmentMeanWithNumSegments. See `sparse_segment_sum`.
    """
    del sparse_gradient
    return _sparse("Mean", data, indices, segment_ids, dims(num_segments)[0])


@op("SparseSegmentSqrtNWithNumSegments")
def sparse_segment_sqrt_n_n(
    data: Array, indices: Array, segment_ids: Array, num_segments: Static, *, sparse_gradient: bool = False
) -> Array:
    """Sum over the root of the number.

    TF: tf.raw_ops.SparseSegmentSqrtNWithNumSegments. See `sparse_segment_sum`.
    """
    del sparse_gradient
    return _sparse("SqrtN", data, indices, segment_ids, dims(num_segments)[0])


def _check_rows(indices: Any, rows: int) -> None:
    static = static_value(indices)
    if static is not None and static.size and not 0 <= static.min() <= static.max() < rows:
        raise OpError(f"indices {static.min()} to {static.max()} are out of range [0, {rows})")


def _sparse_grad(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: Any) -> Any:
    grad = jnp.asarray(grad)
    check_ids(segment_ids, indices.shape[0])
    if isinstance(rows, int):
        _check_rows(indices, rows)
    if kind != "Sum":
        scale = per_slice(_scale(kind, segment_ids, grad.shape[0], grad.dtype), grad)
        grad = lax.div(grad, jnp.broadcast_to(scale, grad.shape))
    return segment_reduce("Sum", take(grad, segment_ids, 0), indices, rows)


@op("SparseSegmentSumGrad")
def sparse_segment_sum_grad(grad: Array, indices: Array, segment_ids: Array, output_dim0: Static) -> Array:
    """Return the gradient of `sparse_segment_sum`.

    TF: tf.raw_ops.SparseSegmentSumGrad.

    Args:
      grad: ``[count, ...]``, the gradient of the result.
      indices: ``[m]``, ints in ``[0, output_dim0)``.
      segment_ids: ``[m]``.
      output_dim0: scalar int, the number of rows of the data.

    Raises:
      OpError: shapes do not match, or a static index is out of range.
    """
    return _sparse_grad("Sum", grad, indices, segment_ids, dims(output_dim0)[0])


@op("SparseSegmentMeanGrad")
def sparse_segment_mean_grad(grad: Array, indices: Array, segment_ids: Array, output_dim0: Static) -> Array:
    """Return the gradient of `sparse_segment_mean`.

    TF: tf.raw_ops.SparseSegmentMeanGrad. See `sparse_segment_sum_grad`.
    """
    return _sparse_grad("Mean", grad, indices, segment_ids, dims(output_dim0)[0])


@op("SparseSegmentSqrtNGrad")
def sparse_segment_sqrt_n_grad(grad: Array, indices: Array, segment_ids: Array, output_dim0: Static) -> Array:
    """Return the gradient of `sparse_segment_sqrt_n`.

    TF: tf.raw_ops.SparseSegmentSqrtNGrad. See `sparse_segment_sum_grad`.
    """
    return _sparse_grad("SqrtN", grad, indices, segment_ids, dims(output_dim0)[0])


def _sparse_grad_v2(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: Any, bound: int | None) -> Any:
    static = static_value(indices)
    limit = static_value(rows)
    if static is not None:
        if limit is not None:
            _check_rows(indices, int(limit))
        unique, row = np.unique(static, return_inverse=True)
        row = row.reshape(-1).astype(np.int32)
    elif bound is None:
        raise UnboundedError("the number of distinct indices depends on traced values")
    else:
        # Padding is the index of a row past the end, which a scatter drops.
        past = np.iinfo(indices.dtype).max if limit is None else int(limit)
        unique = jnp.unique(indices, size=bound, fill_value=past)
        row = jnp.searchsorted(unique, indices).astype(np.int32)
    unique = jnp.asarray(unique, indices.dtype)
    return _sparse_grad(kind, grad, row, segment_ids, unique.shape[0]), unique


@op("SparseSegmentSumGradV2")
def sparse_segment_sum_grad_v2(
    grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, bound: StaticBound
) -> Any:
    """Return the gradient of `sparse_segment_sum` for the rows in use.

    TF: tf.raw_ops.SparseSegmentSumGradV2.

    Args:
      grad: ``[count, ...]``, the gradient of the result.
      indices: ``[m]``, ints in ``[0, dense_output_dim0)``.
      segment_ids: ``[m]``.
      dense_output_dim0: scalar int, the number of rows of the data.
      bound: the number of distinct indices if they are traced.

    Returns:
      The gradients of the rows, and the distinct indices of the rows, in ascending order.

    Raises:
      OpError: shapes do not match, or a static index is out of range.
      UnboundedError: traced indices without a bound.
    """
    return _sparse_grad_v2("Sum", grad, indices, segment_ids, dense_output_dim0, bound)


@op("SparseSegmentMeanGradV2")
def sparse_segment_mean_grad_v2(
    grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, bound: StaticBound
) -> Any:
    """Return the gradient of `sparse_segment_mean` for the rows in use.

    TF: tf.raw_ops.SparseSegmentMeanGradV2.

    See `sparse_segment_sum_grad_v2`.
    """
    return _sparse_grad_v2("Mean", grad, indices, segment_ids, dense_output_dim0, bound)


@op("SparseSegmentSqrtNGradV2")
def sparse_segment_sqrt_n_grad_v2(
    grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, bound: StaticBound
) -> Any:
    """Return the gradient of `sparse_segment_sqrt_n` for the rows in use.

    TF: tf.raw_ops.SparseSegmentSqrtNGradV2.

    See `sparse_segment_sum_grad_v2`.
    """
    return _sparse_grad_v2("SqrtN", grad, indices, segment_ids, dense_output_dim0, bound)
