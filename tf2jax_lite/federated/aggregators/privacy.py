"""Differential privacy of clients (DifferentiallyPrivateFactory in TFF).

Clip each update, add them, add Gaussian noise, divide by the expected number of clients. Processes draw the noise with
a secret key, see `entropy`, in floating point: a deployment that has to resist attacks on floating-point
noise (Mironov, 2012) needs a discrete mechanism.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Self

import jax

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.aggregators.base import Factory, as_aggregator, cast_like, float_template
from tf2jax_lite.federated.aggregators.clipping import ClippingFactory
from tf2jax_lite.federated.aggregators.mean import SumFactory
from tf2jax_lite.federated.aggregators.quantile import QuantileEstimation
from tf2jax_lite.federated.templates.process import AggregationProcess, MeasuredProcessOutput
from tf2jax_lite.support.errors import InputError


def adaptive_clip_noise_params(
    noise_multiplier: float, clients_per_round: float, clipped_count_stddev: float | None = None
) -> tuple[float, float]:
    """Split a privacy budget between updates and the clipped count.

    The count adapts the clipping norm (Andrew et al., theorem 1).

    Args:
      noise_multiplier: of both together.
      clients_per_round: the expected number of clients.
      clipped_count_stddev: noise on the count; 0.05 times clients_per_round by default.

    Returns:
      ``(value_noise_multiplier, clipped_count_stddev)``.

    Raises:
      InputError: the count's noise is so small that the budget is spent on it alone.
    """
    check = functools.partial(check_number, "adaptive clipping")
    check("noise_multiplier", noise_multiplier, least=0)
    check("clients_per_round", clients_per_round, above=0)
    if clipped_count_stddev is not None:
        check("clipped_count_stddev", clipped_count_stddev, least=0)
    stddev = 0.05 * clients_per_round if clipped_count_stddev is None else clipped_count_stddev
    if not noise_multiplier:
        return 0.0, 0.0
    if noise_multiplier >= 2 * stddev:
        raise InputError(
            f"adaptive clipping: with noise_multiplier {noise_multiplier}, clipped_count_stddev must exceed "
            f"{noise_multiplier / 2}, and it is {stddev}. Raise it or clients_per_round."
        )
    return noise_multiplier * (1 - (noise_multiplier / (2 * stddev)) ** 2) ** -0.5, stddev


def check_noise_seed(who: str, noise_seed: Any) -> None:
    """Raise `InputError` if it is neither None nor an integer of 32 bits."""
    if noise_seed is not None:
        check_number(who, "noise_seed", noise_seed, least=0, most=2**32 - 1, whole=True)


@dataclasses.dataclass(frozen=True)
class DifferentiallyPrivateFactory(Factory):
    """The mean of clipped updates with Gaussian noise.

    All clients have the same weight, as privacy requires. The aggregate is ``(sum of clipped updates + N(0,
    (noise_multiplier * clip)**2)) / clients_per_round``. The divisor is fixed: dividing by the number that took part
    would tell whether somebody did. Measures ``noise_stddev`` (of the sum), and clipping_norm and clipped_count, which
    are not private: keep them on the server.

    Attributes:
      noise_multiplier: noise over sensitivity, not negative.
      clients_per_round: the expected number of clients.
      clip: the L2 norm, or a `QuantileEstimation` that adapts it.
      record_aggregation_factory: how clipped updates are summed; `SumFactory` by default.
      noise_seed: for tests alone: the noise is a function of it and the training's key, and an observer with both can
        subtract it. By default processes draw each round's noise from the operating system's entropy.
    """

    noise_multiplier: float
    clients_per_round: float
    clip: float | QuantileEstimation
    record_aggregation_factory: Factory = dataclasses.field(default_factory=SumFactory)
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        check = functools.partial(check_number, type(self).__name__)
        check("noise_multiplier", self.noise_multiplier, least=0)
        check("clients_per_round", self.clients_per_round, above=0)
        if not isinstance(self.clip, QuantileEstimation):
            check("clip, if no QuantileEstimation,", self.clip, above=0)  # the noise is in proportion to it
        check_noise_seed(type(self).__name__, self.noise_seed)

    @classmethod
    def gaussian_fixed(cls, noise_multiplier: float, clients_per_round: float, clip: float) -> Self:
        """Clip by a fixed norm (tff DifferentiallyPrivateFactory.gaussian_fixed)."""
        return cls(noise_multiplier, clients_per_round, clip)

    @classmethod
    def gaussian_adaptive(
        cls,
        noise_multiplier: float,
        clients_per_round: float,
        initial_l2_norm_clip: float = 0.1,
        target_unclipped_quantile: float = 0.5,
        learning_rate: float = 0.2,
        clipped_count_stddev: float | None = None,
    ) -> Self:
        """Clipping at a quantile that is itself estimated with noise.

        ``noise_multiplier`` covers both. See tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive and
        `adaptive_clip_noise_params`.
        """
        values, stddev = adaptive_clip_noise_params(noise_multiplier, clients_per_round, clipped_count_stddev)
        clip = QuantileEstimation(
            initial_l2_norm_clip,
            target_unclipped_quantile,
            learning_rate,
            below_estimate_stddev=stddev,
            clients_per_round=clients_per_round,
        )
        return cls(values, clients_per_round, clip)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "DifferentiallyPrivateFactory")
        inner = as_aggregator(ClippingFactory(self.clip, self.record_aggregation_factory), wide)

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            found = inner.report(state, accumulator, jax.random.fold_in(key, 1))
            stddev = self.noise_multiplier * found.measurements["clipping_norm"]
            leaves, form = jax.tree.flatten(found.result)
            keys = jax.random.split(jax.random.fold_in(key, 0), len(leaves))
            noisy = [
                (x + stddev * jax.random.normal(k, x.shape, x.dtype)) / self.clients_per_round
                for x, k in zip(leaves, keys, strict=True)
            ]
            result = cast_like(jax.tree.unflatten(form, noisy), template)
            return MeasuredProcessOutput(found.state, result, {**found.measurements, "noise_stddev": stddev})

        def accumulate(state: Any, accumulator: Any, updates: Any, key: Any) -> Any:
            updates = updates._replace(update=cast_like(updates.update, wide))
            return inner.accumulate(state, accumulator, updates, jax.random.fold_in(key, 1))

        why = "differential privacy bounds each client's share"
        return dataclasses.replace(
            inner,
            accumulate=accumulate,
            report=report,
            refuses_weights=why,
            guarantees=inner.guarantees | ({"differential privacy"} if self.noise_multiplier else set()),
            is_secret=True,
            noise_seed=self.noise_seed,
            covered=inner.covered | {"noise_stddev"},
        )
