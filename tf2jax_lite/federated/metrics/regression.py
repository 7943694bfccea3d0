"""Metrics of regression."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from .classification import MeanLoss
from .losses import match


@dataclasses.dataclass(frozen=True)
class MeanSquaredError(MeanLoss):
    """The mean of squared differences over all elements.

    See keras.metrics.MeanSquaredError.
    """

    def loss(self, target: Any, prediction: Any) -> Any:
        """See `MeanLoss.loss`."""
        target, prediction = match(target, prediction, "MeanSquaredError")
        return jnp.square(target - prediction)


@dataclasses.dataclass(frozen=True)
class MeanAbsoluteError(MeanLoss):
    """The mean of absolute differences over all elements.

    See keras.metrics.MeanAbsoluteError.
    """

    def loss(self, target: Any, prediction: Any) -> Any:
        """See `MeanLoss.loss`."""
        target, prediction = match(target, prediction, "MeanAbsoluteError")
        return jnp.abs(target - prediction)
