"""Losses by name, of one output and of several: own ones, optax's, and a user's."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.learning.metrics import binary_crossentropy, categorical_crossentropy, sparse_categorical_crossentropy
from tf2jax_lite.learning.options import LossOptions
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
            f"{loss} takes probabilities, as in Keras, and the predictions {problem}. If they are logits, say "
            "from_logits=True."
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


Elementwise = Callable[[Any, Any], jax.Array]


def _regression(loss: Callable[..., jax.Array]) -> Elementwise:
    """Return ``(targets, predictions)`` of a loss of optax, in float32 or wider."""

    def elementwise(targets: Any, predictions: Any) -> jax.Array:
        predictions = jnp.asarray(predictions, jnp.promote_types(predictions.dtype, jnp.float32))
        targets = jnp.asarray(targets, predictions.dtype)
        if targets.ndim + 1 == predictions.ndim and predictions.shape[-1] == 1:
            targets = targets[..., None]  # one output a model, no axis of outputs in the data
        if targets.shape != predictions.shape:
            raise InputError(f"targets {targets.shape} and predictions {predictions.shape} differ in shape.")
        return loss(predictions, targets)

    return elementwise


_OPTAX: dict[str, Elementwise] = {
    "huber": _regression(optax.losses.huber_loss),
    "log_cosh": _regression(optax.losses.log_cosh),
    "cosine": _regression(
        lambda predictions, targets: optax.losses.cosine_distance(predictions, targets, epsilon=1e-8)
    ),
}
ALL_LOSSES = (*LOSSES, *_OPTAX)


def _kind(loss: str) -> str:
    """Return the kind of a named cross entropy; "" for other losses."""
    return loss.removesuffix("_crossentropy") if loss in LOSSES and loss.endswith("_crossentropy") else ""


def _allowed(loss: str) -> set[str]:
    """Return the names of the options that go with a loss."""
    return {
        "sparse_categorical": {field.name for field in dataclasses.fields(LossOptions)},
        "categorical": {"label_smoothing", "focal_gamma"},
        "binary": {"label_smoothing", "focal_gamma", "class_weights"},
    }.get(_kind(loss), set())


def training_loss(loss: str, options: LossOptions, *, from_logits: bool, label: str) -> TrainLoss:
    """Return ``(batch, predictions) -> float (n,)``.

    Further dimensions of an example (steps of a sequence, outputs of a regression) are averaged.

    Args:
      loss: one of `ALL_LOSSES`, or ``module:function`` of a function ``(batch, predictions) -> (n,)``.
      options: see `LossOptions`.
      from_logits: whether predictions are logits.
      label: the targets' name.

    Raises:
      InputError: there is no such loss, or an option does not go with it.
    """
    if not isinstance(loss, str) or not (":" in loss or LONG_NAMES.get(loss, loss) in ALL_LOSSES):
        raise InputError(f"no loss {loss!r}; there are {', '.join(ALL_LOSSES)}, and module:function of your own.")
    given = options.identity()
    if given.keys() - _allowed(loss):
        raise InputError(f"{min(given.keys() - _allowed(loss))} does not go with the loss {loss!r}.")
    if ":" in loss:
        return _imported(loss)
    if loss in _OPTAX:
        return _Regression(_OPTAX[loss], label)
    plain = named_loss(loss, from_logits=from_logits, target_key=label)
    return _Weighted(**_fields(plain), options=options) if given else plain


@dataclasses.dataclass(frozen=True, eq=False)
class _Regression:
    elementwise: Elementwise
    label: str
    ignores_masks: bool = True  # as `NamedLoss` has it

    def __call__(self, batch: Mapping[str, Any], predictions: Any) -> jax.Array:
        return _mean(self.elementwise(_targets(batch, self.label), predictions))


class OutputLoss(NamedTuple):
    """The loss of one of a model's outputs.

    Attributes:
      output: the output's name, which its targets have, too.
      loss: see `training_loss`.
      weight: the factor in the sum of losses.
    """

    output: str
    loss: str
    weight: float


def parse_output_losses(losses: Sequence[str], weights: Sequence[str] = ()) -> list[OutputLoss]:
    """Return the losses of outputs.

    Args:
      losses: as in ``"age=mse"``.
      weights: as in ``"age=0.1"``; 1 for other outputs.

    Raises:
      InputError: one cannot be read, or an output has two losses, or a weight and no loss.
    """
    found = _pairs(losses, "output_losses are NAME=LOSS, as in age=mse")
    factors: dict[str, float] = {}
    for name, text in _pairs(weights, "output_weights are NAME=FACTOR, as in age=0.1").items():
        try:
            factors[name] = float(text)
        except ValueError:
            factors[name] = -1.0
        if not 0 <= factors[name] < float("inf"):
            raise InputError(f"the weight of the output {name!r} is a finite number of 0 or more, not {text!r}.")
    if factors.keys() - found.keys():
        raise InputError(
            f"the output {min(factors.keys() - found.keys())!r} has a weight and no loss; losses: {found}."
        )
    return [OutputLoss(name, loss, factors.get(name, 1.0)) for name, loss in found.items()]


def options_by_output(losses: Sequence[OutputLoss], options: LossOptions) -> dict[str, LossOptions]:
    """Return for each output the options that go with its loss.

    Raises:
      InputError: an option goes with no loss.
    """
    given = options.identity()
    fitting = {item.output: given.keys() & _allowed(item.loss) for item in losses}
    unused = given.keys() - set().union(*fitting.values())
    if unused:
        raise InputError(f"{min(unused)} goes with none of the losses {', '.join(item.loss for item in losses)}.")
    return {output: LossOptions(**{name: given[name] for name in names}) for output, names in fitting.items()}


def _pairs(items: Sequence[str], expected: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.rpartition("=")
        if not (name and equals and value) or name in found:
            raise InputError(f"{expected}, each output once; not {list(items)}.")
        found[name] = value
    return found


def weighted_sum(losses: Mapping[str, TrainLoss], weights: Mapping[str, float]) -> TrainLoss:
    """Return the weighted sum of losses of outputs.

    Args:
      losses: of each output, ``(batch, its predictions) -> (n,)``.
      weights: the factor of each.
    """
    return _WeightedSum(losses, weights)


@dataclasses.dataclass(frozen=True, eq=False)
class _WeightedSum:
    losses: Mapping[str, TrainLoss]
    weights: Mapping[str, float]

    def __call__(self, batch: Mapping[str, Any], predictions: Mapping[str, Any]) -> jax.Array:
        values = [self.weights[name] * loss(batch, predictions[name]) for name, loss in self.losses.items()]
        return jnp.sum(jnp.stack(values), 0)

    @property
    def ignores_masks(self) -> bool:
        return any(getattr(loss, "ignores_masks", False) for loss in self.losses.values())

    @property
    def takes_probabilities(self) -> bool:
        return any(getattr(loss, "takes_probabilities", False) for loss in self.losses.values())

    def check_predictions(self, predictions: Mapping[str, Any]) -> None:
        for name, loss in self.losses.items():
            if getattr(loss, "takes_probabilities", False):
                loss.check_predictions(predictions[name])  # type: ignore[attr-defined]


def _fields(loss: NamedLoss) -> dict[str, Any]:
    return {field.name: getattr(loss, field.name) for field in dataclasses.fields(loss)}


@dataclasses.dataclass(frozen=True, eq=False)
class _Weighted(NamedLoss):
    """A cross entropy with options."""

    options: LossOptions = dataclasses.field(default_factory=LossOptions)

    @property
    def ignores_masks(self) -> bool:
        """Whether padded steps count: `ignore_label` names their target."""
        return self.options.ignore_label is None

    def __call__(self, batch: Mapping[str, Any], predictions: Any) -> jax.Array:
        """Return the loss of each example."""
        targets, found = jnp.asarray(_targets(batch, self.target_key)), jnp.asarray(predictions)
        logits, smoothing = bool(self.from_logits), self.options.label_smoothing
        counts = jnp.ones(found.shape[:-1] if self.kind.startswith("sparse") else targets.shape, jnp.float32)
        if self.kind.startswith("sparse"):
            if targets.shape == (*found.shape[:-1], 1):
                targets = targets[..., 0]
            if self.options.ignore_label is not None:
                ignored = targets == self.options.ignore_label
                counts, targets = jnp.where(ignored, 0.0, 1.0), jnp.where(ignored, 0, targets)
            if smoothing:
                rows = jax.nn.one_hot(targets, found.shape[-1])
                values = categorical_crossentropy(rows, found, from_logits=logits, label_smoothing=smoothing)
            else:
                values = sparse_categorical_crossentropy(targets, found, from_logits=logits)
        elif self.kind.startswith("categorical"):
            values = categorical_crossentropy(targets, found, from_logits=logits, label_smoothing=smoothing)
            counts = jnp.ones(values.shape, jnp.float32)
        else:
            values = binary_crossentropy(targets, found, from_logits=logits, label_smoothing=smoothing)
            targets, counts = jnp.reshape(targets, values.shape), jnp.ones(values.shape, jnp.float32)
        if self.options.focal_gamma:
            # The derivative of a power is infinite at 0 for exponents below 1; the cross entropy is positive.
            values = values * jnp.power(jnp.maximum(-jnp.expm1(-values), 1e-12), self.options.focal_gamma)
        if self.options.class_weights:
            weights = jnp.asarray(self.options.class_weights, values.dtype)
            classes = found.shape[-1] if self.kind.startswith("sparse") else 2
            if len(weights) != classes:
                raise InputError(f"class_weights are {len(weights)} numbers for {classes} classes.")
            values = values * weights[targets.astype(jnp.int32)]
        return _mean(values * counts.astype(values.dtype), counts.astype(values.dtype))


def _targets(batch: Mapping[str, Any], label: str) -> Any:
    if label not in batch:
        raise InputError(f"the batch has no targets {label!r}; it has {sorted(batch)}.")
    return batch[label]


def _mean(values: jax.Array, counts: jax.Array | None = None) -> jax.Array:
    """Return the mean of each example's values, over those that count."""
    rows = jnp.reshape(values, (values.shape[0], -1))
    if counts is None:
        return jnp.mean(rows, axis=1)
    return jnp.sum(rows, 1) / jnp.maximum(jnp.sum(jnp.reshape(counts, rows.shape), 1), 1)


def _imported(name: str) -> TrainLoss:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"the loss {name!r} cannot be imported as module:function: {error}.") from error
    if not callable(found):
        raise InputError(f"the loss {name!r} is a {type(found).__name__}, not a function.")
    loss: Any = found
    return loss
