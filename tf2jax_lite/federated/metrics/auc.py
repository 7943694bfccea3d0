"""The area under a curve, from a mergeable histogram, as tf.keras.metrics.AUC."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.support.errors import InputError

from .classification import TargetMetric
from .losses import match
from .stat import Stat, as_count, zero_count


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
