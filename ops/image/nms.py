"""Non-maximum suppression ops: V1 to V5, with given overlaps, and combined.

The loop selects the best score and suppresses similar candidates. The loop ends when no candidate is left, in detection
long before the maximal number of selections. The selection is not differentiable, so that only values gathered
afterwards have derivatives. The exception are scores that soft suppression lowers: their loop has a static number of
steps, as reverse-mode differentiation requires.

TF: core/kernels/image/non_max_suppression_op.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound, ensure_length, is_data_dependent
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.loops.shard_map import fori_loop, while_loop
from tf2jax_lite.ops.registry import REQUIRED, Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, static_value

_F32 = np.float32


def _planes(boxes: Any) -> Any:
    """Return lower and upper coordinates of boxes, and areas: float32 [5, ...]."""
    # Structure of arrays, so that boxes are adjacent in memory for SIMD instructions.
    first, second = boxes[..., :2].astype(_F32), boxes[..., 2:].astype(_F32)
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    sides = high - low
    return materialize(jnp.stack([low[..., 0], low[..., 1], high[..., 0], high[..., 1], sides[..., 0] * sides[..., 1]]))


def _overlaps(planes: Any, own: Any) -> Any:
    """Return the intersection over union of boxes with others; 0 where an area is 0."""
    top, left, bottom, right, area = planes
    own_top, own_left, own_bottom, own_right, own_area = own
    height = jnp.maximum(jnp.minimum(bottom, own_bottom) - jnp.maximum(top, own_top), 0)
    width = jnp.maximum(jnp.minimum(right, own_right) - jnp.maximum(left, own_left), 0)
    intersection = height * width
    positive = (area > 0) & (own_area > 0)
    return jnp.where(positive, intersection / jnp.where(positive, area + own_area - intersection, 1), 0)


def intersection_over_union(boxes: Any) -> Callable[[Any], Any]:
    """Return a function from a box's index to its intersection over union with all."""
    planes = _planes(boxes)
    # Materialized: XLA would gather the box again for each comparison.
    return lambda best: _overlaps(planes, materialize(lax.dynamic_index_in_dim(ensure_length(planes, 1, 1), best, 1)))


def suppress(
    scores: Any, similarity: Callable[[Any], Any], count: int, threshold: Any, score_threshold: Any, sigma: Any = None
) -> tuple[Any, Any, Any]:
    """Select the best score up to ``count`` times, and suppress similar candidates.

    Similar candidates are dropped, or their scores are lowered. Of equal scores, the lower index is selected first.

    Args:
      scores: float [n]; NaN is never selected.
      similarity: a function from an int32 index to the similarity of all candidates with it, [n].
      threshold: scalar; candidates of larger similarity are dropped.
      score_threshold: scalar; only larger scores are selected.
      sigma: None, or a scalar: where it is positive, scores of similar candidates are lowered (soft suppression).

    Returns:
      int32 indices [count] and their scores [count], both 0 beyond the valid ones, and the int32 number of these.
    """
    dtype, size = scores.dtype, scores.shape[0]
    indices, valid = jnp.zeros((count,), np.int32), jnp.zeros((), np.int32)
    if count == 0 or size == 0:
        return indices, jnp.zeros((count,), dtype), valid
    numbers = lax.iota(np.int32, size)
    dropped = jnp.asarray(-np.inf, dtype)
    left = jnp.where(scores > score_threshold, scores, dropped)  # drops NaN, too
    if sigma is None:

        def drop(step: Any, left: Any, indices: Any) -> tuple[Any, ...]:
            best = _argmax(left)
            drops = (similarity(best).astype(dtype) > threshold) | (numbers == best)
            return jnp.where(drops, dropped, left), indices.at[step].set(best)

        start = (lax.stop_gradient(left), indices)
        _, indices, valid = _while(lambda left, _: jnp.any(left > dropped), drop, count, *start)
        return indices, jnp.where(lax.iota(np.int32, count) < valid, _gather(scores, indices), 0), valid
    soft = sigma > 0
    scale = jnp.asarray(-0.5, dtype) / jnp.where(soft, sigma, 1)

    def lower(step: Any, carry: Any) -> Any:
        left, indices, chosen, valid = carry
        best = _argmax(left)
        value = _gather(left, best)
        selects = value > dropped
        similar = similarity(best).astype(dtype)
        lowered = left * jnp.where(soft, jnp.exp(scale * similar * similar), 1)
        drops = (~soft & (similar > threshold)) | ~(lowered > score_threshold) | (numbers == best)
        left = jnp.where(selects, jnp.where(drops, dropped, lowered), left)
        indices, chosen = indices.at[step].set(best), chosen.at[step].set(jnp.where(selects, value, 0))
        return left, jnp.where(selects, indices, carry[1]), chosen, valid + selects.astype(np.int32)

    return fori_loop(0, count, lower, (left, indices, jnp.zeros((count,), dtype), valid))[1:]


def suppress_by_class(
    boxes: Any, scores: Any, per_class: int, total: int, threshold: Any, score_threshold: Any
) -> tuple[Any, Any, Any]:
    """Select the best scores of all classes, suppressing within each class.

    Each class drops boxes that overlap with its own selected ones. The result equals the classes' own selections merged
    by score, but the loop ends as soon as there are enough: each step changes one class only. Of equal scores, the
    lower class is selected first, then the lower index.

    Args:
      boxes: [classes, n, 4], or [1, n, 4] for all classes.
      threshold: scalar; boxes of larger intersection over union are dropped.
      score_threshold: scalar; only larger scores are selected.

    Returns:
      int32 classes [total] and boxes [total], both 0 beyond the valid ones, and the int32 number of these.
    """
    classes, size = scores.shape
    none = jnp.zeros((total,), np.int32)
    if classes == 0 or size == 0:
        return none, none, jnp.zeros((), np.int32)
    planes = _planes(lax.stop_gradient(boxes))
    dropped = jnp.asarray(-np.inf, scores.dtype)
    left = lax.stop_gradient(jnp.where(scores > score_threshold, scores, dropped))
    numbers = lax.iota(np.int32, size)

    def drop(step: Any, best: Any, argbest: Any, left: Any, counts: Any, labels: Any, chosen: Any) -> tuple[Any, ...]:
        label = _argmax(best)
        box = materialize(_gather(argbest, label))
        own = planes[:, 0] if planes.shape[1] == 1 else lax.dynamic_index_in_dim(planes, label, 1, keepdims=False)
        overlap = _overlaps(own, materialize(lax.dynamic_index_in_dim(own, box, 1))).astype(threshold.dtype)
        count = _gather(counts, label) + 1
        drops = (overlap > threshold) | (numbers == box) | (count >= per_class)
        row = materialize(jnp.where(drops, dropped, lax.dynamic_index_in_dim(left, label, 0, keepdims=False)))
        left = lax.dynamic_update_index_in_dim(left, row, label, 0)
        best, argbest = best.at[label].set(jnp.max(row)), argbest.at[label].set(_argmax(row))
        return best, argbest, left, counts.at[label].set(count), labels.at[step].set(label), chosen.at[step].set(box)

    start = (jnp.max(left, 1), _argmax(left), left, jnp.zeros((classes,), np.int32), none, none)
    *_, labels, chosen, valid = _while(lambda best, *_: jnp.any(best > dropped), drop, total, *start)
    return labels, chosen, valid


def _gather(values: Any, index: Any) -> Any:
    return ensure_length(values, 0, 1).at[index].get(mode="promise_in_bounds")


def _argmax(scores: Any) -> Any:
    """Return the index of the maximum along the last axis, the first of equal ones."""
    return materialize(lax.argmax(ensure_length(scores, scores.ndim - 1, 1), scores.ndim - 1, np.int32))


def _while(going: Callable[..., Any], step: Callable[..., tuple[Any, ...]], count: int, *start: Any) -> tuple[Any, ...]:
    """Return results of at most ``count`` steps while ``going``, and their number."""

    def body(state: Any) -> Any:
        number, *carry = state
        return number + 1, *step(number, *carry)

    state = (jnp.zeros((), np.int32), *start)
    number, *last = while_loop(lambda s: (s[0] < count) & going(*s[1:]), body, state)
    return *last, number


def _check(boxes: Any, scores: Any, limit: Any, threshold: Any) -> int | None:
    """Return the upper bound of the number of results."""
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise OpError(f"boxes are rows of 4, not of shape {tuple(boxes.shape)}")
    if scores.ndim != 1:
        raise OpError(f"scores are a vector, not of rank {scores.ndim}")
    value = static_value(threshold)
    if value is not None and not 0 <= float(value) <= 1:
        raise OpError(f"iou_threshold must be in [0, 1], not {float(value)}")
    (count,) = dims(limit)
    if is_data_dependent(count):
        return dim_upper_bound(count)
    if int(count) < 0:
        raise OpError("output size must be non-negative")
    return int(count)


def _run(
    *,
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any,
    bound: int | DynamicShapes | None,
    score_threshold: Any = None,
    soft_nms_sigma: Any = None,
    pad_to_max_output_size: bool = False,
) -> tuple[Any, Any, Any]:
    limit, threshold, sigma, padded = max_output_size, iou_threshold, soft_nms_sigma, pad_to_max_output_size
    threshold = _F32(threshold) if isinstance(threshold, float) else threshold
    score_threshold = jnp.finfo(scores.dtype).min if score_threshold is None else score_threshold
    count = _check(boxes, scores, limit, threshold)
    (allowed,) = dims(limit)
    if count is None or (padded and is_data_dependent(allowed)):
        raise OpError(
            "the output size depends on traced values" + (", and has no upper bound" if count is None else "")
        )
    static_sigma = None if sigma is None else static_value(sigma)
    if static_sigma is not None and not float(static_sigma) > 0:
        sigma = None

    def best(boxes: Any, scores: Any, threshold: Any, score_threshold: Any, sigma: Any, count: int) -> Any:
        boxes, scores = jnp.asarray(boxes), jnp.asarray(scores)
        threshold, score_threshold = (jnp.asarray(t).astype(scores.dtype) for t in (threshold, score_threshold))
        indices, chosen, valid = suppress(
            scores, intersection_over_union(boxes), count, threshold, score_threshold, sigma
        )
        if is_data_dependent(allowed):
            valid = jnp.minimum(valid, jnp.asarray(allowed).astype(np.int32))
        return indices, chosen, valid

    if padded:
        return best(boxes, scores, threshold, score_threshold, sigma, count)
    return _dynamic(best, (boxes, scores, threshold, score_threshold, sigma), count, bound)


def _dynamic(
    best: Callable[..., Any], inputs: tuple[Any, ...], count: int, bound: int | DynamicShapes | None
) -> tuple[Any, Any, Any]:
    """Return valid results; of traced inputs ``bound`` ones, padded with index -1."""
    values = [None if v is None else static_value(v) for v in inputs]
    if all(v is None or k is not None for v, k in zip(inputs, values, strict=True)):
        with jax.ensure_compile_time_eval():
            indices, chosen, valid = (np.asarray(v) for v in best(*values, min(count, inputs[0].shape[0])))
        return indices[: int(valid)], chosen[: int(valid)], valid
    size = row_capacity(bound, count, "the number of selected boxes depends on traced values")
    indices, chosen, valid = best(*inputs, min(count, size))
    indices = jnp.where(lax.iota(np.int32, indices.shape[0]) < valid, indices, -1)
    return *truncate_rows(bound, lambda: valid, indices, chosen, of=(indices,)), valid


_BOXES = "boxes scores max_output_size:Static"
_BOUND = {"bound:Bound": REQUIRED}
_PADDED = {"pad_to_max_output_size": False, **_BOUND}


@op("NonMaxSuppression", inputs=_BOXES, attributes={"iou_threshold": 0.5, **_BOUND})
@op("NonMaxSuppressionV2", inputs=f"{_BOXES} iou_threshold", attributes=_BOUND)
@op("NonMaxSuppressionV3", inputs=f"{_BOXES} iou_threshold score_threshold", attributes=_BOUND)
def non_max_suppression(**operands):
    """Select boxes of larger scores than a threshold, dropping those that overlap.

    Boxes are two opposite corners each; those of larger intersection over union than ``iou_threshold`` are dropped.
    Traced inputs return at most ``max_output_size`` indices; -1 is the padding of results that leave jit.
    """
    return _run(**operands)[0]


@op("NonMaxSuppressionV4", inputs=f"{_BOXES} iou_threshold score_threshold", attributes=_PADDED)
def non_max_suppression_v4(**operands):
    """Select boxes by score as `non_max_suppression`, and count them."""
    indices, _, valid = _run(**operands)
    return indices, valid


@op("NonMaxSuppressionV5", inputs=f"{_BOXES} iou_threshold score_threshold soft_nms_sigma", attributes=_PADDED)
def non_max_suppression_v5(**operands):
    """Select boxes as `non_max_suppression`; a positive sigma lowers scores instead."""
    return _run(**operands)


@op("NonMaxSuppressionWithOverlaps")
def non_max_suppression_with_overlaps(
    overlaps, scores, max_output_size: Static, overlap_threshold, score_threshold, *, bound: Bound
):
    """Select boxes as `non_max_suppression`, by their pairwise overlaps."""
    if overlaps.ndim != 2 or overlaps.shape[0] != overlaps.shape[1]:
        raise OpError(f"overlaps must be a square matrix, not of shape {tuple(overlaps.shape)}")
    if int(max_output_size) < 0:
        raise OpError("output size must be non-negative")

    def best(overlaps: Any, scores: Any, threshold: Any, score_threshold: Any, count: int) -> Any:
        overlaps, scores = jnp.asarray(overlaps), jnp.asarray(scores)
        return suppress(scores, lambda i: overlaps[:, i], count, threshold, score_threshold)

    inputs = (overlaps, scores, overlap_threshold, score_threshold)
    return _dynamic(best, inputs, int(max_output_size), bound)[0]


@op("CombinedNonMaxSuppression")
def combined_non_max_suppression(
    boxes,
    scores,
    max_output_size_per_class: Static,
    max_total_size: Static,
    iou_threshold,
    score_threshold,
    *,
    pad_per_class=False,
    clip_boxes=True,
):
    """Suppress boxes per class, and select the best of each image.

    Of equal scores, the lower class and then the lower index is selected first; TensorFlow's order is unspecified.

    Returns:
      Boxes [batch, size, 4], scores and classes [batch, size], padded with 0, and their number [batch].
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
    size = min(total, per_class * classes) if pad_per_class else total
    threshold, score_threshold = jnp.asarray(iou_threshold), jnp.asarray(score_threshold)
    if number == 0 or classes == 0:
        zeros = jnp.zeros((boxes.shape[0], size), scores.dtype)
        return jnp.zeros((*zeros.shape, 4), boxes.dtype), zeros, zeros, jnp.zeros(boxes.shape[:1], np.int32)

    def one_image(boxes: Any, scores: Any) -> tuple[Any, Any, Any, Any]:
        boxes, scores = jnp.moveaxis(boxes, 1, 0), scores.T
        labels, indices, valid = suppress_by_class(boxes, scores, count, size, threshold, score_threshold)
        is_valid = lax.iota(np.int32, size) < valid
        corners = boxes[labels if groups > 1 else 0, indices]
        corners = jnp.clip(corners, 0, 1) if clip_boxes else corners
        chosen, label = (jnp.where(is_valid, v, 0) for v in (scores[labels, indices], labels.astype(_F32)))
        return jnp.where(is_valid[:, None], corners, 0), chosen, label, valid

    if boxes.shape[0] == 1:
        return tuple(v[None] for v in one_image(boxes[0], scores[0]))
    return lax.map(lambda image: one_image(*image), (boxes, scores))
