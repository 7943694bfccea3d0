"""Combinations that work well out of the box.

See tff.learning.{robust,dp,compression,secure}_aggregator.
"""

from __future__ import annotations

import math

from .base import Factory
from .clipping import ClippingFactory, ZeroingFactory
from .codecs import Codec, RotatedUniformQuantizer
from .compression import CompressionFactory
from .mean import MeanFactory, UnweightedMeanFactory
from .privacy import DifferentiallyPrivateFactory
from .quantile import QuantileEstimation
from .secure import SecureSumFactory

__all__ = ["compression_aggregator", "dp_aggregator", "robust_aggregator", "secure_aggregator"]


def default_zeroing(inner: Factory) -> ZeroingFactory:
    """Zero broken updates, far beyond the 98th percentile of magnitudes."""
    return ZeroingFactory(QuantileEstimation(10.0, 0.98, math.log(10.0), multiplier=2.0, increment=1.0), inner)


def default_clipping(inner: Factory) -> ClippingFactory:
    """Clip to the 80th percentile of L2 norms."""
    return ClippingFactory(QuantileEstimation(1.0, 0.8, 0.2), inner)


def _mean(weighted: bool, value_sum: Factory | None = None) -> Factory:
    return (MeanFactory if weighted else UnweightedMeanFactory)(value_sum)


def _around(inner: Factory, zeroing: bool, clipping: bool) -> Factory:
    inner = default_clipping(inner) if clipping else inner
    return default_zeroing(inner) if zeroing else inner


def robust_aggregator(*, zeroing: bool = True, clipping: bool = True, weighted: bool = True) -> Factory:
    """Return a mean of updates with adaptive zeroing and clipping.

    See tff.learning.robust_aggregator.
    """
    return _around(_mean(weighted), zeroing, clipping)


def compression_aggregator(
    codec: Codec | None = None, *, zeroing: bool = True, clipping: bool = True, weighted: bool = True
) -> Factory:
    """Return `robust_aggregator` over compressed updates, by default 8 bits.

    A rotation comes before the quantization to 256 levels.
    """
    inner = CompressionFactory(codec or RotatedUniformQuantizer(256), _mean(weighted))
    return _around(inner, zeroing, clipping)


def dp_aggregator(noise_multiplier: float, clients_per_round: float, *, zeroing: bool = True) -> Factory:
    """Return the mean with adaptive clipping and Gaussian noise.

    See tff.learning.dp_aggregator. The zeroing norm adapts without noise, as in TFF; without zeroing nothing escapes
    the privacy guarantee.
    """
    inner = DifferentiallyPrivateFactory.gaussian_adaptive(noise_multiplier, clients_per_round)
    return default_zeroing(inner) if zeroing else inner


def secure_aggregator(bound: float, *, weighted: bool = True, num_neighbors: int | None = None) -> Factory:
    """Return a mean whose sum is taken by simulated secure aggregation.

    See `SecureSumFactory` for the arguments.
    """
    return _mean(weighted, SecureSumFactory(bound, num_neighbors=num_neighbors))
