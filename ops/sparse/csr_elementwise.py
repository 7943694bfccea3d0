"""Sums, scaling and softmax of CSR matrices, for which only GPUs have kernels.

TF: core/kernels/sparse/softmax_op.cc.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.row_boundaries import numbered
from tf2jax_lite.ops.math.segment import segment_reduce
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims_array, static_value

from .coo import pick, same_rows, union
from .coo_elementwise import sparse_softmax
from .csr import SparseMatrix, as_matrix

__all__: list[str] = []


@op("SparseMatrixAdd")
def sparse_matrix_add(a, b, alpha, beta, *, bound: Bound):
    """Return ``alpha * a + beta * b``, with an entry wherever one has one.

    TF: core/kernels/sparse/add_op.cc.

    As in TensorFlow, ``alpha`` and ``beta`` have no gradients.
    """
    a, b = as_matrix(a, alpha.dtype), as_matrix(b, beta.dtype)
    if a.dims != b.dims:
        raise OpError(f"sparse matrices of shapes {list(a.dims)} and {list(b.dims)} cannot be added")
    if alpha.ndim or beta.ndim:
        raise OpError("alpha and beta must be scalars")
    indices, at_a, at_b = union(a.indices, b.indices, bound)
    alpha, beta = (lax.stop_gradient(jnp.asarray(v)) for v in (alpha, beta))
    return SparseMatrix(indices, alpha * pick(a.values, at_a) + beta * pick(b.values, at_b), a.dims)


@op("SparseMatrixMul")
def sparse_matrix_mul(a, b):
    """Multiply by a scalar, or each matrix of a batch by one.

    TF: core/kernels/sparse/mul_op.cc.
    """
    matrix, b = as_matrix(a, b.dtype), jnp.asarray(b)
    if not b.ndim:
        return matrix.with_values(matrix.values * b)
    if len(matrix.dims) != 3 or b.shape != (matrix.dims[0], 1, 1):
        shapes = f"{list(matrix.dims)} is multiplied by a tensor of shape {list(b.shape)}"
        raise OpError(f"a sparse matrix of shape {shapes}, not by one number, or by one for each of a batch")
    return matrix.with_values(matrix.values * take(jnp.reshape(b, (-1,)), matrix.indices[:, 0], 0))


@op("SparseMatrixSoftmax")
def sparse_matrix_softmax(logits, *, type):
    """Softmax over the entries of each row."""
    matrix = as_matrix(logits, type)
    if not matrix.values.shape[0]:
        return matrix
    return matrix.with_values(sparse_softmax(matrix.indices, matrix.values, dims_array(matrix.dims, np.int64)))


@op("SparseMatrixSoftmaxGrad")
def sparse_matrix_softmax_grad(softmax, grad_softmax, *, type):
    """Return the gradient of SparseMatrixSoftmax."""
    matrix, gradient = as_matrix(softmax, type), as_matrix(grad_softmax, type)
    if matrix.dims != gradient.dims:
        raise OpError(f"gradients of shape {list(gradient.dims)} for a softmax of shape {list(matrix.dims)}")
    count = matrix.values.shape[0]
    upstream = pick(gradient.values, same_rows(matrix.indices, gradient.indices))
    found = static_value(matrix.indices)
    rows = numbered((jnp.asarray(matrix.indices) if found is None else found)[:, :-1])
    sums = take(segment_reduce("Sum", matrix.values * upstream, rows, count), rows, 0)
    return matrix.with_values((upstream - sums) * matrix.values)
