"""Differential privacy: noise from the system's entropy, aggregators.

Clip each update, add them, add Gaussian noise, divide by the expected number of clients. Processes draw the noise with
a secret key in floating point: a deployment that has to resist attacks on floating-point noise (Mironov, 2012) needs a
discrete mechanism.

A JAX key of the default kind has 64 bits, and one made of a seed has as many as the seed: who sees a noised sum can try
them. So keys here have 256 bits, for ChaCha20 (RFC 8439), a stream cipher: its output cannot be told from random
numbers, nor can one key be computed from another that is derived from the same.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import secrets
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators.accounting import gaussian_noise_multiplier
from tf2jax_lite.federated.aggregators.base import (
    Factory,
    Stage,
    SumFactory,
    UnweightedMeanFactory,
    as_aggregator,
    before,
    cast_like,
    client_keys,
    float_template,
    named,
    row_norms,
)
from tf2jax_lite.federated.aggregators.clipping import ClippingFactory, QuantileEstimation, clip
from tf2jax_lite.federated.aggregators.tree_noise import TreeNoise, TreeQuantileEstimation
from tf2jax_lite.jaxprs.compat import define_prng_impl
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import AggregationProcess, ClientUpdates, Guarantee, MeasuredProcessOutput, Mechanism
from tf2jax_lite.support.errors import InputError

__all__ = [
    "DifferentiallyPrivateFactory",
    "LocalDpFactory",
    "adaptive_clip_noise_params",
]


_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")
_LOCAL: frozenset[Guarantee] = frozenset({"differential privacy", "local differential privacy"})
_BITS, _SPLIT, _FOLD = range(3)  # nonces: streams of one key that never meet


def _rotated(x: Any, by: int) -> Any:
    return (x << by) | (x >> (32 - by))


def _quarter_round(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    a += b
    d = _rotated(d ^ a, 16)
    c += d
    b = _rotated(b ^ c, 12)
    a += b
    d = _rotated(d ^ a, 8)
    c += d
    return a, _rotated(b ^ c, 7), c, d


def chacha20(key: Any, counter: Any, nonce: Any) -> Any:
    """Return ChaCha20's blocks.

    Args:
      key: uint32 (8,).
      counter: uint32 (n,).
      nonce: three words, uint32.

    Returns:
      uint32 (n, 16).
    """
    n = counter.shape[0]
    last = jnp.stack([counter, *(jnp.full((n,), word, jnp.uint32) for word in nonce)])
    first = [jnp.broadcast_to(row[:, None], (4, n)) for row in (jnp.asarray(_CONSTANTS), key[:4], key[4:])]
    start = (*first, last)

    def double_round(_: Any, rows: Any) -> Any:
        a, b, c, d = _quarter_round(*rows)
        diagonal = a, *(jnp.roll(row, -k, 0) for k, row in enumerate((b, c, d), 1))
        a, b, c, d = _quarter_round(*diagonal)
        return a, *(jnp.roll(row, k, 0) for k, row in enumerate((b, c, d), 1))

    rows = jax.lax.fori_loop(0, 10, double_round, start)
    return jnp.concatenate([row + old for row, old in zip(rows, start, strict=True)]).T


def _words(key: Any, count: int) -> Any:
    blocks = chacha20(key, jnp.arange(-(-count // 16), dtype=jnp.uint32), (_BITS, 0, 0))
    return blocks.reshape(-1)[:count]


def _random_bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    size = math.prod(shape)
    if bit_width == 64:
        low, high = _words(key, 2 * size).astype(jnp.uint64).reshape(2, *shape)
        return low | (high << np.uint64(32))
    return _words(key, size).reshape(shape).astype(f"uint{bit_width}")


def _split(key: Any, shape: tuple[int, ...]) -> Any:
    return chacha20(key, jnp.arange(math.prod(shape), dtype=jnp.uint32), (_SPLIT, 0, 0))[:, :8].reshape(*shape, 8)


def _fold_in(key: Any, data: Any) -> Any:
    return chacha20(key, jnp.asarray(data, jnp.uint32)[None], (_FOLD, 0, 0))[0, :8]


def _seed(seed: Any) -> Any:
    return jnp.zeros(8, jnp.uint32).at[0].set(jnp.asarray(seed).astype(jnp.uint32))


CHACHA20 = define_prng_impl(
    key_shape=(8,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="chacha20", tag="cha"
)


def fresh_words() -> list[int]:
    """Return 256 bits from the operating system, as eight words.

    They are the same in all processes of `jax.distributed`.
    """
    words = np.frombuffer(secrets.token_bytes(32), np.uint32)
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        words = multihost_utils.broadcast_one_to_all(words)
    return [int(word) for word in words]


def fresh_key() -> jax.Array:
    """Return a JAX key of `fresh_words`."""
    return jax.random.wrap_key_data(jnp.asarray(fresh_words(), jnp.uint32), impl=CHACHA20)


def aggregation_key(aggregation: AggregationProcess, key: Any) -> jax.Array:
    """Return the key from which all random numbers of a round's aggregation come.

    Args:
      aggregation: where privacy rests on its random numbers, the key is `fresh_key`'s: not a function of anything that
        is stored or sent, and another one where a round is run again after a resumption.
      key: the round's key, a function of the training's; it is the result for other aggregations.
    """
    if not aggregation.is_secret:
        return key
    return fresh_key() if aggregation.noise_seed is None else jax.random.fold_in(key, aggregation.noise_seed)


def adaptive_clip_noise_params(
    noise_multiplier: float, clients_per_round: float, clipped_count_stddev: float | None = None
) -> tuple[float, float]:
    """Split a privacy budget between updates and the clipped count.

    The count adapts the clipping norm (Andrew et al., theorem 1).

    Args:
      noise_multiplier: of both together.
      clients_per_round: the expected number of clients.
      clipped_count_stddev: noise on the count; 0.05 times clients_per_round by default.

    Returns:
      ``(value_noise_multiplier, clipped_count_stddev)``.

    Raises:
      InputError: the count's noise is so small that the budget is spent on it alone.
    """
    check = functools.partial(check_number, "adaptive clipping")
    check("noise_multiplier", noise_multiplier, least=0)
    check("clients_per_round", clients_per_round, above=0)
    if clipped_count_stddev is not None:
        check("clipped_count_stddev", clipped_count_stddev, least=0)
    stddev = 0.05 * clients_per_round if clipped_count_stddev is None else clipped_count_stddev
    if not noise_multiplier:
        return 0.0, 0.0
    if noise_multiplier >= 2 * stddev:
        raise InputError(
            f"adaptive clipping: with noise_multiplier {noise_multiplier}, clipped_count_stddev must exceed "
            f"{noise_multiplier / 2}, and it is {stddev}. Raise it or clients_per_round."
        )
    return noise_multiplier * (1 - (noise_multiplier / (2 * stddev)) ** 2) ** -0.5, stddev


def check_noise_seed(who: str, noise_seed: Any) -> None:
    """Raise `InputError` if it is neither None nor an integer of 32 bits."""
    if noise_seed is not None:
        check_number(who, "noise_seed", noise_seed, least=0, most=2**32 - 1, whole=True)


@dataclasses.dataclass(frozen=True)
class DifferentiallyPrivateFactory(Factory):
    """The mean of clipped updates with Gaussian noise.

    All clients have the same weight, as privacy requires. The aggregate is ``(sum of clipped updates + N(0,
    (noise_multiplier * clip)**2)) / clients_per_round``. The divisor is fixed: dividing by the number that took part
    would tell whether somebody did. Measures ``noise_stddev`` (of the sum), and clipping_norm and clipped_count, which
    are not private: keep them on the server.

    Attributes:
      noise_multiplier: noise over sensitivity, not negative.
      clients_per_round: the expected number of clients.
      clip: the L2 norm, or a `QuantileEstimation` that adapts it.
      record_aggregation_factory: how clipped updates are summed; `SumFactory` by default.
      noise_seed: for tests alone: the noise is a function of it and the training's key, and an observer with both can
        subtract it. By default processes draw each round's noise from the operating system's entropy.
      tree: noise from trees (DP-FTRL), of ``noise_multiplier`` in a node; see `tree_epsilon`. None for noise that is
        independent from round to round.
    """

    noise_multiplier: float
    clients_per_round: float
    clip: float | QuantileEstimation
    record_aggregation_factory: Factory = dataclasses.field(default_factory=SumFactory)
    noise_seed: int | None = None
    tree: TreeNoise | None = None

    def __post_init__(self) -> None:
        check = functools.partial(check_number, type(self).__name__)
        check("noise_multiplier", self.noise_multiplier, least=0)
        check("clients_per_round", self.clients_per_round, above=0)
        if not isinstance(self.clip, QuantileEstimation):
            check("clip, if no QuantileEstimation,", self.clip, above=0)  # the noise is in proportion to it
        check_noise_seed(type(self).__name__, self.noise_seed)

    @classmethod
    def gaussian_fixed(cls, noise_multiplier: float, clients_per_round: float, clip: float) -> Self:
        """Clip by a fixed norm (tff DifferentiallyPrivateFactory.gaussian_fixed)."""
        return cls(noise_multiplier, clients_per_round, clip)

    @classmethod
    def gaussian_adaptive(
        cls,
        noise_multiplier: float,
        clients_per_round: float,
        initial_l2_norm_clip: float = 0.1,
        target_unclipped_quantile: float = 0.5,
        learning_rate: float = 0.2,
        clipped_count_stddev: float | None = None,
    ) -> Self:
        """Clipping at a quantile that is itself estimated with noise.

        ``noise_multiplier`` covers both. See tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive and
        `adaptive_clip_noise_params`.
        """
        values, stddev = adaptive_clip_noise_params(noise_multiplier, clients_per_round, clipped_count_stddev)
        clip = QuantileEstimation(
            initial_l2_norm_clip,
            target_unclipped_quantile,
            learning_rate,
            below_estimate_stddev=stddev,
            clients_per_round=clients_per_round,
        )
        return cls(values, clients_per_round, clip)

    @classmethod
    def tree_aggregation(
        cls,
        noise_multiplier: float,
        clients_per_round: float,
        l2_norm_clip: float,
        *,
        restart_frequency: int = 1024,
        use_efficient: bool = True,
        record_aggregation_factory: Factory | None = None,
    ) -> Self:
        """Clip by a fixed norm, with noise from trees: DP-FTRL with SGD at the server.

        See tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation, whose one tree never restarts.

        Args:
          noise_multiplier: of a node.
          clients_per_round: the expected number of clients.
          l2_norm_clip: the norm.
          restart_frequency: see `TreeNoise`.
          use_efficient: see `TreeNoise`.
          record_aggregation_factory: how clipped updates are summed; `SumFactory` by default.
        """
        tree = TreeNoise(restart_frequency, restart_frequency, use_efficient)
        inner = record_aggregation_factory or SumFactory()
        return cls(noise_multiplier, clients_per_round, l2_norm_clip, inner, tree=tree)

    @classmethod
    def tree_adaptive(
        cls,
        noise_multiplier: float,
        clients_per_round: float,
        initial_l2_norm_clip: float = 0.1,
        restart_warmup: int = 128,
        restart_frequency: int = 1024,
        target_unclipped_quantile: float = 0.5,
        clip_learning_rate: float = 0.2,
        clipped_count_stddev: float | None = None,
    ) -> Self:
        """Noise from trees, and a norm that follows a quantile when a tree restarts.

        ``noise_multiplier`` covers both. See tff.aggregators.DifferentiallyPrivateFactory.tree_adaptive.
        """
        values, stddev = adaptive_clip_noise_params(noise_multiplier, clients_per_round, clipped_count_stddev)
        tree = TreeNoise(restart_warmup, restart_frequency)
        clip = TreeQuantileEstimation(
            initial_l2_norm_clip,
            target_unclipped_quantile,
            clip_learning_rate,
            below_estimate_stddev=stddev,
            clients_per_round=clients_per_round,
            tree=tree,
        )
        return cls(values, clients_per_round, clip, tree=tree)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "DifferentiallyPrivateFactory")
        inner = as_aggregator(ClippingFactory(self.clip, self.record_aggregation_factory), wide)
        tree = self.tree

        def noise_of(state: Any, stddev: Any, key: Any) -> tuple[Any, Any]:
            """Return a round's noise, and the state of its trees."""
            if tree is not None:
                return tree.next(state, stddev, key)
            leaves, form = jax.tree.flatten(wide)
            keys = jax.random.split(key, len(leaves))
            noise = [stddev * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
            return form.unflatten(noise), state

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            found = inner.report(state[0], accumulator, jax.random.fold_in(key, 1))
            stddev = self.noise_multiplier * found.measurements["clipping_norm"]
            noise, trees = noise_of(state[1], stddev, jax.random.fold_in(key, 0))
            noisy = jax.tree.map(lambda x, n: (x + n) / self.clients_per_round, found.result, noise)
            measured = {**found.measurements, "noise_stddev": stddev}
            return MeasuredProcessOutput((found.state, trees), cast_like(noisy, template), measured)

        def accumulate(state: Any, accumulator: Any, updates: Any, key: Any) -> Any:
            updates = updates._replace(update=cast_like(updates.update, wide))
            return inner.accumulate(state[0], accumulator, updates, jax.random.fold_in(key, 1))

        why = "differential privacy bounds each client's share"
        return dataclasses.replace(
            inner,
            initialize=lambda: (inner.initialize(), () if tree is None else tree.initialize(wide)),
            zero=lambda state, num_clients: inner.zero(state[0], num_clients),
            accumulate=accumulate,
            report=report,
            refuses_weights=why,
            guarantees=inner.guarantees | ({"differential privacy"} if self.noise_multiplier else set()),
            is_secret=True,
            noise_seed=self.noise_seed,
            covered=inner.covered | {"noise_stddev"},
            mechanisms=(*inner.mechanisms, Mechanism(self.noise_multiplier, None if tree is None else tree.sizes)),
        )


@dataclasses.dataclass(frozen=True)
class LocalDpFactory(Factory):
    """Updates that each client clips and adds noise to, before they leave it.

    Privacy does not rest on the server. Of one client's message, exchanged for any other, the noise is
    ``noise_multiplier / 2`` sensitivities; `gaussian_epsilon` with all clients in every round (``clients_per_round`` as
    ``num_clients``, "fixed_size") counts it without the help of sampling, which the server sees. See Flower's
    LocalDpMod.

    Attributes:
      noise_multiplier: standard deviation of a client's noise over the norm, 0 or more.
      clip: the L2 norm, above 0.
      inner_agg_factory: the aggregation of the messages; their unweighted mean by default.
      noise_seed: see `DifferentiallyPrivateFactory`.
    """

    noise_multiplier: float
    clip: float
    inner_agg_factory: Factory = dataclasses.field(default_factory=UnweightedMeanFactory)
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        check_number("LocalDpFactory", "noise_multiplier", self.noise_multiplier, least=0)
        check_number("LocalDpFactory", "clip", self.clip, above=0)
        check_noise_seed("LocalDpFactory", self.noise_seed)

    @classmethod
    def from_epsilon(cls, epsilon: float, delta: float, clip: float, rounds: int = 1) -> Self:
        """Return the factory whose clients lose at most epsilon in all their rounds.

        Args:
          epsilon: of one client's messages.
          delta: in (0, 1).
          clip: the L2 norm.
          rounds: in how many rounds a client takes part at most.
        """
        return cls(gaussian_noise_multiplier(epsilon, rounds, 1, 1, delta, "fixed_size"), clip)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "LocalDpFactory")
        stddev = self.noise_multiplier * self.clip

        def noised(update: Any, key: Any) -> Any:
            leaves, form = jax.tree.flatten(update)
            keys = jax.random.split(key, len(leaves))
            added = [x + stddev * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
            return form.unflatten(added)

        def transform(state: Any, updates: ClientUpdates, key: Any) -> tuple[ClientUpdates, Any]:
            update = cast_like(updates.update, wide)
            clipped = clip(update, row_norms(update), jnp.float32(self.clip))
            return updates._replace(update=jax.vmap(noised)(clipped, client_keys(key, updates.index))), ()

        stage = Stage(tuple, tuple, transform, lambda state, tally, key: (state, {}))
        process = before(stage, as_aggregator(self.inner_agg_factory, wide), "local_dp")

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            found = process.report(state, accumulator, key)
            return found._replace(result=cast_like(found.result, template))

        return dataclasses.replace(
            process,
            report=report,
            refuses_weights="a client's weight would leave it without noise",
            guarantees=process.guarantees | (_LOCAL if self.noise_multiplier else set()),
            bounds_updates=True,
            is_secret=True,
            noise_seed=self.noise_seed,
            mechanisms=(Mechanism(self.noise_multiplier),),
        )


@named("local_dp")
def _local(noise_multiplier: float = 1.0, clip: float = 1.0) -> Factory:
    return LocalDpFactory(noise_multiplier, clip)
