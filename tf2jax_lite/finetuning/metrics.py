"""Metrics of predictions by name, as the command line gives them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from tf2jax_lite.federated import metrics as m
from tf2jax_lite.federated.metrics.classification import TargetMetric
from tf2jax_lite.support.errors import InputError

__all__ = ["METRICS", "default_metrics", "named_metrics", "of_output"]


def _accuracy(loss: str, from_logits: bool, label: str) -> m.Metric:
    if loss.startswith("binary"):
        return m.BinaryAccuracy(label, threshold=0.0 if from_logits else 0.5)
    return m.Accuracy(label)


_MAKERS: dict[str, Callable[[str, bool, str], m.Metric]] = {
    "accuracy": _accuracy,
    "auc": lambda loss, from_logits, label: m.AUC(label, from_logits=from_logits),
    "pr_auc": lambda loss, from_logits, label: m.AUC(label, curve="PR", from_logits=from_logits),
    "mae": lambda loss, from_logits, label: m.MeanAbsoluteError(label),
    "mse": lambda loss, from_logits, label: m.MeanSquaredError(label),
}
METRICS = (*_MAKERS, "perplexity", "token_accuracy", "top_K_accuracy")


def named_metrics(
    names: Sequence[str], loss: str, from_logits: bool, label: str, ignore_label: int | None = None
) -> dict[str, m.Metric]:
    """Return metrics by name.

    Args:
      names: of `METRICS`; K is an integer, as in ``top_5_accuracy``.
      loss: the loss's name: it says whether targets are classes or 0 and 1.
      from_logits: whether predictions are logits.
      label: the targets' name.
      ignore_label: target of tokens that do not count in ``perplexity`` and ``token_accuracy``.

    Raises:
      InputError: no such metric.
    """
    found: dict[str, m.Metric] = {}
    masked = () if ignore_label is None else (ignore_label,)
    for name in names:
        top = re.fullmatch(r"top_([1-9]\d{0,5})_accuracy", name)
        if top:
            found[name] = m.TopKAccuracy(label, k=int(top[1]))
        elif name == "perplexity":
            found[name] = m.Perplexity(label, masked_target_values=masked, from_logits=from_logits)
        elif name == "token_accuracy":
            found[name] = m.SequenceTokenAccuracy(label, masked_target_values=masked)
        elif name in _MAKERS:
            found[name] = _MAKERS[name](loss, from_logits, label)
        else:
            raise InputError(f"no metric {name!r}; there are {', '.join(METRICS)}.")
    return found


def default_metrics(loss: str, from_logits: bool, label: str, ignore_label: int | None = None) -> dict[str, m.Metric]:
    """Return the metrics that are reported besides a loss."""
    if ":" in loss:
        return {}
    if ignore_label is not None:
        return {"accuracy": m.SequenceTokenAccuracy(label, masked_target_values=(ignore_label,))}
    names = ("accuracy",) if "crossentropy" in loss else ("mae", "mse")
    return named_metrics(names, loss, from_logits, label)


def of_output(found: Mapping[str, m.Metric], output: str) -> dict[str, m.Metric]:
    """Return metrics of one of several outputs, as ``OUTPUT/NAME``."""
    return {
        f"{output}/{name}": dataclasses.replace(metric, pred_key=output)
        for name, metric in found.items()
        if isinstance(metric, TargetMetric)
    }
