"""Segment reductions."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, static_value

_DROP = lax.GatherScatterMode.FILL_OR_DROP
_FOLD = {"Sum": lax.scatter_add, "Prod": lax.scatter_mul, "Max": lax.scatter_max, "Min": lax.scatter_min}


def _initial(kind: str, dtype: Any) -> Any:
    """What a segment without elements holds: for max and min the worst finite value, as in TensorFlow."""
    if kind in ("Sum", "Prod"):
        return 0 if kind == "Sum" else 1
    info = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.inexact) else np.iinfo(dtype)
    return info.min if kind == "Max" else info.max


def _scatter(kind: str, data: Any, ids: Any, count: Any, start: Any = None) -> Any:
    """Folds slices of ``data`` into ``count`` segments; ids outside ``[0, count)`` are dropped."""
    element = data.shape[ids.ndim :]
    initial = jnp.full((count, *element), _initial(kind, data.dtype) if start is None else start, data.dtype)
    if any(d == 0 for d in (count, *data.shape)):
        return initial
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(ids.ndim, data.ndim)),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )

    def folded(initial: Any, data: Any) -> Any:
        return _FOLD[kind](initial, ids[..., None], data, numbers, mode=_DROP)

    return in_float32(folded, initial, data) if kind == "Sum" else folded(initial, data)


def _wide(ids: Any, like: Any) -> Any:
    """Gives a per-id mask the rank of the data."""
    return ids.reshape(ids.shape + (1,) * (like.ndim - ids.ndim))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _extreme(data: Any, ids: Any, kind: str, count: Any, start: Any) -> Any:
    return _scatter(kind, data, ids, count, start)


@_extreme.defjvp
def _extreme_jvp(kind: str, count: Any, start: Any, primals: Any, tangents: Any) -> Any:
    # The gradient goes in equal parts to the elements that equal the result.
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
    # The product of the others: divide by the element, unless it is the only zero of its segment.
    data, ids = primals
    out = _product(data, ids, count)
    zero = lax.eq(data, lax.full_like(data, 0))
    filled = lax.select(zero, lax.full_like(data, 1), data)
    zeros = take(_scatter("Sum", lax.convert_element_type(zero, np.int32), ids, count), ids, 0)
    others = take(_product(filled, ids, count), ids, 0)
    partial = lax.select(zero, others, lax.div(take(out, ids, 0), filled))
    partial = lax.select(lax.gt(zeros, lax.full_like(zeros, 1)), lax.full_like(partial, 0), partial)
    return out, _scatter("Sum", lax.mul(tangents[0], partial), ids, count)


def fold(kind: str, data: Any, ids: Any, count: Any, start: Any = None) -> Any:
    """Reduces data over segments; ids outside ``[0, count)`` are dropped; gradients are TensorFlow's.

    NaN makes the largest or smallest of its segment NaN (TensorFlow on CPU forgets it when another element follows).
    """
    data, ids = jnp.asarray(data), jnp.asarray(ids)
    if kind in ("Max", "Min") and jnp.issubdtype(data.dtype, jnp.floating):
        return _extreme(data, ids, kind, count, start)
    if kind == "Prod" and jnp.issubdtype(data.dtype, jnp.inexact):
        return _product(data, ids, count)
    return _scatter(kind, data, ids, count)


def _counts(ids: Any, count: Any) -> Any:
    return _scatter("Sum", jnp.ones(ids.shape, np.int32), jnp.asarray(ids), count)


# ---- unsorted ----


def _unsorted(kind: str, data: Any, segment_ids: Any, num_segments: Any) -> Any:
    if tuple(data.shape[: segment_ids.ndim]) != tuple(segment_ids.shape):
        raise OpError(f"data of shape {data.shape} does not start with the shape {segment_ids.shape} of segment_ids")
    if np.size(num_segments) != 1:
        raise OpError("num_segments must be one number")
    (count,) = dims(num_segments)
    if isinstance(count, int):
        if count < 0:
            raise OpError(f"num_segments must not be negative, got {count}")
        found = static_value(segment_ids)
        if found is not None and found.size and found.max() >= count:
            raise OpError(f"segment id {found.max()} is out of range [0, {count})")
    return fold(kind, data, segment_ids, count)


@op("UnsortedSegmentSum", stored=True)
def unsorted_segment_sum(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Sums segments. See tf.raw_ops.UnsortedSegmentSum.

    Negative ids are dropped, as in TensorFlow; so are traced ids that are too large (an error in TensorFlow).
    """
    return _unsorted("Sum", data, segment_ids, num_segments)


@op("UnsortedSegmentProd", stored=True)
def unsorted_segment_prod(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Multiplies segments. See tf.raw_ops.UnsortedSegmentProd and `unsorted_segment_sum`."""
    return _unsorted("Prod", data, segment_ids, num_segments)


@op("UnsortedSegmentMax", stored=True)
def unsorted_segment_max(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Largest of segments. See tf.raw_ops.UnsortedSegmentMax and `unsorted_segment_sum`."""
    return _unsorted("Max", data, segment_ids, num_segments)


@op("UnsortedSegmentMin", stored=True)
def unsorted_segment_min(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Smallest of segments. See tf.raw_ops.UnsortedSegmentMin and `unsorted_segment_sum`."""
    return _unsorted("Min", data, segment_ids, num_segments)


# ---- sorted ----


def _check_ids(segment_ids: Any, length: Any, limit: int | None = None) -> None:
    """Checks what TensorFlow checks, as far as the ids are known."""
    if segment_ids.ndim != 1:
        raise OpError(f"segment_ids must be a vector, not of rank {segment_ids.ndim}")
    if segment_ids.shape[0] != length:
        raise OpError(f"{segment_ids.shape[0]} segment_ids for {length} rows")
    found = static_value(segment_ids)
    if found is None or not found.size:
        return
    if np.any(found[1:] < found[:-1]):
        raise OpError("segment ids are not increasing")
    if found[0] < 0:
        raise OpError(f"segment id {found[0]} is negative")
    if limit is not None and found[-1] >= limit:
        raise OpError(f"segment id {found[-1]} is out of range [0, {limit})")


def _number(segment_ids: Any, bound: int | DynamicShapes | None) -> Any:
    """Returns the number of segments: one more than the last id, or the bound.

    As a size that data decides it is taken to be no more than there are rows, which is so unless many are empty.
    """
    found = static_value(segment_ids)
    if found is not None:
        return int(found[-1]) + 1 if found.size else 0
    if isinstance(bound, DynamicShapes):
        (length,) = segment_ids.shape
        if (rows := bound.row_count_of_ids(segment_ids)) is not None:
            return rows
        largest = lax.reduce_max(segment_ids, axes=(0,))
        return bound.as_dim(lax.add(largest, lax.full_like(largest, 1)), length) if length != 0 else 0
    if bound is None:
        raise UnboundedError("the number of segments depends on traced segment_ids")
    return bound


def _blank(y: Any, ids: Any, count: Any) -> Any:
    """Zeros for segments without elements."""
    return jnp.where(_wide(_counts(ids, count) > 0, y), y, jnp.zeros((), y.dtype))


def _sorted(kind: str, data: Any, segment_ids: Any, bound: int | DynamicShapes | None) -> Any:
    if data.ndim == 0:
        raise OpError("data must have at least one dimension")
    _check_ids(segment_ids, data.shape[0])
    count = _number(segment_ids, bound)
    if kind == "Mean":
        return _mean(fold("Sum", data, segment_ids, count), segment_ids, count)
    if kind not in ("Max", "Min"):
        return fold(kind, data, segment_ids, count)
    # No finite start here, unlike `_unsorted`: a segment of infinities keeps them.
    infinite = jnp.issubdtype(data.dtype, jnp.floating)
    start = None if not infinite else -np.inf if kind == "Max" else np.inf
    return _blank(fold(kind, data, segment_ids, count, start), segment_ids, count)


def _mean(total: Any, ids: Any, count: Any) -> Any:
    number = _wide(jnp.maximum(_counts(ids, count), 1), total)
    return lax.div(total, jnp.broadcast_to(lax.convert_element_type(number, total.dtype), total.shape))


@op("SegmentSum", dynamic_shape="prefix", stored=True)
def segment_sum(data: Any, segment_ids: Any, *, bound: int | DynamicShapes | None) -> Any:
    """Sums runs of rows. See tf.raw_ops.SegmentSum.

    With traced ids the result has as many rows as the largest says, a size that data decides, or ``bound`` rows, those
    past the last segment as empty segments are; ids that do not increase are then not noticed, and negative ones are
    dropped.
    """
    return _sorted("Sum", data, segment_ids, bound)


@op("SegmentProd", dynamic_shape="prefix", stored=True)
def segment_prod(data: Any, segment_ids: Any, *, bound: int | DynamicShapes | None) -> Any:
    """Multiplies runs of rows. See tf.raw_ops.SegmentProd and `segment_sum`."""
    return _sorted("Prod", data, segment_ids, bound)


@op("SegmentMax", dynamic_shape="prefix", stored=True)
def segment_max(data: Any, segment_ids: Any, *, bound: int | DynamicShapes | None) -> Any:
    """Largest of runs of rows; 0 for empty ones. See tf.raw_ops.SegmentMax and `segment_sum`."""
    return _sorted("Max", data, segment_ids, bound)


@op("SegmentMin", dynamic_shape="prefix", stored=True)
def segment_min(data: Any, segment_ids: Any, *, bound: int | DynamicShapes | None) -> Any:
    """Smallest of runs of rows; 0 for empty ones. See tf.raw_ops.SegmentMin and `segment_sum`."""
    return _sorted("Min", data, segment_ids, bound)


@op("SegmentMean", dynamic_shape="prefix", stored=True)
def segment_mean(data: Any, segment_ids: Any, *, bound: int | DynamicShapes | None) -> Any:
    """Averages runs of rows; integers divide towards zero. See tf.raw_ops.SegmentMean and `segment_sum`."""
    return _sorted("Mean", data, segment_ids, bound)


def _sorted_v2(kind: str, data: Any, segment_ids: Any, num_segments: Any) -> Any:
    if data.ndim == 0:
        raise OpError("data must have at least one dimension")
    (count,) = dims(num_segments)
    _check_ids(segment_ids, data.shape[0], count if isinstance(count, int) else None)
    return fold(kind, data, segment_ids, count)


@op("SegmentSumV2", stored=True)
def segment_sum_v2(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Sums runs of rows. TensorFlow has it for XLA only. See tf.raw_ops.SegmentSumV2."""
    return _sorted_v2("Sum", data, segment_ids, num_segments)


@op("SegmentProdV2", stored=True)
def segment_prod_v2(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Multiplies runs of rows. TensorFlow has it for XLA only. See tf.raw_ops.SegmentProdV2."""
    return _sorted_v2("Prod", data, segment_ids, num_segments)


@op("SegmentMaxV2", stored=True)
def segment_max_v2(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Largest of runs of rows. TensorFlow has it for XLA only. See tf.raw_ops.SegmentMaxV2."""
    return _sorted_v2("Max", data, segment_ids, num_segments)


@op("SegmentMinV2", stored=True)
def segment_min_v2(data: Any, segment_ids: Any, num_segments: Static) -> Any:
    """Smallest of runs of rows. TensorFlow has it for XLA only. See tf.raw_ops.SegmentMinV2."""
    return _sorted_v2("Min", data, segment_ids, num_segments)


# ---- sparse ----


def _scale(kind: str, ids: Any, count: Any, dtype: Any) -> Any:
    """Returns the divisor of each segment, in ``dtype``."""
    number = lax.convert_element_type(jnp.maximum(_counts(ids, count), 1), dtype)
    return lax.sqrt(number) if kind == "SqrtN" else number


def _sparse(kind: str, data: Any, indices: Any, segment_ids: Any, count: Any) -> Any:
    if data.ndim == 0:
        raise OpError("data must have at least one dimension")
    _check_ids(segment_ids, indices.shape[0], count if isinstance(count, int) else None)
    data = jnp.asarray(data)
    # TensorFlow, too, sums 16-bit floats in float32.
    half = data.dtype in (jnp.bfloat16, jnp.float16)
    rows = take(data, indices, 0)
    rows = lax.convert_element_type(rows, jnp.float32) if half else rows
    total = fold("Sum", rows, segment_ids, count)
    if kind != "Sum":
        scale = _wide(_scale(kind, segment_ids, count, total.dtype), total)
        total = lax.div(total, jnp.broadcast_to(scale, total.shape))
    return lax.convert_element_type(total, data.dtype) if half else total


@op("SparseSegmentSum", dynamic_shape="prefix")
def sparse_segment_sum(
    data: Any, indices: Any, segment_ids: Any, *, sparse_gradient: bool = False, bound: int | DynamicShapes | None
) -> Any:
    """Sums gathered rows by segment. See tf.raw_ops.SparseSegmentSum, `segment_sum` and `take`.

    ``sparse_gradient`` only chooses how TensorFlow represents the gradient.
    """
    del sparse_gradient
    return _sparse("Sum", data, indices, segment_ids, _number(segment_ids, bound))


@op("SparseSegmentMean", dynamic_shape="prefix")
def sparse_segment_mean(
    data: Any, indices: Any, segment_ids: Any, *, sparse_gradient: bool = False, bound: int | DynamicShapes | None
) -> Any:
    """Averages gathered rows by segment. See tf.raw_ops.SparseSegmentMean and `sparse_segment_sum`."""
    del sparse_gradient
    return _sparse("Mean", data, indices, segment_ids, _number(segment_ids, bound))


@op("SparseSegmentSqrtN", dynamic_shape="prefix")
def sparse_segment_sqrt_n(
    data: Any, indices: Any, segment_ids: Any, *, sparse_gradient: bool = False, bound: int | DynamicShapes | None
) -> Any:
    """Sums over the root of the number. See tf.raw_ops.SparseSegmentSqrtN and `sparse_segment_sum`."""
    del sparse_gradient
    return _sparse("SqrtN", data, indices, segment_ids, _number(segment_ids, bound))


@op("SparseSegmentSumWithNumSegments")
def sparse_segment_sum_n(
    data: Any, indices: Any, segment_ids: Any, num_segments: Static, *, sparse_gradient: bool = False
) -> Any:
    """Sums gathered rows by segment. See tf.raw_ops.SparseSegmentSumWithNumSegments."""
    del sparse_gradient
    return _sparse("Sum", data, indices, segment_ids, dims(num_segments)[0])


@op("SparseSegmentMeanWithNumSegments")
def sparse_segment_mean_n(
    data: Any, indices: Any, segment_ids: Any, num_segments: Static, *, sparse_gradient: bool = False
) -> Any:
    """Averages gathered rows by segment. See tf.raw_ops.SparseSegmentMeanWithNumSegments."""
    del sparse_gradient
    return _sparse("Mean", data, indices, segment_ids, dims(num_segments)[0])


@op("SparseSegmentSqrtNWithNumSegments")
def sparse_segment_sqrt_n_n(
    data: Any, indices: Any, segment_ids: Any, num_segments: Static, *, sparse_gradient: bool = False
) -> Any:
    """Sums over the root of the number. See tf.raw_ops.SparseSegmentSqrtNWithNumSegments."""
    del sparse_gradient
    return _sparse("SqrtN", data, indices, segment_ids, dims(num_segments)[0])


def _check_rows(indices: Any, rows: int) -> None:
    found = static_value(indices)
    if found is not None and found.size and not 0 <= found.min() <= found.max() < rows:
        raise OpError(f"indices {found.min()} to {found.max()} are out of range [0, {rows})")


def _sparse_grad(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: Any) -> Any:
    grad = jnp.asarray(grad)
    _check_ids(segment_ids, indices.shape[0])
    if isinstance(rows, int):
        _check_rows(indices, rows)
    if kind != "Sum":
        scale = _wide(_scale(kind, segment_ids, grad.shape[0], grad.dtype), grad)
        grad = lax.div(grad, jnp.broadcast_to(scale, grad.shape))
    return fold("Sum", take(grad, segment_ids, 0), indices, rows)


@op("SparseSegmentSumGrad")
def sparse_segment_sum_grad(grad: Any, indices: Any, segment_ids: Any, output_dim0: Static) -> Any:
    """Gradient of `sparse_segment_sum`. See tf.raw_ops.SparseSegmentSumGrad."""
    return _sparse_grad("Sum", grad, indices, segment_ids, dims(output_dim0)[0])


@op("SparseSegmentMeanGrad")
def sparse_segment_mean_grad(grad: Any, indices: Any, segment_ids: Any, output_dim0: Static) -> Any:
    """Gradient of `sparse_segment_mean`. See tf.raw_ops.SparseSegmentMeanGrad."""
    return _sparse_grad("Mean", grad, indices, segment_ids, dims(output_dim0)[0])


@op("SparseSegmentSqrtNGrad")
def sparse_segment_sqrt_n_grad(grad: Any, indices: Any, segment_ids: Any, output_dim0: Static) -> Any:
    """Gradient of `sparse_segment_sqrt_n`. See tf.raw_ops.SparseSegmentSqrtNGrad."""
    return _sparse_grad("SqrtN", grad, indices, segment_ids, dims(output_dim0)[0])


def _sparse_grad_v2(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: Any, bound: int | None) -> Any:
    found = static_value(indices)
    limit = static_value(rows)
    if found is not None:
        if limit is not None:
            _check_rows(indices, int(limit))
        unique, place = np.unique(found, return_inverse=True)
        place = place.reshape(-1).astype(np.int32)
    elif bound is None:
        raise UnboundedError("the number of distinct indices depends on traced values")
    else:
        # Padding repeats nothing: it names a row past the end, which a scatter drops.
        past = np.iinfo(indices.dtype).max if limit is None else int(limit)
        unique = jnp.unique(indices, size=bound, fill_value=past)
        place = jnp.searchsorted(unique, indices).astype(np.int32)
    unique = jnp.asarray(unique, indices.dtype)
    return _sparse_grad(kind, grad, place, segment_ids, unique.shape[0]), unique


@op("SparseSegmentSumGradV2", dynamic_shape=True)
def sparse_segment_sum_grad_v2(
    grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, bound: int | None
) -> Any:
    """Gradient of `sparse_segment_sum`, of the rows used only. See tf.raw_ops.SparseSegmentSumGradV2."""
    return _sparse_grad_v2("Sum", grad, indices, segment_ids, dense_output_dim0, bound)


@op("SparseSegmentMeanGradV2", dynamic_shape=True)
def sparse_segment_mean_grad_v2(
    grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, bound: int | None
) -> Any:
    """Gradient of `sparse_segment_mean`, of the rows used only. See tf.raw_ops.SparseSegmentMeanGradV2."""
    return _sparse_grad_v2("Mean", grad, indices, segment_ids, dense_output_dim0, bound)


@op("SparseSegmentSqrtNGradV2", dynamic_shape=True)
def sparse_segment_sqrt_n_grad_v2(
    grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, bound: int | None
) -> Any:
    """Gradient of `sparse_segment_sqrt_n`, of the rows used only. See tf.raw_ops.SparseSegmentSqrtNGradV2."""
    return _sparse_grad_v2("SqrtN", grad, indices, segment_ids, dense_output_dim0, bound)
