"""Ops on a COO sparse tensor and a dense one: products, sums, conversion to dense.

TF: core/kernels/sparse_dense_binary_op_shared.cc.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.gather import take, take_nd
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims, static_value

from .coo import check_indices, check_range, scatter_entries

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
