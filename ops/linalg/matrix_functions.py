"""Eigendecomposition of general matrices, matrix square root and logarithm.

They need decompositions that JAX has on CPU (and on some GPU builds). Kernels: eig_op_impl.h, matrix_square_root_op.cc,
matrix_logarithm_op.cc in tensorflow/core/kernels/linalg.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop, while_loop
from tf2jax_lite.ops.common.accumulation import upcast
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import canonical

from ._decomposition_jvps import conj_transpose
from ._decomposition_jvps import eig as decomposed
from .matmul import as_matrix


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
        values, vectors = decomposed(input)
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
