"""Losses of the command line, and options that change them.

They are those of `federated`, optax's, and a user's own.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite.federated.metrics import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from tf2jax_lite.federated.models.losses import LONG_NAMES, LOSSES, NamedLoss, TrainLoss, named_loss
from tf2jax_lite.support.errors import InputError

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


@dataclasses.dataclass(frozen=True)
class LossOptions:
    """Options of cross entropies.

    Attributes:
      label_smoothing: share of each target that is spread over all classes, in [0, 1).
      class_weights: a factor for the loss of each class of ``sparse_categorical_crossentropy`` or
        ``binary_crossentropy`` (of 0 and 1).
      focal_gamma: exponent of the focal loss (Lin et al. 2017): a cross entropy of H becomes (1 - exp(-H))^gamma H.
      ignore_label: target of positions that do not count, of ``sparse_categorical_crossentropy``: padding of sequences.

    Raises:
      InputError: an option is out of range.
    """

    label_smoothing: float = 0.0
    class_weights: Sequence[float] = ()
    focal_gamma: float = 0.0
    ignore_label: int | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"label_smoothing is at least 0 and below 1, not {self.label_smoothing}.")
        if not 0 <= self.focal_gamma < float("inf"):
            raise InputError(f"focal_gamma is 0 or more, not {self.focal_gamma}.")
        if not all(0 <= weight < float("inf") for weight in self.class_weights):
            raise InputError(f"class_weights are finite numbers of 0 or more, not {list(self.class_weights)}.")

    def given(self) -> dict[str, Any]:
        """Return the options that differ from the defaults."""
        return {
            field.name: v for field in dataclasses.fields(self) if (v := getattr(self, field.name)) != field.default
        }


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
    given = options.given()
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
    given = options.given()
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

    options: LossOptions = LossOptions()

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
