"""The screening of clients' results that all aggregations and routes share.

One client must neither end nor ruin a training: a result that is not finite, or so large that a sum of such overflows,
is left out, and an aggregate that is not finite changes nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any
# Beyond these a result is not usable. 2**31 clients' products of both, and squares of either, are finite in float32.
_MAX_EXPONENT = 61
MAX_WEIGHT = 2.0**31
_PARTS = 16  # of a leaf, in the search for values that are not usable


def usable_rows(tree: PyTree, rows: int, bounded: bool = True) -> Any:
    """Return which rows can be summed, bool (rows,).

    All of their floats are finite, and of a magnitude below 2**61 if ``bounded``.
    """
    found = jnp.ones((rows,), bool)
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and leaf.size:
            # A number beyond the bound overflows in the product, and x - x is 0, or NaN for a value that is not finite.
            # The sum of equal parts runs in vector registers; XLA's CPU backend takes several times as long for a sum
            # along an axis, so that comes last, over reduced data.
            flat = leaf.reshape(rows, -1)
            if bounded:
                flat = flat * jnp.asarray(2.0 ** max(jnp.finfo(leaf.dtype).maxexp - _MAX_EXPONENT, 0), leaf.dtype)
            zeros = flat - flat
            parts = min(_PARTS, flat.shape[1])
            size = flat.shape[1] // parts
            total = sum(zeros[:, i * size : (i + 1) * size] for i in range(parts))
            found &= jnp.sum(total, axis=1) == 0
            found &= jnp.sum(zeros[:, parts * size :], axis=1) == 0
    return found


def usable_weights(weight: Any) -> Any:
    """Return whether clients' weights are numbers from 0 to `MAX_WEIGHT`."""
    return (weight >= 0) & (weight <= MAX_WEIGHT)


def usable_clients(update: PyTree, weight: Any, more: PyTree = (), bounded: bool = True) -> Any:
    """Return which clients' results can be aggregated, bool (n,).

    Args:
      update: pytree with leaves (n, ...).
      weight: (n,), the clients' weights in the mean.
      more: pytree with leaves (n, ...) of the clients' other results.
      bounded: whether updates' magnitudes are bounded; not where the aggregation bounds their influence itself.
    """
    weight = jnp.asarray(weight)
    n = weight.shape[0]
    return usable_weights(weight) & usable_rows(update, n, bounded) & usable_rows(more, n)


def remains_finite(old: PyTree, new: PyTree) -> Any:
    """Return whether all numbers are finite in ``new`` that are in ``old``, ()."""
    found = jnp.bool_(True)
    for before, after in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        if jnp.issubdtype(jnp.result_type(after), jnp.inexact):
            found &= ~jnp.any(jnp.isfinite(before) & ~jnp.isfinite(after))
    return found


def all_finite(tree: PyTree) -> Any:
    """Return bool (): whether all numbers are finite."""
    return remains_finite(jax.tree.map(jnp.zeros_like, tree), tree)


def chosen(use: Any, new: PyTree, old: PyTree) -> PyTree:
    """Return ``new`` where ``use`` (), else ``old``."""
    return jax.tree.map(lambda n, o: n if n is o else jnp.where(use, n, o), new, old)
