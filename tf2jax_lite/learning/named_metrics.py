"""Metrics of predictions by name, as the command line gives them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.learning import metrics as m
from tf2jax_lite.learning.losses import OutputLoss
from tf2jax_lite.learning.metrics.classification import TargetMetric, class_targets
from tf2jax_lite.learning.metrics.metric import as_float
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class MulticlassAUC(m.AUC):
    """The area under a curve of labels against scores of classes.

    Of two classes, the second counts as positive; of more, each class against all others, pooled, as
    tf.keras.metrics.AUC has it with one-hot rows.

    Attributes:
      softmax: whether scores are logits.
      ignored: the target of elements that do not count.
    """

    softmax: bool = False
    ignored: int | None = None

    def both(self, example: Mapping[str, Any], prediction: Any) -> tuple[Any, Any]:
        """See `TargetMetric.both`: 0 or 1, and probabilities, of the same shape."""
        target, scores = super().both(example, prediction)
        scores = jax.nn.softmax(as_float(scores)) if self.softmax else as_float(scores)
        classes = class_targets(self, target, scores)
        if self.ignored is not None:
            scores = jnp.where((classes == self.ignored)[..., None], jnp.nan, scores)  # `AUC` leaves NaN out
        rows = jax.nn.one_hot(classes, scores.shape[-1])
        return (rows[..., 1], scores[..., 1]) if scores.shape[-1] == 2 else (rows, scores)


class _AnyRank(TargetMetric):
    """A metric of sequences whose examples may be single labels, or have further axes."""

    def both(self, example: Mapping[str, Any], prediction: Any) -> tuple[Any, Any]:
        """See `TargetMetric.both`: labels (n,), scores (n, classes)."""
        labels, scores = super().both(example, prediction)
        return jnp.reshape(labels, -1), jnp.reshape(scores, (-1, jnp.shape(scores)[-1]))


class TokenAccuracy(_AnyRank, m.SequenceTokenAccuracy):
    """The share of labels that have the highest score, without ignored labels."""


class TokenTopKAccuracy(_AnyRank, m.SequenceTokenTopKAccuracy):
    """The share of labels that are not ignored among the ``k`` highest scores."""


class TokenPerplexity(_AnyRank, m.Perplexity):
    """The exponential of the mean cross entropy of a label, without ignored labels."""


@dataclasses.dataclass(frozen=True)
class _Subject:
    """The input of metrics: loss, kind of predictions, targets, ignored target."""

    loss: str
    from_logits: bool
    label: str
    ignored: int | None


def _accuracy(of: _Subject) -> m.Metric:
    if of.loss.startswith("binary"):
        return m.BinaryAccuracy(of.label, threshold=0.0 if of.from_logits else 0.5)
    return m.Accuracy(of.label) if of.ignored is None else _token_accuracy(of)


def _token_accuracy(of: _Subject) -> m.Metric:
    return TokenAccuracy(of.label, masked_target_values=_masked(of))


def _top_k(of: _Subject, k: int) -> m.Metric:
    if of.ignored is None:
        return m.TopKAccuracy(of.label, k=k)
    return TokenTopKAccuracy(of.label, masked_target_values=_masked(of), k=k)


def _area(of: _Subject, curve: str) -> m.Metric:
    if of.loss.startswith(("sparse_categorical", "categorical")):
        return MulticlassAUC(of.label, curve=curve, softmax=of.from_logits, ignored=of.ignored)
    return m.AUC(of.label, curve=curve, from_logits=of.from_logits)


def _masked(of: _Subject) -> tuple[int, ...]:
    return () if of.ignored is None else (of.ignored,)


_MAKERS: dict[str, Callable[[_Subject], m.Metric]] = {
    "accuracy": _accuracy,
    "auc": lambda of: _area(of, "ROC"),
    "pr_auc": lambda of: _area(of, "PR"),
    "mae": lambda of: m.MeanAbsoluteError(of.label),
    "mse": lambda of: m.MeanSquaredError(of.label),
    "perplexity": lambda of: TokenPerplexity(of.label, masked_target_values=_masked(of), from_logits=of.from_logits),
    "token_accuracy": _token_accuracy,
}
METRICS = (*_MAKERS, "top_K_accuracy")


def named_metrics(
    names: Sequence[str], loss: str, from_logits: bool, label: str, ignore_label: int | None = None
) -> dict[str, m.Metric]:
    """Return metrics by name.

    Args:
      names: of `METRICS`; K is an integer, as in ``top_5_accuracy``.
      loss: the loss's name: it says whether targets are classes or 0 and 1.
      from_logits: whether predictions are logits.
      label: the targets' name.
      ignore_label: target of elements that do not count, in metrics of classes.

    Raises:
      InputError: no such metric.
    """
    subject = _Subject(loss, from_logits, label, ignore_label)
    found: dict[str, m.Metric] = {}
    for name in names:
        if top := re.fullmatch(r"top_([1-9]\d{0,5})_accuracy", name):
            found[name] = _top_k(subject, int(top[1]))
        elif name in _MAKERS:
            found[name] = _MAKERS[name](subject)
        else:
            raise InputError(f"no metric {name!r}; there are {', '.join(METRICS)}.")
    return found


def default_metrics(loss: str, from_logits: bool, label: str, ignore_label: int | None = None) -> dict[str, m.Metric]:
    """Return the metrics that are reported besides a loss."""
    if ":" in loss:
        return {}
    names = ("accuracy",) if "crossentropy" in loss else ("mae", "mse")
    return named_metrics(names, loss, from_logits, label, ignore_label)


def metrics_by_output(names: Sequence[str], losses: Sequence[OutputLoss]) -> dict[str, list[str]]:
    """Return the names of metrics of each of several outputs.

    Args:
      names: of metrics of all outputs, or of one, as in ``kind/accuracy``.
      losses: the outputs.

    Raises:
      InputError: there is no such output.
    """
    found: dict[str, list[str]] = {item.output: [] for item in losses}
    for name in names:
        output, _, metric = name.rpartition("/")
        if output and output not in found:
            raise InputError(f"the metric {name!r} is of an output without a loss; there are {sorted(found)}.")
        for each in (output,) if output else found:
            found[each].append(metric)
    return found


def of_output(found: Mapping[str, m.Metric], output: str) -> dict[str, m.Metric]:
    """Return metrics of one of several outputs, as ``OUTPUT/NAME``."""
    return {
        f"{output}/{name}": dataclasses.replace(metric, pred_key=output)
        for name, metric in found.items()
        if isinstance(metric, TargetMetric)
    }
