"""A metric by domain. See fedjax.metrics.PerDomainMetric."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.support.errors import InputError

from .metric import Metric, pick
from .stat import Stat


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PerDomainStat(Stat):
    """Statistics by domain.

    Attributes:
      stat: the base metric's statistic, each leaf with a leading dimension of domains.
    """

    stat: Any

    def merge(self, other: Self) -> Self:
        """See `Stat.merge`."""
        # By domain: a statistic without examples may have fewer dimensions, and must not broadcast over domains.
        return dataclasses.replace(self, stat=jax.vmap(lambda a, b: a.merge(b))(self.stat, other.stat))

    def reduce(self, axis: int = 0) -> Self:
        """See `Stat.reduce`."""
        return dataclasses.replace(self, stat=self.stat.reduce(axis))

    def result(self) -> Any:
        """Return the base metric's results, with a leading dimension of domains."""
        return jax.vmap(lambda stat: stat.result())(self.stat)


@dataclasses.dataclass(frozen=True)
class PerDomainMetric(Metric):
    """Another metric, for each domain apart.

    Attributes:
      base: the metric.
      num_domains: how many domains.
      domain_id_key: the key of the domain's number in the example; numbers outside [0, num_domains) are ignored.
    """

    base: Metric
    num_domains: int
    domain_id_key: str = "domain_id"

    def __post_init__(self) -> None:
        if not isinstance(self.base, Metric):
            raise InputError(f"PerDomainMetric: base is a metric, such as Accuracy(), not {self.base!r}.")
        check_number("PerDomainMetric", "num_domains", self.num_domains, least=1, whole=True)

    def zero(self) -> PerDomainStat:
        """See `Metric.zero`."""
        zeros = jax.tree.map(lambda z: jnp.broadcast_to(z, (self.num_domains, *jnp.shape(z))), self.base.zero())
        return PerDomainStat(zeros)

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> PerDomainStat:
        """See `Metric.evaluate_example`."""
        domain = self._domain(example)
        found = self.base.evaluate_example(example, prediction)

        def place(here: Any, zero: Any) -> Any:
            return jax.tree.map(lambda value, nothing: jnp.where(here, value, nothing), found, zero)

        return PerDomainStat(jax.vmap(place)(jnp.arange(self.num_domains) == domain, self.zero().stat))

    def evaluate_examples(self, batch: Mapping[str, Any], predictions: Any, mask: Any) -> PerDomainStat:
        """See `Metric.evaluate_examples`: the base metric of each domain by mask."""
        domains = self._domain(batch)
        in_domain = (domains == jnp.arange(self.num_domains)[:, None]) & mask
        return PerDomainStat(jax.vmap(lambda m: self.base.evaluate_examples(batch, predictions, m))(in_domain))

    def _domain(self, values: Mapping[str, Any]) -> Any:
        return pick(self, values, self.domain_id_key, "example").astype(jnp.int32)
