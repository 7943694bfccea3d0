"""Losses by name, per example: for shell commands and config files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.metrics import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from tf2jax_lite.support.errors import InputError

TrainLoss = Callable[[Mapping[str, Any], Any], Any]

LOSSES = ("binary_crossentropy", "categorical_crossentropy", "mae", "mse", "sparse_categorical_crossentropy")
LONG_NAMES = {"mean_squared_error": "mse", "mean_absolute_error": "mae"}


class WeightedLosses(NamedTuple):
    """Losses of examples that differ in their weight in a batch's mean.

    Attributes:
      losses: float (n,).
      weights: float (n,), 0 or more, such as the number of steps of a sequence that count.
    """

    losses: jax.Array
    weights: jax.Array


def named_loss(
    name: str, *, from_logits: bool = False, target_key: str = "y", pred_key: str | None = None
) -> NamedLoss:
    """Return a loss for `Model.train_loss`.

    See keras.losses for the definitions.

    Args:
      name: one of `LOSSES`, or the long names ``mean_squared_error`` and ``mean_absolute_error``.
      from_logits: for cross entropies, whether predictions are logits; otherwise probabilities, as in Keras.
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
    if not isinstance(from_logits, bool):
        raise InputError(f"{name}: from_logits is True or False, as in Keras; not {from_logits!r}.")
    return NamedLoss(kind, from_logits, target_key, pred_key)


@dataclasses.dataclass(frozen=True, eq=False)
class NamedLoss:
    """A loss by name; see `named_loss`.

    Attributes:
      kind: one of `LOSSES`.
      from_logits: whether predictions are logits.
      target_key: the batch's key of the targets.
      pred_key: where predictions are a dict, the key of those meant.
      scale: a factor on the loss, as of ``compile(loss_weights=...)``.
      mask: ``(batch) -> bool (n, ...)``, or a structure of these like the predictions: which elements count, as a Keras
        model's mask says; None if all do.
    """

    kind: str
    from_logits: bool = False
    target_key: str = "y"
    pred_key: str | None = None
    scale: float = 1.0
    mask: Callable[[Mapping[str, Any]], Any] | None = None

    def __call__(self, batch: Mapping[str, Any], predictions: Any) -> jax.Array | WeightedLosses:
        """Return the loss of each example."""
        targets = _pick(batch, self.target_key, "target_key", "batch")
        found = jnp.asarray(self._chosen(predictions))
        values = _elementwise(self.kind, targets, found, self.from_logits)
        values = values if self.scale == 1 else self.scale * values
        return per_example(values, None if self.mask is None else self._chosen(self.mask(batch)))

    @property
    def ignores_masks(self) -> bool:
        """Whether steps that a Keras model masks count."""
        return self.mask is None

    @property
    def takes_probabilities(self) -> bool:
        """Whether it is a cross entropy of probabilities."""
        return "crossentropy" in self.kind and not self.from_logits

    def check_predictions(self, predictions: Any) -> None:
        """Raise if predictions are no probabilities; see `check_probabilities`."""
        check_probabilities(self._chosen(predictions), self.kind)

    def _chosen(self, predictions: Any) -> Any:
        found = predictions if self.pred_key is None else _pick(predictions, self.pred_key, "pred_key", "predictions")
        if isinstance(found, (Mapping, list, tuple)):
            there = sorted(found) if isinstance(found, Mapping) else f"{len(found)} items"
            raise InputError(
                f"{self.kind}: the model's predictions are a structure ({there}); choose one with pred_key"
            )
        return found


def per_example(values: Any, mask: Any = None) -> jax.Array | WeightedLosses:
    """Return the mean loss of each example's elements.

    Args:
      values: losses of elements, float (n, ...).
      mask: bool (n, ...) of the same or fewer axes: which elements count; all if None.

    Raises:
      InputError: the mask does not fit.
    """
    rows = jnp.reshape(values, (values.shape[0], -1))
    if mask is None:
        return jnp.mean(rows, axis=1)
    if values.shape[: mask.ndim] != mask.shape:
        raise InputError(
            f"the model's mask of shape {mask.shape} does not fit losses of shape {values.shape}: predictions have no "
            "step for each of the mask's. Give a loss of your own, (batch, predictions) -> (n,)."
        )
    spread = jnp.broadcast_to(jnp.reshape(mask, mask.shape + (1,) * (values.ndim - mask.ndim)), values.shape)
    kept = jnp.reshape(spread, rows.shape)
    counts = jnp.sum(kept, axis=1).astype(rows.dtype)
    return WeightedLosses(jnp.sum(jnp.where(kept, rows, 0), axis=1) / jnp.maximum(counts, 1), counts)


def check_probabilities(predictions: Any, loss: str) -> None:
    """Check that predictions are in [0, 1], and of classes with a sum of 1.

    Args:
      predictions: array (n, ...).
      loss: the name of a cross entropy.

    Raises:
      InputError: they are not.
    """
    if problem := _not_probabilities(predictions, loss):
        raise InputError(
            f"{loss} takes probabilities, as in Keras, and the predictions {problem}. If they are logits, say so: "
            f"named_loss({loss!r}, from_logits=True), from_logits=True, or --from-logits in the shell."
        )


def are_probabilities(predictions: Any, loss: str) -> bool:
    """Return whether predictions pass `check_probabilities`."""
    return not _not_probabilities(predictions, loss)


def _not_probabilities(predictions: Any, loss: str) -> str:
    """Return why predictions are no probabilities, or "".

    NaN is left to the checks of losses; rows of zeros beside others are padding.
    """
    array = jnp.asarray(predictions)
    slack = 4 * float(jnp.finfo(array.dtype).eps) if jnp.issubdtype(array.dtype, jnp.floating) else 0.0
    values = np.asarray(array, np.float64)
    if np.any((values < -max(1e-3, slack)) | (values > 1 + max(1e-3, slack))):
        return f"are outside of [0, 1], from {np.nanmin(values):.4g} to {np.nanmax(values):.4g}"
    if "binary" not in loss.lower() and values.ndim and values.size:
        totals = values.sum(-1)
        totals = totals[totals != 0] if np.any(totals) else totals
        worst = totals[np.nanargmax(np.abs(totals - 1))] if np.isfinite(totals).any() else 1.0
        if abs(worst - 1) > max(1e-2, slack):
            return f"of an example's classes have the sum {worst:.4g}"
    return ""


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
