"""Greedy non-maximum suppression by score.

The loop selects the best score and suppresses similar candidates. The loop ends when no candidate is left, in detection
long before the maximal number of selections. The selection is not differentiable, so that only values gathered
afterwards have derivatives. The exception are scores that soft suppression lowers: their loop has a static number of
steps, as reverse-mode differentiation requires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length
from tf2jax_lite.loops.shard_map import fori_loop, while_loop
from tf2jax_lite.xla_cpu.materialize import materialize
from tf2jax_lite.xla_cpu.reductions import arg_reduce

_F32 = np.float32


def _planes(boxes: Any) -> Any:
    """Return lower and upper coordinates of boxes, and areas: float32 [5, ...].

    Structure of arrays, so that boxes are adjacent in memory for SIMD instructions.
    """
    first, second = boxes[..., :2].astype(_F32), boxes[..., 2:].astype(_F32)
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    sides = high - low
    return materialize(jnp.stack([low[..., 0], low[..., 1], high[..., 0], high[..., 1], sides[..., 0] * sides[..., 1]]))


def _overlaps(planes: Any, own: Any) -> Any:
    """Return the intersection over union of boxes with others.

    It is 0 where either area is 0.
    """
    top, left, bottom, right, area = planes
    own_top, own_left, own_bottom, own_right, own_area = own
    height = jnp.maximum(jnp.minimum(bottom, own_bottom) - jnp.maximum(top, own_top), 0)
    width = jnp.maximum(jnp.minimum(right, own_right) - jnp.maximum(left, own_left), 0)
    intersection = height * width
    positive = (area > 0) & (own_area > 0)
    return jnp.where(positive, intersection / jnp.where(positive, area + own_area - intersection, 1), 0)


def intersection_over_union(boxes: Any) -> Callable[[Any], Any]:
    """Return a function for the intersection over union with one of the boxes.

    Args:
      boxes: float [n, 4], two opposite corners each.

    Returns:
      A function from an int32 index to float32 [n]; 0 where either box has area 0.
    """
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
    return materialize(arg_reduce(lax.argmax, scores, scores.ndim - 1))


def _while(going: Callable[..., Any], step: Callable[..., tuple[Any, ...]], count: int, *start: Any) -> tuple[Any, ...]:
    """Repeat ``step`` while ``going``, at most ``count`` times.

    Returns its last results and the number of steps.
    """

    def body(state: Any) -> Any:
        number, *carry = state
        return number + 1, *step(number, *carry)

    state = (jnp.zeros((), np.int32), *start)
    number, *last = while_loop(lambda s: (s[0] < count) & going(*s[1:]), body, state)
    return *last, number
