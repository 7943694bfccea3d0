"""Aggregations robust to a minority of Byzantine clients, equally weighted.

These need all updates at once, so the accumulator holds one row for each client of the cohort: memory is the cohort's
padded size times one update. Rows are placed by the client's index: chunks and their order change nothing.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated._utils.fractions import share_down
from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.aggregators.base import (
    Factory,
    cast_like,
    float_template,
    keep_rows,
    rows,
    sum_rows,
    zeros_like,
)
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates, MeasuredProcessOutput
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class BufferedFactory(Factory):
    """An aggregation over all updates of the cohort together."""

    bounds_updates = False

    @abc.abstractmethod
    def combine(self, update: Any, weight: Any, mask: Any) -> tuple[Any, dict[str, Any]]:
        """Return the aggregate and measurements.

        Args:
          update: pytree with float leaves (n, ...), in the order of the cohort; zero where masked.
          weight: float32 (n,), zero where masked.
          mask: bool (n,), at times all False.
        """

    def check(self, num_clients: int) -> None:
        """Raise InputError where so few clients cannot be aggregated."""
        del num_clients

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, type(self).__name__)

        def zero(state: Any, num_clients: int) -> Any:
            del state
            self.check(num_clients)
            empty = jnp.zeros((num_clients,), jnp.float32)
            return zeros_like(wide, (num_clients,)), empty, jnp.zeros((num_clients,), bool)

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            del state, key
            size = accumulator[2].shape[0]
            # Padding may carry any index, another client's too: it is written outside, that is, nowhere.
            place = jnp.where(updates.mask, updates.index, size)
            new = cast_like(updates.update, wide), updates.weight, updates.mask
            return jax.tree.map(lambda a, x: a.at[place].set(x.astype(a.dtype), mode="drop"), accumulator, new)

        def merge(a: Any, b: Any) -> Any:
            return jax.tree.map(lambda x, y: jnp.where(rows(b[2], y), y, x), a, b)

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            del state, key
            result, measured = self.combine(*accumulator)
            return MeasuredProcessOutput((), cast_like(result, template), measured)

        return AggregationProcess(
            lambda: (),
            zero,
            accumulate,
            merge,
            report,
            guarantees=frozenset({"robustness"}),
            bounds_updates=self.bounds_updates,
        )


def _sorted_rows(x: Any, mask: Any) -> Any:
    """Return the rows that count, sorted coordinate by coordinate, then the others."""
    return jnp.sort(jnp.where(rows(mask, x), x, jnp.inf), axis=0)


def _mean_of_ranks(update: Any, mask: Any, first: Any, last: Any) -> Any:
    """Return each coordinate's mean of ranks in [first, last]; 0 if no clients."""
    rank = jnp.arange(mask.shape[0])
    chosen = (rank >= first) & (rank <= last) & jnp.any(mask)
    number = jnp.maximum(jnp.sum(chosen), 1)

    def leaf(x: Any) -> Any:
        return sum_rows(keep_rows(_sorted_rows(x, mask), chosen)) / number.astype(x.dtype)

    return jax.tree.map(leaf, update)


@dataclasses.dataclass(frozen=True)
class CoordinateMedianFactory(BufferedFactory):
    """The median of each coordinate, of the middle two if even (Yin et al., 2018)."""

    def combine(self, update: Any, weight: Any, mask: Any) -> tuple[Any, dict[str, Any]]:
        """See `BufferedFactory.combine`."""
        number = jnp.sum(mask)
        return _mean_of_ranks(update, mask, (number - 1) // 2, number // 2), {}


@dataclasses.dataclass(frozen=True)
class TrimmedMeanFactory(BufferedFactory):
    """The trimmed mean of each coordinate (Yin et al., 2018).

    It excludes the lowest and highest values. Measures num_trimmed: how many values were left out at each end.

    Attributes:
      trim_fraction: the share of clients left out at each end, in [0, 0.5); rounded down to a number of clients.
    """

    trim_fraction: float = 0.1

    def __post_init__(self) -> None:
        check_number("TrimmedMeanFactory", "trim_fraction", self.trim_fraction, least=0, below=0.5)

    def combine(self, update: Any, weight: Any, mask: Any) -> tuple[Any, dict[str, Any]]:
        """See `BufferedFactory.combine`."""
        number = jnp.sum(mask, dtype=jnp.int32)
        # Looked up, as the number is traced.
        shares = share_down(self.trim_fraction, np.arange(mask.shape[0] + 1))
        trimmed = jnp.asarray(shares, jnp.int32)[number]
        trimmed = jnp.minimum(trimmed, jnp.maximum(number - 1, 0) // 2)
        return _mean_of_ranks(update, mask, trimmed, number - 1 - trimmed), {"num_trimmed": trimmed}


def _squared_distances(update: Any) -> Any:
    """Return clients' squared distances, float32 (n, n), without extra memory."""
    leaves = [x.reshape(x.shape[0], -1) for x in jax.tree.leaves(update)]

    def from_one(one: list[Any]) -> Any:
        # Differences, not the product of the matrix with itself, which loses the distances of near clients.
        return sum(jnp.sum(jnp.square(x - o), axis=1) for x, o in zip(leaves, one, strict=True))

    return jax.lax.map(from_one, leaves)


@dataclasses.dataclass(frozen=True)
class KrumFactory(BufferedFactory):
    """Krum: the update nearest to its neighbors (Blanchard et al., 2017).

    Multi-Krum is the mean of the nearest ``num_selected``. A client's score is the sum of squared distances to its ``n
    - num_byzantine - 2`` nearest others. Measures num_selected.

    Attributes:
      num_byzantine: how many clients may be wrong; the paper's guarantee needs ``n >= 2 * num_byzantine + 3``.
      num_selected: how many updates are averaged: 1 is Krum, more multi-Krum.
    """

    num_byzantine: int = 0
    num_selected: int = 1

    def __post_init__(self) -> None:
        check_number("KrumFactory", "num_byzantine", self.num_byzantine, least=0, whole=True)
        check_number("KrumFactory", "num_selected", self.num_selected, least=1, whole=True)

    def check(self, num_clients: int) -> None:
        """See `BufferedFactory.check`."""
        if num_clients < 2 * self.num_byzantine + 3:
            raise InputError(
                f"KrumFactory: {num_clients} clients a round are too few to withstand {self.num_byzantine} wrong ones; "
                f"at least {2 * self.num_byzantine + 3} are needed."
            )

    def combine(self, update: Any, weight: Any, mask: Any) -> tuple[Any, dict[str, Any]]:
        """See `BufferedFactory.combine`."""
        n = mask.shape[0]
        number = jnp.sum(mask, dtype=jnp.int32)
        distances = _squared_distances(update)
        others = mask[None, :] & ~jnp.eye(n, dtype=bool)
        # Not inf times 0: values beyond the neighbors are excluded by rank.
        nearest = jnp.sort(jnp.where(others, distances, jnp.inf), axis=1)
        count = jnp.clip(number - self.num_byzantine - 2, 1, jnp.maximum(number - 1, 0))
        score = jnp.sum(jnp.where(jnp.arange(n) < count, nearest, 0.0), axis=1)
        score = jnp.where(mask & jnp.isfinite(score), score, jnp.inf)
        rank = jnp.zeros((n,), jnp.int32).at[jnp.argsort(score)].set(jnp.arange(n, dtype=jnp.int32))
        chosen = mask & (rank < self.num_selected)
        selected = jnp.sum(chosen, dtype=jnp.int32)
        kept = keep_rows(update, chosen)
        mean = jax.tree.map(lambda x: sum_rows(x) / jnp.maximum(selected, 1).astype(x.dtype), kept)
        return mean, {"num_selected": selected}
