"""Elementwise ops on COO sparse tensors: sums, maxima, minima and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.row_boundaries import numbered
from tf2jax_lite.ops.math.segment import segment_reduce
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from .coo import check_indices, pick, same_rows, select_entries, union


def _check_pair(a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]) -> None:
    for part in (a, b):
        check_indices(*part)
    mine, other = static_value(a[2]), static_value(b[2])
    if a[2].shape != b[2].shape or (mine is not None and other is not None and not np.array_equal(mine, other)):
        raise OpError(f"the shapes {mine} and {other} differ")


@op("SparseAdd")
def sparse_add(a_indices, a_values, a_shape, b_indices, b_values, b_shape, thresh, *, bound: Bound):
    """Add sparse tensors and drop sums smaller than ``thresh``.

    TF: core/kernels/sparse_add_op.cc.

    As in TensorFlow, only sums of two entries are dropped. Operands must be in order, without repeated indices. A
    traced NaN is kept if ``thresh`` is 0 (TensorFlow drops it).

    Args:
      b_shape: [rank], equal to ``a_shape``.
    """
    _check_pair((a_indices, a_values, a_shape), (b_indices, b_values, b_shape))
    indices, at_a, at_b = union(a_indices, b_indices, bound)
    values = pick(a_values, at_a) + pick(b_values, at_b)
    shape = static_value(a_shape)
    shape = a_shape if shape is None else shape.astype(canonical(np.int64))
    limit, sums = static_value(thresh), static_value(values)
    if sums is not None and limit is not None and static_value(indices) is not None:
        keep = (at_a < 0) | (at_b < 0) | (limit <= np.abs(sums))
        return np.asarray(indices)[keep], sums[keep], shape
    if limit is not None and not limit > 0:
        return indices, values, shape
    keep = (at_a < 0) | (at_b < 0) | (jnp.asarray(thresh) <= jnp.abs(values))
    indices = jnp.asarray(indices)
    keep = (indices[:, 0] >= 0) & keep
    problem = "which sums reach the threshold depends on traced values"
    return (*select_entries(keep, indices, values, 0, bound, problem), shape)


@op("SparseAddGrad")
def sparse_add_grad(backprop_val_grad, a_indices, b_indices, sum_indices):
    """Route gradients of a sum's entries to the entries of its operands.

    TF: core/kernels/sparse_add_grad_op.cc.
    """
    return (
        pick(backprop_val_grad, same_rows(a_indices, sum_indices)),
        pick(backprop_val_grad, same_rows(b_indices, sum_indices)),
    )


def _sparse_sparse(
    fn: Any, a: tuple[Any, Any, Any], b: tuple[Any, Any, Any], bound: int | DynamicShapes | None
) -> tuple[Any, Any]:
    _check_pair(a, b)
    indices, at_a, at_b = union(a[0], b[0], bound)
    return indices, fn(jnp.asarray(pick(a[1], at_a)), jnp.asarray(pick(b[1], at_b)))


def _register(name: str, fn: Callable[..., Any]) -> None:
    @op(name)
    def call(a_indices, a_values, a_shape, b_indices, b_values, b_shape, *, bound: Bound):
        """Return ``fn`` of two sparse tensors, where either has an entry.

        TF: core/kernels/sparse_sparse_binary_op_shared.cc.

        Args:
          b_shape: [rank], equal to ``a_shape``.
        """
        return _sparse_sparse(fn, (a_indices, a_values, a_shape), (b_indices, b_values, b_shape), bound)


_register("SparseSparseMaximum", lax.max)
_register("SparseSparseMinimum", lax.min)


# ---- within groups ----


@op("SparseSoftmax")
def sparse_softmax(sp_indices, sp_values, sp_shape):
    """Softmax over the entries of each row.

    TF: core/kernels/sparse_softmax_op.cc.

    A row is a run of entries whose indices differ in the last column only.
    """
    check_indices(sp_indices, sp_values, sp_shape)
    if sp_indices.shape[1] < 2:
        raise OpError("a sparse tensor of rank 2 or more is expected")
    count = sp_values.shape[0]
    rows = jnp.asarray(sp_indices)[:, :-1]
    ids = numbered(rows)
    values = jnp.asarray(sp_values)
    top = lax.stop_gradient(segment_reduce("Max", lax.stop_gradient(values), ids, count, -np.inf))
    parts = lax.exp(values - take(top, ids, 0))
    return parts / take(segment_reduce("Sum", parts, ids, count), ids, 0)
