"""Sorting, ranking, searching, and sets of values."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length
from tf2jax_lite.dynamic_shapes.provenance import name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError, row_capacity, truncate_rows
from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.ops.common.nonzero import places
from tf2jax_lite.ops.common.row_boundaries import MOST_COMPARED, starts
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, normalize_axis, static_value
from tf2jax_lite.xla_cpu.materialize import materialize
from tf2jax_lite.xla_cpu.top_k import top_k as largest

from ._radix_select import selected
from .gather import take

# ---- the largest ----


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
    # XLA's CPU backend knows a selection by the slice that ends it: one more slice, of the k-th say, and it sorts all.
    return materialize(values), lax.convert_element_type(materialize(indices), canonical(index_type))


@op("TopKV2", sized=True, stored=True, partial=("k",))
def top_k_v2(
    x: Any, k: Any, *, sorted: bool = True, index_type: Any = np.int32, tracker: DynamicShapes | None = None
) -> tuple[Any, Any]:
    """The k largest of the last axis and their places; of equal ones the first. See tf.raw_ops.TopKV2.

    NaN counts as largest (TensorFlow leaves it open), and 0 as larger than -0 (equal in TensorFlow). With
    ``sorted=False``, where TensorFlow promises no order, the results are sorted all the same. Where ``k`` is data, all
    are sorted; one that is larger than there are elements is an error in TensorFlow, and here takes all.
    """
    del sorted
    if np.size(k) != 1:
        raise OpError("k must be one number")
    found = static_value(k)
    if found is not None:
        return _top_k(x, dims(found)[0], index_type)
    if tracker is None:
        raise UnboundedError("how many of the largest are taken depends on values")
    x = jnp.asarray(x)
    values, indices = _top_k(x, x.shape[-1] if x.ndim else 0, index_type)
    size, count = x.shape[-1], jnp.reshape(k, ()).astype(np.int32)
    first = tracker.prefix(lax.iota(np.int32, size), count, ("top", str(size), name_of(k)), k)
    return take(values, first, x.ndim - 1), take(indices, first, x.ndim - 1)


@op("TopK", stored=True)
def top_k(x: Any, *, k: int, sorted: bool = True) -> tuple[Any, Any]:
    """The k largest of the last axis and their places. See tf.raw_ops.TopK and `top_k_v2`."""
    del sorted
    return _top_k(x, k, np.int32)


@op("ApproxTopK", stored=True)
def approx_top_k(
    x: Any,
    *,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    is_max_k: bool = True,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """The k largest or smallest, approximately on TPU and exactly elsewhere. See tf.raw_ops.ApproxTopK."""
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
    known_class = (targets >= 0) & (targets < classes)
    place = jnp.where(known_class, targets, 0)
    own = jnp.take_along_axis(predictions, place[:, None], axis=1)
    # A prediction that is not finite makes the row undecidable.
    decidable = jnp.all(jnp.isfinite(predictions), axis=1)
    better = jnp.sum(predictions > own, axis=1, dtype=targets.dtype)
    return known_class & decidable & (better < jnp.asarray(k, targets.dtype))


@op("InTopKV2")
def in_top_k_v2(predictions: Any, targets: Any, k: Any) -> Any:
    """Whether targets are among the k most likely classes; ties count for them. See tf.raw_ops.InTopKV2."""
    return _in_top_k(predictions, targets, k)


@op("InTopK")
def in_top_k(predictions: Any, targets: Any, *, k: int) -> Any:
    """Whether targets are among the k most likely classes; ties count for them. See tf.raw_ops.InTopK."""
    return _in_top_k(predictions, targets, k)


@jax.custom_jvp
def _nth(x: Any, n: Any) -> Any:
    return selected(x, n)


@_nth.defjvp
def _nth_jvp(primals: Any, tangents: Any) -> Any:
    # All elements that equal the result share its gradient.
    x, n = primals
    y = _nth(x, n)
    equal = lax.convert_element_type(x == y[..., None], x.dtype)
    return y, jnp.sum(tangents[0] * equal, axis=-1) / jnp.sum(equal, axis=-1)


@op("NthElement", stored=True)
def nth_element(x: Any, n: Any, *, reverse: bool = False) -> Any:
    """The n-th smallest (or largest) along the last axis. See tf.raw_ops.NthElement."""
    if x.ndim == 0:
        raise OpError("the input must have at least one dimension")
    size = x.shape[-1]
    found = static_value(n)
    if isinstance(size, int) and (size == 0 or (found is not None and not 0 <= int(found) < size)):
        raise OpError(f"n is {'unknown' if found is None else found}, but the last dimension has {size} elements")
    place = jnp.asarray(n)
    place = size - 1 - place if reverse else place
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return _nth(x, place)
    return selected(x, place)


# ---- searching ----


def _bound(sorted_inputs: Any, values: Any, out_type: Any, upper: bool) -> Any:
    """C++'s lower_bound or upper_bound, with its treatment of NaN, for a batch of rows."""
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


@op("LowerBound", stored=True)
def lower_bound(sorted_inputs: Any, values: Any, *, out_type: Any = np.int32) -> Any:
    """Where values would go into sorted rows, before equal ones. See tf.raw_ops.LowerBound."""
    return _bound(sorted_inputs, values, out_type, False)


@op("UpperBound", stored=True)
def upper_bound(sorted_inputs: Any, values: Any, *, out_type: Any = np.int32) -> Any:
    """Where values would go into sorted rows, after equal ones. See tf.raw_ops.UpperBound."""
    return _bound(sorted_inputs, values, out_type, True)


# ---- sets of values ----


def _unique_ids(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of a matrix of integers or vector, in the order in which they first occur.

    Returns the places of first occurrences, each row's number, and how often each occurs.
    """
    by_axis: dict[str, Any] = {"axis": 0} if x.ndim > 1 else {"equal_nan": False}
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, **by_axis)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(order.size)
    return first[order], number[inverse.reshape(-1)], counts[order]


def _known_unique(x: np.ndarray, axis: int, out_idx: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = x
    if x.ndim > 1:
        rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) if x.size else np.zeros((x.shape[axis], 1), np.int32)
        # Rows are compared by numbers that stand for their values: NaN equals nothing, -0 equals 0.
        rows = _unique_ids(rows.reshape(-1))[1].reshape(rows.shape)
    first, number, counts = _unique_ids(rows)
    dtype = canonical(out_idx)
    return np.take(x, first, axis=axis), number.astype(dtype), counts.astype(dtype)


def _traced_unique(x: Any, axis: int, out_idx: Any, bound: int | DynamicShapes | None) -> tuple[Any, Any, Any]:
    size = row_capacity(bound, x.shape[axis], "the number of distinct values depends on traced values")
    dtype = canonical(out_idx)
    n = x.shape[axis]
    width = math.prod(d for i, d in enumerate(x.shape) if i != axis)
    rows = jnp.moveaxis(x, axis, 0).reshape(n, width)
    place = lax.iota(np.int32, n)
    columns = [lax.index_in_dim(rows, i, 1, keepdims=False) for i in range(width)]
    columns = columns or [jnp.zeros((n,), bool)]  # empty slices are all the same
    *columns, order = lax.sort((*columns, place), num_keys=len(columns), is_stable=True)
    differs = jnp.zeros((n,), bool)
    for column in columns:
        differs = differs | starts(column)
    group = jnp.cumsum(differs.astype(np.int32))
    first_of_group = jnp.full((n,), n, np.int32).at[group].min(order)
    first = jnp.zeros((n,), np.int32).at[order].set(take(first_of_group, group, 0))
    is_first = first == place
    number = take(jnp.cumsum(is_first) - 1, first, 0)
    where = places(is_first, size, n)
    counts = jnp.zeros((size,), dtype).at[number].add(1, mode="drop")
    where, counts = truncate_rows(bound, lambda: jnp.count_nonzero(is_first), where, counts, of=(x, axis))
    return take(x, where, axis), number.astype(dtype), counts


def _unique(x: Any, axis: Any, out_idx: Any, bound: int | DynamicShapes | None) -> tuple[Any, Any, Any]:
    axes = np.asarray(axis).reshape(-1) if np.ndim(axis) == 1 else None
    if axes is None or axes.size > 1:
        raise OpError("axis must be a vector of at most one element")
    if axes.size == 0 and x.ndim != 1:
        raise OpError("a vector is expected")
    which = normalize_axis(axes[0], x.ndim) if axes.size else 0
    found = static_value(x)
    return _traced_unique(x, which, out_idx, bound) if found is None else _known_unique(found, which, out_idx)


_NO_AXIS = np.zeros((0,), np.int32)


def _host_unique(x: Any, *, out_idx: Any = np.int32, bound: int | None = None) -> tuple[Any, ...]:
    return _unique(x, _NO_AXIS, out_idx, bound)[:2]


def _host_unique_v2(x: Any, axis: Any, *, out_idx: Any = np.int32, bound: int | None = None) -> tuple[Any, ...]:
    return _unique(x, axis, out_idx, bound)[:2]


def _host_unique_counts(x: Any, *, out_idx: Any = np.int32, bound: int | None = None) -> tuple[Any, ...]:
    return _unique(x, _NO_AXIS, out_idx, bound)


def _host_unique_counts_v2(x: Any, axis: Any, *, out_idx: Any = np.int32, bound: int | None = None) -> tuple[Any, ...]:
    return _unique(x, axis, out_idx, bound)


@op("Unique", dynamic_shape="prefix", host=_host_unique)
def unique(x: Any, *, out_idx: Any = np.int32, bound: int | DynamicShapes | None) -> tuple[Any, Any]:
    """Distinct values in order of first occurrence, and each element's place there. See tf.raw_ops.Unique.

    A traced input's values are padded to the bound with zeros; values beyond the bound are missing.
    """
    y, number, _ = _unique(x, _NO_AXIS, out_idx, bound)
    return y, number


@op("UniqueV2", dynamic_shape="prefix", host=_host_unique_v2)
def unique_v2(x: Any, axis: Static, *, out_idx: Any = np.int32, bound: int | DynamicShapes | None) -> tuple[Any, Any]:
    """Distinct slices along an axis. See tf.raw_ops.UniqueV2 and `unique`."""
    y, number, _ = _unique(x, axis, out_idx, bound)
    return y, number


@op("UniqueWithCounts", dynamic_shape="prefix", host=_host_unique_counts)
def unique_with_counts(x: Any, *, out_idx: Any = np.int32, bound: int | DynamicShapes | None) -> tuple[Any, Any, Any]:
    """Distinct values, and how often each occurs (0 for padding). See tf.raw_ops.UniqueWithCounts and `unique`."""
    return _unique(x, _NO_AXIS, out_idx, bound)


@op("UniqueWithCountsV2", dynamic_shape="prefix", host=_host_unique_counts_v2)
def unique_with_counts_v2(
    x: Any, axis: Static, *, out_idx: Any = np.int32, bound: int | DynamicShapes | None
) -> tuple[Any, Any, Any]:
    """Distinct slices, and how often each occurs (0 for padding). See tf.raw_ops.UniqueWithCountsV2 and `unique`."""
    return _unique(x, axis, out_idx, bound)


def _known_difference(x: np.ndarray, y: np.ndarray, out_idx: Any) -> tuple[np.ndarray, np.ndarray]:
    where = np.flatnonzero(~np.isin(x, y))
    return x[where], where.astype(canonical(out_idx))


def _host_list_diff(x: Any, y: Any, *, out_idx: Any = np.int32, bound: int | None = None) -> tuple[Any, Any]:
    del bound
    return _known_difference(np.asarray(x), np.asarray(y), out_idx)


def _missing(x: Any, y: Any) -> Any:
    """Whether each value of ``x`` is not in ``y``."""
    lengths = (x.shape[0], y.shape[0])
    if not all(isinstance(d, int) for d in lengths) or math.prod(lengths) <= MOST_COMPARED:
        return jnp.all(x[:, None] != y[None, :], axis=1)
    y = lax.sort(y)
    return take(y, jnp.minimum(jnp.searchsorted(y, x), y.shape[0] - 1), 0) != x


@op("ListDiff", dynamic_shape="prefix", host=_host_list_diff)
def list_diff(x: Any, y: Any, *, out_idx: Any = np.int32, bound: int | DynamicShapes | None) -> tuple[Any, Any]:
    """Values of one vector that are not in another, and their places. See tf.raw_ops.ListDiff.

    With traced inputs both results are padded to the bound: values with zeros, places with the vector's length.
    """
    if x.ndim != 1 or y.ndim != 1:
        raise OpError(f"two vectors are expected, not ranks {x.ndim} and {y.ndim}")
    left, right = static_value(x), static_value(y)
    if left is not None and right is not None:
        return _known_difference(left, right, out_idx)
    size = row_capacity(bound, x.shape[0], "the number of values depends on traced ones")
    x, y = jnp.asarray(as_array(x)), jnp.asarray(as_array(y))
    missing = _missing(x, y)
    where = places(missing, size, x.shape[0])
    (where,) = truncate_rows(bound, lambda: jnp.count_nonzero(missing), where, of=(missing,))
    return take(x, where, 0), where.astype(canonical(out_idx))
