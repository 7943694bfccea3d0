"""Metrics of classification: cross entropies, accuracies, the confusion matrix."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.support.errors import InputError

from . import losses
from .metric import Metric, as_float, pick
from .stat import MeanStat, SumStat, as_count, zero_count


@dataclasses.dataclass(frozen=True)
class TargetMetric(Metric):
    """A metric that compares a target in the example with the prediction.

    Attributes:
      target_key: the target's key in the example.
      pred_key: the prediction's key, where the model gives a dict.
    """

    target_key: str = "y"
    pred_key: str | None = None

    def both(self, example: Mapping[str, Any], prediction: Any) -> tuple[Any, Any]:
        """Return the target and the prediction as arrays."""
        return (
            pick(self, example, self.target_key, "example"),
            pick(self, prediction, self.pred_key, "prediction"),
        )


@dataclasses.dataclass(frozen=True)
class MeanLoss(TargetMetric):
    """The mean of a loss over all elements of all examples; each element weighs 1."""

    def zero(self) -> MeanStat:
        """See `Metric.zero`."""
        return MeanStat(jnp.zeros((), jnp.float32), zero_count())

    def loss(self, target: Any, prediction: Any) -> Any:
        """Return the loss of each element, shape (...)."""
        raise NotImplementedError

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`."""
        loss = self.loss(*self.both(example, prediction))
        return MeanStat.new(jnp.sum(loss), as_count(loss.size))


@dataclasses.dataclass(frozen=True)
class CrossEntropyLoss(MeanLoss):
    """Mean cross entropy against class numbers.

    Target (...), prediction (..., classes). See fedjax.metrics.CrossEntropyLoss,
    keras.metrics.SparseCategoricalCrossentropy.

    Attributes:
      from_logits: whether predictions are logits, not probabilities.
    """

    from_logits: bool = True

    def loss(self, target: Any, prediction: Any) -> Any:
        """See `MeanLoss.loss`."""
        return losses.sparse_categorical_crossentropy(target, prediction, from_logits=self.from_logits)


@dataclasses.dataclass(frozen=True)
class CategoricalCrossEntropyLoss(MeanLoss):
    """Mean cross entropy against one-hot rows: target and prediction (..., classes).

    See keras.metrics.CategoricalCrossentropy.

    Attributes:
      from_logits: whether predictions are logits, not probabilities.
      label_smoothing: the share of each target that is spread over all classes.
    """

    from_logits: bool = True
    label_smoothing: float = 0.0

    def loss(self, target: Any, prediction: Any) -> Any:
        """See `MeanLoss.loss`."""
        return losses.categorical_crossentropy(
            target, prediction, from_logits=self.from_logits, label_smoothing=self.label_smoothing
        )


@dataclasses.dataclass(frozen=True)
class BinaryCrossEntropyLoss(MeanLoss):
    """Mean cross entropy of binary targets.

    Target and prediction (...), or one of them (..., 1). See keras.metrics.BinaryCrossentropy.

    Attributes:
      from_logits: whether predictions are logits, not probabilities.
      label_smoothing: pulls targets towards one half by this share.
    """

    from_logits: bool = True
    label_smoothing: float = 0.0

    def loss(self, target: Any, prediction: Any) -> Any:
        """See `MeanLoss.loss`."""
        return losses.binary_crossentropy(
            target, prediction, from_logits=self.from_logits, label_smoothing=self.label_smoothing
        )


def class_targets(metric: Metric, target: Any, scores: Any) -> Any:
    """Return class numbers for targets.

    Targets are class numbers (...), (..., 1) or one-hot rows (..., classes).

    Raises:
      InputError: the shapes do not fit.
    """
    shape = scores.shape
    if shape[-1:] == (1,) and jnp.issubdtype(target.dtype, jnp.floating):
        raise InputError(
            f"{type(metric).__name__}: targets are of {target.dtype} and scores of one class, which would always be "
            "right. Use BinaryAccuracy or the loss binary_crossentropy for yes and no; MeanAbsoluteError (mae) or "
            "MeanSquaredError (mse) for regression."
        )
    if target.shape == shape and jnp.issubdtype(target.dtype, jnp.floating):
        return jnp.argmax(target, axis=-1)
    if target.shape == (*shape[:-1], 1):
        target = target[..., 0]
    elif target.shape == shape and target.ndim:
        return jnp.argmax(target, axis=-1)
    if not shape or target.shape != shape[:-1]:
        raise InputError(
            f"{type(metric).__name__}: an example's target of shape {target.shape} does not fit its prediction of "
            f"shape {shape}; expected class numbers {shape[:-1]} or one-hot rows {shape}."
        )
    return target


@dataclasses.dataclass(frozen=True)
class _HitRate(TargetMetric):
    """The share of elements that are hits; both counts are integers."""

    def zero(self) -> MeanStat:
        """See `Metric.zero`."""
        return MeanStat(zero_count(), zero_count())

    def hits(self, target: Any, prediction: Any) -> Any:
        """Return a bool for each element."""
        raise NotImplementedError

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`."""
        hits = self.hits(*self.both(example, prediction))
        return MeanStat(jnp.sum(as_count(hits)), as_count(hits.size))


@dataclasses.dataclass(frozen=True)
class Accuracy(_HitRate):
    """Accuracy: the share of targets with the highest score.

    The first class wins ties. Targets are class numbers (...) or one-hot rows (..., classes); predictions have shape
    (..., classes). See fedjax.metrics.Accuracy, keras.metrics.SparseCategoricalAccuracy and CategoricalAccuracy.
    """

    def hits(self, target: Any, prediction: Any) -> Any:
        """See `_HitRate.hits`."""
        target = class_targets(self, target, prediction)
        return jnp.argmax(prediction, axis=-1) == target


@dataclasses.dataclass(frozen=True)
class BinaryAccuracy(_HitRate):
    """Accuracy of binary targets, with predictions cut at a threshold.

    See keras.metrics.BinaryAccuracy.

    Attributes:
      threshold: predictions above it say yes.
    """

    threshold: float = 0.5

    def hits(self, target: Any, prediction: Any) -> Any:
        """See `_HitRate.hits`."""
        target, prediction = losses.match(target, prediction, "BinaryAccuracy")
        return (prediction > self.threshold) == (target > 0.5)


def in_top_k(target: Any, scores: Any, k: int) -> Any:
    """Return whether fewer than ``k`` classes score above the target's.

    As tf.math.in_top_k. Ties are kind to the target. A class that does not exist, or a score that is not finite, is not
    among them.

    Args:
      target: class numbers, shape (...).
      scores: shape (..., classes).
      k: how many.
    """
    classes = scores.shape[-1]
    index = jnp.clip(target.astype(jnp.int32), 0, classes - 1)
    own = jnp.take_along_axis(scores, index[..., None], axis=-1)
    above = jnp.sum(scores > own, axis=-1)
    return (above < k) & (target >= 0) & (target < classes) & jnp.isfinite(own[..., 0])


@dataclasses.dataclass(frozen=True)
class TopKAccuracy(_HitRate):
    """The share of targets among the ``k`` classes with the highest scores.

    Ties are kind to the target. See fedjax.metrics.TopKAccuracy, keras.metrics.SparseTopKCategoricalAccuracy.

    Attributes:
      k: how many classes.
    """

    k: int = 5

    def __post_init__(self) -> None:
        check_number("TopKAccuracy", "k", self.k, least=1, whole=True)

    def hits(self, target: Any, prediction: Any) -> Any:
        """See `_HitRate.hits`."""
        return in_top_k(class_targets(self, target, prediction), as_float(prediction), self.k)


@dataclasses.dataclass(frozen=True)
class ConfusionMatrix(TargetMetric):
    """The confusion matrix: rows are targets, columns predictions.

    Integer counts, shape (classes, classes). Targets outside the classes are ignored. See
    fedjax.metrics.ConfusionMatrix, tf.math.confusion_matrix.

    Attributes:
      num_classes: how many classes.
    """

    num_classes: int = 0

    def __post_init__(self) -> None:
        check_number("ConfusionMatrix", "num_classes", self.num_classes, least=1, whole=True)

    def zero(self) -> SumStat:
        """See `Metric.zero`."""
        return SumStat(zero_count((self.num_classes, self.num_classes)))

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> SumStat:
        """See `Metric.evaluate_example`."""
        return self._count(*self.both(example, prediction), mask=None)

    def evaluate_examples(self, batch: Mapping[str, Any], predictions: Any, mask: Any) -> SumStat:
        """See `Metric.evaluate_examples`: one scatter, not a matrix for each example."""
        return self._count(*self.both(batch, predictions), mask=mask)

    def _count(self, target: Any, scores: Any, mask: Any) -> SumStat:
        if scores.shape[-1] != self.num_classes:
            raise InputError(
                f"ConfusionMatrix: the prediction has {scores.shape[-1]} classes, and num_classes is "
                f"{self.num_classes}."
            )
        target = class_targets(self, target, scores)
        real = (target >= 0) & (target < self.num_classes)
        if mask is not None:
            real &= jnp.reshape(mask, mask.shape + (1,) * (target.ndim - 1))
        cells = jnp.where(real, target * self.num_classes + jnp.argmax(scores, axis=-1), 0)
        counts = zero_count((math.prod((self.num_classes, self.num_classes)),))
        counts = counts.at[cells.reshape(-1).astype(jnp.int32)].add(as_count(real).reshape(-1))
        return SumStat(counts.reshape(self.num_classes, self.num_classes))
