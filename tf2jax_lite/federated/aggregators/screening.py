"""Exclude clients with unusable updates, and count them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.federated._utils.screening import usable_rows, usable_weights
from tf2jax_lite.federated.aggregators.base import Factory, Stage, as_aggregator, before, rows
from tf2jax_lite.federated.aggregators.mean import MeanFactory
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates


def finite_clients(update: Any) -> Any:
    """Return for each client whether its update can be summed, bool (n,).

    Every number is finite, and of a magnitude below 2**61. Leaves have shape (n, ...).
    """
    return usable_rows(update, jax.tree.leaves(update)[0].shape[0])


def screen_updates(updates: ClientUpdates, num_examples: Any = None, present: Any = None) -> tuple[ClientUpdates, Any]:
    """Mask clients without a usable update.

    These dropped out, have no data, or sent values that are not usable: not finite, of a magnitude of 2**61 or more, or
    a weight that is not from 0 to 2**31. Each kind is counted, the last as num_non_finite.

    Args:
      updates: the updates; ``mask`` is False where nothing came from a client.
      num_examples: how many examples each client has, (n,); a client without any is empty. By default its weight.
      present: bool (n,), False for padding of the cohort. By default all are, so padding counts as dropped.

    Returns:
      ``(updates, counts)``: the updates with a smaller mask, and with zeros for masked rows; int32 counts
      num_clients, num_dropped, num_empty, num_non_finite, num_aggregated, of which the first is the sum of the others.
    """
    n = updates.mask.shape
    present = jnp.ones(n, bool) if present is None else jnp.asarray(present, bool)
    came = updates.mask & present
    empty = came & (jnp.asarray(updates.weight if num_examples is None else num_examples) == 0)
    usable = finite_clients(updates.update) & usable_weights(jnp.asarray(updates.weight))
    mask = came & ~empty & usable
    kinds = {
        "num_clients": present,
        "num_dropped": present & ~came,
        "num_empty": empty,
        "num_non_finite": came & ~empty & ~usable,
        "num_aggregated": mask,
    }

    def keep(x: Any) -> Any:
        return jnp.where(rows(mask, x), x, jnp.zeros((), x.dtype))

    screened = updates._replace(
        update=jax.tree.map(keep, updates.update), weight=keep(jnp.asarray(updates.weight)), mask=mask
    )
    return screened, {name: jnp.sum(kind, dtype=jnp.int32) for name, kind in kinds.items()}


@dataclasses.dataclass(frozen=True)
class ScreeningFactory(Factory):
    """Aggregates updates that pass `screen_updates`, and measures its counts.

    Padding counts as dropped.

    Attributes:
      inner_agg_factory: the aggregation of the rest; the weighted mean by default.
    """

    inner_agg_factory: Factory = dataclasses.field(default_factory=MeanFactory)
    _screens = ""

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        names = ("num_clients", "num_dropped", "num_empty", "num_non_finite", "num_aggregated")
        stage = Stage(
            initialize=lambda: (),
            zero=lambda: {name: jnp.zeros((), jnp.int32) for name in names},
            transform=lambda state, updates, key: screen_updates(updates),
            finish=lambda state, tally, key: (state, tally),
        )
        return before(stage, as_aggregator(self.inner_agg_factory, template), "screening")
