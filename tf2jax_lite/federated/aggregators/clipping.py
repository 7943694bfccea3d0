"""Clip, zero and screen clients' updates, at fixed norms or at private quantiles.

Sources: Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping";
tff.aggregators.PrivateQuantileEstimationProcess.

See tff.aggregators.{clipping_factory, zeroing_factory}.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp

from tf2jax_lite.federated.aggregators.base import (
    Factory,
    MeanFactory,
    Stage,
    as_aggregator,
    before,
    float_template,
    keep_rows,
    row_norms,
    rows,
    scale_rows,
    usable_rows,
    usable_weights,
)
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import AggregationProcess, ClientUpdates, Mechanism
from tf2jax_lite.support.errors import InputError

__all__ = [
    "ClippingFactory",
    "PrivateQuantileEstimationProcess",
    "QuantileEstimation",
    "ScreeningFactory",
    "ZeroingFactory",
    "clipping_factory",
    "finite_clients",
    "screen_updates",
    "zeroing_factory",
]


@dataclasses.dataclass(frozen=True)
class QuantileEstimation:
    """Follows a quantile by geometric steps.

    ``estimate *= exp(-learning_rate * (share below it - target))``; otherwise by steps of that rate, down to 0.

    Attributes:
      initial_estimate: where it starts, above 0.
      target_quantile: the share of clients whose norms are to be at most the estimate, in [0, 1].
      learning_rate: the size of steps, above 0; 0.2 is the paper's.
      multiplier: the bound is the estimate times this, 0 or more ...
      increment: ... plus this, 0 or more.
      below_estimate_stddev: standard deviation of Gaussian noise on the number of clients at most at the estimate
        (each counts as one half up or down, so the sensitivity is one half); 0 for none.
      clients_per_round: the divisor of that number. None: the number of participants; with noise it must be given,
        since the number itself would tell something.
      geometric_update: whether steps are geometric.
    """

    initial_estimate: float = 1.0
    target_quantile: float = 0.5
    learning_rate: float = 0.2
    multiplier: float = 1.0
    increment: float = 0.0
    below_estimate_stddev: float = 0.0
    clients_per_round: float | None = None
    geometric_update: bool = True

    def __post_init__(self) -> None:
        check = functools.partial(check_number, "QuantileEstimation")
        check("initial_estimate", self.initial_estimate, above=0)
        check("target_quantile", self.target_quantile, least=0, most=1)
        check("learning_rate", self.learning_rate, above=0)
        check("multiplier", self.multiplier, least=0)
        check("increment", self.increment, least=0)
        check("below_estimate_stddev", self.below_estimate_stddev, least=0)
        if self.clients_per_round is not None:
            check("clients_per_round", self.clients_per_round, above=0)
        if self.below_estimate_stddev and not self.clients_per_round:
            raise InputError("QuantileEstimation: with below_estimate_stddev, give clients_per_round.")

    @classmethod
    def no_noise(
        cls,
        initial_estimate: float,
        target_quantile: float,
        learning_rate: float,
        multiplier: float = 1.0,
        increment: float = 0.0,
    ) -> Self:
        """Return an estimation without noise.

        See tff.aggregators.PrivateQuantileEstimationProcess.no_noise.
        """
        return cls(initial_estimate, target_quantile, learning_rate, multiplier, increment)

    def initialize(self) -> Any:
        """Return the state: the estimate, float32 ()."""
        return jnp.asarray(self.initial_estimate, jnp.float32)

    def bound(self, state: Any) -> Any:
        """Return the norm that the estimate stands for, float32 ()."""
        return state * self.multiplier + self.increment

    def estimate(self, state: Any) -> Any:
        """Return the estimate of the quantile, float32 ()."""
        return state

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The noised release of a count, each client of which moves it by one half."""
        return (Mechanism(2 * self.below_estimate_stddev),) if self.below_estimate_stddev else ()

    def next(self, state: Any, below: Any, total: Any, key: Any) -> Any:
        """Return the state after a round.

        Args:
          state: the estimate.
          below: how many clients were at most at the estimate, ().
          total: how many clients there were, (). Without any the estimate stays, unless ``clients_per_round`` is set.
          key: a JAX key, for noise.
        """
        stddev = self.below_estimate_stddev
        noise = stddev * jax.random.normal(key, (), jnp.float32) if stddev else 0.0
        return self.stepped(state, below, total, noise)

    def stepped(self, estimate: Any, below: Any, total: Any, noise: Any) -> Any:
        """Return the estimate after a round with some noise on its count; see `next`."""
        count = below.astype(jnp.float32) - 0.5 * total + noise
        number = jnp.asarray(self.clients_per_round or jnp.maximum(total, 1), jnp.float32)
        step = self.learning_rate * (count / number + 0.5 - self.target_quantile)
        stepped = estimate * jnp.exp(-step) if self.geometric_update else jnp.maximum(estimate - step, 0.0)
        return stepped if self.clients_per_round else jnp.where(total > 0, stepped, estimate)


PrivateQuantileEstimationProcess = QuantileEstimation  # TFF's name


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
        below = (norms <= (bound if estimation is None else estimation.estimate(state))) & updates.mask
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
        mechanisms=process.mechanisms + (norm.mechanisms if adapts else ()),
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
    """Return a `ClippingFactory`. See tff.aggregators.clipping_factory.

    Args:
      clipping_norm: the norm, or a `QuantileEstimation` that adapts it.
      inner_agg_factory: the aggregation of the updates.
    """
    return ClippingFactory(clipping_norm, MeanFactory() if inner_agg_factory is None else inner_agg_factory)


def zeroing_factory(
    zeroing_norm: Norm, inner_agg_factory: Factory | None = None, *, norm_order: float = math.inf
) -> ZeroingFactory:
    """Return a `ZeroingFactory`. See tff.aggregators.zeroing_factory.

    Args:
      zeroing_norm: the norm, or a `QuantileEstimation` that adapts it.
      inner_agg_factory: the aggregation of the updates.
      norm_order: 1, 2 or ``math.inf``.
    """
    return ZeroingFactory(zeroing_norm, MeanFactory() if inner_agg_factory is None else inner_agg_factory, norm_order)


def finite_clients(update: Any) -> Any:
    """Return for each client whether its update can be summed, bool (n,).

    Every number is finite, and of a magnitude below 2**61. Leaves have shape (n, ...).

    Args:
      update: of all clients, which the first axis counts.
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
