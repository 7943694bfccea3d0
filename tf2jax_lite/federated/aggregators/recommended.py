"""Combinations that work well out of the box.

See tff.learning.{robust,dp,compression,secure}_aggregator.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tf2jax_lite.federated.aggregators.base import Factory, MeanFactory, SumFactory, UnweightedMeanFactory, named
from tf2jax_lite.federated.aggregators.clipping import ClippingFactory, QuantileEstimation, ZeroingFactory
from tf2jax_lite.federated.aggregators.compression import Codec, CompressionFactory, EliasGamma, UniformQuantizer
from tf2jax_lite.federated.aggregators.privacy import DifferentiallyPrivateFactory, adaptive_clip_noise_params
from tf2jax_lite.federated.aggregators.secure import DistributedDpSumFactory, SecureSumFactory

__all__ = [
    "compression_aggregator",
    "ddp_secure_aggregator",
    "dp_aggregator",
    "entropy_compression_aggregator",
    "robust_aggregator",
    "secure_aggregator",
]

_MOST_UNCOMPRESSED = 20_000  # numbers of a tensor that is sent as it is


def default_zeroing(inner: Factory, stddev: float = 0.0, clients: float | None = None) -> ZeroingFactory:
    """Zero broken updates, far beyond the 98th percentile of magnitudes.

    Args:
      inner: the aggregation of the others.
      stddev: of noise on the count of clients from which the percentile follows.
      clients: the expected number of clients; with noise.
    """
    return ZeroingFactory(QuantileEstimation(10.0, 0.98, math.log(10.0), 2.0, 1.0, stddev, clients), inner)


def _private_zeroing(make: Callable[[float], Factory], noise_multiplier: float, clients: float) -> Factory:
    """Return an aggregation after zeroing; both share a privacy budget."""
    rest, stddev = adaptive_clip_noise_params(noise_multiplier, clients)
    return default_zeroing(make(rest), stddev, clients if stddev else None)


def default_clipping(inner: Factory) -> ClippingFactory:
    """Clip to the 80th percentile of L2 norms."""
    return ClippingFactory(QuantileEstimation(1.0, 0.8, 0.2), inner)


def _mean(weighted: bool, value_sum: Factory | None = None) -> Factory:
    return (MeanFactory if weighted else UnweightedMeanFactory)(value_sum)


def _around(inner: Factory, zeroing: bool, clipping: bool) -> Factory:
    inner = default_clipping(inner) if clipping else inner
    return default_zeroing(inner) if zeroing else inner


@named("robust")
def robust_aggregator(*, zeroing: bool = True, clipping: bool = True, weighted: bool = True) -> Factory:
    """Return a mean of updates with adaptive zeroing and clipping.

    See tff.learning.robust_aggregator.

    Args:
      zeroing: put zeros for updates beyond an adaptive norm first.
      clipping: clip updates to an adaptive norm.
      weighted: take the weighted mean.
    """
    return _around(_mean(weighted), zeroing, clipping)


def compression_aggregator(
    codec: Codec | None = None, *, zeroing: bool = True, clipping: bool = True, weighted: bool = True
) -> Factory:
    """Return `robust_aggregator` over compressed updates.

    See tff.learning.compression_aggregator. Updates are zeroed and clipped, multiplied by the clients' weights, and
    then encoded and summed. Tensors of more than 20,000 numbers are quantized to 256 levels (8 bits); smaller ones are
    sent as they are.

    Args:
      codec: another code, for tensors of all sizes.
      zeroing: zero very large updates.
      clipping: clip updates to a norm.
      weighted: take the weighted mean.
    """
    default = codec is None
    encoded = CompressionFactory(
        UniformQuantizer(256) if default else codec, SumFactory(), threshold=_MOST_UNCOMPRESSED + 1 if default else 0
    )
    return _around(_mean(weighted, encoded), zeroing, clipping)


def entropy_compression_aggregator(
    *, step_size: float = 0.5, zeroing: bool = True, clipping: bool = True, weighted: bool = True
) -> Factory:
    """Return `robust_aggregator` over updates in Elias gamma codes.

    See tff.learning.entropy_compression_aggregator and `EliasGamma`. Updates are zeroed and clipped, multiplied by the
    clients' weights, and then encoded and summed.

    Args:
      step_size: the distance of levels of the weighted updates; TFF suggests 0.1 to 10.
      zeroing: zero very large updates.
      clipping: clip updates to a norm.
      weighted: take the weighted mean.

    Raises:
      InputError: step_size is not above 0.
    """
    return compression_aggregator(EliasGamma(step_size), zeroing=zeroing, clipping=clipping, weighted=weighted)


def dp_aggregator(noise_multiplier: float, clients_per_round: float, *, zeroing: bool = True) -> Factory:
    """Return the mean with adaptive clipping and Gaussian noise.

    See tff.learning.dp_aggregator. Unlike TFF's, the count from which the zeroing norm follows has noise, too:
    ``noise_multiplier`` covers all.

    Args:
      noise_multiplier: standard deviation of the noise, divided by the clipping norm.
      clients_per_round: the expected number of clients in a cohort.
      zeroing: put zeros for updates beyond an adaptive norm first.
    """

    def adaptive(noise: float) -> Factory:
        return DifferentiallyPrivateFactory.gaussian_adaptive(noise, clients_per_round)

    return _private_zeroing(adaptive, noise_multiplier, clients_per_round) if zeroing else adaptive(noise_multiplier)


def secure_aggregator(
    bound: float | QuantileEstimation | None = None,
    *,
    zeroing: bool = True,
    clipping: bool = True,
    weighted: bool = True,
    num_neighbors: int | None = None,
) -> Factory:
    """Return a mean whose sum is taken by simulated secure aggregation.

    See tff.learning.secure_aggregator. Updates are zeroed and clipped, multiplied by the clients' weights, and then
    summed. The weights themselves are summed in the clear.

    Args:
      bound: of `SecureSumFactory`; by default twice the 95th percentile of the clients' largest magnitudes, from 100.
      zeroing: zero very large updates.
      clipping: clip updates to a norm.
      weighted: take the weighted mean.
      num_neighbors: see `SecureSumFactory`.
    """
    if bound is None:
        bound = QuantileEstimation.no_noise(50.0, 0.95, 1.0, multiplier=2.0)
    return _around(_mean(weighted, SecureSumFactory(bound, num_neighbors=num_neighbors)), zeroing, clipping)


def ddp_secure_aggregator(
    noise_multiplier: float, expected_clients_per_round: int, bits: int = 20, *, zeroing: bool = True
) -> Factory:
    """Return the unweighted mean with noise of the clients' under secure aggregation.

    See tff.learning.ddp_secure_aggregator and `DistributedDpSumFactory`. Clipping follows the median norm, from 0.1.
    For zeroing see `dp_aggregator`.

    Args:
      noise_multiplier: standard deviation of the noise, divided by the clipping norm.
      expected_clients_per_round: the number of clients that add noise.
      bits: of the integers that are summed.
      zeroing: put zeros for updates beyond an adaptive norm first.
    """

    def adaptive(noise: float) -> Factory:
        clients = expected_clients_per_round
        return UnweightedMeanFactory(DistributedDpSumFactory(noise, clients, bits, 0.1, auto_l2_clip=True))

    if not zeroing:
        return adaptive(noise_multiplier)
    return _private_zeroing(adaptive, noise_multiplier, expected_clients_per_round)


@named("compression")
def _compression(zeroing: bool = True, clipping: bool = True, weighted: bool = True) -> Factory:
    return compression_aggregator(zeroing=zeroing, clipping=clipping, weighted=weighted)


@named("secure")
def _secure(
    bound: float = 1000.0,
    weighted: bool = True,
    modulus_bits: int = 32,
    num_neighbors: int | None = None,
    min_clients: int = 1,
) -> Factory:
    return _mean(weighted, SecureSumFactory(bound, modulus_bits, num_neighbors, min_clients))
