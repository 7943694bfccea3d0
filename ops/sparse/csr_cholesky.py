"""Sparse Cholesky factorization with fill-in."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.arrays.gather import take_nd
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from .csr import SparseMatrix, as_matrix

__all__: list[str] = []


@op("SparseMatrixSparseCholesky", pattern=Pattern.CONTRACTION)
def sparse_matrix_sparse_cholesky(input, permutation: Static, *, type):
    """Factor matrices, of which the lower triangle is read.

    TF: core/kernels/sparse/sparse_cholesky_op.cc.

    Values are computed in a dense matrix. A traced matrix that is not positive definite gives NaN (an error in
    TensorFlow).

    Args:
      input: matrices [..., n, n] with static indices.
      permutation: [..., n], static: the elimination order.
    """
    matrix = as_matrix(input, type)
    height, width = matrix.matrix
    orders = np.asarray(permutation)
    if height != width or orders.shape != (*matrix.dims[:-2], height):
        raise OpError(f"a matrix of shape {list(matrix.dims)} and a permutation of shape {list(orders.shape)}")
    if (np.sort(orders, axis=-1) != np.arange(height)).any():
        raise OpError("Cholesky factorization: not a permutation")
    found = static_value(matrix.indices)
    if found is None:
        raise OpError("which entries a Cholesky factor has depends on traced indices; they must be known while tracing")
    batched = len(matrix.dims) == 3
    orders = orders.reshape(-1, height)
    indices = []
    for number, order in enumerate(orders):
        own = found[found[:, 0] == number][:, 1:] if batched else found
        rows = _with_fill_in(own, order)
        indices.append(np.concatenate([np.full((len(rows), 1), number), rows], 1) if batched else rows)
    where = np.concatenate(indices).astype(canonical(np.int64)) if indices else found
    factor = _factor(matrix.dense(), orders.reshape(*matrix.dims[:-2], height))
    values = take_nd(factor, jnp.asarray(where))
    result = static_value(values)
    if result is not None and np.isnan(result).any():
        raise OpError("Cholesky factorization failed: a matrix may not be positive definite")
    return SparseMatrix(where, values, matrix.dims)


def _factor(dense: Any, order: np.ndarray) -> Any:
    """Return the lower factor of a permuted Hermitian matrix's lower triangle."""
    lower, strict = jnp.tril(dense), jnp.tril(dense, -1)
    full = lower + jnp.swapaxes(strict.conj(), -1, -2)
    rows = jnp.take_along_axis(full, order[..., :, None], axis=-2)
    return jnp.linalg.cholesky(jnp.take_along_axis(rows, order[..., None, :], axis=-1), symmetrize_input=False)


def _with_fill_in(indices: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return indices of a factor's entries: the matrix's, and its fill-in."""
    inverse = np.argsort(order)
    below = indices[indices[:, 0] >= indices[:, 1]]
    rows, columns = inverse[below[:, 0]], inverse[below[:, 1]]
    nonzero = np.eye(len(order), dtype=bool)
    nonzero[np.maximum(rows, columns), np.minimum(rows, columns)] = True
    for column in range(len(order)):
        # A column's entries below the diagonal propagate to its parent in the elimination tree.
        under = np.flatnonzero(nonzero[column + 1 :, column]) + column + 1
        if under.size:
            nonzero[under, under[0]] = True
    return np.argwhere(nonzero)
