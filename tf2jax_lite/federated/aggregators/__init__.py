"""Composable aggregations of client updates.

Entries: the factories exported here; ``factory.create(template)`` returns an `AggregationProcess`.

Read in this order:
  base: the factory's interface, arithmetic over stacked clients, stages before an aggregation, sums and means.
  robust: medians, and rules against Byzantine clients.
  clipping: bounds on updates, and the exclusion of unusable ones.
  compression: messages of few bits.
  privacy: differential privacy, keys of its noise, and its cost.
  secure: secure sums, also with distributed differential privacy.
  recommended: combinations with good defaults.

Must not import `algorithms`, `running` or `flower`.
"""

from tf2jax_lite.federated.aggregators.base import Factory, MeanFactory, SumFactory, UnweightedMeanFactory
from tf2jax_lite.federated.aggregators.clipping import (
    ClippingFactory,
    PrivateQuantileEstimationProcess,
    QuantileEstimation,
    ScreeningFactory,
    ZeroingFactory,
    clipping_factory,
    finite_clients,
    screen_updates,
    zeroing_factory,
)
from tf2jax_lite.federated.aggregators.compression import (
    Codec,
    CompressionFactory,
    Drive,
    EliasGamma,
    RotatedUniformQuantizer,
    TernGrad,
    TopK,
    UniformQuantizer,
)
from tf2jax_lite.federated.aggregators.privacy import (
    DifferentiallyPrivateFactory,
    adaptive_clip_noise_params,
    gaussian_epsilon,
    gaussian_noise_multiplier,
)
from tf2jax_lite.federated.aggregators.recommended import (
    compression_aggregator,
    ddp_secure_aggregator,
    dp_aggregator,
    entropy_compression_aggregator,
    robust_aggregator,
    secure_aggregator,
)
from tf2jax_lite.federated.aggregators.robust import (
    CoordinateMedianFactory,
    GeometricMedianFactory,
    KrumFactory,
    TrimmedMeanFactory,
)
from tf2jax_lite.federated.aggregators.secure import DistributedDpSumFactory, SecureSumFactory

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
