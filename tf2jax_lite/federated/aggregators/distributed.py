"""Differential privacy whose noise the clients add, under secure aggregation.

Sources: Agarwal et al. 2021, "The Skellam Mechanism for Differentially Private Federated Learning"; Kairouz et al.
2021, "The Distributed Discrete Gaussian Mechanism" (the scale); tff.aggregators.DistributedDpSumFactory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.aggregators.base import (
    Factory,
    cast_like,
    client_keys,
    float_template,
    row_norms,
    rows,
    zeros_like,
)
from tf2jax_lite.federated.aggregators.clipping import clip
from tf2jax_lite.federated.aggregators.hadamard import rotate, rotate_back, rotated_size
from tf2jax_lite.federated.aggregators.privacy import adaptive_clip_noise_params, check_noise_seed
from tf2jax_lite.federated.aggregators.quantile import QuantileEstimation
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates, MeasuredProcessOutput
from tf2jax_lite.support.errors import InputError

_NORM_LEEWAY = 1e-5  # TFF's: float32 rounding may exceed the norm
_MAX_SCALE = 1e6  # TFF's: of larger ones, bounds of norms would overflow


# jax.random.poisson accepts by a difference of numbers of about rate * log(rate) in float32. Its variance is 0.3 % too
# large at a rate of 65160 (5 standard errors of 2**22 draws), and the chi-square statistic of 2**22 draws 3 of its
# standard deviations too large at 8192; at 2048 and below neither is off.
_MAX_RATE = 2.0**11


def _skellam(key: Any, stddev: Any, shape: tuple[int, ...]) -> Any:
    """Draw int32 numbers of a symmetric Skellam distribution.

    That is the difference of two Poisson variables. Above `_MAX_RATE` it is a rounded normal one. The distribution's
    excess kurtosis is 1 / stddev**2: relative to the other, probabilities differ there by 5e-5 in the mean.
    """
    rate = jnp.square(stddev) / 2

    def differences(key: Any) -> Any:
        # The only keys for which JAX draws Poisson variables; the difference takes two of 64 bits.
        words = jax.random.bits(key, (2, 2), jnp.uint32)
        keys = jax.random.wrap_key_data(words, impl="threefry2x32")
        a, b = (jax.random.poisson(k, jnp.minimum(rate, _MAX_RATE), shape) for k in keys)
        return a - b

    def rounded(key: Any) -> Any:
        return jnp.round(stddev * jax.random.normal(key, shape)).astype(jnp.int32)

    return jax.lax.cond(rate <= _MAX_RATE, differences, rounded, key)


@dataclasses.dataclass(frozen=True)
class DistributedDpSumFactory(Factory):
    """The sum of clipped updates with Skellam noise that clients add.

    Each client flattens and rotates its update, clips it to an L2 norm, multiplies it by a scale, rounds it to integers
    at random without bias, adds its share of the noise, and sends the integers modulo 2**bits. The server learns only
    their sum, modulo 2**bits. With the scale, a Gaussian sum wraps around with probability ``modclip_prob``.

    Weights are ignored. Measures l2_clip, scale_factor, scaled_inflated_l2 (the norm's bound after the rounding, in
    integers), scaled_local_stddev (of a client's noise, in integers), actual_num_clients and padded_dim, for the
    accounting. Masks are not simulated. The noise is drawn with float32 arithmetic, and as a rounded normal where it is
    wide (a variance above 2**12, in integers): for research.

    Attributes:
      noise_multiplier: standard deviation of all noise over the clipping norm, 0 or more.
      expected_clients_per_round: among how many clients the noise is split.
      bits: of an integer of the sum, from 1 to 22.
      l2_clip: the norm; of adaptive clipping, where it starts.
      modclip_prob: in (0, 1).
      auto_l2_clip: whether the norm follows a quantile of the clients' norms, which takes some of the privacy budget.
      auto_l2_target_quantile: the quantile.
      auto_l2_lr: the size of its steps.
      auto_l2_clip_count_stddev: noise on the count of clients within it; 0.05 of the clients if None.
      noise_seed: see `DifferentiallyPrivateFactory`.
    """

    noise_multiplier: float
    expected_clients_per_round: int
    bits: int
    l2_clip: float
    modclip_prob: float = 1e-4
    auto_l2_clip: bool = False
    auto_l2_target_quantile: float = 0.5
    auto_l2_lr: float = 0.2
    auto_l2_clip_count_stddev: float | None = None
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        check = functools.partial(check_number, "DistributedDpSumFactory")
        check("noise_multiplier", self.noise_multiplier, least=0)
        check("expected_clients_per_round", self.expected_clients_per_round, least=1, whole=True)
        check("bits", self.bits, least=1, most=22, whole=True)
        check("l2_clip", self.l2_clip, above=0)
        check("modclip_prob", self.modclip_prob, above=0, below=1)
        if 2 ** (2 * self.bits) <= self.expected_clients_per_round * self._stddevs**2:
            raise InputError(
                f"DistributedDpSumFactory: {self.bits} bits are too few for {self.expected_clients_per_round} clients. "
                "Raise bits or modclip_prob."
            )
        self._noise_and_clip()
        check_noise_seed("DistributedDpSumFactory", self.noise_seed)

    @property
    def _stddevs(self) -> float:
        """How many standard deviations of the sum fit, on each side."""
        return NormalDist().inv_cdf(1 - self.modclip_prob / 2)

    def _noise_and_clip(self) -> tuple[float, float | QuantileEstimation]:
        """Return the noise multiplier of the values, and the norm or its estimation."""
        if not self.auto_l2_clip:
            return self.noise_multiplier, self.l2_clip
        clients = self.expected_clients_per_round
        noise, stddev = adaptive_clip_noise_params(self.noise_multiplier, clients, self.auto_l2_clip_count_stddev)
        estimation = QuantileEstimation(
            self.l2_clip,
            self.auto_l2_target_quantile,
            self.auto_l2_lr,
            below_estimate_stddev=stddev,
            clients_per_round=clients,
        )
        return noise, estimation

    def _scale(self, norm: Any, stddev: Any, size: int) -> Any:
        """Return the factor before the rounding.

        It solves ``2**bits = 2 k sqrt((c n)**2 / d + (1 / scale**2 / 4 + stddev**2) n) * scale``, with k standard
        deviations, norm c, n clients and d numbers.
        """
        n, k = self.expected_clients_per_round, self._stddevs
        spread = jnp.square(norm * n) / size + n * jnp.square(stddev)
        return jnp.minimum(jnp.sqrt((2.0 ** (2 * self.bits) - k**2 * n) / spread) / (2 * k), _MAX_SCALE)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "DistributedDpSumFactory")
        total = sum(math.prod(t.shape) for t in jax.tree.leaves(wide))
        size = rotated_size(max(total, 1))
        noise, clipping = self._noise_and_clip()
        estimation = clipping if isinstance(clipping, QuantileEstimation) else None
        modulus = 2**self.bits

        def parameters(state: Any) -> tuple[Any, Any, Any]:
            """Return the round's norm, deviation of a client's noise, and scale."""
            norm = jnp.float32(self.l2_clip) if estimation is None else estimation.bound(state)
            stddev = noise * norm / math.sqrt(self.expected_clients_per_round)
            return norm, stddev, self._scale(norm, stddev, size)

        def flat(update: Any) -> Any:
            leaves = [x.reshape(-1) for x in jax.tree.leaves(update)]
            return jnp.concatenate([*leaves, jnp.zeros(max(1 - total, 0), jnp.float32)])

        def send(vector: Any, key: Any, scale: Any, stddev: Any) -> Any:
            """Return a client's integers, modulo 2**bits."""
            keys = jax.random.split(key)
            scaled = vector * scale
            whole = jnp.floor(scaled + jax.random.uniform(keys[0], scaled.shape)).astype(jnp.int32)
            if noise:
                whole += _skellam(keys[1], stddev * scale, scaled.shape)
            return jax.lax.bitcast_convert_type(whole, jnp.uint32) & jnp.uint32(modulus - 1)

        def zero(state: Any, num_clients: int) -> Any:
            del state, num_clients
            return jnp.zeros(size, jnp.uint32), [jnp.zeros((), jnp.int32) for _ in range(2)]

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            norm, stddev, scale = parameters(state)
            shared, own = jax.random.split(key)
            vectors = jax.vmap(lambda x: rotate(flat(x), shared))(cast_like(updates.update, wide))
            norms = row_norms(vectors)
            clipped = clip(vectors, norms, norm)
            sent = jax.vmap(send, in_axes=(0, 0, None, None))(clipped, client_keys(own, updates.index), scale, stddev)
            counted = jnp.sum(jnp.where(rows(updates.mask, sent), sent, 0), axis=0, dtype=jnp.uint32)
            within = jnp.sum((norms <= norm) & updates.mask, dtype=jnp.int32)
            number = jnp.sum(updates.mask, dtype=jnp.int32)
            return accumulator[0] + counted, [accumulator[1][0] + within, accumulator[1][1] + number]

        def merge(a: Any, b: Any) -> Any:
            return jax.tree.map(jnp.add, a, b)

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            norm, stddev, scale = parameters(state)
            summed, (within, number) = accumulator
            spare = 32 - self.bits  # two's complement of fewer bits: shift up and arithmetically down again
            signed = jax.lax.bitcast_convert_type(summed << spare, jnp.int32) >> spare
            shared, _ = jax.random.split(key)
            vector = rotate_back(signed.astype(jnp.float32) / scale, max(total, 1), shared)
            leaves, form = jax.tree.flatten(zeros_like(wide))
            ends = [math.prod(leaf.shape) for leaf in leaves]
            found, start = [], 0
            for leaf, count in zip(leaves, ends, strict=True):
                found.append(vector[start : start + count].reshape(leaf.shape).astype(leaf.dtype))
                start += count
            measured = {
                "l2_clip": norm,
                "scale_factor": scale,
                "scaled_inflated_l2": (norm + _NORM_LEEWAY) * scale + math.sqrt(size),
                "scaled_local_stddev": stddev * scale,
                "actual_num_clients": number,
                "padded_dim": jnp.int32(size),
            }
            # Not the key of any client, nor of the rotation.
            own = jax.random.fold_in(jax.random.fold_in(key, 1), 2)
            changed = () if estimation is None else estimation.next(state, within, number, own)
            return MeasuredProcessOutput(changed, cast_like(jax.tree.unflatten(form, found), template), measured)

        why = "differential privacy bounds each client's share"
        initialize = tuple if estimation is None else estimation.initialize
        return AggregationProcess(
            initialize,
            zero,
            accumulate,
            merge,
            report,
            refuses_weights=why,
            guarantees=frozenset({"secure aggregation", *(["differential privacy"] if self.noise_multiplier else [])}),
            is_secret=True,
            noise_seed=self.noise_seed,
            covered=frozenset({"l2_clip", "scale_factor", "scaled_inflated_l2", "scaled_local_stddev", "padded_dim"}),
        )
