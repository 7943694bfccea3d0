"""Losses by name, example by example: what a shell command or a config file can say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated.metrics import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)

__all__ = ["LOSSES", "TrainLoss", "as_train_loss", "named_loss"]

TrainLoss = Callable[[Mapping[str, Any], Any], jax.Array]

LOSSES = ("binary_crossentropy", "categorical_crossentropy", "mae", "mse", "sparse_categorical_crossentropy")
_LONG = {"mean_squared_error": "mse", "mean_absolute_error": "mae"}


def named_loss(name: str, *, from_logits: bool = True, target_key: str = "y", pred_key: str | None = None) -> TrainLoss:
    """Returns a loss as `Model.train_loss` takes it. See keras.losses for the definitions.

    Args:
      name: one of `LOSSES`, or the long names ``mean_squared_error`` and ``mean_absolute_error``.
      from_logits: for cross entropies, whether predictions are logits; otherwise probabilities.
      target_key: the batch's key of the targets.
      pred_key: where predictions are a dict, the key of those meant.

    Returns:
      ``(batch, predictions) -> float (n,)``. What an example has beyond one number (the steps of a sequence, the
      outputs of a regression) is averaged.

    Raises:
      InputError: no such loss; when called: no such key, or shapes that do not fit.
    """
    kind = _LONG.get(name, name)
    if kind not in LOSSES:
        raise InputError(f"no loss {name!r}; there are {', '.join(LOSSES)}")

    def train_loss(batch: Mapping[str, Any], predictions: Any) -> jax.Array:
        targets = _pick(batch, target_key, "target_key", "batch")
        found = predictions if pred_key is None else _pick(predictions, pred_key, "pred_key", "predictions")
        if isinstance(found, (Mapping, list, tuple)):
            there = sorted(found) if isinstance(found, Mapping) else f"{len(found)} items"
            raise InputError(f"{kind}: the model's predictions are a structure ({there}); choose one with pred_key")
        values = _elementwise(kind, targets, jnp.asarray(found), from_logits)
        return jnp.mean(jnp.reshape(values, (values.shape[0], -1)), axis=1)

    return train_loss


def as_train_loss(loss: str | TrainLoss) -> TrainLoss:
    """Returns a loss given by name or as a function."""
    return named_loss(loss) if isinstance(loss, str) else loss


def _pick(values: Any, key: str, option: str, what: str) -> Any:
    if not isinstance(values, Mapping) or key not in values:
        there = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        raise InputError(f"the {what} has no key {key!r} ({option}); it has {there}")
    return values[key]


def _elementwise(kind: str, targets: Any, predictions: jax.Array, from_logits: bool) -> jax.Array:
    if kind == "sparse_categorical_crossentropy":
        return sparse_categorical_crossentropy(targets, predictions, from_logits=from_logits)
    if kind == "categorical_crossentropy":
        return categorical_crossentropy(targets, predictions, from_logits=from_logits)
    targets = jnp.asarray(targets)
    if targets.ndim + 1 == predictions.ndim and predictions.shape[-1] == 1:
        targets = targets[..., None]  # one output a model, no axis of outputs in the data
    if targets.shape != predictions.shape:
        raise InputError(f"{kind}: targets {targets.shape} and predictions {predictions.shape} differ in shape")
    if kind == "binary_crossentropy":
        return binary_crossentropy(targets, predictions, from_logits=from_logits)
    error = predictions.astype(jnp.promote_types(predictions.dtype, jnp.float32)) - targets
    return jnp.abs(error) if kind == "mae" else jnp.square(error)
