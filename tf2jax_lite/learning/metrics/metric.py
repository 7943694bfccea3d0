"""Metrics of single examples, and the statistics that sum them.

The shape is FedJAX's (fedjax.metrics.Stat). Counts are integers: int32, exact up to 2**31 - 1, or int64 where
`jax_enable_x64` is set. (A float32 count would stop growing at 2**24.) Sums of losses are float32, or the
prediction's dtype where that is wider: their last bits depend on the order of summation, which a different batching
changes; the relative error stays near 1e-7 times the logarithm of the number of examples within a batch and 1e-7
times the number of batches between them.

See fedjax.metrics.{Metric, evaluate_batch}.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning.checks import check_number, raised_by
from tf2jax_lite.support.errors import InputError


def as_count(value: Any) -> jax.Array:
    """Return numbers or booleans in the dtype of counts: int64 or (no x64) int32."""
    return jnp.asarray(value).astype(jax.dtypes.canonicalize_dtype(jnp.int64))


def zero_count(shape: tuple[int, ...] = ()) -> jax.Array:
    """Return zeros in the dtype of counts."""
    return as_count(jnp.zeros(shape, jnp.int32))


def _wide(value: Any) -> jax.Array:
    """Return half precision as float32, whose sums keep growing; others as is."""
    value = jnp.asarray(value)
    narrow = jnp.issubdtype(value.dtype, jnp.floating)
    return value.astype(jnp.promote_types(value.dtype, jnp.float32)) if narrow else value


def _sum(value: Any, axis: int) -> jax.Array:
    value = _wide(value)
    return jnp.sum(value, axis=axis, dtype=value.dtype)


class Stat(abc.ABC):
    """An intermediate value of a metric: a pytree of arrays.

    Statistics of parts merge into that of the whole.
    """

    @abc.abstractmethod
    def merge(self, other: Self) -> Self:
        """Return the statistic of both sets of examples together.

        Associative and commutative up to rounding.
        """

    @abc.abstractmethod
    def reduce(self, axis: int = 0) -> Self:
        """Merge the statistics stacked along ``axis`` of every leaf."""

    @abc.abstractmethod
    def result(self) -> Any:
        """Return the metric's value: an array, or a dict of arrays."""

    def __str__(self) -> str:
        return f"{self!r} => {self.result()}"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MeanStat(Stat):
    """A weighted mean. See fedjax.metrics.MeanStat.

    Attributes:
      accum: the sum of values times weights, shape (...). Integer for counts of hits.
      weight: the sum of weights, same shape. Integer where examples or tokens are counted.
    """

    accum: Any
    weight: Any

    @classmethod
    def new(cls, accum: Any, weight: Any) -> Self:
        """Make a statistic that ignores values without weight, even NaN.

        Args:
          accum: value times weight, shape (...).
          weight: not negative, same shape or one that broadcasts; below zero counts as zero.
        """
        accum, weight = jnp.broadcast_arrays(_wide(accum), _wide(weight))
        weight = jnp.maximum(weight, jnp.zeros((), weight.dtype))
        return cls(jnp.where(weight == 0, jnp.zeros((), accum.dtype), accum), weight)

    def merge(self, other: Self) -> Self:
        """See `Stat.merge`."""
        return type(self)(self.accum + other.accum, self.weight + other.weight)

    def reduce(self, axis: int = 0) -> Self:
        """See `Stat.reduce`."""
        return type(self)(_sum(self.accum, axis), _sum(self.weight, axis))

    def result(self) -> Any:
        """Return the mean, float (...); 0 if nothing was added, as in Keras."""
        weight = jnp.asarray(self.weight)
        empty = weight == 0
        return jnp.where(empty, 0.0, self.accum / jnp.where(empty, jnp.ones((), weight.dtype), weight))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PerplexityStat(MeanStat):
    """The exponential of a mean cross entropy (natural logarithm).

    Attributes:
      accum: sum of the cross entropies.
      weight: number of tokens.
    """

    def result(self) -> Any:
        """Return e to the mean; 1 where nothing was added."""
        return jnp.exp(super().result())


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SumStat(Stat):
    """A sum. See fedjax.metrics.SumStat.

    Attributes:
      accum: the sum, any shape. Integer for counts.
    """

    accum: Any

    @classmethod
    def new(cls, accum: Any) -> Self:
        """Make a statistic of one value."""
        return cls(_wide(accum))

    def merge(self, other: Self) -> Self:
        """See `Stat.merge`."""
        return type(self)(self.accum + other.accum)

    def reduce(self, axis: int = 0) -> Self:
        """See `Stat.reduce`."""
        return type(self)(_sum(self.accum, axis))

    def result(self) -> Any:
        """Return the sum."""
        return self.accum


# Where padded batches say which of their examples are real; FedJAX's EXAMPLE_MASK_KEY.
MASK_KEY = "__mask__"


@dataclasses.dataclass(frozen=True)
class Metric(abc.ABC):
    """A frozen, hashable dataclass of options, with two pure functions.

    It is a static argument of `jax.jit`.
    """

    @abc.abstractmethod
    def zero(self) -> Stat:
        """Return the statistic of no examples."""

    @abc.abstractmethod
    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> Stat:
        """Return the statistic of one example.

        Args:
          example: dict of arrays without a batch dimension.
          prediction: the model's prediction for it, without a batch dimension.
        """

    def evaluate_examples(self, batch: Mapping[str, Any], predictions: Any, mask: Any) -> Stat:
        """Return the statistic of a batch.

        A metric overrides this where one example's statistic is large.

        Args:
          batch: dict of arrays of shape (n, ...).
          predictions: pytree of arrays of shape (n, ...).
          mask: bool (n,).
        """
        stats = jax.vmap(self.evaluate_example)(batch, predictions)

        def keep(value: Any, zero: Any) -> Any:
            # Not a product: values of padding may be NaN, and 0 * NaN is NaN.
            zero = jnp.asarray(zero)
            zero = jnp.reshape(zero, zero.shape + (1,) * (value.ndim - 1 - zero.ndim))
            return jnp.where(jnp.reshape(mask, mask.shape + (1,) * (value.ndim - 1)), value, zero)

        return jax.tree.map(keep, stats, self.zero()).reduce()


def check_metrics(who: str, name: str, metrics: Any) -> dict[str, Metric]:
    """Return metrics by name; none for None.

    Args:
      who: whose option it is.
      name: the option.
      metrics: the value of the option.

    Raises:
      InputError: it is not a dict, or an entry is not a metric.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise InputError(f"{who}: {name} is a dict from name to metric, not {type(metrics).__name__}")
    for key, metric in (metrics or {}).items():
        if not isinstance(metric, Metric):
            raise InputError(f"{who}: {name} is a dict from name to metric; {key!r} is a {type(metric).__name__}")
    return dict(metrics or {})


def evaluate_batch(metric: Metric, batch: Mapping[str, Any], predictions: Any, mask: Any = None) -> Stat:
    """Evaluate a metric over a batch, vectorized.

    Masked examples do not count.

    Args:
      metric: the metric.
      batch: dict of arrays of shape (n, ...).
      predictions: pytree of arrays of shape (n, ...).
      mask: bool (n,), False for padding. By default ``batch["__mask__"]``, or all True.

    Returns:
      The batch's statistic; merge those of all batches, then take the result.

    Raises:
      InputError: a key is absent, or shapes do not fit.
    """
    if mask is None:
        mask = batch.get(MASK_KEY)
    for name, value in batch.items():
        if getattr(value, "dtype", np.dtype(bool)).kind in "OSU":
            raise InputError(f"{type(metric).__name__}: {name!r} in the batch is text; metrics take numbers.")
    batch = {name: jnp.asarray(value) for name, value in batch.items() if name != MASK_KEY}
    sizes = {str(jnp.shape(leaf)[:1]) for leaf in jax.tree.leaves((batch, predictions))}
    if mask is None:
        leaves = jax.tree.leaves(predictions) or list(batch.values())
        mask = jnp.ones(jnp.shape(leaves[0])[:1], bool)
    mask = jnp.asarray(mask).astype(bool)
    if len(sizes | {str(mask.shape)}) > 1:
        shapes = {name: value.shape for name, value in batch.items()}
        raise InputError(
            f"{type(metric).__name__}: the batch {shapes}, the predictions {jax.tree.map(jnp.shape, predictions)} and "
            f"the mask {mask.shape} differ in the number of examples (the first dimension)."
        )
    with raised_by("a metric", metric):
        return metric.evaluate_examples(batch, predictions, mask)


def pick(metric: Metric, values: Any, key: str | None, what: str) -> jax.Array:
    """Return ``values[key]``, or ``values`` itself where the key is None.

    Raises:
      InputError: the key is missing; ``what`` names the structure.
    """
    if key is None:
        found = values
    elif isinstance(values, Mapping) and key in values:
        found = values[key]
    else:
        there = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        raise InputError(f"{type(metric).__name__}: the {what} has no key {key!r}; it has {there}.")
    if isinstance(found, (Mapping, list, tuple)):
        raise InputError(
            f"{type(metric).__name__}: the {what} is a {type(found).__name__}, not an array; name the array in it "
            "with pred_key (predictions) or target_key (examples)."
        )
    return jnp.asarray(found)


def as_float(value: Any) -> jax.Array:
    """Return ``value`` in float32 or wider: half-precision sums lose examples."""
    value = jnp.asarray(value)
    return value.astype(jnp.promote_types(value.dtype, jnp.float32))


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
