"""Mergeable statistics: pytrees whose merged value ignores batching.

The shape is FedJAX's (fedjax.metrics.Stat). Counts are integers: int32, exact up to 2**31 - 1, or int64 where
`jax_enable_x64` is set. (A float32 count would stop growing at 2**24.) Sums of losses are float32, or the
prediction's dtype where that is wider: their last bits depend on the order of summation, which a different batching
changes; the relative error stays near 1e-7 times the logarithm of the number of examples within a batch and 1e-7
times the number of batches between them.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp


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
    """The exponential of a mean cross entropy (natural logarithm)."""

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
