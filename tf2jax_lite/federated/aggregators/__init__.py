"""Composable aggregations of client updates.

Entries: the factories exported here; ``factory.create(template)`` returns an `AggregationProcess`.

Read in this order:
  base: the factory's interface, arithmetic over stacked clients, stages before an aggregation.
  mean, robust, geometric: sums, means, medians, and rules against Byzantine clients.
  clipping, quantile, screening: bounds on updates, and the exclusion of unusable ones.
  codecs, hadamard, compression: messages of few bits.
  privacy, entropy, accounting: differential privacy, keys of its noise, and its cost.
  secure, distributed: secure sums, and both together.
  recommended: combinations with good defaults.

Must not import `algorithms`, `running` or `flower`.
"""

from tf2jax_lite.federated.aggregators.accounting import gaussian_epsilon, gaussian_noise_multiplier
from tf2jax_lite.federated.aggregators.base import Factory
from tf2jax_lite.federated.aggregators.clipping import (
    ClippingFactory,
    ZeroingFactory,
    clipping_factory,
    zeroing_factory,
)
from tf2jax_lite.federated.aggregators.codecs import (
    Codec,
    Drive,
    EliasGamma,
    RotatedUniformQuantizer,
    TernGrad,
    TopK,
    UniformQuantizer,
)
from tf2jax_lite.federated.aggregators.compression import CompressionFactory
from tf2jax_lite.federated.aggregators.distributed import DistributedDpSumFactory
from tf2jax_lite.federated.aggregators.geometric import GeometricMedianFactory
from tf2jax_lite.federated.aggregators.mean import MeanFactory, SumFactory, UnweightedMeanFactory
from tf2jax_lite.federated.aggregators.privacy import DifferentiallyPrivateFactory, adaptive_clip_noise_params
from tf2jax_lite.federated.aggregators.quantile import PrivateQuantileEstimationProcess, QuantileEstimation
from tf2jax_lite.federated.aggregators.recommended import (
    compression_aggregator,
    ddp_secure_aggregator,
    dp_aggregator,
    entropy_compression_aggregator,
    robust_aggregator,
    secure_aggregator,
)
from tf2jax_lite.federated.aggregators.robust import CoordinateMedianFactory, KrumFactory, TrimmedMeanFactory
from tf2jax_lite.federated.aggregators.screening import ScreeningFactory, finite_clients, screen_updates
from tf2jax_lite.federated.aggregators.secure import SecureSumFactory

__all__ = [
    "ClippingFactory",
    "Codec",
    "CompressionFactory",
    "CoordinateMedianFactory",
    "DifferentiallyPrivateFactory",
    "DistributedDpSumFactory",
    "Drive",
    "EliasGamma",
    "Factory",
    "GeometricMedianFactory",
    "KrumFactory",
    "MeanFactory",
    "PrivateQuantileEstimationProcess",
    "QuantileEstimation",
    "RotatedUniformQuantizer",
    "ScreeningFactory",
    "SecureSumFactory",
    "SumFactory",
    "TernGrad",
    "TopK",
    "TrimmedMeanFactory",
    "UniformQuantizer",
    "UnweightedMeanFactory",
    "ZeroingFactory",
    "adaptive_clip_noise_params",
    "clipping_factory",
    "compression_aggregator",
    "ddp_secure_aggregator",
    "dp_aggregator",
    "entropy_compression_aggregator",
    "finite_clients",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "robust_aggregator",
    "screen_updates",
    "secure_aggregator",
    "zeroing_factory",
]
