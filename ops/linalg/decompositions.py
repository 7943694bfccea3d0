"""Decompositions, inverses and solvers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import op
from tf2jax_lite.values.static import canonical

from ._decomposition_jvps import adjoint_of, eigh
from ._decomposition_jvps import svd as singular
from .matmul import widened


def _in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Computes in float32 what is given in float16 or bfloat16: LAPACK has neither."""

    @functools.wraps(fn)
    def wide(*inputs: Any, **attrs: Any) -> Any:
        arrays = [jnp.asarray(x) for x in inputs]
        results = fn(*map(widened, arrays), **attrs)
        dtype = arrays[0].dtype
        if widened(arrays[0]) is arrays[0]:
            return results
        return jax.tree.map(lambda r: r.astype(dtype) if r.dtype == np.float32 else r, results)

    return wide


def _batched(matrix: Any, rhs: Any) -> tuple[Any, Any]:
    batch = jnp.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    return jnp.broadcast_to(matrix, (*batch, *matrix.shape[-2:])), jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))


def _cholesky_pull(factor: Any, grad: Any) -> Any:
    size = factor.shape[-1]
    middle = jnp.tril(adjoint_of(factor) @ jnp.tril(grad))
    half = middle * (1 - 0.5 * jnp.eye(size, dtype=factor.dtype))
    identity = jnp.broadcast_to(jnp.eye(size, dtype=factor.dtype), factor.shape)
    inverse = lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)
    out = adjoint_of(inverse) @ half @ inverse
    return (out + adjoint_of(out)) / 2


@jax.custom_jvp
def _symmetric_cholesky(input: Any) -> Any:
    return jnp.linalg.cholesky(input, symmetrize_input=False)


@_symmetric_cholesky.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # The kernel reads the lower triangle, and TensorFlow's gradient is symmetric all the same.
    factor = _symmetric_cholesky(*primals)
    change = (tangents[0] + adjoint_of(tangents[0])) / 2
    inner = lax.linalg.triangular_solve(factor, change, left_side=True, lower=True)
    inner = lax.linalg.triangular_solve(factor, inner, lower=True, transpose_a=True, conjugate_a=True)
    half = 1 - 0.5 * jnp.eye(factor.shape[-1], dtype=factor.dtype)
    return factor, factor @ (jnp.tril(inner) * half)


@op("Cholesky", "BatchCholesky", stored=True)
@_in_float32
def cholesky(input: Any) -> Any:
    """Returns the lower Cholesky factor. See tf.raw_ops.Cholesky."""
    return _symmetric_cholesky(jnp.asarray(input))


@op("CholeskyGrad", "BatchCholeskyGrad")
def cholesky_grad(factor: Any, grad: Any) -> Any:
    """Returns the gradient of Cholesky, symmetric as TensorFlow's. See tf.raw_ops.CholeskyGrad."""
    return _cholesky_pull(jnp.asarray(factor), jnp.asarray(grad))


@op("MatrixInverse", "BatchMatrixInverse", stored=True)
@_in_float32
def matrix_inverse(input: Any, *, adjoint: bool = False) -> Any:
    """Inverts. See tf.raw_ops.MatrixInverse."""
    input = jnp.asarray(input)
    return jnp.linalg.inv(adjoint_of(input) if adjoint else input)


@op("MatrixDeterminant", "BatchMatrixDeterminant", stored=True)
@_in_float32
def matrix_determinant(input: Any) -> Any:
    """Returns the determinant. See tf.raw_ops.MatrixDeterminant."""
    return jnp.linalg.det(jnp.asarray(input))


@op("LogMatrixDeterminant", stored=True)
@_in_float32
def log_matrix_determinant(input: Any) -> Any:
    """Returns sign and logarithm of the determinant. See tf.raw_ops.LogMatrixDeterminant."""
    sign, log = jnp.linalg.slogdet(jnp.asarray(input))
    return sign, log.astype(sign.dtype)


@op("MatrixSolve", "BatchMatrixSolve", stored=True)
@_in_float32
def matrix_solve(matrix: Any, rhs: Any, *, adjoint: bool = False) -> Any:
    """Solves linear systems. See tf.raw_ops.MatrixSolve."""
    matrix, rhs = _batched(jnp.asarray(matrix), jnp.asarray(rhs))
    return jnp.linalg.solve(adjoint_of(matrix) if adjoint else matrix, rhs)


@op("MatrixTriangularSolve", "BatchMatrixTriangularSolve", stored=True)
@_in_float32
def matrix_triangular_solve(matrix: Any, rhs: Any, *, lower: bool = True, adjoint: bool = False) -> Any:
    """Solves triangular systems. See tf.raw_ops.MatrixTriangularSolve."""
    matrix, rhs = _batched(jnp.asarray(matrix), jnp.asarray(rhs))
    return lax.linalg.triangular_solve(
        matrix, rhs, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint
    )


@op("MatrixSolveLs", "BatchMatrixSolveLs", stored=True)
@_in_float32
def matrix_solve_ls(matrix: Any, rhs: Any, l2_regularizer: Any, *, fast: bool = True) -> Any:
    """Solves least squares by the normal equations, or, not fast, by singular values. See tf.raw_ops.MatrixSolveLs.

    Not fast, the regularizer does not count, and of many solutions it is the shortest.
    """
    matrix, rhs = jnp.asarray(matrix), jnp.asarray(rhs)
    rows, columns = matrix.shape[-2:]
    if not fast:
        smallest = jnp.finfo(matrix.dtype).eps * min(rows, columns)  # what Eigen takes for 0, by the largest
        return jnp.linalg.pinv(matrix, rtol=smallest) @ rhs
    factor = jnp.asarray(l2_regularizer).astype(matrix.dtype)
    adjoint = adjoint_of(matrix)
    if rows >= columns:
        gram = adjoint @ matrix + factor * jnp.eye(columns, dtype=matrix.dtype)
        return jnp.linalg.solve(gram, adjoint @ rhs)
    gram = matrix @ adjoint + factor * jnp.eye(rows, dtype=matrix.dtype)
    return adjoint @ jnp.linalg.solve(gram, rhs)


@op("Qr", stored=True)
@_in_float32
def qr(input: Any, *, full_matrices: bool = False) -> Any:
    """Returns orthogonal and triangular factors. See tf.raw_ops.Qr."""
    q, r = jnp.linalg.qr(jnp.asarray(input), mode="complete" if full_matrices else "reduced")
    return q, r


@op("Svd", "BatchSvd", stored=True)
@_in_float32
def svd(input: Any, *, compute_uv: bool = True, full_matrices: bool = False) -> Any:
    """Returns singular values and vectors; the vectors' signs are open. See tf.raw_ops.Svd."""
    input = jnp.asarray(input)
    if not compute_uv:
        s = jnp.linalg.svd(input, compute_uv=False)
        return s.astype(input.dtype), jnp.zeros((0,), input.dtype), jnp.zeros((0,), input.dtype)
    s, u, v = singular(input, full_matrices)
    return s.astype(input.dtype), u, v


@op("SelfAdjointEigV2", "BatchSelfAdjointEigV2", stored=True)
@_in_float32
def self_adjoint_eig(input: Any, *, compute_v: bool = True) -> Any:
    """Returns eigenvalues and vectors, read from the lower triangle. See tf.raw_ops.SelfAdjointEigV2."""
    input = jnp.asarray(input)
    lower = jnp.tril(input, -1)
    diagonal = jnp.real(jnp.diagonal(input, axis1=-2, axis2=-1)).astype(input.dtype)
    full = lower + adjoint_of(lower) + diagonal[..., None] * jnp.eye(input.shape[-1], dtype=input.dtype)
    values, vectors = eigh(full)
    values = values.astype(input.dtype)
    return (values, vectors) if compute_v else (values, jnp.zeros((0,), input.dtype))


@op("Lu", stored=True)
@_in_float32
def lu(input: Any, *, output_idx_type: Any = np.dtype(np.int32)) -> Any:  # noqa: B008
    """Returns packed triangular factors and the permutation. See tf.raw_ops.Lu."""
    packed, _, permutation = jax.lax.linalg.lu(jnp.asarray(input))
    return packed, permutation.astype(canonical(output_idx_type))


@op("TridiagonalMatMul")
def tridiagonal_mat_mul(superdiag: Any, maindiag: Any, subdiag: Any, rhs: Any) -> Any:
    """Multiplies by a tridiagonal matrix. See tf.raw_ops.TridiagonalMatMul."""
    up, main, down = (jnp.swapaxes(jnp.asarray(d), -1, -2) for d in (superdiag, maindiag, subdiag))
    rhs = jnp.asarray(rhs)
    zero = jnp.zeros_like(rhs[..., :1, :])
    following = jnp.concatenate([rhs[..., 1:, :], zero], -2)
    preceding = jnp.concatenate([zero, rhs[..., :-1, :]], -2)
    return up * following + main * rhs + down * preceding
