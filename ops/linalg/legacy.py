"""Ops of old graphs: packed eigendecomposition and the matrix exponential."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tf2jax_lite.ops.linalg.decompositions import self_adjoint_eig
from tf2jax_lite.ops.linalg.matmul import as_matrix
from tf2jax_lite.ops.registry import op


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
