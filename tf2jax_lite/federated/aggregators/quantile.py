"""A norm that follows a quantile of the clients' norms.

Sources: Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping";
tff.aggregators.PrivateQuantileEstimationProcess.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Self

import jax
import jax.numpy as jnp

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class QuantileEstimation:
    """Follows a quantile by geometric steps.

    ``estimate *= exp(-learning_rate * (share below it - target))``.

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
    """

    initial_estimate: float = 1.0
    target_quantile: float = 0.5
    learning_rate: float = 0.2
    multiplier: float = 1.0
    increment: float = 0.0
    below_estimate_stddev: float = 0.0
    clients_per_round: float | None = None

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

    def next(self, state: Any, below: Any, total: Any, key: Any) -> Any:
        """Return the state after a round.

        Args:
          state: the estimate.
          below: how many clients were at most at the estimate, ().
          total: how many clients there were, (). Without any the estimate stays, unless ``clients_per_round`` is set.
          key: a JAX key, for noise.
        """
        count = below.astype(jnp.float32) - 0.5 * total
        if self.below_estimate_stddev:
            count += self.below_estimate_stddev * jax.random.normal(key, (), jnp.float32)
        number = jnp.asarray(self.clients_per_round or jnp.maximum(total, 1), jnp.float32)
        share = count / number + 0.5
        stepped = state * jnp.exp(-self.learning_rate * (share - self.target_quantile))
        return stepped if self.clients_per_round else jnp.where(total > 0, stepped, state)


PrivateQuantileEstimationProcess = QuantileEstimation  # TFF's name
