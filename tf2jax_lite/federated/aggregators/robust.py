"""Aggregators that bound the influence of a minority of clients.

These need all updates at once, so the accumulator holds one row for each client of the cohort: memory is the cohort's
padded size times one update. Rows are placed by the client's index: chunks and their order change nothing.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators.base import (
    Factory,
    cast_like,
    factor_to_one,
    float_template,
    keep_rows,
    named,
    row_norms,
    rows,
    share_down,
    sum_rows,
    zeros_like,
)
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import AggregationProcess, ClientUpdates, MeasuredProcessOutput
from tf2jax_lite.support.errors import InputError

__all__ = ["CoordinateMedianFactory", "GeometricMedianFactory", "KrumFactory", "TrimmedMeanFactory"]


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


@named("median")
@dataclasses.dataclass(frozen=True)
class CoordinateMedianFactory(BufferedFactory):
    """The median of each coordinate, of the middle two if even (Yin et al., 2018)."""

    def combine(self, update: Any, weight: Any, mask: Any) -> tuple[Any, dict[str, Any]]:
        """See `BufferedFactory.combine`."""
        number = jnp.sum(mask)
        return _mean_of_ranks(update, mask, (number - 1) // 2, number // 2), {}


@named("trimmed_mean")
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


@named("krum")
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


class _Pull(NamedTuple):
    """One Weiszfeld step from a point.

    Attributes:
      direction: the weighted sum of unit vectors to the clients, without clients at the point.
      descent: (): the steepest descent rate of the sum of distances; 0 at the median.
      reach: (): the step size along the direction.
      distance: (): the mean distance to the clients.
    """

    direction: Any
    descent: Any
    reach: Any
    distance: Any


@named("geometric_median")
@dataclasses.dataclass(frozen=True)
class GeometricMedianFactory(BufferedFactory):
    """The geometric median, by Weiszfeld's steps (Pillutla et al., 2022).

    It is the point with the least sum of distances to the updates. Clients with less than half of the weight cannot
    move it far with any update: they pull with their shares, from however far away. Steps begin at the mean of the
    clients whose norms are at most twice the median norm. Measures num_iterations, and distance: the weighted mean
    distance to the result.

    Attributes:
      num_iterations: at most this many steps.
      smoothing: clients nearer than this count as being at the point; above 0.
      tolerance: steps end once one goes less than this share of the harmonic mean of the distances, in which those that
        are far away do not matter.
      weighted: whether distances count in proportion to the clients' weights.
    """

    num_iterations: int = 100
    smoothing: float = 1e-6
    tolerance: float = 1e-5
    weighted: bool = True
    bounds_updates = True

    def __post_init__(self) -> None:
        check_number("GeometricMedianFactory", "num_iterations", self.num_iterations, least=1, whole=True)
        check_number("GeometricMedianFactory", "smoothing", self.smoothing, above=0)
        check_number("GeometricMedianFactory", "tolerance", self.tolerance, least=0)

    def combine(self, update: Any, weight: Any, mask: Any) -> tuple[Any, dict[str, Any]]:
        """See `BufferedFactory.combine`."""
        given = jnp.where(mask, weight if self.weighted else 1.0, 0.0)
        share = given / jnp.maximum(jnp.sum(given), jnp.finfo(jnp.float32).tiny)
        largest = row_norms(update, jnp.inf)

        def step(carry: Any) -> Any:
            number, point, pull, _ = carry
            moved = jax.tree.map(lambda p, d: p + pull.reach.astype(p.dtype) * d, point, pull.direction)
            same = jax.tree.map(lambda a, b: jnp.all(a == b), moved, point)
            stands = jnp.all(jnp.stack(jax.tree.leaves(same)))
            return number + 1, moved, self._pull(update, share, largest, moved), stands

        def goes_on(carry: Any) -> Any:
            number, _, pull, stands = carry
            return (number < self.num_iterations) & (pull.descent > self.tolerance) & ~stands

        start = _near_mean(update, share)
        begin = (jnp.int32(0), start, self._pull(update, share, largest, start), jnp.bool_(False))
        number, point, pull, _ = jax.lax.while_loop(goes_on, step, begin)
        return point, {"num_iterations": number, "distance": pull.distance}

    def _pull(self, update: Any, share: Any, largest: Any, point: Any) -> _Pull:
        """Return clients' effect on ``point``; ``largest`` (n,) are their maxima."""
        here = jnp.max(jnp.stack([jnp.max(jnp.abs(p)) for p in jax.tree.leaves(point) if p.size]))
        factor = factor_to_one(jnp.maximum(largest, here))

        def towards(x: Any, p: Any) -> Any:
            by = rows(factor, x).astype(x.dtype)
            return x * by - p * by

        away = jax.tree.map(towards, update, point)
        squares = [jnp.sum(jnp.square(a.reshape(a.shape[0], -1)), axis=1) for a in jax.tree.leaves(away)]
        length = jnp.sqrt(jnp.asarray(sum(squares)))
        far = jnp.minimum(length / factor, jnp.finfo(length.dtype).max)
        there = far < self.smoothing
        free = jnp.where(there, 0.0, share)
        by = free / jnp.where(there, 1.0, length)
        direction = jax.tree.map(lambda a: sum_rows(a * rows(by, a).astype(a.dtype)), away)
        strength = jnp.sqrt(sum(jnp.sum(jnp.square(d)) for d in jax.tree.leaves(direction)))
        # Clients at the point hold it with all their weight (Vardi and Zhang, 2000): a step divides by no zero.
        descent = jnp.maximum(strength - jnp.sum(jnp.where(there, share, 0.0)), 0.0)
        nearness = jnp.sum(free / jnp.where(there, 1.0, far))
        reach = jnp.where(descent > 0, descent / jnp.where(descent > 0, strength * nearness, 1.0), 0.0)
        return _Pull(direction, descent, reach, jnp.sum(share * far))


def _near_mean(update: Any, share: Any) -> Any:
    """Return the mean of clients with norms up to twice the weighted median."""
    norms = row_norms(update)
    order = jnp.argsort(norms)
    middle = norms[order][jnp.argmax(jnp.cumsum(share[order]) >= 0.5 * jnp.sum(share))]
    near = jnp.where(0.5 * norms <= middle, share, 0.0)
    near = near / jnp.maximum(jnp.sum(near), jnp.finfo(jnp.float32).tiny)
    return jax.tree.map(lambda x: sum_rows(x * rows(near, x).astype(x.dtype)), update)
