"""Factorizations, inverses, solvers, square root, logarithm and exponential.

Kernels: tensorflow/core/kernels/linalg. 16-bit floats are computed in float32. Where TensorFlow raises (a singular
matrix, one that is not positive definite), results are inf or NaN. JAX has some decompositions on CPU only.

Derivatives are finite at repeated or zero eigenvalues and singular values. Eigenvectors of a repeated eigenvalue are
defined only up to rotation. JAX divides by the difference of eigenvalues, TensorFlow (python/ops/linalg_grad.py) by its
regularized reciprocal x / (x^2 + 1e-20). So functions that do not depend on the choice of eigenvectors (a
pseudo-inverse, a function of a symmetric matrix) have finite gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop, while_loop
from tf2jax_lite.ops.common.precision import in_float32, upcast
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import canonical

from .banded import broadcast_batch, triangular_solve
from .matmul import as_matrix

# TensorFlow's linalg_grad uses this number for all dtypes.
_EPSILON = 1e-20


def conj_transpose(x: Any) -> Any:
    """Return the conjugate transpose of matrices."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _reciprocal(x: Any) -> Any:
    return x / (x * x + _EPSILON)


def _reciprocal_differences(values: Any, squares: bool = False) -> Any:
    """Return 1 / (values[j] - values[i]) or the same of squares, 0 where undefined."""
    # Squares are differenced as the product of sum and difference, which is exactly 0 for equal values; a difference of
    # squares in one fused operation is not.
    row, column = values[..., None, :], values[..., :, None]
    difference = row - column
    off_diagonal = ~jnp.eye(values.shape[-1], dtype=bool)
    return jnp.where(off_diagonal, _reciprocal(difference * (row + column) if squares else difference), 0)


def _diagonal(x: Any) -> Any:
    return jnp.diagonal(x, axis1=-2, axis2=-1)


@jax.custom_jvp
def finite_eigh(x: Any) -> tuple[Any, Any]:
    """Return ascending eigenvalues and eigenvectors (columns) of Hermitian matrices."""
    values, vectors = jnp.linalg.eigh(x, symmetrize_input=False)
    return values, vectors


@finite_eigh.defjvp
def _eigh_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = finite_eigh(*primals)
    rotated = conj_transpose(vectors) @ tangents[0] @ vectors
    moved = vectors @ (_reciprocal_differences(values).astype(rotated.dtype) * rotated)
    return (values, vectors), (jnp.real(_diagonal(rotated)).astype(values.dtype), moved)


@jax.custom_jvp
def finite_eig(x: Any) -> tuple[Any, Any]:
    """Return complex eigenvalues and eigenvectors of length 1 (columns) of matrices."""
    values, vectors = jnp.linalg.eig(x)
    return values, vectors


@finite_eig.defjvp
def _eig_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = finite_eig(*primals)
    rotated = jnp.linalg.solve(vectors, tangents[0].astype(vectors.dtype) @ vectors)
    coefficients = _reciprocal_differences(values) * rotated
    # Vectors keep their length. TensorFlow's rule keeps their phases, which are LAPACK's.
    lengths = jnp.real(_diagonal(conj_transpose(vectors) @ vectors @ coefficients))
    moved = vectors @ coefficients - vectors * lengths[..., None, :]
    return (values, vectors), (_diagonal(rotated), moved)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def finite_svd(x: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
    """Return descending singular values, and left and right vectors in columns."""
    u, s, vh = jnp.linalg.svd(x, full_matrices=full_matrices)
    return s, u, conj_transpose(vh)


def _completed(first: Any, moved: Any, all_: Any) -> Any:
    """Return tangents of the completing vectors, without rotation among themselves."""
    rest = all_[..., first.shape[-1] :]
    return jnp.concatenate([moved, -first @ (conj_transpose(moved) @ rest)], -1)


@finite_svd.defjvp
def _svd_jvp(full_matrices: bool, primals: Any, tangents: Any) -> Any:
    s, all_u, all_v = finite_svd(primals[0], full_matrices)
    (dx,) = tangents
    rows, columns = dx.shape[-2:]
    rank = min(rows, columns)
    u, v = all_u[..., :rank], all_v[..., :rank]
    row = s[..., None, :].astype(dx.dtype)
    column = s[..., :, None].astype(dx.dtype)
    inverse = _reciprocal(s)[..., None, :].astype(dx.dtype)
    differences = _reciprocal_differences(s, squares=True).astype(dx.dtype)
    rotated = conj_transpose(u) @ dx @ v
    by_row, by_column = rotated * row, rotated * column
    to_u = differences * (by_row + conj_transpose(by_row))
    to_v = differences * (by_column + conj_transpose(by_column))
    if jnp.issubdtype(dx.dtype, jnp.complexfloating):
        # Phases of vectors are arbitrary. TensorFlow rotates those of the longer side.
        phase = (rotated - conj_transpose(rotated)) * jnp.eye(rank, dtype=dx.dtype) / 2 * inverse
        to_u, to_v = (to_u + phase, to_v) if rows > columns else (to_u, to_v - phase)
    du, dv = u @ to_u, v @ to_v
    if rows > rank:
        outside = dx @ v
        du += (outside - u @ (conj_transpose(u) @ outside)) * inverse
    if columns > rank:
        outside = conj_transpose(dx) @ u
        dv += (outside - v @ (conj_transpose(v) @ outside)) * inverse
    if full_matrices and rows > rank:
        du = _completed(u, du, all_u)
    if full_matrices and columns > rank:
        dv = _completed(v, dv, all_v)
    return (s, all_u, all_v), (jnp.real(_diagonal(rotated)).astype(s.dtype), du, dv)


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
    s, u, v = finite_svd(input, full_matrices)
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
    values, vectors = finite_eigh(full)
    values = values.astype(input.dtype)
    return (values, vectors) if compute_v else (values, jnp.zeros((0,), input.dtype))


@op("Lu", pattern=Pattern.MATERIALIZED)
@_in_float32
def lu(input, *, output_idx_type=np.int32):
    """Return packed triangular factors and the row permutation."""
    packed, _, permutation = jax.lax.linalg.lu(jnp.asarray(input))
    return packed, permutation.astype(canonical(output_idx_type))


def full_product(x: Any, y: Any) -> Any:
    """Multiply matrices in full precision, as factorizations need it."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


@op("Eig", pattern=Pattern.MATERIALIZED)
def eig(input, *, compute_v=True, Tout):
    """Return eigenvalues and eigenvectors of square matrices, in LAPACK's order.

    Args:
      input: ``[..., n, n]``, float or complex.

    Returns:
      Eigenvalues ``[..., n]``, and eigenvectors in columns ``[..., n, n]``.
    """
    input, dtype = as_matrix(input, square=True), canonical(Tout)
    if compute_v:
        values, vectors = finite_eig(input)
        return values.astype(dtype), vectors.astype(dtype)
    return jnp.linalg.eigvals(input).astype(dtype), jnp.zeros((), dtype)


def _triangular_square_root(x: Any) -> Any:
    """Return an upper triangular matrix's square root, diagonal by diagonal."""
    size = x.shape[-1]
    distance = np.arange(size)[None, :] - np.arange(size)[:, None]
    diagonal = jnp.sqrt(jnp.diagonal(x, axis1=-2, axis2=-1))
    sums = diagonal[..., :, None] + diagonal[..., None, :]
    sums = jnp.where(sums == 0, 1, sums)

    def fill(step: Any, root: Any) -> Any:
        return jnp.where(distance == step, (x - full_product(root, root)) / sums, root)

    start = jnp.where(distance == 0, diagonal[..., None], 0)
    return fori_loop(1, size, fill, start) if size > 1 else start


def _complex(dtype: Any) -> np.dtype:
    return np.dtype(np.complex128) if np.dtype(dtype) in (np.float64, np.complex128) else np.dtype(np.complex64)


@jax.custom_jvp
def _square_root(x: Any) -> Any:
    triangle, basis = lax.linalg.schur(x.astype(_complex(x.dtype)))
    root = full_product(full_product(basis, _triangular_square_root(triangle)), conj_transpose(basis))
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return root
    # A real matrix with a negative eigenvalue has no real root: NaN, as in TensorFlow. Round-off is much smaller.
    sizes = [jnp.max(jnp.abs(part), axis=(-2, -1), keepdims=True, initial=0) for part in (jnp.imag(root), root)]
    is_real = sizes[0] <= jnp.finfo(x.dtype).eps ** 0.5 * sizes[1]
    return jnp.where(is_real, jnp.real(root), jnp.nan).astype(x.dtype)


@_square_root.defjvp
def _square_root_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    # R dR + dR R = dX, as one system of linear equations for the rows of dR.
    root, size = _square_root(primals[0]), primals[0].shape[-1]
    eye = np.eye(size, dtype=root.dtype)
    left = jnp.einsum("...ij,kl->...ikjl", root, eye)
    right = jnp.einsum("ij,...lk->...ikjl", eye, root)
    system = (left + right).reshape(*root.shape[:-2], size * size, size * size)
    tangent = jnp.linalg.solve(system, tangents[0].reshape(*root.shape[:-2], size * size, 1))
    return root, tangent.reshape(root.shape)


@op("MatrixSquareRoot")
def matrix_square_root(input):
    """Return square roots of matrices, by the Schur decomposition.

    Args:
      input: ``[..., n, n]``, float or complex. A real matrix without a real root gives NaN, as in TensorFlow.
    """
    input = as_matrix(input, square=True)
    return _square_root(upcast(input)).astype(input.dtype)


@op("MatrixLogarithm")
def matrix_logarithm(input):
    """Return logarithms of matrices, by inverse scaling and squaring.

    As in TensorFlow, it has no gradient.

    Args:
      input: ``[..., n, n]``, complex.
    """
    input = as_matrix(input, square=True)
    eye = np.eye(input.shape[-1], dtype=input.dtype)
    triangle, basis = lax.linalg.schur(lax.stop_gradient(input))

    def is_far(state: Any) -> Any:
        root, count = state
        return (jnp.max(jnp.sum(jnp.abs(root - eye), -2), initial=0) > 0.25) & (count < 60)

    def take_root(state: Any) -> Any:
        root, count = state
        return _triangular_square_root(root), count + 1

    root, count = while_loop(is_far, take_root, (triangle, jnp.zeros((), np.int32)))
    # log(I + X) is the integral of X (I + t X)^-1 over t in [0, 1]: Gauss-Legendre, which is a Pade approximant.
    nodes, weights = np.polynomial.legendre.leggauss(8)
    rest = root - eye
    logarithm = jnp.zeros_like(rest)
    for node, weight in zip(nodes, weights, strict=True):
        solved = lax.linalg.triangular_solve(eye + rest * float((node + 1) / 2), rest, left_side=True)
        logarithm = logarithm + solved * float(weight / 2)
    logarithm = logarithm * jnp.exp2(count.astype(jnp.real(rest).dtype))
    exact = jnp.log(jnp.diagonal(triangle, axis1=-2, axis2=-1))[..., None]
    logarithm = jnp.where(eye == 1, exact, logarithm)
    return full_product(full_product(basis, logarithm), conj_transpose(basis))


@op("SelfAdjointEig", "BatchSelfAdjointEig")
def self_adjoint_eig_v1(input):
    """Return eigenvalues as a row above the eigenvectors.

    TF: BatchSelfAdjointEig.
    """
    values, vectors = self_adjoint_eig(as_matrix(input, square=True))
    return jnp.concatenate([values[..., None, :], vectors], axis=-2)


@op("MatrixExponential")
def matrix_exponential(input):
    """Return matrix exponentials; NaN for norms of 300,000 and more."""
    return jax.scipy.linalg.expm(as_matrix(input, square=True))
