"""The geometric median by Weiszfeld's steps: distant updates count less."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.aggregators.base import factor_to_one, row_norms, rows, sum_rows
from tf2jax_lite.federated.aggregators.robust import BufferedFactory


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
