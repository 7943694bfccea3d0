"""Factorizations, inverses and solvers.

Kernels: tensorflow/core/kernels/linalg. 16-bit floats are computed in float32. Where TensorFlow raises (a singular
matrix, one that is not positive definite), results are inf or NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import canonical

from ._decomposition_jvps import conj_transpose, eigh
from ._decomposition_jvps import svd as singular_values
from .banded import broadcast_batch, triangular_solve


def _in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` with 16-bit floats computed in float32, as LAPACK has neither."""

    @functools.wraps(fn)
    def call(*inputs: Any, **attrs: Any) -> Any:
        return in_float32(functools.partial(fn, **attrs), *map(jnp.asarray, inputs))

    return call


def _cholesky_pull(factor: Any, grad: Any) -> Any:
    size = factor.shape[-1]
    middle = jnp.tril(conj_transpose(factor) @ jnp.tril(grad))
    half = middle * (1 - 0.5 * jnp.eye(size, dtype=factor.dtype))
    identity = jnp.broadcast_to(jnp.eye(size, dtype=factor.dtype), factor.shape)
    inverse = lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)
    out = conj_transpose(inverse) @ half @ inverse
    return (out + conj_transpose(out)) / 2


@jax.custom_jvp
def _symmetric_cholesky(input: Any) -> Any:
    return jnp.linalg.cholesky(input, symmetrize_input=False)


@_symmetric_cholesky.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # TensorFlow's gradient is symmetric, although the kernel reads the lower triangle alone.
    factor = _symmetric_cholesky(*primals)
    change = (tangents[0] + conj_transpose(tangents[0])) / 2
    inner = lax.linalg.triangular_solve(factor, change, left_side=True, lower=True)
    inner = lax.linalg.triangular_solve(factor, inner, lower=True, transpose_a=True, conjugate_a=True)
    half = 1 - 0.5 * jnp.eye(factor.shape[-1], dtype=factor.dtype)
    return factor, factor @ (jnp.tril(inner) * half)


@op("Cholesky", "BatchCholesky", pattern=Pattern.MATERIALIZED)
@_in_float32
def cholesky(input):
    """Return lower Cholesky factors.

    TF: core/kernels/linalg/cholesky_op.cc.

    Args:
      input: ``[..., n, n]``, Hermitian positive definite; the lower triangle is read. The gradient is symmetric.
    """
    return _symmetric_cholesky(jnp.asarray(input))


@op("CholeskyGrad", "BatchCholeskyGrad")
def cholesky_grad(factor, grad):
    """Return the gradient of Cholesky, symmetric as TensorFlow's.

    Args:
      grad: ``[..., n, n]``, their gradient.
    """
    return _cholesky_pull(jnp.asarray(factor), jnp.asarray(grad))


@op("MatrixInverse", "BatchMatrixInverse", pattern=Pattern.MATERIALIZED)
@_in_float32
def matrix_inverse(input, *, adjoint=False):
    """Return inverses of matrices."""
    input = jnp.asarray(input)
    return jnp.linalg.inv(conj_transpose(input) if adjoint else input)


@op("MatrixDeterminant", "BatchMatrixDeterminant", pattern=Pattern.MATERIALIZED)
@_in_float32
def matrix_determinant(input):
    """Return determinants ``[...]`` of matrices ``[..., n, n]``."""
    return jnp.linalg.det(jnp.asarray(input))


@op("LogMatrixDeterminant", pattern=Pattern.MATERIALIZED)
@_in_float32
def log_matrix_determinant(input):
    """Return signs and logarithms of determinants, ``[...]`` each."""
    sign, log = jnp.linalg.slogdet(jnp.asarray(input))
    return sign, log.astype(sign.dtype)


@op("MatrixSolve", "BatchMatrixSolve", pattern=Pattern.MATERIALIZED)
@_in_float32
def matrix_solve(matrix, rhs, *, adjoint=False):
    """Solve linear systems.

    Args:
      rhs: ``[..., n, columns]``; leading dimensions broadcast.
    """
    matrix, rhs = broadcast_batch(jnp.asarray(matrix), jnp.asarray(rhs))
    return jnp.linalg.solve(conj_transpose(matrix) if adjoint else matrix, rhs)


@op("MatrixTriangularSolve", "BatchMatrixTriangularSolve", pattern=Pattern.MATERIALIZED)
@_in_float32
def matrix_triangular_solve(matrix, rhs, *, lower=True, adjoint=False):
    """Solve triangular systems.

    Args:
      matrix: ``[..., n, n]``; the other triangle is not read.
      rhs: ``[..., n, columns]``; leading dimensions broadcast.
    """
    return triangular_solve(jnp.asarray(matrix), jnp.asarray(rhs), lower, adjoint)


@op("MatrixSolveLs", "BatchMatrixSolveLs", pattern=Pattern.MATERIALIZED)
@_in_float32
def matrix_solve_ls(matrix, rhs, l2_regularizer, *, fast=True):
    """Solve least-squares problems.

    TF: core/kernels/linalg/matrix_solve_ls_op_impl.h.

    Args:
      l2_regularizer: scalar; unused if not ``fast``.
    """
    matrix, rhs = jnp.asarray(matrix), jnp.asarray(rhs)
    rows, columns = matrix.shape[-2:]
    if not fast:
        smallest = jnp.finfo(matrix.dtype).eps * min(rows, columns)  # Eigen's threshold for 0, relative to the largest
        return jnp.linalg.pinv(matrix, rtol=smallest) @ rhs
    factor = jnp.asarray(l2_regularizer).astype(matrix.dtype)
    adjoint = conj_transpose(matrix)
    if rows >= columns:
        gram = adjoint @ matrix + factor * jnp.eye(columns, dtype=matrix.dtype)
        return jnp.linalg.solve(gram, adjoint @ rhs)
    gram = matrix @ adjoint + factor * jnp.eye(rows, dtype=matrix.dtype)
    return adjoint @ jnp.linalg.solve(gram, rhs)


@op("Qr", pattern=Pattern.MATERIALIZED)
@_in_float32
def qr(input, *, full_matrices=False):
    """Return orthogonal and triangular factors."""
    q, r = jnp.linalg.qr(jnp.asarray(input), mode="complete" if full_matrices else "reduced")
    return q, r


@op("Svd", "BatchSvd", pattern=Pattern.MATERIALIZED)
@_in_float32
def svd(input, *, compute_uv=True, full_matrices=False):
    """Return singular values and vectors; signs of vectors are arbitrary.

    Returns:
      Singular values ``[..., min(m, n)]`` in descending order, left and right vectors in columns.
    """
    input = jnp.asarray(input)
    if not compute_uv:
        s = jnp.linalg.svd(input, compute_uv=False)
        return s.astype(input.dtype), jnp.zeros((0,), input.dtype), jnp.zeros((0,), input.dtype)
    s, u, v = singular_values(input, full_matrices)
    return s.astype(input.dtype), u, v


@op("SelfAdjointEigV2", "BatchSelfAdjointEigV2", pattern=Pattern.MATERIALIZED)
@_in_float32
def self_adjoint_eig(input, *, compute_v=True):
    """Return eigenvalues and eigenvectors of Hermitian matrices.

    Args:
      input: ``[..., n, n]``; the lower triangle is read.

    Returns:
      Eigenvalues ``[..., n]`` in ascending order, and eigenvectors in columns ``[..., n, n]``.
    """
    input = jnp.asarray(input)
    lower = jnp.tril(input, -1)
    diagonal = jnp.real(jnp.diagonal(input, axis1=-2, axis2=-1)).astype(input.dtype)
    full = lower + conj_transpose(lower) + diagonal[..., None] * jnp.eye(input.shape[-1], dtype=input.dtype)
    values, vectors = eigh(full)
    values = values.astype(input.dtype)
    return (values, vectors) if compute_v else (values, jnp.zeros((0,), input.dtype))


@op("Lu", pattern=Pattern.MATERIALIZED)
@_in_float32
def lu(input, *, output_idx_type=np.int32):
    """Return packed triangular factors and the row permutation."""
    packed, _, permutation = jax.lax.linalg.lu(jnp.asarray(input))
    return packed, permutation.astype(canonical(output_idx_type))
