"""Equations with triangular matrices of few bands, solved row by row.

As dense matrices they would take a hundred times the memory and the time: a row needs no more of the solution than the
few rows before it.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.loops.shard_map import scan

__all__ = ["solved_by_rows"]


def solved_by_rows(bands: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    """Returns the solutions of equations with banded triangular matrices.

    Args:
      bands: ``[..., count, size]``, as tf.raw_ops.BandedTriangularSolve takes them.
      rhs: ``[..., size, columns]`` of the same dtype; the leading dimensions of both broadcast.
      lower: whether the matrices are lower triangular, their diagonal being the first band, else the last.
      adjoint: whether to solve with the adjoint matrices.

    Returns:
      An array of the right-hand sides' shape and dtype, with the leading dimensions broadcast.
    """
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
    """Solves with ``factors[..., k, i]``, what row i multiplies the solution's row i - k (or i + k) with."""
    count = factors.shape[-2]

    def step(before: Any, row: Any) -> tuple[Any, Any]:
        factors, rhs = row
        known = jnp.sum(factors[..., 1:, None] * before, axis=-2)
        found = (rhs - known) / factors[..., 0, None]
        return jnp.concatenate([found[..., None, :], before], axis=-2)[..., : count - 1, :], found

    rows = (jnp.moveaxis(factors, -1, 0), jnp.moveaxis(rhs, -2, 0))
    start = jnp.zeros((*rhs.shape[:-2], count - 1, rhs.shape[-1]), rhs.dtype)
    return jnp.moveaxis(scan(step, start, rows, reverse=not forward)[1], 0, -2)


@_solve.defjvp
def _solve_jvp(forward: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    factors, rhs = primals
    found = _solve(factors, rhs, forward)
    size, change = rhs.shape[-2], tangents[1]
    for k in range(factors.shape[-2]):
        pad, kept = ((k, 0), slice(0, size - k)) if forward else ((0, k), slice(k, size))
        moved = jnp.pad(found[..., kept, :], ((0, 0),) * (found.ndim - 2) + (pad, (0, 0)))
        change = change - tangents[0][..., k, :, None] * moved
    return found, _solve(factors, change, forward)
