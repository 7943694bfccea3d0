"""Metrics of token sequences, which ignore padding. See fedjax.metrics.Sequence*.

An example's target holds tokens of shape (length,), the prediction logits of shape (length, vocabulary). Targets in
``masked_target_values`` are padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics.classification import TargetMetric, in_top_k
from tf2jax_lite.learning.metrics.cross_entropy import sparse_categorical_crossentropy
from tf2jax_lite.learning.metrics.metric import (
    MeanStat,
    Metric,
    PerplexityStat,
    SumStat,
    as_count,
    as_float,
    pick,
    zero_count,
)
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class _SequenceMetric(TargetMetric):
    """A metric over the tokens that are not padding.

    Attributes:
      masked_target_values: tokens that are ignored.
    """

    masked_target_values: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        check_tokens(self, "masked_target_values")

    def _tokens(self, example: Mapping[str, Any]) -> Any:
        return pick(self, example, self.target_key, "example")

    def _real(self, tokens: Any) -> Any:
        return ~is_one_of(tokens, self.masked_target_values)


def check_tokens(metric: Metric, name: str) -> None:
    """Raise InputError if a metric's option is not an (immutable) token tuple."""
    values = getattr(metric, name)
    if not isinstance(values, tuple):
        raise InputError(f"{type(metric).__name__}: {name} is a tuple of integers, as in (0,); not {values!r}.")
    for value in values:
        check_number(type(metric).__name__, f"each of {name}", value, whole=True)


def is_one_of(tokens: Any, values: tuple[int, ...]) -> Any:
    """Return for each token whether it is one of ``values``."""
    found = jnp.zeros(tokens.shape, bool)
    for value in values:
        found |= tokens == value
    return found


@dataclasses.dataclass(frozen=True)
class SequenceTokenCrossEntropyLoss(_SequenceMetric):
    """Mean cross entropy of a token. See fedjax.metrics.SequenceTokenCrossEntropyLoss.

    Attributes:
      per_position: whether each position of the sequence has its own mean; results have shape (length,).
      from_logits: whether predictions are logits, not probabilities.
    """

    per_position: bool = False
    from_logits: bool = True

    def zero(self) -> MeanStat:
        """See `Metric.zero`: of shape (), which broadcasts."""
        return MeanStat(jnp.zeros((), jnp.float32), zero_count())

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`."""
        loss, real = self._losses(example, prediction)
        stat = MeanStat.new(loss, as_count(real))
        return stat if self.per_position else stat.reduce()

    def _losses(self, example: Mapping[str, Any], prediction: Any) -> tuple[Any, Any]:
        tokens, scores = self.both(example, prediction)
        real = self._real(tokens)
        # Padding need not be a token at all (-100 is common), and then its loss is NaN.
        loss = sparse_categorical_crossentropy(jnp.where(real, tokens, 0), scores, from_logits=self.from_logits)
        return jnp.where(real, loss, 0), real


@dataclasses.dataclass(frozen=True)
class SequenceCrossEntropyLoss(SequenceTokenCrossEntropyLoss):
    """Mean over sequences of the sum of their tokens' cross entropies.

    Sequences of padding alone do not count. See fedjax.metrics.SequenceCrossEntropyLoss.

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
      masked_target_values: targets that are padding.
      per_position: whether each position of the sequence has its own result.
      from_logits: whether predictions are logits, not probabilities.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_position:
            raise InputError("SequenceCrossEntropyLoss: a sequence's loss has no position; leave per_position False.")

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`."""
        loss, real = self._losses(example, prediction)
        return MeanStat.new(jnp.sum(loss), as_count(jnp.any(real)))


@dataclasses.dataclass(frozen=True)
class Perplexity(SequenceTokenCrossEntropyLoss):
    """The exponential of the mean cross entropy of a token.

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
      masked_target_values: targets that are padding.
      per_position: whether each position of the sequence has its own result.
      from_logits: whether predictions are logits, not probabilities.
    """

    def zero(self) -> PerplexityStat:
        """See `Metric.zero`."""
        return PerplexityStat(jnp.zeros((), jnp.float32), zero_count())

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> PerplexityStat:
        """See `Metric.evaluate_example`."""
        stat = super().evaluate_example(example, prediction)
        return PerplexityStat(stat.accum, stat.weight)


@dataclasses.dataclass(frozen=True)
class SequenceTokenAccuracy(_SequenceMetric):
    """The share of tokens that have the highest score.

    See fedjax.metrics.SequenceTokenAccuracy.

    Attributes:
      per_position: whether each position of the sequence has its own mean; results have shape (length,).
      logits_mask: added to the logits, (vocabulary,) numbers; ``-inf`` for tokens that are never to be chosen.
    """

    per_position: bool = False
    logits_mask: tuple[float, ...] | None = None

    def zero(self) -> MeanStat:
        """See `Metric.zero`: of shape (), which broadcasts."""
        return MeanStat(zero_count(), zero_count())

    def hits(self, tokens: Any, scores: Any) -> Any:
        """Return a bool for each token."""
        return jnp.argmax(scores, axis=-1) == tokens

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`."""
        tokens, scores = self.both(example, prediction)
        if scores.shape[:-1] != tokens.shape:
            raise InputError(
                f"{type(self).__name__}: tokens of shape {tokens.shape} do not fit logits of shape {scores.shape}."
            )
        if self.logits_mask is not None:
            if len(self.logits_mask) != scores.shape[-1]:
                raise InputError(
                    f"{type(self).__name__}: logits_mask has {len(self.logits_mask)} numbers for "
                    f"{scores.shape[-1]} logits."
                )
            scores = as_float(scores) + jnp.asarray(self.logits_mask)
        real = self._real(tokens)
        stat = MeanStat(as_count(self.hits(tokens, scores) & real), as_count(real))
        return stat if self.per_position else stat.reduce()


@dataclasses.dataclass(frozen=True)
class SequenceTokenTopKAccuracy(SequenceTokenAccuracy):
    """The share of tokens among the ``k`` with the highest scores.

    See fedjax.metrics.SequenceTokenTopKAccuracy.

    Attributes:
      k: how many.
    """

    k: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("SequenceTokenTopKAccuracy", "k", self.k, whole=True)

    def hits(self, tokens: Any, scores: Any) -> Any:
        """See `SequenceTokenAccuracy.hits`."""
        return in_top_k(tokens, as_float(scores), self.k)


@dataclasses.dataclass(frozen=True)
class SequenceTokenCount(_SequenceMetric):
    """How many tokens are not padding. See fedjax.metrics.SequenceTokenCount.

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
      masked_target_values: targets that are padding.
    """

    def zero(self) -> SumStat:
        """See `Metric.zero`."""
        return SumStat(zero_count())

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> SumStat:
        """See `Metric.evaluate_example`; the prediction is not looked at."""
        return SumStat(jnp.sum(as_count(self._real(self._tokens(example)))))


@dataclasses.dataclass(frozen=True)
class SequenceCount(SequenceTokenCount):
    """How many sequences are not padding alone. See fedjax.metrics.SequenceCount.

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
      masked_target_values: targets that are padding.
    """

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> SumStat:
        """See `Metric.evaluate_example`; the prediction is not looked at."""
        return SumStat(as_count(jnp.any(self._real(self._tokens(example)))))


@dataclasses.dataclass(frozen=True)
class SequenceLength(_SequenceMetric):
    """Mean number of tokens of a sequence that is not padding alone.

    See fedjax.metrics.SequenceLength.

    Attributes:
      target_key: the batch's key of the targets.
      pred_key: the key of predictions that are a dict; None for an array.
      masked_target_values: targets that are padding.
    """

    def zero(self) -> MeanStat:
        """See `Metric.zero`."""
        return MeanStat(zero_count(), zero_count())

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`; the prediction is not looked at."""
        real = self._real(self._tokens(example))
        return MeanStat(jnp.sum(as_count(real)), as_count(jnp.any(real)))


@dataclasses.dataclass(frozen=True)
class SequenceTokenOOVRate(SequenceLength):
    """The share of tokens that are out of the vocabulary.

    See fedjax.metrics.SequenceTokenOOVRate.

    Attributes:
      oov_target_values: the tokens that stand for words out of the vocabulary.
      per_position: whether each position of the sequence has its own mean; results have shape (length,).
    """

    oov_target_values: tuple[int, ...] = ()
    per_position: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tokens(self, "oov_target_values")
        if not self.oov_target_values:
            raise InputError("SequenceTokenOOVRate: oov_target_values names at least one token.")

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`; the prediction is not looked at."""
        tokens = self._tokens(example)
        real = self._real(tokens)
        stat = MeanStat(as_count(is_one_of(tokens, self.oov_target_values) & real), as_count(real))
        return stat if self.per_position else stat.reduce()


@dataclasses.dataclass(frozen=True)
class SequenceTruncationRate(SequenceLength):
    """The share of truncated sequences, which have no end token.

    See fedjax.metrics.SequenceTruncationRate.

    Attributes:
      eos_target_value: the end token.
    """

    eos_target_value: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eos_target_value is None:
            raise InputError("SequenceTruncationRate: eos_target_value names the end token.")
        check_number("SequenceTruncationRate", "eos_target_value", self.eos_target_value, whole=True)

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> MeanStat:
        """See `Metric.evaluate_example`; the prediction is not looked at."""
        tokens = self._tokens(example)
        there = jnp.any(self._real(tokens))
        return MeanStat(as_count(there & jnp.all(tokens != self.eos_target_value)), as_count(there))
