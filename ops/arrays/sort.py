"""Order statistics: top k, n-th element, and binary search in sorted rows.

Radix select finds the n-th smallest element without sorting: it is the largest number with at most n elements below it.
Its bits are found from the highest to the lowest, each by counting along the axis, which XLA does in a fraction of the
time of a sort. Last come order statistics of float32 rows that TensorFlow has for TPU only.

Kernels: topk_op.cc, in_topk_op.cc, nth_element_op.cc, searchsorted_op.cc in tensorflow/core/kernels;
tensorflow/core/tpu/kernels/topk_ops.cc.
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
from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.loops.shard_map import fori_loop, scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern, Unconverted
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, normalize_axis, static_value

from .gather import take


def _ordered(x: Any, word: np.dtype) -> Any:
    """Return unsigned integers in the order of ``x``: NaN last, -0 before 0."""
    top = np.array(1 << (8 * word.itemsize - 1), word)
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return x
    if jnp.issubdtype(x.dtype, jnp.signedinteger):
        return lax.bitcast_convert_type(x, word) ^ top
    bits = lax.bitcast_convert_type(jnp.where(x != x, jnp.asarray(np.nan, x.dtype), x), word)
    return jnp.where(bits >= top, ~bits, bits | top)


def _value(ordered: Any, dtype: np.dtype) -> Any:
    word = np.dtype(ordered.dtype)
    top = np.array(1 << (8 * word.itemsize - 1), word)
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        return ordered
    if jnp.issubdtype(dtype, jnp.floating):
        return lax.bitcast_convert_type(jnp.where(ordered >= top, ordered ^ top, ~ordered), dtype)
    return lax.bitcast_convert_type(ordered ^ top, dtype)


def nth_smallest(x: Any, n: Any) -> Any:
    """Return the ``n``-th smallest element of the last axis; NaN is the largest."""
    word = np.dtype(f"uint{8 * x.dtype.itemsize}")
    ordered, n = _ordered(x, word), jnp.clip(n, 0, x.shape[-1] - 1)

    def with_next_bit(i: Any, prefix: Any) -> Any:
        larger = prefix | jnp.left_shift(np.array(1, word), lax.convert_element_type(8 * word.itemsize - 1 - i, word))
        below = jnp.sum(ordered < larger[..., None], axis=-1, dtype=np.int32)
        return jnp.where(below <= n, larger, prefix)

    prefix = fori_loop(0, 8 * word.itemsize, with_next_bit, jnp.zeros(x.shape[:-1], word))
    return _value(prefix, x.dtype)


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
    values, indices = lax.top_k(x, k)
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


_REST = np.int32(0x7FFFFFFF)  # all bits but the sign
_SMALLEST = np.int32(1 << 23)  # the bits of the smallest normal number


def _rows(input: Any, k: int = 0) -> Any:
    if input.ndim != 2:
        raise OpError(f"input must be a matrix, not of rank {input.ndim}")
    if k < 0:
        raise OpError(f"k must not be negative, got {k}")
    return jnp.asarray(input)


def _bits(x: Any) -> Any:
    return lax.bitcast_convert_type(x, np.int32)


def _flipped(bits: Any) -> Any:
    """Map the bits of floats to integers in the same order, and back."""
    return jnp.where(bits < 0, bits ^ _REST, bits)


@op("KthOrderStatistic")
def kth_order_statistic(input, *, k):
    """Return each row's k-th largest element.

    Args:
      input: ``[rows, width]``, float32. Negative NaN is the smallest number, positive NaN the largest.
    """
    x = _rows(input, k)
    width = x.shape[1]
    if k == 0 or (isinstance(width, int) and k > width):
        beyond = np.int32(-1 if k else _REST)
        return lax.bitcast_convert_type(jnp.full(x.shape[:1], beyond), np.float32)
    ordered = lax.sort(_flipped(_bits(x)), dimension=1)
    return lax.bitcast_convert_type(_flipped(ordered[:, width - k]), np.float32)


def _low_bits(width: int) -> np.int32:
    """Return the mask of the low bits that hold indices in a row of this width."""
    if not isinstance(width, int):
        raise OpError(f"the width of the rows must be static, got {width}")
    return np.int32((1 << max(width - 1, 0).bit_length()) - 1)


@op("MakeUnique")
def make_unique(input):
    """Return values whose lowest bits are replaced by their index in the row."""
    x = _rows(input)
    bits = _bits(x)
    bits = jnp.where((bits & _REST) == 0, bits | _SMALLEST, bits)
    index = lax.broadcasted_iota(np.int32, x.shape, 1)
    return lax.bitcast_convert_type((bits & ~_low_bits(x.shape[1])) | index, np.float32)


def _descending(x: Any, k: int) -> Any:
    """Return each row's k largest distinct values, then -inf; NaN is skipped."""
    none = jnp.asarray(-np.inf, x.dtype)
    values = jnp.where(jnp.isnan(x), none, x)

    def following(last: Any, _: Any) -> tuple[Any, Any]:
        best = jnp.max(jnp.where(values >= last[:, None], none, values), axis=1, initial=-np.inf)
        return best, best

    # No value is >= NaN, so the first step excludes none.
    return scan(following, jnp.full(x.shape[:1], np.nan, x.dtype), length=k)[1].T


@op("TopKUnique")
def top_k_unique(input, *, k):
    """Return the k largest distinct values of each row, and the last index of each.

    Args:
      k: number of values; beyond the distinct ones, values are -inf and indices -1.
    """
    x = _rows(input, k)
    values = _descending(x, k)
    same = x[:, None, :] == values[:, :, None]
    indices = jnp.where(same, lax.broadcasted_iota(np.int32, same.shape, 2), -1)
    return values, jnp.max(indices, axis=2, initial=-1)


@op("TopKWithUnique")
def top_k_with_unique(input, *, k):
    """Return the k largest results of `make_unique`, and the indices in their bits."""
    values = _descending(make_unique(_rows(input, k)), k)
    return values, _bits(values) & _low_bits(input.shape[1])
