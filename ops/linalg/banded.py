"""Products and equations with banded and tridiagonal matrices.

Triangular matrices of few bands are solved row by row: as dense matrices they take a hundred times the memory and the
time, and a row needs no more of the solution than the rows within its bands.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.common.precision import upcast
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError

from .matmul import as_matrix

_FEW_BANDS = 16


def _solve_by_rows(bands: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    """Return solutions with banded triangular matrices, computed row by row."""
    count, size = bands.shape[-2:]
    forward = lower != adjoint
    back, row = np.arange(count)[:, None], np.arange(size)
    source = row - back if forward else row + back  # the row of the solution that a coefficient multiplies
    inside = (source >= 0) & (source < size)
    factors = bands[..., back if lower else count - 1 - back, np.where(inside & adjoint, source, row)]
    factors = jnp.where(inside, factors, jnp.zeros((), bands.dtype))
    batch = jnp.broadcast_shapes(bands.shape[:-2], rhs.shape[:-2])
    return _solve(jnp.conj(factors) if adjoint else factors, jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:])), forward)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _solve(factors: Any, rhs: Any, forward: bool) -> Any:
    """Solve with ``factors[..., k, i]``, row i's coefficient of solution row i ∓ k."""
    count = factors.shape[-2]

    def step(before: Any, row: Any) -> tuple[Any, Any]:
        factors, rhs = row
        others = jnp.sum(factors[..., 1:, None] * before, axis=-2)
        row_of_solution = (rhs - others) / factors[..., 0, None]
        before = jnp.concatenate([row_of_solution[..., None, :], before], axis=-2)[..., : count - 1, :]
        return before, row_of_solution

    rows = (jnp.moveaxis(factors, -1, 0), jnp.moveaxis(rhs, -2, 0))
    start = jnp.zeros((*rhs.shape[:-2], count - 1, rhs.shape[-1]), rhs.dtype)
    return jnp.moveaxis(scan(step, start, rows, reverse=not forward)[1], 0, -2)


@_solve.defjvp
def _solve_jvp(forward: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    factors, rhs = primals
    solution = _solve(factors, rhs, forward)
    size, change = rhs.shape[-2], tangents[1]
    for k in range(factors.shape[-2]):
        pad, rows_used = ((k, 0), slice(0, size - k)) if forward else ((0, k), slice(k, size))
        moved = jnp.pad(solution[..., rows_used, :], ((0, 0),) * (solution.ndim - 2) + (pad, (0, 0)))
        change = change - tangents[0][..., k, :, None] * moved
    return solution, _solve(factors, change, forward)


def broadcast_batch(matrix: Any, rhs: Any) -> tuple[Any, Any]:
    """Return matrices and right-hand sides with broadcast leading dimensions."""
    batch = jnp.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    return jnp.broadcast_to(matrix, (*batch, *matrix.shape[-2:])), jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))


def triangular_solve(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    """Solve equations with triangular matrices; leading dimensions broadcast."""
    matrix, rhs = broadcast_batch(matrix, rhs)
    return lax.linalg.triangular_solve(
        matrix, rhs, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint
    )


@op("BandedTriangularSolve")
def banded_triangular_solve(bands, rhs, *, lower=True, adjoint=False):
    """Solve equations with banded triangular matrices.

    Few bands are solved row by row, many as a dense matrix (core/kernels/linalg/banded_triangular_solve_op.cc).

    Args:
      bands: ``[..., count, size]``, 1 <= count <= size. Element r of a band is in row r of the matrix; the diagonal is
        the first band if ``lower``, else the last.
      rhs: ``[..., size, columns]``; leading dimensions broadcast.
    """
    bands, rhs = as_matrix(bands), as_matrix(rhs)
    count, size = bands.shape[-2:]
    if count < 1 or count > size:
        raise OpError(f"a matrix of {size} rows has between 1 and {size} bands, not {count}")
    if count <= min(size // 8, _FEW_BANDS):
        return _solve_by_rows(upcast(bands), upcast(rhs), lower, adjoint).astype(rhs.dtype)
    row, column = np.arange(size)[:, None], np.arange(size)[None, :]
    offset = row - column if lower else column - row
    band = offset if lower else count - 1 - offset
    inside = (offset >= 0) & (offset < count)
    full = bands[..., np.where(inside, band, 0), np.broadcast_to(row, (size, size))]
    full = jnp.where(inside, full, jnp.zeros((), bands.dtype))
    return triangular_solve(upcast(full), upcast(rhs), lower, adjoint).astype(rhs.dtype)


@op("TridiagonalSolve")
def tridiagonal_solve(diagonals, rhs, *, partial_pivoting=True, perturb_singular=False):
    """Solve equations with tridiagonal matrices.

    A singular matrix gives inf or NaN.

    Args:
      diagonals: ``[..., 3, n]``: super-, main and subdiagonal; the last element of the first and the first one of the
        last are unused.
    """
    diagonals, rhs = as_matrix(diagonals), as_matrix(rhs)
    if diagonals.shape[-2] != 3:
        raise OpError(f"three diagonals are needed, not {diagonals.shape[-2]}")
    above, middle, below = (diagonals[..., i, :] for i in range(3))
    at, zero = lax.iota(np.int32, rhs.shape[-2]), jnp.zeros((), diagonals.dtype)
    above, below = jnp.where(at == rhs.shape[-2] - 1, zero, above), jnp.where(at == 0, zero, below)
    return lax.linalg.tridiagonal_solve(below, middle, above, rhs)


@op("TridiagonalMatMul")
def tridiagonal_mat_mul(superdiag, maindiag, subdiag, rhs):
    """Multiply tridiagonal matrices by matrices.

    Args:
      superdiag: ``[..., 1, m]``, of which the last element is unused.
      subdiag: ``[..., 1, m]``, of which the first element is unused.
    """
    up, main, down = (jnp.swapaxes(jnp.asarray(d), -1, -2) for d in (superdiag, maindiag, subdiag))
    rhs = jnp.asarray(rhs)
    zero = jnp.zeros_like(rhs[..., :1, :])
    following = jnp.concatenate([rhs[..., 1:, :], zero], -2)
    preceding = jnp.concatenate([zero, rhs[..., :-1, :]], -2)
    return up * following + main * rhs + down * preceding
