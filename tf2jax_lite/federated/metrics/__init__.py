"""Mergeable metrics, independent of batching. See fedjax.metrics.

Entries: the metrics exported here, and `evaluate_batch`.

Read in this order:
  stat: mergeable statistics, the pytrees that metrics accumulate.
  metric: the interface of a metric, and the evaluation of a batch.
  losses, classification, regression, sequences, auc: metrics by task.
  domains: a metric by domain.

Must not import `data`, `algorithms` or `running`.
"""

from .auc import AUC, AUCStat
from .classification import (
    Accuracy,
    BinaryAccuracy,
    BinaryCrossEntropyLoss,
    CategoricalCrossEntropyLoss,
    ConfusionMatrix,
    CrossEntropyLoss,
    TopKAccuracy,
)
from .domains import PerDomainMetric, PerDomainStat
from .losses import binary_crossentropy, categorical_crossentropy, sparse_categorical_crossentropy
from .metric import MASK_KEY, Metric, check_metrics, evaluate_batch
from .regression import MeanAbsoluteError, MeanSquaredError
from .sequences import (
    Perplexity,
    SequenceCount,
    SequenceCrossEntropyLoss,
    SequenceLength,
    SequenceTokenAccuracy,
    SequenceTokenCount,
    SequenceTokenCrossEntropyLoss,
    SequenceTokenOOVRate,
    SequenceTokenTopKAccuracy,
    SequenceTruncationRate,
)
from .stat import MeanStat, PerplexityStat, Stat, SumStat

__all__ = [
    "AUC",
    "MASK_KEY",
    "AUCStat",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossEntropyLoss",
    "CategoricalCrossEntropyLoss",
    "ConfusionMatrix",
    "CrossEntropyLoss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "MeanStat",
    "Metric",
    "PerDomainMetric",
    "PerDomainStat",
    "Perplexity",
    "PerplexityStat",
    "SequenceCount",
    "SequenceCrossEntropyLoss",
    "SequenceLength",
    "SequenceTokenAccuracy",
    "SequenceTokenCount",
    "SequenceTokenCrossEntropyLoss",
    "SequenceTokenOOVRate",
    "SequenceTokenTopKAccuracy",
    "SequenceTruncationRate",
    "Stat",
    "SumStat",
    "TopKAccuracy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "check_metrics",
    "evaluate_batch",
    "sparse_categorical_crossentropy",
]
