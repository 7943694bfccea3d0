"""Reductions of COO sparse tensors, into dense and into sparse tensors.

TF: core/kernels/sparse_reduce_op.cc.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.row_boundaries import numbered
from tf2jax_lite.ops.math.segment import segment_reduce
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.values.static import dims, normalize_axes, static_value

from .coo import check_indices, order_of, shape_of, sizes_of, static_integers


def _reduction(input_shape: Any, reduction_axes: Any, keep_dims: bool) -> tuple[list[int], tuple[Any, ...]]:
    """Return the dimensions that remain, and the shape of the result."""
    shape = sizes_of(input_shape)
    axes = set(normalize_axes(reduction_axes, len(shape)))
    kept = [i for i in range(len(shape)) if i not in axes]
    if keep_dims:
        return kept, tuple(1 if i in axes else d for i, d in enumerate(shape))
    return kept, tuple(shape[i] for i in kept)


def _reduce(kind: str, indices: Any, values: Any, shape: Any, axes: Any, keep_dims: bool) -> Any:
    check_indices(indices, values, shape)
    kept, out_shape = _reduction(shape, axes, keep_dims)
    sizes = tuple(dims(shape)[i] for i in kept)
    values = jnp.asarray(values)
    if any(isinstance(d, int) and d == 0 for d in (*sizes, values.shape[0])):
        return jnp.zeros(out_shape, values.dtype)
    flat = jnp.zeros(values.shape[0], indices.dtype)
    stride: Any = 1
    for i, d in zip(reversed(kept), reversed(sizes), strict=True):
        flat = flat + indices[:, i] * jnp.asarray(stride, indices.dtype)
        stride = stride * d
    flat = jnp.where(indices[:, 0] < 0, -1, flat)
    out = segment_reduce(kind, values, flat, stride)
    if kind == "Max":  # TensorFlow reduces explicit entries only; the result is 0 where there is none
        filled = segment_reduce("Sum", jnp.ones(flat.shape, np.int32), flat, stride) > 0
        out = jnp.where(filled, out, jnp.zeros((), out.dtype))
    return out.reshape(out_shape)


def _reduce_sparse(
    kind: str, indices: Any, values: Any, shape: Any, axes: Any, keep_dims: bool, bound: int | DynamicShapes | None
) -> tuple[Any, Any, Any]:
    check_indices(indices, values, shape)
    kept, out_shape = _reduction(shape, static_integers(axes, "the axes"), keep_dims)
    found = static_value(indices)
    axes_kept = np.array(kept, int)
    if found is not None:
        if kept:
            rows, ids = np.unique(found[:, axes_kept], axis=0, return_inverse=True)
        else:
            rows, ids = np.zeros((min(len(found), 1), 0), found.dtype), np.zeros(len(found), int)
        count: Any = len(rows)
        out = segment_reduce(kind, values, ids.reshape(-1), count)
        full = np.zeros((count, len(found.T)), found.dtype)
    else:
        count = row_capacity(bound, indices.shape[0], "the entries of a reduction depend on traced indices")
        own = jnp.asarray(indices)[:, axes_kept]
        own = jnp.where(jnp.asarray(indices)[:, :1] < 0, -1, own)
        order = order_of(own) if kept else jnp.argsort(indices[:, 0] < 0, stable=True)
        own = take(own, order, 0)
        ids = numbered(own)
        valid = take(jnp.asarray(indices), order, 0)[:, 0] >= 0
        ids = jnp.where(valid, ids, count)
        out = segment_reduce(kind, take(values, order, 0), ids, count)
        rows = jnp.full((count, len(kept)), -1, own.dtype).at[ids].set(own, mode="drop")
        used = jnp.zeros(count, bool).at[ids].set(True, mode="drop")
        out = jnp.where(used, out, jnp.zeros((), out.dtype))
        full = jnp.where(used[:, None], 0, jnp.full((count, indices.shape[1]), -1, own.dtype))
        rows, out, full = truncate_rows(bound, lambda: jnp.count_nonzero(used), rows, out, full, of=(used,))
    if keep_dims:
        rows = jnp.asarray(full).at[:, axes_kept].set(rows) if kept else full
    return rows, out, shape_of(out_shape)


def _register(kind: str) -> None:
    @op(f"SparseReduce{kind}")
    def dense(input_indices, input_values, input_shape: Static, reduction_axes: Static, *, keep_dims=False):
        """Reduce entries over axes to a dense tensor.

        A maximum is NaN if any entry is NaN (in TensorFlow, on CPU, that depends on the order of entries).
        """
        return _reduce(kind, input_indices, input_values, input_shape, reduction_axes, keep_dims)

    @op(f"SparseReduce{kind}Sparse")
    def sparse(input_indices, input_values, input_shape, reduction_axes, *, keep_dims=False, bound: Bound):
        """Reduce entries over axes to a sparse tensor."""
        return _reduce_sparse(kind, input_indices, input_values, input_shape, reduction_axes, keep_dims, bound)


for _kind in ("Sum", "Max"):
    _register(_kind)
