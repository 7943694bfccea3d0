"""Accumulate clients' messages: accumulator, counts and outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.metrics import Stat
from tf2jax_lite.federated.templates.client_work import ClientResult
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates

__all__ = ["Accumulator", "fold", "merge", "select", "zero"]

PyTree = Any
_PARTS = 16  # of a leaf, in the search for values that are not finite


class Accumulator(NamedTuple):
    """Accumulated results of the clients so far.

    Attributes:
      aggregate: the aggregator's accumulator.
      non_trainable: weighted sums of differences of non-trainable weights.
      weight: float32 scalar, the sum of weights.
      measurements: sums of clients' measurements.
      participated: int32 scalar, clients whose updates count.
      non_finite: int32 scalar, clients whose updates had NaN or infinity.
    """

    aggregate: PyTree
    non_trainable: list[Any]
    weight: Any
    measurements: PyTree
    participated: Any
    non_finite: Any


def _is_stat(value: Any) -> bool:
    return isinstance(value, Stat)


def select(mask: Any, new: PyTree, old: PyTree) -> PyTree:
    """Return rows of ``new`` where ``mask``, else of ``old``; NaN do not mix."""

    def one(n: Any, o: Any) -> Any:
        return jnp.where(jnp.reshape(mask, mask.shape + (1,) * (jnp.ndim(n) - mask.ndim)), n, o)

    return jax.tree.map(one, new, old)


def _zeros(leaf: Any) -> np.ndarray:
    """Return zeros to add to; for half precision, whose sums stand still, in float32."""
    narrow = jnp.issubdtype(leaf.dtype, jnp.floating)
    return np.zeros(leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32) if narrow else leaf.dtype)


def zero(
    aggregator: AggregationProcess, aggregator_state: PyTree, num_clients: int, result: ClientResult
) -> Accumulator:
    """Return an empty accumulator. ``result`` has the shapes of one client's result.

    Much of it is numpy's: a program takes that as well, and each array of zeros that JAX makes is a program of its own.
    """
    zeros = jax.tree.map(_zeros, (result.non_trainable, result.measurements))
    aggregate = aggregator.zero(aggregator_state, num_clients)
    return Accumulator(aggregate, list(zeros[0]), np.float32(0), zeros[1], np.int32(0), np.int32(0))


def finite_rows(tree: PyTree, rows: int) -> Any:
    """Return bool (rows,): whether all floats in a row of ``tree`` are finite."""
    found = jnp.ones((rows,), bool)
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and leaf.size:
            # x - x is 0, or NaN for a value that is not finite. The sum of equal parts runs in vector registers; XLA's
            # CPU backend takes several times as long for a sum along an axis, so that comes last, over reduced data.
            flat = leaf.reshape(rows, -1)
            zeros = flat - flat
            parts = min(_PARTS, flat.shape[1])
            size = flat.shape[1] // parts
            total = sum(zeros[:, i * size : (i + 1) * size] for i in range(parts))
            found &= jnp.sum(total, axis=1) == 0
            found &= jnp.sum(zeros[:, parts * size :], axis=1) == 0
    return found


def fold(
    aggregator: AggregationProcess,
    aggregator_state: PyTree,
    total: Accumulator,
    results: ClientResult,
    exists: Any,
    index: Any,
    key: Any,
) -> Accumulator:
    """Add stacked results of ``n`` clients.

    Args:
      aggregator: the aggregation.
      aggregator_state: its state.
      total: the sum so far.
      results: leaves of shape (n, ...).
      exists: bool (n,), False for padding.
      index: int32 (n,), indices in the cohort.
      key: the round's key of the aggregation.
    """
    finite = finite_rows((results.update, results.update_weight, results.non_trainable), exists.shape[0])
    mask = exists & finite
    updates = ClientUpdates(results.update, results.update_weight, mask, index)
    weight = jnp.where(mask, results.update_weight, 0)
    zeros = jax.tree.map(jnp.zeros_like, (results.non_trainable, results.measurements))
    changes, measured = select(mask, (results.non_trainable, results.measurements), zeros)

    def add_rows(value: Any, rows: Any) -> Any:
        return value.merge(rows.reduce()) if _is_stat(value) else value + jnp.sum(rows, axis=0, dtype=value.dtype)

    def add_changes(value: Any, rows: Any) -> Any:
        if not jnp.issubdtype(value.dtype, jnp.inexact):
            return value
        return value + jnp.tensordot(weight.astype(value.dtype), rows.astype(value.dtype), 1)

    return Accumulator(
        aggregator.accumulate(aggregator_state, total.aggregate, updates, key),
        [add_changes(t, c) for t, c in zip(total.non_trainable, changes, strict=True)],
        total.weight + jnp.sum(weight),
        jax.tree.map(add_rows, total.measurements, measured, is_leaf=_is_stat),
        total.participated + jnp.sum(mask, dtype=jnp.int32),
        total.non_finite + jnp.sum(exists & ~finite, dtype=jnp.int32),
    )


def merge(aggregator: AggregationProcess, a: Accumulator, b: Accumulator) -> Accumulator:
    """Return the accumulator of the clients of both."""

    def add(x: Any, y: Any) -> Any:
        return x.merge(y) if _is_stat(x) else x + y

    return Accumulator(
        aggregator.merge(a.aggregate, b.aggregate),
        *jax.tree.map(add, tuple(a[1:]), tuple(b[1:]), is_leaf=_is_stat),
    )
