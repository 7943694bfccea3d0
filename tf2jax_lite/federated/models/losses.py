"""Losses by name, per example: for shell commands and config files."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.export.predictions import LOGITS, UNKNOWN, prediction_kinds
from tf2jax_lite.federated.metrics import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from tf2jax_lite.support.errors import InputError

__all__ = ["LOSSES", "NamedLoss", "TrainLoss", "as_train_loss", "named_loss", "traced_kinds"]

TrainLoss = Callable[[Mapping[str, Any], Any], jax.Array]

LOSSES = ("binary_crossentropy", "categorical_crossentropy", "mae", "mse", "sparse_categorical_crossentropy")
LONG_NAMES = {"mean_squared_error": "mse", "mean_absolute_error": "mae"}


def named_loss(
    name: str, *, from_logits: bool | None = None, target_key: str = "y", pred_key: str | None = None
) -> NamedLoss:
    """Return a loss for `Model.train_loss`.

    See keras.losses for the definitions.

    Args:
      name: one of `LOSSES`, or the long names ``mean_squared_error`` and ``mean_absolute_error``.
      from_logits: for cross entropies, whether predictions are logits; otherwise probabilities. If None, the operations
        that compute a model's predictions tell. Where they do not, predictions are probabilities, as in Keras, with a
        warning.
      target_key: the batch's key of the targets.
      pred_key: where predictions are a dict, the key of those meant.

    Returns:
      ``(batch, predictions) -> float (n,)``. Further dimensions of an example (the steps of a sequence, the
      outputs of a regression) are averaged.

    Raises:
      InputError: no such loss; when called: no such key, or shapes that do not fit.
    """
    kind = LONG_NAMES.get(name, name)
    if kind not in LOSSES:
        raise InputError(f"no loss {name!r}; there are {', '.join(LOSSES)}")
    return NamedLoss(kind, from_logits, target_key, pred_key)


@dataclasses.dataclass(frozen=True, eq=False)
class NamedLoss:
    """A loss by name; see `named_loss`.

    Attributes:
      kind: one of `LOSSES`.
      from_logits: whether predictions are logits; None if the model tells.
      target_key: the batch's key of the targets.
      pred_key: where predictions are a dict, the key of those meant.
      kinds: ``(batch) -> kinds of a model's predictions``, a pytree like these; None without a model.
    """

    kind: str
    from_logits: bool | None = None
    target_key: str = "y"
    pred_key: str | None = None
    kinds: Callable[[Mapping[str, Any]], Any] | None = None

    def __call__(self, batch: Mapping[str, Any], predictions: Any) -> jax.Array:
        """Return the loss of each example."""
        targets = _pick(batch, self.target_key, "target_key", "batch")
        found = jnp.asarray(self._chosen(predictions))
        values = _elementwise(self.kind, targets, found, self.takes_logits(batch))
        return jnp.mean(jnp.reshape(values, (values.shape[0], -1)), axis=1)

    def takes_logits(self, batch: Mapping[str, Any]) -> bool:
        """Return whether predictions for a batch are taken for logits."""
        if self.from_logits is not None or "crossentropy" not in self.kind:
            return bool(self.from_logits)
        kind = UNKNOWN if self.kinds is None else self._chosen(self.kinds(batch))
        if kind == UNKNOWN:
            warnings.warn(
                f"{self.kind}: whether predictions are logits cannot be told from the model; they are taken for "
                "probabilities, as in Keras. Say it with named_loss(..., from_logits=...).",
                stacklevel=2,
            )
        return kind == LOGITS

    def of_model(self, kinds: Callable[[Mapping[str, Any]], Any]) -> NamedLoss:
        """Return the loss for a model's kinds of predictions, unless that is settled."""
        return self if self.kinds is not None else dataclasses.replace(self, kinds=kinds)

    def _chosen(self, predictions: Any) -> Any:
        found = predictions if self.pred_key is None else _pick(predictions, self.pred_key, "pred_key", "predictions")
        if isinstance(found, (Mapping, list, tuple)):
            there = sorted(found) if isinstance(found, Mapping) else f"{len(found)} items"
            raise InputError(
                f"{self.kind}: the model's predictions are a structure ({there}); choose one with pred_key"
            )
        return found


def traced_kinds(predict: Callable[[Any, Any], Any], weights: Callable[[], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return ``(batch) -> kinds of predictions``.

    It traces a model once to see how they are computed.

    Args:
      predict: ``(weights, batch) -> predictions``.
      weights: returns the shapes of the weights.
    """
    known: list[Any] = []

    def kinds(batch: Mapping[str, Any]) -> Any:
        if not known:
            examples = {k: jax.ShapeDtypeStruct(jnp.shape(v), jnp.result_type(v)) for k, v in batch.items()}
            closed, shapes = jax.make_jaxpr(predict, return_shape=True)(weights(), examples)
            known.append(jax.tree.unflatten(jax.tree.structure(shapes), prediction_kinds(closed)))
        return known[0]

    return kinds


def as_train_loss(loss: str | TrainLoss) -> TrainLoss:
    """Return a loss given by name or as a function."""
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
