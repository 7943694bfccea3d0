"""Order statistics: top k, n-th element, and binary search in sorted rows.

Kernels: topk_op.cc, in_topk_op.cc, nth_element_op.cc, searchsorted_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length
from tf2jax_lite.dynamic_shapes.provenance import name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern, Unconverted
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, normalize_axis, static_value
from tf2jax_lite.xla_cpu.materialize import materialize
from tf2jax_lite.xla_cpu.top_k import top_k as largest

from ._radix_select import nth_smallest
from .gather import take


def _top_k(x: Any, k: Any, index_type: Any) -> tuple[Any, Any]:
    x = jnp.asarray(x)
    if x.ndim == 0:
        raise OpError("the input must have at least one dimension")
    if isinstance(k, int):
        if k < 0:
            raise OpError(f"k must not be negative, got {k}")
        if isinstance(x.shape[-1], int) and k > x.shape[-1]:
            raise OpError(f"k is {k}, but the last dimension has only {x.shape[-1]} elements")
        x = ensure_length(x, x.ndim - 1, k)
    values, indices = largest(x, k)
    # XLA:CPU recognizes a selection by its final slice: with one more slice, of the k-th element, it sorts all.
    return materialize(values), lax.convert_element_type(materialize(indices), canonical(index_type))


@op("TopKV2", pattern=Pattern.MATERIALIZED)
def top_k_v2(x, k: Unconverted, *, sorted=True, index_type=np.int32, tracker: DynamicShapes | None = None):
    """Return the k largest elements of the last axis, and their indices.

    NaN counts as largest (TensorFlow leaves it open), and 0 as larger than -0 (equal in TensorFlow).

    Args:
      k: scalar int in ``[0, n]``. If traced, the results have a data-dependent size; one above ``n``, an error in
        TensorFlow, returns all elements.

    Returns:
      Values ``[..., k]`` in descending order, and indices; of equal elements the first comes first.
    """
    del sorted
    if np.size(k) != 1:
        raise OpError("k must be one number")
    static = static_value(k)
    if static is not None:
        return _top_k(x, dims(static)[0], index_type)
    if tracker is None:
        raise UnboundedError("how many of the largest are taken depends on values")
    x = jnp.asarray(x)
    values, indices = _top_k(x, x.shape[-1] if x.ndim else 0, index_type)
    size, count = x.shape[-1], jnp.reshape(k, ()).astype(np.int32)
    first = tracker.prefix(lax.iota(np.int32, size), count, ("top", str(size), name_of(k)), k)
    return take(values, first, x.ndim - 1), take(indices, first, x.ndim - 1)


@op("TopK", pattern=Pattern.MATERIALIZED)
def top_k(x, *, k, sorted=True):
    """Return the k largest elements of the last axis, and their indices.

    See `top_k_v2`.
    """
    del sorted
    return _top_k(x, k, np.int32)


@op("ApproxTopK", pattern=Pattern.MATERIALIZED)
def approx_top_k(
    x,
    *,
    k,
    reduction_dimension=-1,
    recall_target=0.95,
    is_max_k=True,
    reduction_input_size_override=-1,
    aggregate_to_topk=True,
):
    """Return the k largest or smallest elements, exact except on TPU.

    Args:
      reduction_input_size_override: size of the whole input if this is a shard, -1 for the size of the axis.
    """
    fn = lax.approx_max_k if is_max_k else lax.approx_min_k
    x = jnp.asarray(x)
    values, indices = fn(
        x,
        k,
        reduction_dimension=normalize_axis(reduction_dimension, x.ndim),
        recall_target=recall_target,
        reduction_input_size_override=reduction_input_size_override,
        aggregate_to_topk=aggregate_to_topk,
    )
    return values, indices


def _in_top_k(predictions: Any, targets: Any, k: Any) -> Any:
    if predictions.ndim != 2 or targets.ndim != 1:
        raise OpError(f"a matrix and a vector are expected, not ranks {predictions.ndim} and {targets.ndim}")
    predictions, targets = jnp.asarray(predictions), jnp.asarray(targets)
    classes = predictions.shape[1]
    is_class = (targets >= 0) & (targets < classes)
    own = jnp.take_along_axis(predictions, jnp.where(is_class, targets, 0)[:, None], axis=1)
    decidable = jnp.all(jnp.isfinite(predictions), axis=1)
    better = jnp.sum(predictions > own, axis=1, dtype=targets.dtype)
    return is_class & decidable & (better < jnp.asarray(k, targets.dtype))


@op("InTopKV2")
def in_top_k_v2(predictions, targets, k):
    """Return whether targets are among the k best predictions.

    Args:
      predictions: ``[batch, classes]``, float32. A row with a number that is not finite is False.
      targets: ``[batch]``, classes; out of range is False. A target tied with the k-th best is True.
    """
    return _in_top_k(predictions, targets, k)


@op("InTopK")
def in_top_k(predictions, targets, *, k):
    """Return whether targets are among the k best predictions.

    See `in_top_k_v2`.
    """
    return _in_top_k(predictions, targets, k)


@jax.custom_jvp
def _nth(x: Any, n: Any) -> Any:
    return nth_smallest(x, n)


@_nth.defjvp
def _nth_jvp(primals: Any, tangents: Any) -> Any:
    # As in TensorFlow, all elements equal to the result share its gradient.
    x, n = primals
    y = _nth(x, n)
    equal = lax.convert_element_type(x == y[..., None], x.dtype)
    return y, jnp.sum(tangents[0] * equal, axis=-1) / jnp.sum(equal, axis=-1)


@op("NthElement", pattern=Pattern.MATERIALIZED)
def nth_element(x, n, *, reverse=False):
    """Return the n-th smallest (or largest) element of the last axis.

    Args:
      x: ``[..., size]``, numbers. Elements equal to the result share its gradient.
      n: scalar int in ``[0, size)``; a traced one is clamped.
      reverse: count from the largest.
    """
    if x.ndim == 0:
        raise OpError("the input must have at least one dimension")
    size = x.shape[-1]
    static = static_value(n)
    if isinstance(size, int) and (size == 0 or (static is not None and not 0 <= int(static) < size)):
        raise OpError(f"n is {'unknown' if static is None else static}, but the last dimension has {size} elements")
    index = jnp.asarray(n)
    index = size - 1 - index if reverse else index
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return _nth(x, index)
    return nth_smallest(x, index)


def _bound(sorted_inputs: Any, values: Any, out_type: Any, upper: bool) -> Any:
    """Return C++'s lower_bound or upper_bound for rows, with its treatment of NaN."""
    if sorted_inputs.ndim != 2 or values.ndim != 2:
        raise OpError(f"two matrices are expected, not ranks {sorted_inputs.ndim} and {values.ndim}")
    sorted_inputs, values = jnp.asarray(sorted_inputs), jnp.asarray(values)
    size = sorted_inputs.shape[1]
    if size == 0:
        return jnp.zeros(values.shape, canonical(out_type))

    def halve(_: Any, state: Any) -> Any:
        first, length = state
        half = length // 2
        pivot = jnp.take_along_axis(sorted_inputs, first + half, axis=1, mode="clip")
        right = ~(values < pivot) if upper else pivot < values
        right = right & (length > 0)
        return jnp.where(right, first + half + 1, first), jnp.where(right, length - half - 1, half)

    sorted_inputs = ensure_length(sorted_inputs, 1, 1)
    steps = int(size).bit_length() if isinstance(size, int) else 32
    start = jnp.zeros(values.shape, np.int32)
    first, _ = fori_loop(0, steps, halve, (start, jnp.full(values.shape, size, np.int32)))
    return lax.convert_element_type(first, canonical(out_type))


@op("LowerBound", pattern=Pattern.MATERIALIZED)
def lower_bound(sorted_inputs, values, *, out_type=np.int32):
    """Return insertion positions in sorted rows, before equal elements."""
    return _bound(sorted_inputs, values, out_type, False)


@op("UpperBound", pattern=Pattern.MATERIALIZED)
def upper_bound(sorted_inputs, values, *, out_type=np.int32):
    """Return insertion positions in sorted rows, after equal elements.

    See `lower_bound`.
    """
    return _bound(sorted_inputs, values, out_type, True)
