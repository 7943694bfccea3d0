"""Segment reductions of gathered rows, and their gradients.

Kernels: segment_reduction_ops_impl.h in tensorflow/core/kernels. 16-bit floats are accumulated in float32.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, static_value

from .segment import check_ids, per_slice, segment_count, segment_reduce, segment_sizes


def _scale(kind: str, ids: Any, count: Any, dtype: Any) -> Any:
    """Return the divisor of each segment, in ``dtype``."""
    number = lax.convert_element_type(jnp.maximum(segment_sizes(ids, count), 1), dtype)
    return lax.sqrt(number) if kind == "SqrtN" else number


def _sparse(kind: str, data: Any, indices: Any, segment_ids: Any, count: Any) -> Any:
    if data.ndim == 0:
        raise OpError("data must have at least one dimension")
    check_ids(segment_ids, indices.shape[0], count if isinstance(count, int) else None)

    def reduced(rows: Any) -> Any:
        total = segment_reduce("Sum", rows, segment_ids, count)
        if kind == "Sum":
            return total
        scale = per_slice(_scale(kind, segment_ids, count, total.dtype), total)
        return lax.div(total, jnp.broadcast_to(scale, total.shape))

    return in_float32(reduced, take(jnp.asarray(data), indices, 0))  # TensorFlow's kernels do so, too


def _check_rows(indices: Any, rows: int) -> None:
    static = static_value(indices)
    if static is not None and static.size and not 0 <= static.min() <= static.max() < rows:
        raise OpError(f"indices {static.min()} to {static.max()} are out of range [0, {rows})")


def _sparse_grad(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: Any) -> Any:
    grad = jnp.asarray(grad)
    check_ids(segment_ids, indices.shape[0])
    if isinstance(rows, int):
        _check_rows(indices, rows)
    if kind != "Sum":
        scale = per_slice(_scale(kind, segment_ids, grad.shape[0], grad.dtype), grad)
        grad = lax.div(grad, jnp.broadcast_to(scale, grad.shape))
    return segment_reduce("Sum", take(grad, segment_ids, 0), indices, rows)


def _sparse_grad_v2(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: Any, bound: Any) -> Any:
    static = static_value(indices)
    limit = static_value(rows)
    if static is not None:
        if limit is not None:
            _check_rows(indices, int(limit))
        unique, row = np.unique(static, return_inverse=True)
        row = row.reshape(-1).astype(np.int32)
    else:
        size = row_capacity(bound, indices.shape[0], "the number of distinct indices depends on traced values")
        # Padding is the index of a row past the end, which a scatter drops.
        past = np.iinfo(indices.dtype).max if limit is None else int(limit)
        unique = jnp.unique(indices, size=size, fill_value=past)
        row = jnp.searchsorted(unique, indices).astype(np.int32)
        (unique,) = truncate_rows(bound, lambda: jnp.count_nonzero(unique != past), unique, of=(indices,))
    unique = jnp.asarray(unique, indices.dtype)
    return _sparse_grad(kind, grad, row, segment_ids, unique.shape[0]), unique


def _register(kind: str) -> None:
    name = f"SparseSegment{kind}"

    @op(name)
    def call(data, indices, segment_ids, *, sparse_gradient=False, bound: Bound):
        """Reduce gathered rows by segment. TF: segment_reduction_ops_impl.h.

        Args:
          indices: ``[m]``, rows of ``data``; out of range see `take`.
          segment_ids: ``[m]``, ascending ints; see `segment_sum`.
        """
        del sparse_gradient
        return _sparse(kind, data, indices, segment_ids, segment_count(segment_ids, bound))

    @op(f"{name}WithNumSegments")
    def of_number(data, indices, segment_ids, num_segments: Static, *, sparse_gradient=False):
        """Reduce gathered rows by one of ``num_segments`` segments. See `call`."""
        del sparse_gradient
        return _sparse(kind, data, indices, segment_ids, dims(num_segments)[0])

    @op(f"{name}Grad")
    def grad(grad, indices, segment_ids, output_dim0: Static):
        """Return the gradient of `call`. TF: segment_reduction_ops_impl.h."""
        return _sparse_grad(kind, grad, indices, segment_ids, dims(output_dim0)[0])

    @op(f"{name}GradV2")
    def grad_of_rows(grad, indices, segment_ids, dense_output_dim0, *, bound: Bound):
        """Return the gradient of `call` for the rows in use.

        Returns:
          The gradients of the rows, and the distinct indices of the rows, in ascending order.
        """
        return _sparse_grad_v2(kind, grad, indices, segment_ids, dense_output_dim0, bound)


for _kind in ("Sum", "Mean", "SqrtN"):
    _register(_kind)
