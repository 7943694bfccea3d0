"""FedJAX's functions on pytrees, by those of optax, and its names of types.

Source: fedjax.tree_util, fedjax.dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite.learning.process import PyTree

ClientId = Hashable
BatchExample = BatchPrediction = SingleExample = SinglePrediction = OptState = Params = PRNGKey = PyTree
_Class = TypeVar("_Class", bound=type)


def dataclass(kind: _Class) -> _Class:
    """Return a class as a frozen dataclass that is a pytree."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(kind))


@dataclasses.dataclass(frozen=True)
class FederatedAlgorithm:
    """Hold an own algorithm, as FedJAX does; builders return `LearningProcess`.

    Attributes:
      init: ``(params) -> state``.
      apply: ``(state, clients) -> (state, diagnostics by client)``.
    """

    init: Callable[[Params], Any]
    apply: Callable[[Any, Any], tuple[Any, Any]]


tree_add = optax.tree.add
tree_size = optax.tree.size
tree_l2_norm = optax.tree.norm
tree_zeros_like = optax.tree.zeros_like


def tree_weight(pytree: Any, weight: Any) -> Any:
    """Return a pytree times a number."""
    return optax.tree.scale(weight, pytree)


def tree_inverse_weight(pytree: Any, weight: Any) -> Any:
    """Return a pytree divided by a number; zeros where that is 0 or less."""
    return tree_weight(pytree, jnp.where(weight > 0, 1 / jnp.where(weight > 0, weight, 1), 0))


def tree_sum(pytrees: Iterable[Any]) -> Any:
    """Return the sum of pytrees; None if there are none."""
    total = None
    for pytree in pytrees:
        total = pytree if total is None else tree_add(total, pytree)
    return total


def tree_mean(pytrees_and_weights: Iterable[tuple[Any, Any]]) -> Any:
    """Return the weighted mean of pytrees, given with their weights."""
    pairs = list(pytrees_and_weights)
    total = tree_sum(tree_weight(pytree, weight) for pytree, weight in pairs)
    return tree_inverse_weight(total, sum(weight for _, weight in pairs))


def tree_l2_squared(pytree: Any) -> Any:
    """Return the square of a pytree's L2 norm."""
    return optax.tree.norm(pytree, squared=True)


def tree_clip_by_global_norm(pytree: Any, max_norm: Any) -> Any:
    """Return a pytree scaled down to an L2 norm, if its norm is larger."""
    norm = tree_l2_norm(pytree)
    scale = jnp.where(norm > max_norm, max_norm / jnp.where(norm > 0, norm, 1), 1)

    def clipped(leaf: Any) -> Any:
        return (scale * leaf).astype(leaf.dtype if jnp.issubdtype(leaf.dtype, jnp.inexact) else scale.dtype)

    return jax.tree.map(clipped, pytree)
