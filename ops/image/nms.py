"""Non-maximum suppression, nearest neighbours and isotonic regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from ._greedy_nms import intersection_over_union, suppress, suppress_by_class

_F32 = np.float32


def _checked(boxes: Any, scores: Any, limit: Any, threshold: Any) -> int:
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise OpError(f"boxes are rows of 4, not of shape {tuple(boxes.shape)}")
    if scores.ndim != 1:
        raise OpError(f"scores are a vector, not of rank {scores.ndim}")
    if int(limit) < 0:
        raise OpError("output size must be non-negative")
    value = static_value(threshold)
    if value is not None and not 0 <= float(value) <= 1:
        raise OpError(f"iou_threshold must be in [0, 1], not {float(value)}")
    return int(limit)


def _run(
    boxes: Any,
    scores: Any,
    limit: Any,
    threshold: Any,
    least: Any,
    sigma: Any,
    bound: int | DynamicShapes | None,
    padded: bool,
) -> tuple[Any, Any, Any]:
    count = _checked(boxes, scores, limit, threshold)
    given = None if sigma is None else static_value(sigma)
    if given is not None and not float(given) > 0:
        sigma = None

    def best(boxes: Any, scores: Any, threshold: Any, least: Any, sigma: Any, count: int) -> Any:
        boxes, scores = jnp.asarray(boxes), jnp.asarray(scores)
        threshold, least = jnp.asarray(threshold).astype(scores.dtype), jnp.asarray(least).astype(scores.dtype)
        return suppress(scores, intersection_over_union(boxes), count, threshold, least, sigma)

    if padded:
        return best(boxes, scores, threshold, least, sigma, count)
    return _dynamic(best, (boxes, scores, threshold, least, sigma), count, bound)


def _dynamic(
    best: Callable[..., Any], inputs: tuple[Any, ...], count: int, bound: int | DynamicShapes | None
) -> tuple[Any, Any, Any]:
    """Returns only the valid results where inputs are known; else the bound's number, the index of padding being -1."""
    values = [None if v is None else static_value(v) for v in inputs]
    if all(v is None or k is not None for v, k in zip(inputs, values, strict=True)):
        with jax.ensure_compile_time_eval():
            indices, chosen, valid = (np.asarray(v) for v in best(*values, min(count, inputs[0].shape[0])))
        return indices[: int(valid)], chosen[: int(valid)], valid
    size = row_capacity(bound, count, "how many boxes stay depends on traced values")
    indices, chosen, valid = best(*inputs, min(count, size))
    indices = jnp.where(lax.iota(np.int32, indices.shape[0]) < valid, indices, -1)
    return *truncate_rows(bound, lambda: valid, indices, chosen, of=(indices,)), valid


@op("NonMaxSuppression", dynamic_shape="prefix")
def non_max_suppression(
    boxes: Any, scores: Any, max_output_size: Static, *, iou_threshold: float = 0.5, bound: int | DynamicShapes | None
) -> Any:
    """Selects boxes that do not overlap. See tf.raw_ops.NonMaxSuppression.

    With traced inputs there are as many results as ``dynamic_shape_bound`` or ``max_output_size`` says; -1 is padding.
    """
    least = np.finfo(_F32).min
    return _run(boxes, scores, max_output_size, _F32(iou_threshold), least, None, bound, False)[0]


@op("NonMaxSuppressionV2", dynamic_shape="prefix")
def non_max_suppression_v2(
    boxes: Any, scores: Any, max_output_size: Static, iou_threshold: Any, *, bound: int | DynamicShapes | None
) -> Any:
    """Selects boxes that do not overlap. See tf.raw_ops.NonMaxSuppressionV2 and `non_max_suppression`."""
    least = jnp.finfo(scores.dtype).min
    return _run(boxes, scores, max_output_size, iou_threshold, least, None, bound, False)[0]


@op("NonMaxSuppressionV3", dynamic_shape="prefix")
def non_max_suppression_v3(
    boxes: Any,
    scores: Any,
    max_output_size: Static,
    iou_threshold: Any,
    score_threshold: Any,
    *,
    bound: int | DynamicShapes | None,
) -> Any:
    """Selects boxes that do not overlap. See tf.raw_ops.NonMaxSuppressionV3 and `non_max_suppression`."""
    return _run(boxes, scores, max_output_size, iou_threshold, score_threshold, None, bound, False)[0]


@op("NonMaxSuppressionV4", dynamic_shape="prefix")
def non_max_suppression_v4(
    boxes: Any,
    scores: Any,
    max_output_size: Static,
    iou_threshold: Any,
    score_threshold: Any,
    *,
    pad_to_max_output_size: bool = False,
    bound: int | DynamicShapes | None,
) -> tuple[Any, Any]:
    """Selects boxes that do not overlap, and counts them. See tf.raw_ops.NonMaxSuppressionV4, `non_max_suppression`."""
    args = (boxes, scores, max_output_size, iou_threshold, score_threshold, None, bound, pad_to_max_output_size)
    indices, _, valid = _run(*args)
    return indices, valid


@op("NonMaxSuppressionV5", dynamic_shape="prefix")
def non_max_suppression_v5(
    boxes: Any,
    scores: Any,
    max_output_size: Static,
    iou_threshold: Any,
    score_threshold: Any,
    soft_nms_sigma: Any,
    *,
    pad_to_max_output_size: bool = False,
    bound: int | DynamicShapes | None,
) -> tuple[Any, Any, Any]:
    """Selects boxes, lowering the scores of those that overlap. See tf.raw_ops.NonMaxSuppressionV5.

    See `non_max_suppression` for traced inputs. With ``soft_nms_sigma`` 0 boxes that overlap are dropped.
    """
    args = (boxes, scores, max_output_size, iou_threshold, score_threshold)
    return _run(*args, soft_nms_sigma, bound, pad_to_max_output_size)


@op("NonMaxSuppressionWithOverlaps", dynamic_shape="prefix")
def non_max_suppression_with_overlaps(
    overlaps: Any,
    scores: Any,
    max_output_size: Static,
    overlap_threshold: Any,
    score_threshold: Any,
    *,
    bound: int | DynamicShapes | None,
) -> Any:
    """Selects what does not overlap, by given overlaps. See tf.raw_ops.NonMaxSuppressionWithOverlaps.

    See `non_max_suppression` for traced inputs.
    """
    if overlaps.ndim != 2 or overlaps.shape[0] != overlaps.shape[1]:
        raise OpError(f"overlaps must be a square matrix, not of shape {tuple(overlaps.shape)}")
    if int(max_output_size) < 0:
        raise OpError("output size must be non-negative")

    def best(overlaps: Any, scores: Any, threshold: Any, least: Any, count: int) -> Any:
        overlaps, scores = jnp.asarray(overlaps), jnp.asarray(scores)
        return suppress(scores, lambda i: overlaps[:, i], count, threshold, least)

    inputs = (overlaps, scores, overlap_threshold, score_threshold)
    return _dynamic(best, inputs, int(max_output_size), bound)[0]


@op("CombinedNonMaxSuppression")
def combined_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size_per_class: Static,
    max_total_size: Static,
    iou_threshold: Any,
    score_threshold: Any,
    *,
    pad_per_class: bool = False,
    clip_boxes: bool = True,
) -> tuple[Any, Any, Any, Any]:
    """Suppresses boxes per class, and keeps the best of each image. See tf.raw_ops.CombinedNonMaxSuppression.

    Equal scores go by class and index; in TensorFlow their order is open.
    """
    boxes, scores = jnp.asarray(boxes), jnp.asarray(scores)
    if boxes.ndim != 4 or boxes.shape[3] != 4 or scores.ndim != 3:
        raise OpError(f"boxes of rank 4 and scores of rank 3 are needed, not {boxes.shape} and {scores.shape}")
    per_class, total = int(max_output_size_per_class), int(max_total_size)
    if per_class <= 0 or total <= 0:
        raise OpError("max_size_per_class and max_total_size must be positive")
    number, groups, classes = boxes.shape[1], boxes.shape[2], scores.shape[2]
    if groups not in (1, classes):
        raise OpError(f"boxes have {groups} classes and scores {classes}")
    count = min(per_class, number)
    wanted = min(total, per_class * classes) if pad_per_class else total
    threshold, least = jnp.asarray(iou_threshold), jnp.asarray(score_threshold)
    if number == 0 or classes == 0:
        nothing = jnp.zeros((boxes.shape[0], wanted), scores.dtype)
        return jnp.zeros((*nothing.shape, 4), boxes.dtype), nothing, nothing, jnp.zeros(boxes.shape[:1], np.int32)

    def one_image(boxes: Any, scores: Any) -> tuple[Any, Any, Any, Any]:
        boxes, scores = jnp.moveaxis(boxes, 1, 0), scores.T
        which, box, valid = suppress_by_class(boxes, scores, count, wanted, threshold, least)
        live = lax.iota(np.int32, wanted) < valid
        corners = boxes[which if groups > 1 else 0, box]
        corners = jnp.clip(corners, 0, 1) if clip_boxes else corners
        best, label = scores[which, box], which.astype(_F32)
        return jnp.where(live[:, None], corners, 0), jnp.where(live, best, 0), jnp.where(live, label, 0), valid

    if boxes.shape[0] == 1:
        return tuple(v[None] for v in one_image(boxes[0], scores[0]))
    return lax.map(lambda image: one_image(*image), (boxes, scores))


@op("NearestNeighbors")
def nearest_neighbors(points: Any, centers: Any, k: Static) -> tuple[Any, Any]:
    """Returns the nearest centers of each point, and squared distances. See tf.raw_ops.NearestNeighbors."""
    points, centers = jnp.asarray(points), jnp.asarray(centers)
    if points.ndim != 2 or centers.ndim != 2:
        raise OpError(f"matrices are needed, not ranks {points.ndim} and {centers.ndim}")
    if int(k) <= 0:
        raise OpError("k must be positive")
    product = lax.dot_general(points, centers, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
    norms = jnp.sum(centers * centers, 1)[None, :] + jnp.sum(points * points, 1)[:, None]
    nearest, index = lax.top_k(2 * product - norms, min(int(k), centers.shape[0]))
    return index.astype(canonical(np.int64)), jnp.maximum(-nearest, 0)


def _pooled(rows: Any) -> Any:
    """Returns the segment of each element after pooling adjacent violators (a later mean above an earlier one).

    Every row has a stack of segments. A step puts a row's last segment, the only one that changes, on its stack, and
    either merges it with the one before or begins the next, so that twice as many steps as there are columns do.
    """
    count, size = rows.shape
    row = lax.iota(np.int32, count)

    def step(_: Any, state: Any) -> Any:
        sums, lengths, top, column, total, length = state
        sums, lengths = (
            stack.at[row, top].set(own, mode="promise_in_bounds", unique_indices=True)
            for stack, own in ((sums, total), (lengths, length))
        )
        before = (row, jnp.maximum(top - 1, 0))
        sum_before, length_before = (stack.at[before].get(mode="promise_in_bounds") for stack in (sums, lengths))
        merge = (top > 0) & (total / length > sum_before / length_before)
        begin = ~merge & (column < size)
        value = rows.at[row, jnp.minimum(column, size - 1)].get(mode="promise_in_bounds")
        total = jnp.where(merge, sum_before + total, jnp.where(begin, value, total))
        length = jnp.where(merge, length_before + length, jnp.where(begin, 1, length))
        move = begin.astype(np.int32)
        return sums, lengths, top + move - merge.astype(np.int32), column + move, total, length

    zeros, ones = jnp.zeros((count,), np.int32), jnp.ones((count,), np.int32)
    start = (jnp.zeros_like(rows), jnp.ones_like(rows), zeros, ones, rows[:, 0], ones.astype(rows.dtype))
    _, lengths, top, *_ = fori_loop(0, 2 * size - 1, step, start)
    lengths = jnp.where(lax.iota(np.int32, size) <= top[:, None], lengths, 0).astype(np.int32)
    ends = jnp.cumsum(lengths, 1, dtype=np.int32)
    after = jnp.zeros(rows.shape, np.int32).at[row[:, None], ends].add(1, mode="drop")
    return jnp.cumsum(after, 1, dtype=np.int32)


@op("IsotonicRegression")
def isotonic_regression(input: Any, *, output_dtype: Any = np.float32) -> tuple[Any, Any]:
    """The nearest sequences that never increase, along the last axis. See tf.raw_ops.IsotonicRegression."""
    values = jnp.asarray(input)
    if values.ndim < 1:
        raise OpError("the input must have a dimension")
    dtype = canonical(output_dtype)
    wide = values.astype(np.promote_types(dtype, _F32) if jnp.issubdtype(dtype, jnp.floating) else dtype)
    rows = wide.reshape(-1, wide.shape[-1]) if wide.size else wide
    if not wide.size:
        return values.astype(dtype), jnp.zeros(values.shape, np.int32)
    segments = _pooled(lax.stop_gradient(rows))

    def means(row: Any, segment: Any) -> Any:
        zeros = jnp.zeros_like(row)
        return (zeros.at[segment].add(row) / jnp.maximum(zeros.at[segment].add(1), 1))[segment]

    result = jax.vmap(means)(rows, segments)
    return result.reshape(values.shape).astype(dtype), segments.reshape(values.shape)
