"""Distinct values, and differences of sets.

Kernels: unique_op.cc, listdiff_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.common.rows import MAX_COMPARED_PAIRS, nonzero, starts
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, normalize_axis, static_value

from .gather import take

_NO_AXIS = np.zeros((0,), np.int32)


def _unique_ids(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return first indices of distinct rows, each row's group, and groups' sizes."""
    by_axis: dict[str, Any] = {"axis": 0} if x.ndim > 1 else {"equal_nan": False}
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, **by_axis)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(order.size)
    return first[order], number[inverse.reshape(-1)], counts[order]


def _static_unique(x: np.ndarray, axis: int, out_idx: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = x
    if x.ndim > 1:
        rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) if x.size else np.zeros((x.shape[axis], 1), np.int32)
        # Rows are compared by the group numbers of their elements: NaN differs from NaN, -0 equals 0.
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
    index = lax.iota(np.int32, n)
    columns = [lax.index_in_dim(rows, i, 1, keepdims=False) for i in range(width)]
    columns = columns or [jnp.zeros((n,), bool)]  # empty slices are equal
    *columns, order = lax.sort((*columns, index), num_keys=len(columns), is_stable=True)
    differs = jnp.zeros((n,), bool)
    for column in columns:
        differs = differs | starts(column)
    group = jnp.cumsum(differs.astype(np.int32))
    first_of_group = jnp.full((n,), n, np.int32).at[group].min(order)
    first = jnp.zeros((n,), np.int32).at[order].set(take(first_of_group, group, 0))
    is_first = first == index
    number = take(jnp.cumsum(is_first) - 1, first, 0)
    where = nonzero(is_first, size, n)
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
    static = static_value(x)
    return _traced_unique(x, which, out_idx, bound) if static is None else _static_unique(static, which, out_idx)


@op("Unique", fold=lambda x, *, out_idx: _unique(x, _NO_AXIS, out_idx, None)[:2])
def unique(x, *, out_idx=np.int32, bound: Bound):
    """Return distinct values and each element's index there.

    Args:
      x: ``[n]``, of any dtype. NaN differs from NaN.

    Returns:
      Values in order of first occurrence, up to an int bound padded with zeros (further values are dropped), and
      indices ``[n]``.
    """
    y, number, _ = _unique(x, _NO_AXIS, out_idx, bound)
    return y, number


@op("UniqueV2", fold=lambda x, axis, *, out_idx: _unique(x, axis, out_idx, None)[:2])
def unique_v2(x, axis: Static, *, out_idx=np.int32, bound: Bound):
    """Return distinct slices along an axis, and their indices.

    Args:
      axis: a vector of at most one axis; none: ``x`` is a vector.
    """
    y, number, _ = _unique(x, axis, out_idx, bound)
    return y, number


@op("UniqueWithCounts", fold=lambda x, *, out_idx: _unique(x, _NO_AXIS, out_idx, None))
def unique_with_counts(x, *, out_idx=np.int32, bound: Bound):
    """Return the results of `unique`, and how often each value occurs."""
    return _unique(x, _NO_AXIS, out_idx, bound)


@op("UniqueWithCountsV2", fold=lambda x, axis, *, out_idx: _unique(x, axis, out_idx, None))
def unique_with_counts_v2(x, axis: Static, *, out_idx=np.int32, bound: Bound):
    """Return the results of `unique_v2`, and how often each slice occurs.

    Arguments are those of `unique_v2`. Counts of padding are 0.
    """
    return _unique(x, axis, out_idx, bound)


def _static_difference(x: np.ndarray, y: np.ndarray, out_idx: Any) -> tuple[np.ndarray, np.ndarray]:
    where = np.flatnonzero(~np.isin(x, y))
    return x[where], where.astype(canonical(out_idx))


def _missing(x: Any, y: Any) -> Any:
    """Return whether each element of ``x`` is not in ``y``."""
    lengths = (x.shape[0], y.shape[0])
    if not all(isinstance(d, int) for d in lengths) or math.prod(lengths) <= MAX_COMPARED_PAIRS:
        return jnp.all(x[:, None] != y[None, :], axis=1)
    y = lax.sort(y)
    return take(y, jnp.minimum(jnp.searchsorted(y, x), y.shape[0] - 1), 0) != x


@op("ListDiff", fold=lambda x, y, *, out_idx: _static_difference(np.asarray(x), np.asarray(y), out_idx))
def list_diff(x, y, *, out_idx=np.int32, bound: Bound):
    """Return the elements of one vector that are not in another, and their indices.

    Returns:
      Both in order. Up to an int bound, values are padded with zeros, indices with ``n``.
    """
    if x.ndim != 1 or y.ndim != 1:
        raise OpError(f"two vectors are expected, not ranks {x.ndim} and {y.ndim}")
    left, right = static_value(x), static_value(y)
    if left is not None and right is not None:
        return _static_difference(left, right, out_idx)
    size = row_capacity(bound, x.shape[0], "the number of values depends on traced ones")
    x, y = jnp.asarray(as_array(x)), jnp.asarray(as_array(y))
    missing = _missing(x, y)
    where = nonzero(missing, size, x.shape[0])
    (where,) = truncate_rows(bound, lambda: jnp.count_nonzero(missing), where, of=(missing,))
    return take(x, where, 0), where.astype(canonical(out_idx))
