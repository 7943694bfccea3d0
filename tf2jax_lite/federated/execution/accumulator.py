"""Accumulate clients' messages: accumulator, counts and outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated._utils.screening import usable_clients
from tf2jax_lite.federated.metrics import Stat
from tf2jax_lite.federated.templates.client_work import ClientResult
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates

PyTree = Any


class Accumulator(NamedTuple):
    """Accumulated results of the clients so far.

    Attributes:
      aggregate: the aggregator's accumulator.
      non_trainable: weighted sums of differences of non-trainable weights.
      weight: float32 scalar, the sum of weights.
      measurements: sums of clients' measurements.
      participated: int32 scalar, clients whose updates count.
      non_finite: int32 scalar, clients whose results are not usable, see `usable_clients`.
    """

    aggregate: PyTree
    non_trainable: list[Any]
    weight: Any
    measurements: PyTree
    participated: Any
    non_finite: Any


def _is_stat(value: Any) -> bool:
    return isinstance(value, Stat)


def select_new(mask: Any, new: PyTree, old: PyTree) -> PyTree:
    """Return rows of ``new`` where ``mask``, else of ``old``; NaN do not mix."""

    def one(n: Any, o: Any) -> Any:
        return jnp.where(jnp.reshape(mask, mask.shape + (1,) * (jnp.ndim(n) - mask.ndim)), n, o)

    return jax.tree.map(one, new, old)


def _zeros(leaf: Any) -> np.ndarray:
    """Return zeros to add to; for half precision, whose sums stand still, in float32."""
    narrow = jnp.issubdtype(leaf.dtype, jnp.floating)
    return np.zeros(leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32) if narrow else leaf.dtype)


def zero_accumulator(
    aggregator: AggregationProcess, aggregator_state: PyTree, num_clients: int, result: ClientResult
) -> Accumulator:
    """Return an empty accumulator. ``result`` has the shapes of one client's result.

    Much of it is numpy's: a program takes that as well, and each array of zeros that JAX makes is a program of its own.
    """
    zeros = jax.tree.map(_zeros, (result.non_trainable, result.measurements))
    aggregate = aggregator.zero(aggregator_state, num_clients)
    return Accumulator(aggregate, list(zeros[0]), np.float32(0), zeros[1], np.int32(0), np.int32(0))


def fold_results(
    aggregator: AggregationProcess,
    aggregator_state: PyTree,
    total: Accumulator,
    results: ClientResult,
    exists: Any,
    index: Any,
    key: Any,
) -> tuple[Accumulator, Any]:
    """Add stacked results of ``n`` clients.

    A client with an update, weight, statistic or measurement that is not usable has no part in any sum.

    Args:
      aggregator: the aggregation.
      aggregator_state: its state.
      total: the sum so far.
      results: leaves of shape (n, ...).
      exists: bool (n,), False for padding.
      index: int32 (n,), indices in the cohort.
      key: the round's key of the aggregation.

    Returns:
      The accumulator, and which clients were left out, bool (n,).
    """
    # An evaluation sends measurements alone, which must show a model that diverged.
    measured = results.measurements if jax.tree.leaves(results.update) else ()
    usable = usable_clients(
        results.update,
        results.update_weight,
        (results.non_trainable, measured),
        bounded=not aggregator.bounds_updates,
    )
    mask, refused = exists & usable, exists & ~usable
    updates = ClientUpdates(results.update, results.update_weight, mask, index)
    weight = jnp.where(mask, results.update_weight, 0)
    zeros = jax.tree.map(jnp.zeros_like, (results.non_trainable, results.measurements))
    changes, measured = select_new(mask, (results.non_trainable, results.measurements), zeros)

    def add_rows(value: Any, rows: Any) -> Any:
        return value.merge(rows.reduce()) if _is_stat(value) else value + jnp.sum(rows, axis=0, dtype=value.dtype)

    def add_changes(value: Any, rows: Any) -> Any:
        if not jnp.issubdtype(value.dtype, jnp.inexact):
            return value
        return value + jnp.tensordot(weight.astype(value.dtype), rows.astype(value.dtype), 1)

    total = Accumulator(
        aggregator.accumulate(aggregator_state, total.aggregate, updates, key),
        [add_changes(t, c) for t, c in zip(total.non_trainable, changes, strict=True)],
        total.weight + jnp.sum(weight),
        jax.tree.map(add_rows, total.measurements, measured, is_leaf=_is_stat),
        total.participated + jnp.sum(mask, dtype=jnp.int32),
        total.non_finite + jnp.sum(refused, dtype=jnp.int32),
    )
    return total, refused


def merge_accumulators(aggregator: AggregationProcess, a: Accumulator, b: Accumulator) -> Accumulator:
    """Return the accumulator of the clients of both."""

    def add(x: Any, y: Any) -> Any:
        return x.merge(y) if _is_stat(x) else x + y

    return Accumulator(
        aggregator.merge(a.aggregate, b.aggregate),
        *jax.tree.map(add, tuple(a[1:]), tuple(b[1:]), is_leaf=_is_stat),
    )
