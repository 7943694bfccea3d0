"""Greedy selection of boxes: the best score again and again, and nothing that is too similar to one selected before.

The loop ends when nothing is left, which in detection is long before as many are selected as may be. What is selected
does not depend on scores smoothly, so that only values that are looked up afterwards have derivatives. Scores that the
selection itself lowers (soft suppression) are the exception: their loop takes every step, as only loops of a known
number of steps can be run backwards.
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

__all__ = ["intersection_over_union", "suppress", "suppress_by_class"]

_F32 = np.float32


def _planes(boxes: Any) -> Any:
    """Returns the smaller and the larger coordinates of boxes ``[..., 4]``, and their areas: float32 ``[5, ...]``.

    A plane for each number, not a row for each box: neighbours in memory are what a processor computes together.
    """
    first, second = boxes[..., :2].astype(_F32), boxes[..., 2:].astype(_F32)
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    sides = high - low
    return materialize(jnp.stack([low[..., 0], low[..., 1], high[..., 0], high[..., 1], sides[..., 0] * sides[..., 1]]))


def _overlaps(planes: Any, own: Any) -> Any:
    """Returns the intersection over the union of boxes with others, 0 where either has no area."""
    top, left, bottom, right, area = planes
    own_top, own_left, own_bottom, own_right, own_area = own
    height = jnp.maximum(jnp.minimum(bottom, own_bottom) - jnp.maximum(top, own_top), 0)
    width = jnp.maximum(jnp.minimum(right, own_right) - jnp.maximum(left, own_left), 0)
    shared = height * width
    full = (area > 0) & (own_area > 0)
    return jnp.where(full, shared / jnp.where(full, area + own_area - shared, 1), 0)


def intersection_over_union(boxes: Any) -> Callable[[Any], Any]:
    """Returns by how much boxes overlap with one of them.

    Args:
      boxes: ``[n, 4]`` of any floating dtype, two opposite corners each.

    Returns:
      A function of an int32 index that gives float32 ``[n]``: the intersection over the union, and 0 where either box
      has no area.
    """
    planes = _planes(boxes)
    # Once, as XLA would otherwise look up the box again for each that it is compared with.
    return lambda best: _overlaps(planes, materialize(lax.dynamic_index_in_dim(ensure_length(planes, 1, 1), best, 1)))


def suppress(
    scores: Any, similarity: Callable[[Any], Any], count: int, threshold: Any, least: Any, sigma: Any = None
) -> tuple[Any, Any, Any]:
    """Selects up to ``count`` times the best score, and drops, or lowers, what is similar to it.

    Equal scores go by index.

    Args:
      scores: ``[n]`` of a floating dtype; NaN is never selected.
      similarity: of an int32 index; gives ``[n]``.
      count: how many are selected at most.
      threshold: a scalar; what is more similar is dropped.
      least: a scalar; only what scores more is selected.
      sigma: None, or a scalar: where it is positive, similar scores are lowered as in soft suppression.

    Returns:
      int32 indices ``[count]`` and their scores, 0 beyond the valid ones, and the int32 number of these.
    """
    dtype, size = scores.dtype, scores.shape[0]
    indices, valid = jnp.zeros((count,), np.int32), jnp.zeros((), np.int32)
    if count == 0 or size == 0:
        return indices, jnp.zeros((count,), dtype), valid
    numbers = lax.iota(np.int32, size)
    nothing = jnp.asarray(-np.inf, dtype)
    left = jnp.where(scores > least, scores, nothing)  # not so for NaN
    if sigma is None:

        def drop(step: Any, left: Any, indices: Any) -> tuple[Any, ...]:
            best = _best(left)
            away = (similarity(best).astype(dtype) > threshold) | (numbers == best)
            return jnp.where(away, nothing, left), indices.at[step].set(best)

        start = (lax.stop_gradient(left), indices)
        _, indices, valid = _while(lambda left, _: jnp.any(left > nothing), drop, count, *start)
        return indices, jnp.where(lax.iota(np.int32, count) < valid, _looked_up(scores, indices), 0), valid
    soft = sigma > 0
    scale = jnp.asarray(-0.5, dtype) / jnp.where(soft, sigma, 1)

    def lower(step: Any, carry: Any) -> Any:
        left, indices, chosen, valid = carry
        best = _best(left)
        value = _looked_up(left, best)
        found = value > nothing
        near = similarity(best).astype(dtype)
        lowered = left * jnp.where(soft, jnp.exp(scale * near * near), 1)
        away = (~soft & (near > threshold)) | ~(lowered > least) | (numbers == best)
        left = jnp.where(found, jnp.where(away, nothing, lowered), left)
        indices, chosen = indices.at[step].set(best), chosen.at[step].set(jnp.where(found, value, 0))
        return left, jnp.where(found, indices, carry[1]), chosen, valid + found.astype(np.int32)

    return fori_loop(0, count, lower, (left, indices, jnp.zeros((count,), dtype), valid))[1:]


def suppress_by_class(
    boxes: Any, scores: Any, per_class: int, total: int, threshold: Any, least: Any
) -> tuple[Any, Any, Any]:
    """Selects the best of all classes, each of which drops what overlaps with its own selected boxes.

    That is what merging the classes' own selections by score would give, but ends as soon as there are enough: in each
    step only one class changes. Equal scores go by class and index.

    Args:
      boxes: ``[classes, n, 4]`` or, the same for all classes, ``[1, n, 4]``.
      scores: ``[classes, n]`` of a floating dtype.
      per_class: how many of a class are selected at most.
      total: how many are selected at most.
      threshold: a scalar; what overlaps by more is dropped.
      least: a scalar; only what scores more is selected.

    Returns:
      int32 classes ``[total]`` and boxes ``[total]``, 0 beyond the valid ones, and the int32 number of these.
    """
    classes, size = scores.shape
    none = jnp.zeros((total,), np.int32)
    if classes == 0 or size == 0:
        return none, none, jnp.zeros((), np.int32)
    planes = _planes(lax.stop_gradient(boxes))
    nothing = jnp.asarray(-np.inf, scores.dtype)
    left = lax.stop_gradient(jnp.where(scores > least, scores, nothing))
    numbers = lax.iota(np.int32, size)

    def drop(step: Any, best: Any, where: Any, left: Any, taken: Any, owners: Any, chosen: Any) -> tuple[Any, ...]:
        owner = _best(best)
        box = materialize(_looked_up(where, owner))
        own = planes[:, 0] if planes.shape[1] == 1 else lax.dynamic_index_in_dim(planes, owner, 1, keepdims=False)
        near = _overlaps(own, materialize(lax.dynamic_index_in_dim(own, box, 1))).astype(threshold.dtype)
        count = _looked_up(taken, owner) + 1
        away = (near > threshold) | (numbers == box) | (count >= per_class)
        row = materialize(jnp.where(away, nothing, lax.dynamic_index_in_dim(left, owner, 0, keepdims=False)))
        left = lax.dynamic_update_index_in_dim(left, row, owner, 0)
        best, where = best.at[owner].set(jnp.max(row)), where.at[owner].set(_best(row))
        return best, where, left, taken.at[owner].set(count), owners.at[step].set(owner), chosen.at[step].set(box)

    start = (jnp.max(left, 1), _best(left), left, jnp.zeros((classes,), np.int32), none, none)
    *_, owners, chosen, valid = _while(lambda best, *_: jnp.any(best > nothing), drop, total, *start)
    return owners, chosen, valid


def _looked_up(values: Any, place: Any) -> Any:
    return ensure_length(values, 0, 1).at[place].get(mode="promise_in_bounds")


def _best(scores: Any) -> Any:
    """Returns where the largest of the last axis stands, the first of equal ones."""
    return materialize(arg_reduce(lax.argmax, scores, scores.ndim - 1))


def _while(going: Callable[..., Any], step: Callable[..., tuple[Any, ...]], count: int, *start: Any) -> tuple[Any, ...]:
    """Repeats a step, up to ``count`` times, while there is something left; returns its last results and the number."""

    def body(state: Any) -> Any:
        number, *carry = state
        return number + 1, *step(number, *carry)

    state = (jnp.zeros((), np.int32), *start)
    number, *last = while_loop(lambda s: (s[0] < count) & going(*s[1:]), body, state)
    return *last, number
