"""Singular values and eigenvalues with derivatives as TensorFlow's: finite where values coincide or vanish.

Vectors of values that coincide may be turned into each other, so they have no derivative. JAX's rules divide by the
difference of the values all the same. TensorFlow's divide by what is never 0, so that what does not depend on
which vectors were taken (a pseudo-inverse, a function of a symmetric matrix) has its gradient at the identity, too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["adjoint_of", "eig", "eigh", "svd"]

# TensorFlow's linalg_grad has this number for all dtypes.
_SMALL = 1e-20


def adjoint_of(x: Any) -> Any:
    """Returns the conjugate transpose of matrices."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _reciprocal(x: Any) -> Any:
    return x / (x * x + _SMALL)


def _gaps(values: Any, squares: bool = False) -> Any:
    """Returns 1 / (values[j] - values[i]), or the same of their squares; 0 where they are alike.

    A product of sum and difference is 0 for certain where they are alike, a difference of squares is not when it is
    computed as one fused operation.
    """
    row, column = values[..., None, :], values[..., :, None]
    away = row - column
    apart = ~jnp.eye(values.shape[-1], dtype=bool)
    return jnp.where(apart, _reciprocal(away * (row + column) if squares else away), 0)


def _diagonal(x: Any) -> Any:
    return jnp.diagonal(x, axis1=-2, axis2=-1)


@jax.custom_jvp
def eigh(x: Any) -> tuple[Any, Any]:
    """Decomposes Hermitian matrices.

    Args:
        x: Hermitian matrices, (..., n, n) of a floating or complex dtype.

    Returns:
        Real eigenvalues in ascending order, (..., n), and vectors in columns, (..., n, n).
    """
    values, vectors = jnp.linalg.eigh(x, symmetrize_input=False)
    return values, vectors


@eigh.defjvp
def _eigh_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = eigh(*primals)
    turned = adjoint_of(vectors) @ tangents[0] @ vectors
    moved = vectors @ (_gaps(values).astype(turned.dtype) * turned)
    return (values, vectors), (jnp.real(_diagonal(turned)).astype(values.dtype), moved)


@jax.custom_jvp
def eig(x: Any) -> tuple[Any, Any]:
    """Decomposes any square matrices.

    Args:
        x: Matrices, (..., n, n) of a floating or complex dtype.

    Returns:
        Complex eigenvalues, (..., n), and vectors of length 1 in columns, (..., n, n).
    """
    values, vectors = jnp.linalg.eig(x)
    return values, vectors


@eig.defjvp
def _eig_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = eig(*primals)
    turned = jnp.linalg.solve(vectors, tangents[0].astype(vectors.dtype) @ vectors)
    mixed = _gaps(values) * turned
    # Vectors keep their length. Their phases are LAPACK's, which TensorFlow's rule has stand still.
    along = jnp.real(_diagonal(adjoint_of(vectors) @ vectors @ mixed))
    moved = vectors @ mixed - vectors * along[..., None, :]
    return (values, vectors), (_diagonal(turned), moved)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def svd(x: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
    """Decomposes matrices by singular values.

    Args:
        x: Matrices, (..., m, n) of a floating or complex dtype; k is the lesser of m and n.
        full_matrices: Whether vectors are completed to m and n of them.

    Returns:
        Real singular values in descending order, (..., k), left vectors in columns, (..., m, k or m), and right
        vectors in columns, (..., n, k or n).
    """
    u, s, vh = jnp.linalg.svd(x, full_matrices=full_matrices)
    return s, u, adjoint_of(vh)


def _completed(first: Any, moved: Any, all_: Any) -> Any:
    """Returns how completing vectors move: they stay orthogonal to the first, and do not turn among themselves."""
    rest = all_[..., first.shape[-1] :]
    return jnp.concatenate([moved, -first @ (adjoint_of(moved) @ rest)], -1)


@svd.defjvp
def _svd_jvp(full_matrices: bool, primals: Any, tangents: Any) -> Any:
    s, all_u, all_v = svd(primals[0], full_matrices)
    (dx,) = tangents
    rows, columns = dx.shape[-2:]
    least = min(rows, columns)
    u, v = all_u[..., :least], all_v[..., :least]
    row = s[..., None, :].astype(dx.dtype)
    column = s[..., :, None].astype(dx.dtype)
    inverse = _reciprocal(s)[..., None, :].astype(dx.dtype)
    gaps = _gaps(s, squares=True).astype(dx.dtype)
    turned = adjoint_of(u) @ dx @ v
    by_row, by_column = turned * row, turned * column
    to_u = gaps * (by_row + adjoint_of(by_row))
    to_v = gaps * (by_column + adjoint_of(by_column))
    if jnp.issubdtype(dx.dtype, jnp.complexfloating):
        # Vectors' phases are open. TensorFlow turns those of the longer side.
        turn = (turned - adjoint_of(turned)) * jnp.eye(least, dtype=dx.dtype) / 2 * inverse
        to_u, to_v = (to_u + turn, to_v) if rows > columns else (to_u, to_v - turn)
    du, dv = u @ to_u, v @ to_v
    if rows > least:
        outside = dx @ v
        du += (outside - u @ (adjoint_of(u) @ outside)) * inverse
    if columns > least:
        outside = adjoint_of(dx) @ u
        dv += (outside - v @ (adjoint_of(v) @ outside)) * inverse
    if full_matrices and rows > least:
        du = _completed(u, du, all_u)
    if full_matrices and columns > least:
        dv = _completed(v, dv, all_v)
    return (s, all_u, all_v), (jnp.real(_diagonal(turned)).astype(s.dtype), du, dv)
