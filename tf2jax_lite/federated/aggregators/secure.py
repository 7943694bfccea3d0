"""Secure sums, without and with distributed differential privacy.

After Bonawitz et al. 2017 (pairwise masks, own masks, recovery from dropped clients) and Bell et al. 2020 (masks with
some neighbors only). Numbers become integers modulo 2**k. Client i adds a mask of its own, and for each neighbour j a
mask that both know: i adds it if i < j and subtracts it otherwise. In the sum pairs cancel. At the end
the server learns only the own masks of clients that answered, and the pairwise masks between those and the others.
Everything is arithmetic on integers, so the sum is exact. Key agreement and secret sharing, which would deliver the
seeds, are not simulated: seeds come from the aggregation's key, which processes draw from the operating system.

Sources: Agarwal et al. 2021, "The Skellam Mechanism for Differentially Private Federated Learning"; Kairouz et al.
2021, "The Distributed Discrete Gaussian Mechanism" (the scale); tff.aggregators.DistributedDpSumFactory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators.base import (
    Factory,
    cast_like,
    client_keys,
    float_template,
    row_norms,
    rows,
    zeros_like,
)
from tf2jax_lite.federated.aggregators.clipping import QuantileEstimation, clip
from tf2jax_lite.federated.aggregators.compression import rotate, rotate_back, rotated_size
from tf2jax_lite.federated.aggregators.privacy import adaptive_clip_noise_params, check_noise_seed
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import AggregationProcess, ClientUpdates, MeasuredProcessOutput, Mechanism
from tf2jax_lite.support.errors import InputError

__all__ = ["DistributedDpSumFactory", "SecureSumFactory"]


@dataclasses.dataclass(frozen=True)
class SecureSumFactory(Factory):
    """The sum of updates by simulated secure aggregation.

    Usable as a `MeanFactory`'s value_sum_factory. Each number is clipped to [-bound, bound] and rounded to a multiple
    of a step. The step is such that the sum of the cohort fits: about ``bound * num_clients / 2**(modulus_bits - 1)``.
    Weights are ignored. Measures secure_upper_threshold (the round's bound), secure_upper_clipped_count and
    secure_lower_clipped_count (clients with a number above the bound, or below its negative), as TFF does; and
    secure_sum_clipped (numbers beyond the bound), secure_sum_survivors and secure_sum_failed.

    Attributes:
      bound: the largest magnitude of a number, above 0, or a `QuantileEstimation` of the clients' largest magnitudes.
        As a part of a weighted mean it covers updates times weights.
      modulus_bits: k, from 8 to 32.
      num_neighbors: how many others each client shares masks with (even); None for all. The work grows with it.
      min_clients: with fewer survivors the round fails: the result is zero.
    """

    bound: float | QuantileEstimation
    modulus_bits: int = 32
    num_neighbors: int | None = None
    min_clients: int = 1

    def __post_init__(self) -> None:
        check = functools.partial(check_number, "SecureSumFactory")
        if not isinstance(self.bound, QuantileEstimation):
            check("bound, if no QuantileEstimation,", self.bound, above=0)
        check("modulus_bits", self.modulus_bits, least=8, most=32, whole=True)
        check("min_clients", self.min_clients, least=0, whole=True)
        if self.num_neighbors is not None:
            check("num_neighbors", self.num_neighbors, least=2, whole=True)
            if self.num_neighbors % 2:
                raise InputError(f"SecureSumFactory: num_neighbors is even, not {self.num_neighbors}.")

    def levels(self, num_clients: int) -> int:
        """Return the largest integer that one client sends.

        Raises:
          InputError: the modulus is too small for the sum over the clients.
        """
        levels = (2 ** (self.modulus_bits - 1) - 1) // num_clients
        if levels < 1:
            raise InputError(
                f"SecureSumFactory: modulus 2**{self.modulus_bits} is too small for {num_clients} clients."
            )
        # A float32 above 2**24 may round up.
        return levels if levels <= 2**24 else int(np.nextafter(np.float32(levels), np.float32(0)))

    def quantize(self, update: Any, num_clients: int, bound: Any = None) -> Any:
        """Return updates as uint32, in two's complement modulo 2**modulus_bits.

        Args:
          update: the updates.
          num_clients: the size of the cohort.
          bound: the round's bound; the fixed one if None.
        """
        return self._quantized(update, self.levels(num_clients), self.bound if bound is None else bound)

    def _quantized(self, update: Any, levels: Any, bound: Any) -> Any:
        def leaf(x: Any) -> Any:
            scaled = jnp.round(jnp.clip(x / bound, -1, 1) * levels).astype(jnp.int32)
            return self._reduced(jax.lax.bitcast_convert_type(scaled, jnp.uint32))

        return jax.tree.map(leaf, update)

    def client_mask(self, template: Any, key: Any, index: Any, num_clients: int) -> Any:
        """Return what client ``index`` adds to its update: a pytree of uint32."""
        mask = _draw(template, _own_key(key, index))

        def add(k: Any, mask: Any) -> Any:
            return _add(mask, _pair(template, key, index, (index + self._offset(k, num_clients)) % num_clients))

        mask = jax.lax.fori_loop(0, self._num_neighbors(num_clients), add, mask)
        return jax.tree.map(self._reduced, mask)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "SecureSumFactory")
        estimation = self.bound if isinstance(self.bound, QuantileEstimation) else None

        def bound_of(state: Any) -> Any:
            return self.bound if estimation is None else estimation.bound(state)

        def zero(state: Any, num_clients: int) -> Any:
            del state
            levels = self.levels(num_clients)
            total = jax.tree.map(lambda t: np.zeros(t.shape, np.uint32), wide)
            # The number of clients is no constant of programs, which cohorts of other sizes share.
            step = (1.0 if isinstance(self.bound, QuantileEstimation) else self.bound) / levels
            wide_float = jax.dtypes.canonicalize_dtype(np.float64)
            cohort = _Cohort(np.int32(num_clients), np.float32(levels), np.asarray(step, wide_float))
            survived = np.zeros(max(128, 1 << (num_clients - 1).bit_length()), bool)
            return total, survived, [np.int32(0) for _ in range(4)], cohort

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            total, survived, counts, cohort = accumulator
            bound = bound_of(state)
            update = cast_like(updates.update, wide)
            masks = jax.vmap(lambda i: self.client_mask(wide, key, i, cohort.size))(updates.index)
            sent = _add(self._quantized(update, cohort.levels, bound), masks)
            total = jax.tree.map(lambda t, x: t + _sum(x, updates.mask), total, sent)
            survived = (
                jnp.asarray(survived).at[jnp.where(updates.mask, updates.index, survived.size)].set(True, mode="drop")
            )
            numbers = sum(
                jnp.sum(rows(updates.mask, x) & (jnp.abs(x) > bound), dtype=jnp.int32) for x in jax.tree.leaves(update)
            )
            kinds = (
                _any_beyond(update, lambda x: x > bound),
                _any_beyond(update, lambda x: x < -bound),
                row_norms(update, math.inf) <= (bound if estimation is None else state),
            )
            clients = [jnp.sum(kind & updates.mask, dtype=jnp.int32) for kind in kinds]
            return total, survived, _add(counts, [numbers, *clients]), cohort

        def merge(a: Any, b: Any) -> Any:
            return _add(a[0], b[0]), a[1] | b[1], _add(a[2], b[2]), a[3]

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            total, survived, (clipped, above, under, within), cohort = accumulator
            bound = bound_of(state)
            number = jnp.sum(survived, dtype=jnp.int32)
            failed = number < self.min_clients
            total = self._unmask(wide, total, survived, cohort.size, key)
            step = cohort.step if estimation is None else bound / cohort.levels

            def leaf(x: Any, t: Any) -> Any:
                # Two's complement of k bits: shift up and arithmetically down again.
                spare = 32 - self.modulus_bits
                signed = jax.lax.bitcast_convert_type(x << spare, jnp.int32) >> spare
                return jnp.where(failed, 0, signed.astype(t.dtype) * step.astype(t.dtype))

            result = cast_like(jax.tree.map(leaf, total, wide), template)
            measured = {
                "secure_sum_clipped": clipped,
                "secure_sum_survivors": number,
                "secure_sum_failed": failed,
                "secure_upper_threshold": jnp.asarray(bound, jnp.float32),
                "secure_upper_clipped_count": above,
                "secure_lower_clipped_count": under,
            }
            # Of its own, so that noise of the estimation does not repeat a mask.
            changed = () if estimation is None else estimation.next(state, within, number, jax.random.fold_in(key, 2))
            return MeasuredProcessOutput(changed, result, measured)

        initialize = tuple if estimation is None else estimation.initialize
        return AggregationProcess(
            initialize,
            zero,
            accumulate,
            merge,
            report,
            guarantees=frozenset({"secure aggregation"}),
            is_secret=True,
        )

    def _unmask(self, template: Any, total: Any, survived: Any, size: Any, key: Any) -> Any:
        """Remove the survivors' own masks, and those shared with dropped clients."""
        each = 1 + self._num_neighbors(size)

        def one(k: Any, total: Any) -> Any:
            i, place = k // each, k % each
            offset = jnp.where(place == 0, 0, self._offset(place - 1, size))
            j = (i + offset) % size

            def own() -> Any:
                return _draw(template, _own_key(key, i))

            def shared() -> Any:
                return _pair(template, key, i, j)

            def take(total: Any) -> Any:
                return jax.tree.map(jnp.subtract, total, jax.lax.cond(offset == 0, own, shared))

            # A mask is drawn where it is needed, so without dropped clients this costs one draw for each client.
            return jax.lax.cond(survived[i] & ((offset == 0) | ~survived[j]), take, lambda t: t, total)

        return jax.lax.fori_loop(0, size * each, one, total)

    def _reduced(self, x: Any) -> Any:
        return x & jnp.uint32(2**self.modulus_bits - 1)

    def _num_neighbors(self, size: Any) -> Any:
        return size - 1 if self.num_neighbors is None else jnp.minimum(self.num_neighbors, size - 1)

    def _offset(self, k: Any, size: Any) -> Any:
        """Return the distance of a client's neighbor k on the circle of clients."""
        number = self._num_neighbors(size)
        return jnp.where(k < number // 2, k + 1, size - number + k)


class _Cohort(NamedTuple):
    """Facts of a round.

    Attributes:
      size: its number of clients.
      levels: the largest integer that one of them sends, exact in float32.
      step: the number that an integer of 1 stands for, if the bound is fixed.
    """

    size: Any
    levels: Any
    step: Any


def _own_key(key: Any, index: Any) -> Any:
    return jax.random.fold_in(jax.random.fold_in(key, 0), index)


def _draw(template: Any, key: Any) -> Any:
    leaves, form = jax.tree.flatten(template)
    keys = [jax.random.fold_in(key, i) for i in range(len(leaves))]
    return jax.tree.unflatten(
        form, [jax.random.bits(k, t.shape, jnp.uint32) for k, t in zip(keys, leaves, strict=True)]
    )


def _pair(template: Any, key: Any, i: Any, j: Any) -> Any:
    """Return client ``i``'s mask for ``j``: that of the pair, or its negative."""
    low, high = jnp.minimum(i, j), jnp.maximum(i, j)
    pair_key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 1), low), high)
    return jax.tree.map(lambda m: jnp.where(i < j, m, -m), _draw(template, pair_key))


def _any_beyond(update: Any, is_beyond: Any) -> Any:
    """Return whether any number of each client is beyond the bound, bool (n,)."""
    found = [jnp.any(is_beyond(x).reshape(x.shape[0], -1), axis=1) for x in jax.tree.leaves(update)]
    return functools.reduce(jnp.logical_or, found)


def _add(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _sum(x: Any, mask: Any) -> Any:
    return jnp.sum(jnp.where(rows(mask, x), x, 0), axis=0, dtype=jnp.uint32)


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
            mechanisms=(Mechanism(noise), *(() if estimation is None else estimation.mechanisms)),
        )
