"""Clipping and zeroing of updates by their norm.

See tff.aggregators.{clipping_factory, zeroing_factory}.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.aggregators.base import (
    Factory,
    Stage,
    as_aggregator,
    before,
    float_template,
    keep_rows,
    row_norms,
    scale_rows,
)
from tf2jax_lite.federated.aggregators.mean import MeanFactory
from tf2jax_lite.federated.aggregators.quantile import QuantileEstimation
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates
from tf2jax_lite.support.errors import InputError

Norm = float | QuantileEstimation


def norm_stage(norm: Norm, order: float, act: Callable[[Any, Any, Any], Any], names: tuple[str, str]) -> Stage:
    """Return the stage that acts on updates beyond a norm, and counts them.

    Args:
      norm: the norm, or how it is estimated from round to round.
      order: of the norm: 1, 2 or infinity.
      act: ``(update, norms (n,), bound ()) -> update``.
      names: of the measurements: the round's bound, and how many clients were beyond it.
    """
    estimation = norm if isinstance(norm, QuantileEstimation) else None

    def bound_of(state: Any) -> Any:
        return jnp.float32(norm) if estimation is None else estimation.bound(state)

    def transform(state: Any, updates: ClientUpdates, key: Any) -> tuple[ClientUpdates, Any]:
        del key
        bound = bound_of(state)
        norms = row_norms(updates.update, order)
        beyond = ~(norms <= bound)
        below = (norms <= (bound if estimation is None else state)) & updates.mask
        tally = [jnp.sum(v, dtype=jnp.int32) for v in (beyond & updates.mask, below, updates.mask)]
        return updates._replace(update=act(updates.update, norms, bound)), tally

    def finish(state: Any, tally: Any, key: Any) -> tuple[Any, dict[str, Any]]:
        beyond, below, total = tally
        changed = state if estimation is None else estimation.next(state, below, total, key)
        return changed, dict(zip(names, (bound_of(state), beyond), strict=True))

    return Stage(
        initialize=tuple if estimation is None else estimation.initialize,
        zero=lambda: [jnp.zeros((), jnp.int32) for _ in range(3)],
        transform=transform,
        finish=finish,
    )


def clip(update: Any, norms: Any, bound: Any) -> Any:
    """Return updates scaled down to the bound where their norms exceed it."""
    return scale_rows(update, jnp.where(norms <= bound, 1.0, bound / jnp.maximum(norms, jnp.finfo(jnp.float32).tiny)))


def _zero(update: Any, norms: Any, bound: Any) -> Any:
    return keep_rows(update, norms <= bound)


def _check(who: str, name: str, norm: Norm, order: float) -> None:
    if not isinstance(norm, QuantileEstimation):
        check_number(who, f"{name}, if no QuantileEstimation,", norm, above=0, infinite=True)
    if order not in (1, 2, math.inf):
        raise InputError(f"{who}: norm_order is 1, 2 or math.inf, not {order}.")


def _bounded(who: str, norm: Norm, stage: Stage, inner: Factory, template: Any, name: str) -> AggregationProcess:
    """Return an aggregation of updates that a stage bounds."""
    process = before(stage, as_aggregator(inner, template), name)
    adapts = isinstance(norm, QuantileEstimation)
    noised = adapts and norm.below_estimate_stddev > 0
    return dataclasses.replace(
        process,
        guarantees=process.guarantees | {"robustness"},
        bounds_updates=True,
        is_secret=process.is_secret or noised,
        covered=process.covered | ({f"{name}_norm"} if noised or not adapts else set()),
        not_private=process.not_private if noised or not adapts else f"{who}'s norm follows the clients without noise",
    )


@dataclasses.dataclass(frozen=True)
class ClippingFactory(Factory):
    """Scales updates down to a norm, taken over all leaves together.

    Measures clipping_norm and clipped_count.

    Attributes:
      clipping_norm: the norm, or a `QuantileEstimation` that adapts it.
      inner_agg_factory: the aggregation of the clipped updates; the weighted mean by default.
      norm_order: 1, 2 or ``math.inf``.
    """

    clipping_norm: Norm
    inner_agg_factory: Factory = dataclasses.field(default_factory=MeanFactory)
    norm_order: float = 2.0

    def __post_init__(self) -> None:
        _check("ClippingFactory", "clipping_norm", self.clipping_norm, self.norm_order)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        float_template(template, "ClippingFactory")
        stage = norm_stage(self.clipping_norm, self.norm_order, clip, ("clipping_norm", "clipped_count"))
        return _bounded("ClippingFactory", self.clipping_norm, stage, self.inner_agg_factory, template, "clipping")


@dataclasses.dataclass(frozen=True)
class ZeroingFactory(Factory):
    """Puts zeros for updates beyond a norm (or not finite); their weights still count.

    Measures zeroing_norm and zeroed_count.

    Attributes:
      zeroing_norm: the norm, or a `QuantileEstimation` that adapts it.
      inner_agg_factory: the aggregation of the updates; the weighted mean by default.
      norm_order: 1, 2 or ``math.inf``.
    """

    zeroing_norm: Norm
    inner_agg_factory: Factory = dataclasses.field(default_factory=MeanFactory)
    norm_order: float = math.inf
    _screens = "weights"  # updates that are not finite become zero

    def __post_init__(self) -> None:
        _check("ZeroingFactory", "zeroing_norm", self.zeroing_norm, self.norm_order)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        float_template(template, "ZeroingFactory")
        stage = norm_stage(self.zeroing_norm, self.norm_order, _zero, ("zeroing_norm", "zeroed_count"))
        return _bounded("ZeroingFactory", self.zeroing_norm, stage, self.inner_agg_factory, template, "zeroing")


def clipping_factory(clipping_norm: Norm, inner_agg_factory: Factory | None = None) -> ClippingFactory:
    """Return a `ClippingFactory`. See tff.aggregators.clipping_factory."""
    return ClippingFactory(clipping_norm, MeanFactory() if inner_agg_factory is None else inner_agg_factory)


def zeroing_factory(
    zeroing_norm: Norm, inner_agg_factory: Factory | None = None, *, norm_order: float = math.inf
) -> ZeroingFactory:
    """Return a `ZeroingFactory`. See tff.aggregators.zeroing_factory."""
    return ZeroingFactory(zeroing_norm, MeanFactory() if inner_agg_factory is None else inner_agg_factory, norm_order)
