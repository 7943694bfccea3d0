"""Sums and means, in the memory of one update.

See tff.aggregators.{SumFactory, MeanFactory, UnweightedMeanFactory}.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators.base import (
    Factory,
    as_aggregator,
    cast_like,
    float_template,
    keep_rows,
    scale_rows,
    sum_rows,
)
from tf2jax_lite.federated.templates.process import (
    AggregationProcess,
    ClientUpdates,
    Guarantee,
    MeasuredProcessOutput,
)
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class SumFactory(Factory):
    """The sum of updates; weights are ignored.

    Integer leaves are summed exactly (modulo their dtype).
    """

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = jax.tree.map(
            lambda t: jax.ShapeDtypeStruct(
                t.shape, jnp.promote_types(t.dtype, jnp.float32) if jnp.issubdtype(t.dtype, jnp.floating) else t.dtype
            ),
            template,
        )

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            del state, key
            kept = keep_rows(updates.update, updates.mask)
            return jax.tree.map(lambda a, x: a + sum_rows(x, a.dtype), accumulator, kept)

        # A sum of nothing tells nothing.
        guarantees = frozenset() if jax.tree.leaves(template) else frozenset(get_args(Guarantee))
        return AggregationProcess(
            guarantees=guarantees,
            initialize=lambda: (),
            zero=lambda state, num_clients: jax.tree.map(lambda t: np.zeros(t.shape, t.dtype), wide),
            accumulate=accumulate,
            merge=lambda a, b: jax.tree.map(jnp.add, a, b),
            report=lambda state, accumulator, key: MeasuredProcessOutput((), cast_like(accumulator, template), {}),
        )


@dataclasses.dataclass(frozen=True)
class MeanFactory(Factory):
    """The weighted mean of updates.

    Zero if the weights are zero, so a round without clients changes nothing.

    Attributes:
      value_sum_factory: how updates times weights are summed; `SumFactory` by default.
    """

    value_sum_factory: Factory | None = None
    weighted = True

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, type(self).__name__)
        inner = as_aggregator(self.value_sum_factory or SumFactory(), wide)
        if self.weighted and inner.refuses_weights:
            raise InputError(
                f"MeanFactory: {inner.refuses_weights}, and a weighted mean does not. Use UnweightedMeanFactory."
            )

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            given = updates.weight if self.weighted else jnp.ones(updates.mask.shape, jnp.float32)
            weight = jnp.where(updates.mask, given, 0).astype(jnp.float32)
            update = scale_rows(updates.update, weight) if self.weighted else updates.update
            scaled = updates._replace(update=cast_like(update, wide))
            return accumulator[0] + jnp.sum(weight), inner.accumulate(state, accumulator[1], scaled, key)

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            total, found = accumulator[0], inner.report(state, accumulator[1], key)
            safe = jnp.where(total > 0, total, 1.0)
            mean = jax.tree.map(lambda x: jnp.where(total > 0, x / safe.astype(x.dtype), 0), found.result)
            measured = {"mean_value": found.measurements} if found.measurements else {}
            return MeasuredProcessOutput(found.state, cast_like(mean, template), measured)

        return dataclasses.replace(
            inner,
            zero=lambda state, num_clients: (np.float32(0), inner.zero(state, num_clients)),
            accumulate=accumulate,
            merge=lambda a, b: (a[0] + b[0], inner.merge(a[1], b[1])),
            report=report,
        )


@dataclasses.dataclass(frozen=True)
class UnweightedMeanFactory(MeanFactory):
    """The mean of updates; weights are ignored. Without any client it is zero."""

    weighted = False
