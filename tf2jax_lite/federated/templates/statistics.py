"""The way to the server of statistics, as those of batch normalization.

They are averaged by the clients' weights. Where the aggregation of updates promises more, they are a part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.federated.aggregators.base import as_aggregator
from tf2jax_lite.federated.models.model import Model, changing_values
from tf2jax_lite.federated.templates.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.templates.process import AggregationProcess, Guarantee
from tf2jax_lite.support.errors import InputError

PyTree = Any
FIRST_PASS = "the results of the first pass"
_STATISTICS = "the model's statistics (of batch normalization)"
_REMEDIES = {
    FIRST_PASS: "Give that pass an aggregator with the same guarantees (full_gradient_aggregator of Mime), or take "
    "another algorithm.",
    _STATISTICS: "Take a model without them, keep them at the clients (with_local_weights), or train an artifact's "
    "evaluation mode (--train-signature serving_default).",
}


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateRoute:
    """The way of clients' updates and statistics to the server.

    Attributes:
      aggregation: of the updates, or of both.
      model: the model.
      joined: whether statistics are a part of the update.
    """

    aggregation: AggregationProcess
    model: Model
    joined: bool

    def pack(self, result: ClientResult) -> ClientResult:
        """Return a client's result as the aggregation takes it."""
        if not self.joined:
            return result
        kept = [v for v in result.non_trainable if jnp.issubdtype(v.dtype, jnp.inexact)]
        return result._replace(update={"update": result.update, "statistics": kept}, non_trainable=[])

    def packed(self, work: ClientWork) -> ClientWork:
        """Return a client work whose results are packed."""
        if not self.joined:
            return work
        return dataclasses.replace(work, client_final=lambda *args: self.pack(work.client_final(*args)))

    def unpack(self, aggregate: PyTree, total: Any) -> tuple[PyTree, list[Any], Any]:
        """Return the aggregate of updates, and the sums of statistics with a divisor.

        Args:
          aggregate: the aggregation's result.
          total: the cohort's `Accumulator`.
        """
        if not self.joined:
            return aggregate, total.non_trainable, total.weight
        found = iter(aggregate["statistics"])
        values = changing_values(self.model, self.model.shapes.non_trainable)
        sums = [next(found) if jnp.issubdtype(v.dtype, jnp.inexact) else jnp.zeros(v.shape, v.dtype) for v in values]
        return aggregate["update"], sums, jnp.float32(1)


def update_route(who: str, aggregator: Any, template: PyTree, model: Model) -> UpdateRoute:
    """Return the way of updates.

    Args:
      who: the training, for messages.
      aggregator: an `AggregationProcess` for updates, or a factory of one.
      template: an update.
      model: the model.

    Raises:
      InputError: the aggregator is neither, or does not take the update; or it promises differential privacy, and not
        all that it does is private.
    """
    aggregation = as_aggregator(aggregator, template)
    if aggregation.not_private and "differential privacy" in aggregation.guarantees:
        raise InputError(
            f"{who}: the aggregator promises differential privacy, and {aggregation.not_private}. Take a fixed norm, "
            "or a QuantileEstimation with below_estimate_stddev."
        )
    values = changing_values(model, model.shapes.non_trainable)
    statistics = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values if jnp.issubdtype(v.dtype, jnp.inexact)]
    # Not under privacy: with noise, variances may be negative.
    joined = bool(statistics) and "differential privacy" not in aggregation.guarantees
    joined = joined and bool(aggregation.guarantees) and aggregation is not aggregator
    if joined:
        aggregation = as_aggregator(aggregator, {"update": template, "statistics": statistics})
    elif statistics:
        check_guarantees(who, aggregation, {_STATISTICS: frozenset()})
    return UpdateRoute(aggregation, model, joined)


def check_guarantees(who: str, aggregation: AggregationProcess, others: Mapping[str, frozenset[Guarantee]]) -> None:
    """Refuse a training whose clients send something without its guarantees.

    Args:
      who: the training, for the message.
      aggregation: of the clients' updates.
      others: what else leaves a client and moves the model, to the guarantees of its way. Measurements are not among
        them, see `round_metrics`.

    Raises:
      InputError: a guarantee is missing.
    """
    for name, guarantees in others.items():
        if missing := sorted(aggregation.guarantees - guarantees):
            raise InputError(
                f"{who}: the aggregator promises {' and '.join(missing)}, and {name} leave the clients without it. "
                f"{_REMEDIES[name]}"
            )
