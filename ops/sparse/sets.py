"""Set operations on the last dimension of dense and sparse tensors (tf.sets).

A set is the entries that share all but the last index (its group). Results are sparse tensors: each set's values in
order, at indices from 0. Their number is dynamic.

TF: core/kernels/set_kernels.cc.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.provenance import entries
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.rows import nonzero, starts
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from .coo import check_indices

_INT64 = np.dtype(np.int64)


class _Entries(NamedTuple):
    """Values, the group (row, or -1) of each, and the static or traced group shape."""

    groups: Any
    values: Any
    shape: Any

    @property
    def is_known(self) -> bool:
        return static_value(self.groups) is not None and static_value(self.values) is not None


def _dense(x: Any) -> _Entries:
    if x.ndim < 2:
        raise OpError(f"sets are in the last of two or more dimensions, not in a tensor of rank {x.ndim}")
    xp: Any = jnp if static_value(x) is None else np
    if xp is np:
        groups = np.stack(np.indices(x.shape)[:-1], axis=-1)
    else:
        groups = jnp.stack([lax.broadcasted_iota(np.int32, x.shape, i) for i in range(x.ndim - 1)], axis=-1)
    return _Entries(groups.reshape(math.prod(x.shape), x.ndim - 1), xp.reshape(x, -1), tuple(x.shape[:-1]))


def _sparse(indices: Any, values: Any, shape: Any) -> _Entries:
    check_indices(indices, values, shape)
    rank = indices.shape[1]
    if rank < 2:
        raise OpError(f"sets are in the last of two or more dimensions, not in a tensor of rank {rank}")
    found = entries(shape, rank)[:-1]
    sizes = tuple(e.offset for e in found) if all(e.is_known for e in found) else shape[:-1]
    return _Entries(indices[:, :-1], values, sizes)


def _check_groups(a: _Entries, b: _Entries) -> None:
    if a.groups.shape[1] != b.groups.shape[1]:
        raise OpError(f"sets of ranks {a.groups.shape[1] + 1} and {b.groups.shape[1] + 1}")
    if isinstance(a.shape, tuple) and isinstance(b.shape, tuple):
        for ours, theirs in zip(a.shape, b.shape, strict=True):
            if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
                raise OpError(f"sets in groups of shapes {a.shape} and {b.shape}")


def _wanted(set_operation: str, in_a: Any, in_b: Any) -> Any:
    name = set_operation.lower()
    if name == "a-b":
        return in_a & ~in_b
    if name == "b-a":
        return in_b & ~in_a
    if name == "intersection":
        return in_a & in_b
    if name == "union":
        return in_a | in_b
    raise OpError(f"set_operation {set_operation!r} is none of 'a-b', 'b-a', 'intersection' and 'union'")


def _known_result(a: _Entries, b: _Entries, set_operation: str) -> tuple[Any, Any, Any]:
    groups, values = np.concatenate([a.groups, b.groups]), np.concatenate([a.values, b.values])
    distinct, number = np.unique(values, return_inverse=True)
    # Rows of group index and rank of the value, so that sorted rows are in the order of results.
    rows = np.column_stack([groups, number.reshape(-1)])
    rows, inverse = np.unique(rows, axis=0, return_inverse=True)
    member = np.zeros((2, len(rows)), bool)
    member[(np.arange(len(values)) >= len(a.values)).astype(int), inverse.reshape(-1)] = True
    kept = rows[_wanted(set_operation, *member) & (rows[:, 0] >= 0)]
    first = np.ones(len(kept), bool)
    first[1:] = (kept[1:, :-1] != kept[:-1, :-1]).any(axis=1)
    position = np.arange(len(kept)) - np.maximum.accumulate(np.where(first, np.arange(len(kept)), 0))
    indices = np.column_stack([kept[:, :-1], position]).astype(canonical(_INT64))
    return indices, distinct[kept[:, -1]], position.max(initial=-1) + 1


class _Sorted(NamedTuple):
    """Entries sorted by group and value, with first occurrences and group starts."""

    columns: list[Any]
    values: Any
    source: Any
    valid: Any
    first: Any
    begins: Any


def _sorted(groups: Any, values: Any, source: Any) -> _Sorted:
    columns = [groups[:, i] for i in range(groups.shape[1])]
    padding = lax.convert_element_type(columns[0] < 0, np.int32)
    padding, *columns, values, source = lax.sort((padding, *columns, values, source), num_keys=len(columns) + 2)
    at_0 = lax.iota(np.int32, values.shape[0]) == 0
    begins = at_0
    for column in columns:
        begins = begins | starts(column)
    return _Sorted(columns, values, source, padding == 0, begins | starts(values), begins)


def _traced_result(
    a: _Entries, b: _Entries, set_operation: str, bound: int | DynamicShapes | None
) -> tuple[Any, Any, Any]:
    groups = jnp.concatenate([jnp.asarray(a.groups, canonical(_INT64)), jnp.asarray(b.groups, canonical(_INT64))])
    values = jnp.concatenate([jnp.asarray(a.values), jnp.asarray(b.values)])
    count = values.shape[0]
    size = row_capacity(bound, count, "the sizes of sets depend on traced values")
    source = (lax.iota(np.int32, count) >= a.values.shape[0]).astype(np.int32)
    s = _sorted(groups, values, source)
    run = jnp.cumsum(s.first, dtype=np.int32) - 1
    member = [take(jnp.zeros((count,), bool).at[run].max(s.source == i), run, 0) for i in (0, 1)]
    keep = s.first & s.valid & _wanted(set_operation, *member)
    number = jnp.cumsum(keep, dtype=np.int32)
    # Entries kept in all earlier groups: increasing from group to group.
    before = lax.cummax(jnp.where(s.begins, number - keep, 0))
    position = number - before - 1
    largest = jnp.max(jnp.where(keep, position + 1, 0), initial=0)
    where = nonzero(keep, size, count)
    (where,) = truncate_rows(bound, lambda: jnp.count_nonzero(keep), where, of=(keep,))
    real = where < jnp.asarray(count, np.int32)
    columns = [jnp.where(real, take(c, where, 0), -1) for c in (*s.columns, position.astype(groups.dtype))]
    return jnp.stack(columns, axis=1), take(s.values, where, 0), largest


def _operate(a: _Entries, b: _Entries, set_operation: str, bound: int | DynamicShapes | None) -> tuple[Any, Any, Any]:
    _check_groups(a, b)
    dtype = canonical(_INT64)
    if a.is_known and b.is_known:
        known_a, known_b = (_Entries(np.asarray(e.groups), np.asarray(e.values), e.shape) for e in (a, b))
        indices, values, largest = _known_result(known_a, known_b, set_operation)
    else:
        indices, values, largest = _traced_result(a, b, set_operation, bound)
    if not isinstance(a.shape, tuple):
        return indices, values, jnp.concatenate([a.shape.astype(dtype), jnp.asarray(largest, dtype).reshape(1)])
    if static_value(largest) is not None and all(isinstance(d, int) for d in a.shape):
        return indices, values, np.array([*a.shape, int(largest)], dtype)
    return indices, values, jnp.stack([jnp.asarray(d).astype(dtype) for d in (*a.shape, largest)])


@op("DenseToDenseSetOperation")
def dense_to_dense_set_operation(set1, set2, *, set_operation, bound: Bound):
    """Return differences, intersections or unions of rows.

    Args:
      set2: [..., m], of the same leading sizes.
    """
    return _operate(_dense(set1), _dense(set2), set_operation, bound)


@op("DenseToSparseSetOperation")
def dense_to_sparse_set_operation(set1, set2_indices, set2_values, set2_shape, *, set_operation, bound: Bound):
    """Return differences, intersections or unions of dense and sparse rows."""
    return _operate(_dense(set1), _sparse(set2_indices, set2_values, set2_shape), set_operation, bound)


@op("SparseToSparseSetOperation")
def sparse_to_sparse_set_operation(
    set1_indices, set1_values, set1_shape, set2_indices, set2_values, set2_shape, *, set_operation, bound: Bound
):
    """Return differences, intersections or unions of sparse rows."""
    first = _sparse(set1_indices, set1_values, set1_shape)
    return _operate(first, _sparse(set2_indices, set2_values, set2_shape), set_operation, bound)


@op("SetSize")
def set_size(set_indices, set_values, set_shape):
    """Count the unique values of each set.

    Args:
      set_shape: [rank]; all but the last size must be static.
    """
    rows = _sparse(set_indices, set_values, set_shape)
    if not isinstance(rows.shape, tuple):
        raise OpError("all sizes but the last of set_shape must be known while tracing")
    values = rows.values
    if isinstance(values, np.ndarray) and values.dtype == object:  # strings are replaced by their ranks
        values = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int32)
    values = jnp.asarray(values)
    s = _sorted(jnp.asarray(rows.groups), values, jnp.zeros(values.shape, np.int32))
    ones = (s.first & s.valid).astype(np.int32)
    target = tuple(jnp.where(s.valid, c, d) for c, d in zip(s.columns, rows.shape, strict=True))
    return jnp.zeros(rows.shape, np.int32).at[target].add(ones, mode="drop")
