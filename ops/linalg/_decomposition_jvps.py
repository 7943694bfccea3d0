"""Decompositions with finite derivatives at repeated or zero eigenvalues.

The same holds for singular values.

Eigenvectors of a repeated eigenvalue are defined only up to rotation. JAX divides by the difference of eigenvalues,
TensorFlow (python/ops/linalg_grad.py) by its regularized reciprocal x / (x^2 + 1e-20). So functions that do not depend
on the choice of eigenvectors (a pseudo-inverse, a function of a symmetric matrix) have finite gradients.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

# TensorFlow's linalg_grad uses this number for all dtypes.
_EPSILON = 1e-20


def conj_transpose(x: Any) -> Any:
    """Return the conjugate transpose of matrices."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _reciprocal(x: Any) -> Any:
    return x / (x * x + _EPSILON)


def _reciprocal_differences(values: Any, squares: bool = False) -> Any:
    """Return 1 / (values[j] - values[i]) or the same of squares, 0 where undefined.

    Squares are differenced as the product of sum and difference, which is exactly 0 for equal values; a difference of
    squares in one fused operation is not.
    """
    row, column = values[..., None, :], values[..., :, None]
    difference = row - column
    off_diagonal = ~jnp.eye(values.shape[-1], dtype=bool)
    return jnp.where(off_diagonal, _reciprocal(difference * (row + column) if squares else difference), 0)


def _diagonal(x: Any) -> Any:
    return jnp.diagonal(x, axis1=-2, axis2=-1)


@jax.custom_jvp
def eigh(x: Any) -> tuple[Any, Any]:
    """Decompose Hermitian matrices.

    Args:
      x: ``[..., n, n]``, Hermitian, float or complex.

    Returns:
      Real eigenvalues in ascending order ``[..., n]``, and eigenvectors in columns ``[..., n, n]``.
    """
    values, vectors = jnp.linalg.eigh(x, symmetrize_input=False)
    return values, vectors


@eigh.defjvp
def _eigh_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = eigh(*primals)
    rotated = conj_transpose(vectors) @ tangents[0] @ vectors
    moved = vectors @ (_reciprocal_differences(values).astype(rotated.dtype) * rotated)
    return (values, vectors), (jnp.real(_diagonal(rotated)).astype(values.dtype), moved)


@jax.custom_jvp
def eig(x: Any) -> tuple[Any, Any]:
    """Decompose square matrices.

    Args:
      x: ``[..., n, n]``, float or complex.

    Returns:
      Complex eigenvalues ``[..., n]``, and eigenvectors of length 1 in columns ``[..., n, n]``.
    """
    values, vectors = jnp.linalg.eig(x)
    return values, vectors


@eig.defjvp
def _eig_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = eig(*primals)
    rotated = jnp.linalg.solve(vectors, tangents[0].astype(vectors.dtype) @ vectors)
    coefficients = _reciprocal_differences(values) * rotated
    # Vectors keep their length. TensorFlow's rule keeps their phases, which are LAPACK's.
    lengths = jnp.real(_diagonal(conj_transpose(vectors) @ vectors @ coefficients))
    moved = vectors @ coefficients - vectors * lengths[..., None, :]
    return (values, vectors), (_diagonal(rotated), moved)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def svd(x: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
    """Decompose matrices by singular values.

    Args:
      x: ``[..., m, n]``, float or complex; k is the smaller of m and n.

    Returns:
      Real singular values in descending order ``[..., k]``, left vectors in columns ``[..., m, k or m]``, and right
      vectors in columns ``[..., n, k or n]``.
    """
    u, s, vh = jnp.linalg.svd(x, full_matrices=full_matrices)
    return s, u, conj_transpose(vh)


def _completed(first: Any, moved: Any, all_: Any) -> Any:
    """Return tangents of the completing vectors.

    They are orthogonal to the first, without rotation among themselves.
    """
    rest = all_[..., first.shape[-1] :]
    return jnp.concatenate([moved, -first @ (conj_transpose(moved) @ rest)], -1)


@svd.defjvp
def _svd_jvp(full_matrices: bool, primals: Any, tangents: Any) -> Any:
    s, all_u, all_v = svd(primals[0], full_matrices)
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
