"""Metrics of classification and regression."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import cross_entropy as losses
from tf2jax_lite.learning.metrics.cross_entropy import match
from tf2jax_lite.learning.metrics.metric import MeanStat, Metric, Stat, SumStat, as_count, as_float, pick, zero_count
from tf2jax_lite.support.errors import InputError


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

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
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
        check_number("TopKAccuracy", "k", self.k, whole=True)

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


@dataclasses.dataclass(frozen=True)
class MeanSquaredError(MeanLoss):
    """The mean of squared differences over all elements.

    See keras.metrics.MeanSquaredError.

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
    """

    def loss(self, target: Any, prediction: Any) -> Any:
        """See `MeanLoss.loss`."""
        target, prediction = match(target, prediction, "MeanSquaredError")
        return jnp.square(target - prediction)


@dataclasses.dataclass(frozen=True)
class MeanAbsoluteError(MeanLoss):
    """The mean of absolute differences over all elements.

    See keras.metrics.MeanAbsoluteError.

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
    """

    def loss(self, target: Any, prediction: Any) -> Any:
        """See `MeanLoss.loss`."""
        target, prediction = match(target, prediction, "MeanAbsoluteError")
        return jnp.abs(target - prediction)


def _thresholds(number: int) -> np.ndarray:
    """Return Keras's thresholds: evenly spaced, the outer ones just beyond 0 and 1."""
    inner = [(i + 1) / (number - 1) for i in range(number - 2)]
    return np.asarray([-1e-7, *inner, 1.0 + 1e-7], np.float32)


def _ratio(above: Any, below: Any) -> Any:
    safe = jnp.where(below == 0, 1.0, below)
    return jnp.where(below == 0, 0.0, above / safe)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AUCStat(Stat):
    """Histograms of predictions between thresholds.

    Attributes:
      positive: integers (thresholds + 1,), predictions of positive examples by how many thresholds they exceed.
      negative: the same for negative examples.
      curve: "ROC" or "PR".
      summation_method: "interpolation", "minoring" or "majoring".
    """

    positive: Any
    negative: Any
    curve: str = dataclasses.field(metadata={"static": True})
    summation_method: str = dataclasses.field(metadata={"static": True})

    def merge(self, other: Self) -> Self:
        """See `Stat.merge`."""
        return dataclasses.replace(
            self, positive=self.positive + other.positive, negative=self.negative + other.negative
        )

    def reduce(self, axis: int = 0) -> Self:
        """See `Stat.reduce`."""
        return dataclasses.replace(
            self,
            positive=jnp.sum(self.positive, axis, dtype=self.positive.dtype),
            negative=jnp.sum(self.negative, axis, dtype=self.negative.dtype),
        )

    def confusion(self) -> dict[str, Any]:
        """Return true and false positives and negatives by threshold, each (n,)."""
        above = [jnp.cumsum(h[::-1], dtype=h.dtype)[::-1][1:] for h in (self.positive, self.negative)]
        return {
            "true_positives": above[0],
            "false_positives": above[1],
            "true_negatives": jnp.sum(self.negative, dtype=self.negative.dtype) - above[1],
            "false_negatives": jnp.sum(self.positive, dtype=self.positive.dtype) - above[0],
        }

    def result(self) -> Any:
        """Return the area under the curve, float32; 0 where nothing was added."""
        counts = {name: value.astype(jnp.result_type(float)) for name, value in self.confusion().items()}
        hit, false = counts["true_positives"], counts["false_positives"]
        recall = _ratio(hit, hit + counts["false_negatives"])
        if self.curve == "PR" and self.summation_method == "interpolation":
            return self._precision_recall(hit, false, counts["false_negatives"])
        if self.curve == "ROC":
            x, y = _ratio(false, false + counts["true_negatives"]), recall
        else:
            x, y = recall, _ratio(hit, hit + false)
        pairs = {
            "interpolation": (y[:-1] + y[1:]) / 2,
            "minoring": jnp.minimum(y[:-1], y[1:]),
            "majoring": jnp.maximum(y[:-1], y[1:]),
        }
        return jnp.sum((x[:-1] - x[1:]) * pairs[self.summation_method])

    def _precision_recall(self, hit: Any, false: Any, missed: Any) -> Any:
        """Integrate with true positives linear in positives (Davis, Goadrich 2006)."""
        said = hit + false
        gained, more = hit[:-1] - hit[1:], said[:-1] - said[1:]
        rate = _ratio(gained, jnp.maximum(more, 0))
        intercept = hit[1:] - rate * said[1:]
        both = (said[:-1] > 0) & (said[1:] > 0)
        growth = jnp.where(both, _ratio(said[:-1], jnp.where(both, said[1:], 1.0)), 1.0)
        area = rate * (gained + intercept * jnp.log(growth))
        return jnp.sum(_ratio(area, jnp.maximum(hit[1:] + missed[1:], 0)))


@dataclasses.dataclass(frozen=True)
class AUC(TargetMetric):
    """The area under the ROC or the precision-recall curve of yes-or-no targets.

    See tf.keras.metrics.AUC. Targets and predictions have shape (...); elements have equal weights. A prediction
    exceeds a threshold if it is strictly greater. Predictions are probabilities, or logits with ``from_logits``.

    Attributes:
      num_thresholds: how many thresholds, at least 2; the area's error is about one over it.
      curve: "ROC" or "PR".
      summation_method: "interpolation", "minoring" or "majoring".
      from_logits: whether a sigmoid is taken first.
    """

    num_thresholds: int = 200
    curve: str = "ROC"
    summation_method: str = "interpolation"
    from_logits: bool = False

    def __post_init__(self) -> None:
        check_number("AUC", "num_thresholds", self.num_thresholds, least=2, whole=True)
        if self.curve not in ("ROC", "PR"):
            raise InputError(f'AUC: curve is "ROC" or "PR", not {self.curve!r}.')
        if self.summation_method not in ("interpolation", "minoring", "majoring"):
            raise InputError(
                f'AUC: summation_method is "interpolation", "minoring" or "majoring", not {self.summation_method!r}.'
            )

    def zero(self) -> AUCStat:
        """See `Metric.zero`."""
        bins = (self.num_thresholds + 1,)
        return AUCStat(zero_count(bins), zero_count(bins), self.curve, self.summation_method)

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> AUCStat:
        """See `Metric.evaluate_example`."""
        return self._count(*self.both(example, prediction), mask=None)

    def evaluate_examples(self, batch: Mapping[str, Any], predictions: Any, mask: Any) -> AUCStat:
        """See `Metric.evaluate_examples`: one scatter, not a histogram for each example."""
        return self._count(*self.both(batch, predictions), mask=mask)

    def _count(self, target: Any, prediction: Any, mask: Any) -> AUCStat:
        target, prediction = match(target, prediction, "AUC")
        if self.from_logits:
            prediction = jax.nn.sigmoid(prediction)
        real = ~jnp.isnan(prediction)
        if mask is not None:
            real &= jnp.reshape(mask, mask.shape + (1,) * (target.ndim - 1))
        bins = jnp.searchsorted(jnp.asarray(_thresholds(self.num_thresholds)), prediction.reshape(-1), side="left")
        yes = target.reshape(-1) > 0.5
        empty = zero_count((self.num_thresholds + 1,))
        counted = real.reshape(-1)
        return AUCStat(
            empty.at[bins].add(as_count(yes & counted)),
            empty.at[bins].add(as_count(~yes & counted)),
            self.curve,
            self.summation_method,
        )
