"""Noise whose sums over rounds stay small: DP-FTRL's tree aggregation.

A round's noise is the difference of two sums of a binary tree's nodes, so that the noise of all rounds so far is one
such sum: it grows with the logarithm of the number of rounds, and privacy needs no random cohorts.

Sources: Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or Shuffling"; Honaker 2015,
"Efficient Use of Differentially Private Binary Trees"; tff.aggregators.DifferentiallyPrivateFactory.tree_adaptive.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tf2jax_lite.federated.aggregators.base import chosen, zeros_like
from tf2jax_lite.federated.aggregators.clipping import QuantileEstimation
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import Mechanism, PyTree

__all__ = ["TreeNoise", "TreeQuantileEstimation"]


class TreeState(NamedTuple):
    """The state of a tree.

    Who has it can subtract noise: keep it, and its checkpoints, on the server.

    Attributes:
      round: int32 scalar, rounds of this tree so far.
      end: int32 scalar, rounds of this tree in all.
      nodes: pytree with leaves (levels, ...): estimates of the noise of the complete subtrees so far, zeros elsewhere.
      total: pytree, the noise of all rounds of this tree so far.
    """

    round: Any
    end: Any
    nodes: PyTree
    total: PyTree


@dataclasses.dataclass(frozen=True)
class TreeNoise:
    """How noise comes from trees.

    Attributes:
      restart_warmup: rounds of the first tree.
      restart_frequency: rounds of each later tree; a tree of n rounds takes the memory of about log2(n) updates.
      use_efficient: whether a node's noise is estimated from its subtree's as well, which lowers it.
    """

    restart_warmup: int = 1024
    restart_frequency: int = 1024
    use_efficient: bool = True

    def __post_init__(self) -> None:
        check_number("TreeNoise", "restart_warmup", self.restart_warmup, least=1, most=2**30, whole=True)
        check_number("TreeNoise", "restart_frequency", self.restart_frequency, least=1, most=2**30, whole=True)

    @property
    def sizes(self) -> tuple[int, int]:
        """The rounds of the first tree, and of each later one."""
        return self.restart_warmup, self.restart_frequency

    @property
    def _levels(self) -> int:
        return max(self.sizes).bit_length()

    def initialize(self, template: PyTree) -> TreeState:
        """Return the state before the first round, for noise in the form of the template."""
        return self._empty(template, self.restart_warmup)

    def _empty(self, template: PyTree, end: int) -> TreeState:
        return TreeState(jnp.int32(0), jnp.int32(end), zeros_like(template, (self._levels,)), zeros_like(template))

    def next(self, state: TreeState, stddev: Any, key: Any) -> tuple[PyTree, TreeState]:
        """Return a round's noise, and the state after it.

        Args:
          state: the tree's.
          stddev: of a node's noise, (); it is constant within a tree.
          key: a secret JAX key, a new one each round.
        """
        number = state.round + 1
        # The new node completes subtrees of 1, 2, ..., 2**level rounds: the trailing zeros of the round's number.
        level = jax.lax.population_count((number & -number) - 1)
        leaves, form = jax.tree.flatten(state.total)

        def draw(level: Any) -> list[Any]:
            keys = jax.random.split(jax.random.fold_in(key, level), len(leaves))
            return [stddev * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]

        nodes = jax.tree.leaves(state.nodes)

        def above(below: Any, value: list[Any]) -> list[Any]:
            """Return a node's estimate by its own noise, and by those of its two parts."""
            own = draw(below + 1)
            return [v + (x[below] + y) / 2 for v, x, y in zip(own, nodes, value, strict=True)]

        new = jax.lax.fori_loop(0, level, above, draw(0)) if self.use_efficient else draw(level)
        levels = jnp.arange(self._levels)
        weights = 1 / (2 - 0.5**levels) if self.use_efficient else jnp.ones(self._levels)

        def placed(old: Any, value: Any) -> Any:
            shape = (-1, *(1,) * value.ndim)
            kept = jnp.where(jnp.reshape(levels < level, shape), 0, old)
            return jnp.where(jnp.reshape(levels == level, shape), value, kept)

        changed = [placed(old, value) for old, value in zip(nodes, new, strict=True)]
        sums = [jnp.tensordot(weights.astype(x.dtype), x, 1) for x in changed]
        noise = [new - old for new, old in zip(sums, leaves, strict=True)]
        after = TreeState(number, state.end, form.unflatten(changed), form.unflatten(sums))
        return form.unflatten(noise), chosen(
            number < state.end, after, self._empty(state.total, self.restart_frequency)
        )


@dataclasses.dataclass(frozen=True)
class TreeQuantileEstimation(QuantileEstimation):
    """A quantile whose counts have noise from trees.

    Its bound changes when a tree restarts.

    Attributes:
      tree: how its noise comes from trees; ``below_estimate_stddev`` is that of a node.
    """

    tree: TreeNoise = dataclasses.field(default_factory=TreeNoise)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """See `QuantileEstimation.mechanisms`."""
        return tuple(dataclasses.replace(m, tree=self.tree.sizes) for m in super().mechanisms)

    def initialize(self) -> Any:
        """Return the state: the estimate, the bound that holds, and the tree."""
        estimate = super().initialize()
        return estimate, super().bound(estimate), self.tree.initialize(jax.ShapeDtypeStruct((), jnp.float32))

    def bound(self, state: Any) -> Any:
        """See `QuantileEstimation.bound`."""
        return state[1]

    def estimate(self, state: Any) -> Any:
        """See `QuantileEstimation.estimate`."""
        return state[0]

    def next(self, state: Any, below: Any, total: Any, key: Any) -> Any:
        """See `QuantileEstimation.next`."""
        estimate, bound, tree = state
        noise, tree = self.tree.next(tree, self.below_estimate_stddev, key)
        estimate = self.stepped(estimate, below, total, noise)
        return estimate, jnp.where(tree.round == 0, super().bound(estimate), bound), tree
