"""Mergeable metrics, independent of batching. See fedjax.metrics.

Entries: the metrics exported here, and `evaluate_batch`.

Read in this order:
  metric: mergeable statistics, the pytrees that metrics sum; the interface of a metric, its values by domain.
  cross_entropy, classification, sequences: metrics by task.

Must not import other modules of `learning` but `checks`.
"""

from tf2jax_lite.learning.metrics.classification import (
    AUC,
    Accuracy,
    AUCStat,
    BinaryAccuracy,
    BinaryCrossEntropyLoss,
    CategoricalCrossEntropyLoss,
    ConfusionMatrix,
    CrossEntropyLoss,
    MeanAbsoluteError,
    MeanSquaredError,
    TopKAccuracy,
)
from tf2jax_lite.learning.metrics.cross_entropy import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from tf2jax_lite.learning.metrics.metric import (
    MASK_KEY,
    MeanStat,
    Metric,
    PerDomainMetric,
    PerDomainStat,
    PerplexityStat,
    Stat,
    SumStat,
    check_metrics,
    evaluate_batch,
)
from tf2jax_lite.learning.metrics.sequences import (
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
