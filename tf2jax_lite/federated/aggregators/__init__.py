"""Composable aggregations of client updates.

Entries: the factories exported here; ``factory.create(template)`` returns an `AggregationProcess`.

Read in this order:
  base: the factory's interface, arithmetic over stacked clients, stages before an aggregation.
  mean, robust, geometric: sums, means, medians, and rules against Byzantine clients.
  clipping, quantile, screening: bounds on updates, and the exclusion of unusable ones.
  codecs, hadamard, compression: messages of few bits.
  privacy, accounting, shares, secure: differential privacy and its cost; secure sums.
  recommended: combinations with good defaults.

Must not import `algorithms`, `running` or `flower`.
"""

from .accounting import gaussian_epsilon, gaussian_noise_multiplier
from .base import Factory
from .clipping import ClippingFactory, ZeroingFactory, clipping_factory, zeroing_factory
from .codecs import Codec, Drive, RotatedUniformQuantizer, TernGrad, TopK, UniformQuantizer
from .compression import CompressionFactory
from .geometric import GeometricMedianFactory
from .mean import MeanFactory, SumFactory, UnweightedMeanFactory
from .privacy import DifferentiallyPrivateFactory, adaptive_clip_noise_params
from .quantile import PrivateQuantileEstimationProcess, QuantileEstimation
from .recommended import compression_aggregator, dp_aggregator, robust_aggregator, secure_aggregator
from .robust import CoordinateMedianFactory, KrumFactory, TrimmedMeanFactory
from .screening import ScreeningFactory, finite_clients, screen_updates
from .secure import SecureSumFactory

__all__ = [
    "ClippingFactory",
    "Codec",
    "CompressionFactory",
    "CoordinateMedianFactory",
    "DifferentiallyPrivateFactory",
    "Drive",
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
    "dp_aggregator",
    "finite_clients",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "robust_aggregator",
    "screen_updates",
    "secure_aggregator",
    "zeroing_factory",
]
