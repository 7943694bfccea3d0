"""Segment reductions, by sorted and unsorted ids, also of gathered rows.

Kernels: segment_reduction_ops_impl.h in tensorflow/core/kernels. Sums of 16-bit floats are accumulated in float32.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound, Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, static_value

_DROP = lax.GatherScatterMode.FILL_OR_DROP
_SCATTERS = {"Sum": lax.scatter_add, "Prod": lax.scatter_mul, "Max": lax.scatter_max, "Min": lax.scatter_min}


def _initial(kind: str, dtype: Any) -> Any:
    """Return an empty segment's value; of Max and Min the worst finite value."""
    if kind in ("Sum", "Prod"):
        return 0 if kind == "Sum" else 1
    info = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.inexact) else np.iinfo(dtype)
    return info.min if kind == "Max" else info.max


def _scatter(kind: str, data: Any, ids: Any, count: Any, start: Any = None) -> Any:
    """Reduce slices of ``data`` into segments; drop ids outside of [0, count)."""
    element = data.shape[ids.ndim :]
    initial = jnp.full((count, *element), _initial(kind, data.dtype) if start is None else start, data.dtype)
    if any(d == 0 for d in (count, *data.shape)):
        return initial
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(ids.ndim, data.ndim)),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )

    def scattered(initial: Any, data: Any) -> Any:
        return _SCATTERS[kind](initial, ids[..., None], data, numbers, mode=_DROP)

    return in_float32(scattered, initial, data) if kind == "Sum" else scattered(initial, data)


def per_slice(ids: Any, like: Any) -> Any:
    """Return an array of one value for each id with the rank of the data."""
    return ids.reshape(ids.shape + (1,) * (like.ndim - ids.ndim))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _extreme(data: Any, ids: Any, kind: str, count: Any, start: Any) -> Any:
    return _scatter(kind, data, ids, count, start)


@_extreme.defjvp
def _extreme_jvp(kind: str, count: Any, start: Any, primals: Any, tangents: Any) -> Any:
    # The elements that equal the result share its gradient.
    data, ids = primals
    out = _extreme(data, ids, kind, count, start)
    chosen = lax.convert_element_type(lax.eq(data, take(out, ids, 0)), out.dtype)
    number = lax.max(_scatter("Sum", chosen, ids, count), lax.full_like(out, 1))
    total = _scatter("Sum", lax.mul(tangents[0], chosen), ids, count)
    return out, lax.div(total, number)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _product(data: Any, ids: Any, count: Any) -> Any:
    return _scatter("Prod", data, ids, count)


@_product.defjvp
def _product_jvp(count: Any, primals: Any, tangents: Any) -> Any:
    # The derivative is the product of the other elements: divide by the element, unless it is the only zero.
    data, ids = primals
    out = _product(data, ids, count)
    zero = lax.eq(data, lax.full_like(data, 0))
    filled = lax.select(zero, lax.full_like(data, 1), data)
    zeros = take(_scatter("Sum", lax.convert_element_type(zero, np.int32), ids, count), ids, 0)
    others = take(_product(filled, ids, count), ids, 0)
    partial = lax.select(zero, others, lax.div(take(out, ids, 0), filled))
    partial = lax.select(lax.gt(zeros, lax.full_like(zeros, 1)), lax.full_like(partial, 0), partial)
    return out, _scatter("Sum", lax.mul(tangents[0], partial), ids, count)


def segment_reduce(kind: str, data: Any, ids: Any, count: Any, start: Any = None) -> Any:
    """Reduce data over segments, with TensorFlow's gradients.

    NaN makes the maximum or minimum of its segment NaN; TensorFlow's CPU kernel drops NaN if another element follows.

    Args:
      kind: "Sum", "Prod", "Max" or "Min".
      data: an array whose shape starts with that of ``ids``.
      ids: the segment of each slice; those outside of ``[0, count)`` are dropped.
      count: the number of segments.
      start: value of an empty segment, instead of the reduction's initial value.
    """
    data, ids = jnp.asarray(data), jnp.asarray(ids)
    if kind in ("Max", "Min") and jnp.issubdtype(data.dtype, jnp.floating):
        return _extreme(data, ids, kind, count, start)
    if kind == "Prod" and jnp.issubdtype(data.dtype, jnp.inexact):
        return _product(data, ids, count)
    return _scatter(kind, data, ids, count)


def segment_sizes(ids: Any, count: Any) -> Any:
    """Return the number of elements of each segment, int32."""
    return _scatter("Sum", jnp.ones(ids.shape, np.int32), jnp.asarray(ids), count)


# --- Unsorted


def _unsorted(kind: str, data: Any, segment_ids: Any, num_segments: Any) -> Any:
    if tuple(data.shape[: segment_ids.ndim]) != tuple(segment_ids.shape):
        raise OpError(f"data of shape {data.shape} does not start with the shape {segment_ids.shape} of segment_ids")
    if np.size(num_segments) != 1:
        raise OpError("num_segments must be one number")
    (count,) = dims(num_segments)
    if isinstance(count, int):
        if count < 0:
            raise OpError(f"num_segments must not be negative, got {count}")
        ids = static_value(segment_ids)
        if ids is not None and ids.size and ids.max() >= count:
            raise OpError(f"segment id {ids.max()} is out of range [0, {count})")
    return segment_reduce(kind, data, segment_ids, count)


@op("UnsortedSegmentSum", pattern=Pattern.MATERIALIZED)
def unsorted_segment_sum(data, segment_ids, num_segments: Static):
    """Sum segments.

    Args:
      num_segments: scalar int >= 0, the number of rows of the result.
    """
    return _unsorted("Sum", data, segment_ids, num_segments)


@op("UnsortedSegmentProd", pattern=Pattern.MATERIALIZED)
def unsorted_segment_prod(data, segment_ids, num_segments: Static):
    """Multiply segments.

    See `unsorted_segment_sum`.
    """
    return _unsorted("Prod", data, segment_ids, num_segments)


@op("UnsortedSegmentMax", pattern=Pattern.MATERIALIZED)
def unsorted_segment_max(data, segment_ids, num_segments: Static):
    """Return the maximum of segments.

    See `unsorted_segment_sum`.
    """
    return _unsorted("Max", data, segment_ids, num_segments)


@op("UnsortedSegmentMin", pattern=Pattern.MATERIALIZED)
def unsorted_segment_min(data, segment_ids, num_segments: Static):
    """Return the minimum of segments.

    See `unsorted_segment_sum`.
    """
    return _unsorted("Min", data, segment_ids, num_segments)


# --- Sorted


def check_ids(segment_ids: Any, length: Any, limit: int | None = None) -> None:
    """Check static ids as TensorFlow does."""
    if segment_ids.ndim != 1:
        raise OpError(f"segment_ids must be a vector, not of rank {segment_ids.ndim}")
    if segment_ids.shape[0] != length:
        raise OpError(f"{segment_ids.shape[0]} segment_ids for {length} rows")
    ids = static_value(segment_ids)
    if ids is None or not ids.size:
        return
    if np.any(ids[1:] < ids[:-1]):
        raise OpError("segment ids are not increasing")
    if ids[0] < 0:
        raise OpError(f"segment id {ids[0]} is negative")
    if limit is not None and ids[-1] >= limit:
        raise OpError(f"segment id {ids[-1]} is out of range [0, {limit})")


def segment_count(segment_ids: Any, bound: int | DynamicShapes | None) -> Any:
    """Return the number of segments: the last id + 1, or the bound."""
    # A data-dependent number is assumed to be at most the number of rows, which holds unless many segments are empty.
    ids = static_value(segment_ids)
    if ids is not None:
        return int(ids[-1]) + 1 if ids.size else 0
    if isinstance(bound, DynamicShapes):
        (length,) = segment_ids.shape
        if (rows := bound.row_count_of_ids(segment_ids)) is not None:
            return rows
        largest = lax.reduce_max(segment_ids, axes=(0,))
        return bound.as_dim(lax.add(largest, lax.full_like(largest, 1)), length) if length != 0 else 0
    if bound is None:
        raise UnboundedError("the number of segments depends on traced segment_ids")
    return bound


def _zero_if_empty(y: Any, ids: Any, count: Any) -> Any:
    """Return ``y`` with zeros for empty segments."""
    return jnp.where(per_slice(segment_sizes(ids, count) > 0, y), y, jnp.zeros((), y.dtype))


def _sorted(kind: str, data: Any, segment_ids: Any, bound: int | DynamicShapes | None) -> Any:
    if data.ndim == 0:
        raise OpError("data must have at least one dimension")
    check_ids(segment_ids, data.shape[0])
    count = segment_count(segment_ids, bound)
    if kind == "Mean":
        return _mean(segment_reduce("Sum", data, segment_ids, count), segment_ids, count)
    if kind not in ("Max", "Min"):
        return segment_reduce(kind, data, segment_ids, count)
    # No finite start here, unlike `_unsorted`: a segment of infinities keeps them.
    infinite = jnp.issubdtype(data.dtype, jnp.floating)
    start = None if not infinite else -np.inf if kind == "Max" else np.inf
    return _zero_if_empty(segment_reduce(kind, data, segment_ids, count, start), segment_ids, count)


def _mean(total: Any, ids: Any, count: Any) -> Any:
    number = per_slice(jnp.maximum(segment_sizes(ids, count), 1), total)
    return lax.div(total, jnp.broadcast_to(lax.convert_element_type(number, total.dtype), total.shape))


@op("SegmentSum", pattern=Pattern.MATERIALIZED)
def segment_sum(data, segment_ids, *, bound: Bound):
    """Sum runs of rows.

    Args:
      segment_ids: ``[n]``, ascending ints >= 0. If traced, negative ones are dropped and the order is not checked.

    Returns:
      ``[count, ...]``, in which count is the last id + 1, or the bound; rows past it are empty segments.
    """
    return _sorted("Sum", data, segment_ids, bound)


@op("SegmentProd", pattern=Pattern.MATERIALIZED)
def segment_prod(data, segment_ids, *, bound: Bound):
    """Multiply runs of rows. See `segment_sum`."""
    return _sorted("Prod", data, segment_ids, bound)


@op("SegmentMax", pattern=Pattern.MATERIALIZED)
def segment_max(data, segment_ids, *, bound: Bound):
    """Return the maximum of runs of rows, 0 for empty ones.

    See `segment_sum`.
    """
    return _sorted("Max", data, segment_ids, bound)


@op("SegmentMin", pattern=Pattern.MATERIALIZED)
def segment_min(data, segment_ids, *, bound: Bound):
    """Return the minimum of runs of rows, 0 for empty ones.

    See `segment_sum`.
    """
    return _sorted("Min", data, segment_ids, bound)


@op("SegmentMean", pattern=Pattern.MATERIALIZED)
def segment_mean(data, segment_ids, *, bound: Bound):
    """Average runs of rows, integers towards zero.

    See `segment_sum`.
    """
    return _sorted("Mean", data, segment_ids, bound)


def _sorted_v2(kind: str, data: Any, segment_ids: Any, num_segments: Any) -> Any:
    if data.ndim == 0:
        raise OpError("data must have at least one dimension")
    (count,) = dims(num_segments)
    check_ids(segment_ids, data.shape[0], count if isinstance(count, int) else None)
    return segment_reduce(kind, data, segment_ids, count)


@op("SegmentSumV2", pattern=Pattern.MATERIALIZED)
def segment_sum_v2(data, segment_ids, num_segments: Static):
    """Sum runs of rows.

    TF: which TensorFlow has for XLA only.

    See `segment_sum`.

    Args:
      segment_ids: ``[n]``, ascending ints in ``[0, num_segments)``.
    """
    return _sorted_v2("Sum", data, segment_ids, num_segments)


@op("SegmentProdV2", pattern=Pattern.MATERIALIZED)
def segment_prod_v2(data, segment_ids, num_segments: Static):
    """Multiply runs of rows. See `segment_sum_v2`."""
    return _sorted_v2("Prod", data, segment_ids, num_segments)


@op("SegmentMaxV2", pattern=Pattern.MATERIALIZED)
def segment_max_v2(data, segment_ids, num_segments: Static):
    """Return the maximum of runs of rows.

    See `segment_sum_v2`.
    """
    return _sorted_v2("Max", data, segment_ids, num_segments)


@op("SegmentMinV2", pattern=Pattern.MATERIALIZED)
def segment_min_v2(data, segment_ids, num_segments: Static):
    """Return the minimum of runs of rows.

    See `segment_sum_v2`.
    """
    return _sorted_v2("Min", data, segment_ids, num_segments)


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


def _sparse_grad_v2(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: Any, bound: Any) -> Any:
    static = static_value(indices)
    limit = static_value(rows)
    if static is not None:
        if limit is not None:
            _check_rows(indices, int(limit))
        unique, row = np.unique(static, return_inverse=True)
        row = row.reshape(-1).astype(np.int32)
    else:
        size = row_capacity(bound, indices.shape[0], "the number of distinct indices depends on traced values")
        # Padding is the index of a row past the end, which a scatter drops.
        past = np.iinfo(indices.dtype).max if limit is None else int(limit)
        unique = jnp.unique(indices, size=size, fill_value=past)
        row = jnp.searchsorted(unique, indices).astype(np.int32)
        (unique,) = truncate_rows(bound, lambda: jnp.count_nonzero(unique != past), unique, of=(indices,))
    unique = jnp.asarray(unique, indices.dtype)
    return _sparse_grad(kind, grad, row, segment_ids, unique.shape[0]), unique


def _register(kind: str) -> None:
    name = f"SparseSegment{kind}"

    @op(name)
    def call(data, indices, segment_ids, *, sparse_gradient=False, bound: Bound):
        """Reduce gathered rows by segment. TF: segment_reduction_ops_impl.h.

        Args:
          indices: ``[m]``, rows of ``data``; out of range see `take`.
          segment_ids: ``[m]``, ascending ints; see `segment_sum`.
        """
        del sparse_gradient
        return _sparse(kind, data, indices, segment_ids, segment_count(segment_ids, bound))

    @op(f"{name}WithNumSegments")
    def of_number(data, indices, segment_ids, num_segments: Static, *, sparse_gradient=False):
        """Reduce gathered rows by one of ``num_segments`` segments. See `call`."""
        del sparse_gradient
        return _sparse(kind, data, indices, segment_ids, dims(num_segments)[0])

    @op(f"{name}Grad")
    def grad(grad, indices, segment_ids, output_dim0: Static):
        """Return the gradient of `call`. TF: segment_reduction_ops_impl.h."""
        return _sparse_grad(kind, grad, indices, segment_ids, dims(output_dim0)[0])

    @op(f"{name}GradV2")
    def grad_of_rows(grad, indices, segment_ids, dense_output_dim0, *, bound: Bound):
        """Return the gradient of `call` for the rows in use.

        Returns:
          The gradients of the rows, and the distinct indices of the rows, in ascending order.
        """
        return _sparse_grad_v2(kind, grad, indices, segment_ids, dense_output_dim0, bound)


for _kind in ("Sum", "Mean", "SqrtN"):
    _register(_kind)
