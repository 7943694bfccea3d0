"""Building blocks around clients: their message, and their aggregate's use.

Sources: tff.learning.templates.DistributionProcess and FinalizerProcess.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import optax

from tf2jax_lite.federated.aggregators.base import tree_norm
from tf2jax_lite.federated.templates.process import MeasuredProcessOutput, ModelWeights
from tf2jax_lite.support.errors import InputError

__all__ = [
    "DistributionProcess",
    "Distributor",
    "Finalizer",
    "FinalizerProcess",
    "broadcast_distributor",
    "build_add_finalizer",
    "build_apply_optimizer_finalizer",
    "build_broadcast_process",
    "check_optimizer",
]

PyTree = Any


@dataclasses.dataclass(frozen=True)
class Distributor:
    """Turns the server's weights into the message to clients.

    See tff.learning.templates.DistributionProcess.

    Attributes:
      initialize: ``() -> state``.
      next: ``(state, ModelWeights) -> MeasuredProcessOutput(state, message, measurements)``.
    """

    initialize: Callable[[], PyTree]
    next: Callable[[PyTree, ModelWeights], MeasuredProcessOutput]


@dataclasses.dataclass(frozen=True)
class Finalizer:
    """Turns the aggregate of the updates into new weights.

    See tff.learning.templates.FinalizerProcess.

    Attributes:
      initialize: ``(ModelWeights) -> state``.
      next: ``(state, ModelWeights, aggregate) -> MeasuredProcessOutput(state, new ModelWeights, measurements)``. The
        aggregate of differences of weights is a direction to move *against*, as a gradient is; see `ClientResult`.
    """

    initialize: Callable[[ModelWeights], PyTree]
    next: Callable[[PyTree, ModelWeights, PyTree], MeasuredProcessOutput]


# TFF's names.
DistributionProcess, FinalizerProcess = Distributor, Finalizer


def build_broadcast_process(value_type: PyTree = None) -> Distributor:
    """Make a distributor that sends the weights unchanged.

    See tff.learning.templates.build_broadcast_process.

    Args:
      value_type: ignored; TFF's type of the weights.
    """
    del value_type
    return Distributor(lambda: (), lambda state, weights: MeasuredProcessOutput(state, weights, {}))


broadcast_distributor = build_broadcast_process


def check_optimizer(optimizer: Any, name: str) -> optax.GradientTransformation:
    """Return an optimizer whose state the server keeps.

    Args:
      optimizer: the value of the option.
      name: its name in messages, with an article.

    Raises:
      InputError: it is not an optax transformation; a function of the round's number, say, which clients' may be.
    """
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise InputError(
            f"{name} is an optax.GradientTransformation, whose state is kept from round to round; not "
            f"{type(optimizer).__name__}"
        )
    return optimizer


def build_apply_optimizer_finalizer(optimizer: optax.GradientTransformation) -> Finalizer:
    """Make the finalizer that takes the aggregate for a gradient.

    See tff.learning.templates.build_apply_optimizer_finalizer.

    Args:
      optimizer: an optax transformation, such as ``optax.sgd(1.0)``.

    Raises:
      InputError: it is none.
    """
    check_optimizer(optimizer, "a server optimizer")

    def next_fn(state: PyTree, weights: ModelWeights, aggregate: PyTree) -> MeasuredProcessOutput:
        updates, state = optimizer.update(aggregate, state, weights.trainable)
        new = weights._replace(trainable=optax.apply_updates(weights.trainable, updates))
        return MeasuredProcessOutput(state, new, {"update_norm": tree_norm(aggregate)})

    return Finalizer(lambda weights: optimizer.init(weights.trainable), next_fn)


def build_add_finalizer() -> Finalizer:
    """Make the finalizer that adds the clients' mean change to the weights.

    Updates are initial minus final weights, so it subtracts the aggregate, as SGD of rate 1 does.
    """

    def next_fn(state: PyTree, weights: ModelWeights, aggregate: PyTree) -> MeasuredProcessOutput:
        new = weights._replace(trainable=optax.tree.sub(weights.trainable, aggregate))
        return MeasuredProcessOutput(state, new, {})

    return Finalizer(lambda weights: (), next_fn)
