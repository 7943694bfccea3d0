"""Arithmetic of COO sparse tensors: with dense ones, elementwise, and reductions.

TF: core/kernels/sparse_dense_binary_op_shared.cc, core/kernels/sparse_reduce_op.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take, take_nd
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.rows import numbered
from tf2jax_lite.ops.math.segment import segment_reduce
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, normalize_axes, static_value

from .coo import (
    check_indices,
    check_range,
    order_of,
    pick,
    same_rows,
    scatter_entries,
    select_entries,
    shape_of,
    sizes_of,
    static_integers,
    union,
)

# ---- products and sums with dense arrays ----


@op("SparseTensorDenseMatMul")
def sparse_tensor_dense_mat_mul(a_indices, a_values, a_shape: Static, b, *, adjoint_a=False, adjoint_b=False):
    """Multiply a sparse matrix by a dense one.

    TF: core/kernels/sparse_tensor_dense_matmul_op.cc.

    16-bit floats accumulate in float32. Traced indices out of range are skipped (an error in TensorFlow on CPU).
    """
    shape = dims(a_shape)
    if len(shape) != 2 or b.ndim != 2:
        raise OpError(f"two matrices are expected, not ranks {len(shape)} and {b.ndim}")
    check_indices(a_indices, a_values, a_shape)
    b = lax.conj(b.T) if adjoint_b and jnp.iscomplexobj(b) else b.T if adjoint_b else b
    a_values = lax.conj(a_values) if adjoint_a and jnp.iscomplexobj(a_values) else a_values
    row, column = (1, 0) if adjoint_a else (0, 1)
    if isinstance(shape[column], int) and isinstance(b.shape[0], int) and shape[column] != b.shape[0]:
        raise OpError(f"cannot multiply: the inner dimensions are {shape[column]} and {b.shape[0]}")
    dtype = jnp.asarray(b).dtype
    # TensorFlow, too, sums 16-bit floats in float32.
    accumulator = jnp.float32 if dtype in (jnp.bfloat16, jnp.float16) else dtype
    rows = lax.convert_element_type(take(b, jnp.asarray(a_indices[:, column]), 0), accumulator)
    parts = lax.convert_element_type(a_values, accumulator)[:, None] * rows
    out = scatter_entries(jnp.zeros((shape[row], b.shape[1]), accumulator), a_indices[:, row : row + 1], parts, "add")
    return lax.convert_element_type(out, dtype)


@op("SparseTensorDenseAdd")
def sparse_tensor_dense_add(a_indices, a_values, a_shape, b):
    """Add a sparse tensor to a dense one.

    TF: core/kernels/sparse_tensor_dense_add_op.cc.

    Traced indices out of range are skipped (an error in TensorFlow).
    """
    check_indices(a_indices, a_values, a_shape)
    found = static_value(a_shape)
    if a_indices.shape[1] != b.ndim or (
        found is not None and any(isinstance(d, int) and d != s for d, s in zip(b.shape, dims(found), strict=True))
    ):
        raise OpError(f"a dense tensor of shape {b.shape} and a sparse one of shape {found}")
    return scatter_entries(b, a_indices, a_values, "add")


def _dense_parts(sparse_indices: Any, sparse_values: Any, output_shape: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    shape = dims(output_shape)
    indices, values = sparse_indices, sparse_values
    if indices.ndim > 2 or values.ndim > 1 or np.ndim(output_shape) != 1:
        raise OpError("indices must be at most a matrix, values at most a vector, and output_shape a vector")
    if indices.ndim < 2:
        indices = indices.reshape((1, 1) if indices.ndim == 0 else (-1, 1))
    if indices.shape[1] != len(shape):
        raise OpError(f"indices of rank {indices.shape[1]} in a shape of rank {len(shape)}")
    count = indices.shape[0]
    if values.ndim and values.shape[0] != count:
        raise OpError(f"{count} indices for {values.shape[0]} values")
    return indices, values, shape


def _check_unique(indices: Any, validate: bool) -> None:
    """Raise OpError if static indices do not increase, as TensorFlow does."""
    found = static_value(indices)
    if not validate or found is None or found.shape[0] < 2:
        return
    step = found[1:] - found[:-1]
    first = np.argmax(step != 0, axis=1) if step.shape[1] else np.zeros(len(step), int)
    sign = np.take_along_axis(step, first[:, None], axis=1)[:, 0] if step.shape[1] else first
    if (sign <= 0).any():
        row = int(np.argmax(sign <= 0)) + 1
        raise OpError(f"indices[{row}] = {found[row].tolist()} is repeated or out of order")


def _host_sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any, *, validate_indices: bool = True
) -> Any:
    indices, values, shape = _dense_parts(sparse_indices, sparse_values, output_shape)
    if not all(isinstance(d, int) for d in shape):
        return sparse_to_dense(
            *(as_array(v) for v in (sparse_indices, output_shape, sparse_values, default_value)),
            validate_indices=validate_indices,
        )
    check_range(indices, shape)
    _check_unique(indices, validate_indices)
    out = np.full(shape, default_value, dtype=np.asarray(values).dtype)
    out[tuple(indices.T)] = values
    return out


@op("SparseToDense", fold=_host_sparse_to_dense, result_size=result_size.from_sizes(1))
def sparse_to_dense(sparse_indices, output_shape: Static, sparse_values, default_value, *, validate_indices=True):
    """Scatter values into a tensor of a default value.

    TF: core/kernels/sparse_to_dense_op.cc.

    Traced indices are not checked: those out of range are skipped, and a repeated one keeps one of its values.
    """
    indices, values, shape = _dense_parts(sparse_indices, sparse_values, output_shape)
    check_range(indices, shape)
    _check_unique(indices, validate_indices)
    values = jnp.broadcast_to(values, (indices.shape[0],))
    return scatter_entries(jnp.broadcast_to(default_value, shape), indices, values, "set")


def _dense_at(indices: Any, values: Any, shape: Any, dense: Any) -> tuple[Any, Any]:
    """Return the values, and those of the broadcast dense tensor at the same indices."""
    check_indices(indices, values, shape)
    rank = indices.shape[1]
    if dense.ndim > rank:
        raise OpError(f"a dense tensor of rank {dense.ndim} does not broadcast to a sparse one of rank {rank}")
    found = static_value(shape)
    skipped = rank - dense.ndim
    for i, size in enumerate(dense.shape):
        if found is not None and size != 1 and isinstance(size, int) and size != dims(found)[skipped + i]:
            raise OpError(f"a dense tensor of shape {dense.shape} does not broadcast to {list(found)}")
    stretched = np.array([d == 1 for d in dense.shape], bool)
    own = indices[:, skipped:]
    # Padding (-1) must stay out of range.
    own = jnp.where(stretched & (jnp.asarray(own) >= 0), 0, own) if stretched.any() else own
    if dense.ndim == 0:
        return jnp.asarray(values), jnp.broadcast_to(dense, values.shape)
    return jnp.asarray(values), take_nd(dense, jnp.asarray(own))


@op("SparseDenseCwiseAdd")
def sparse_dense_cwise_add(sp_indices, sp_values, sp_shape, dense):
    """Add a broadcast dense tensor at the entries of a sparse one."""
    return lax.add(*_dense_at(sp_indices, sp_values, sp_shape, dense))


@op("SparseDenseCwiseMul")
def sparse_dense_cwise_mul(sp_indices, sp_values, sp_shape, dense):
    """Multiply the entries of a sparse tensor by a broadcast dense one."""
    return lax.mul(*_dense_at(sp_indices, sp_values, sp_shape, dense))


@op("SparseDenseCwiseDiv")
def sparse_dense_cwise_div(sp_indices, sp_values, sp_shape, dense):
    """Divide the entries of a sparse tensor by a broadcast dense one.

    Division by a traced zero gives inf or NaN (TensorFlow fails for a zero anywhere in the dense tensor).
    """
    found = static_value(dense)
    if found is not None and (found == 0).any():
        raise OpError("cannot divide by zero, but the dense tensor contains zero")
    return lax.div(*_dense_at(sp_indices, sp_values, sp_shape, dense))


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


def _register_extreme(name: str, fn: Callable[..., Any]) -> None:
    @op(name)
    def call(a_indices, a_values, a_shape, b_indices, b_values, b_shape, *, bound: Bound):
        """Return ``fn`` of two sparse tensors, where either has an entry.

        TF: core/kernels/sparse_sparse_binary_op_shared.cc.

        Args:
          b_shape: [rank], equal to ``a_shape``.
        """
        return _sparse_sparse(fn, (a_indices, a_values, a_shape), (b_indices, b_values, b_shape), bound)


_register_extreme("SparseSparseMaximum", lax.max)
_register_extreme("SparseSparseMinimum", lax.min)


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


def _register_reduction(kind: str) -> None:
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
    _register_reduction(_kind)
