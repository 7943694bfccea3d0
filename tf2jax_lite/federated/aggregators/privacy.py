"""Differential privacy: accounting, noise from the system's entropy, aggregators.

Clip each update, add them, add Gaussian noise, divide by the expected number of clients. Processes draw the noise with
a secret key in floating point: a deployment that has to resist attacks on floating-point noise (Mironov, 2012) needs a
discrete mechanism. Accounting needs dp-accounting (extra: dp).

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

from tf2jax_lite.federated.aggregators.base import Factory, SumFactory, as_aggregator, cast_like, float_template
from tf2jax_lite.federated.aggregators.clipping import ClippingFactory, QuantileEstimation
from tf2jax_lite.jaxprs.compat import define_prng_impl
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import AggregationProcess, MeasuredProcessOutput
from tf2jax_lite.support.errors import InputError, MissingLibraryError

__all__ = [
    "DifferentiallyPrivateFactory",
    "adaptive_clip_noise_params",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
]


def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError as error:
        raise MissingLibraryError("privacy accounting needs dp-accounting: pip install 'tf2jax-lite[dp]'.") from error
    return dp_accounting


# With squares of noise beyond these dp-accounting divides by 0, or takes the logarithm of 0. Less than the least hides
# nothing; of more than the most, that much counts.
_LEAST, _MOST = 1e-100, 1e7

_check = functools.partial(check_number, "privacy accounting")


def _check_rounds(rounds: int, delta: float) -> None:
    _check("rounds", rounds, least=1, whole=True)
    _check("delta", delta, above=0, below=1)


def _mechanism(dp: Any, clients_per_round: int, num_clients: int, sampling: str) -> tuple[Any, Any]:
    """Return the accountant's factory, and a function from noise to an event."""
    _check("clients_per_round", clients_per_round, above=0)
    _check("num_clients", num_clients, least=1, whole=True)
    if clients_per_round > num_clients:
        raise InputError(f"privacy accounting: {clients_per_round} clients a round of {num_clients}.")
    everyone = clients_per_round == num_clients
    if sampling == "poisson":
        relation, sensitivity = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 1

        def sampled(gaussian: Any) -> Any:
            return dp.PoissonSampledDpEvent(clients_per_round / num_clients, gaussian)
    elif sampling == "fixed_size":
        _check("clients_per_round", clients_per_round, least=1, whole=True)
        # One client's update leaves the sum and another's enters it: the sum moves by up to twice the clipping norm.
        relation, sensitivity = dp.NeighboringRelation.REPLACE_ONE, 2

        def sampled(gaussian: Any) -> Any:
            return (
                gaussian if everyone else dp.SampledWithoutReplacementDpEvent(num_clients, clients_per_round, gaussian)
            )
    else:
        raise InputError(f'privacy accounting: sampling is "poisson" or "fixed_size", not {sampling!r}.')

    def event(noise: float) -> Any:
        if noise < _LEAST:
            return dp.NonPrivateDpEvent()
        return sampled(dp.GaussianDpEvent(min(noise, _MOST) / sensitivity))

    return (lambda: dp.rdp.RdpAccountant(neighboring_relation=relation)), event


def gaussian_epsilon(
    noise_multiplier: float,
    rounds: int,
    clients_per_round: int,
    num_clients: int,
    delta: float,
    sampling: str = "poisson",
) -> float:
    """Return epsilon of a training's (epsilon, delta) client-level privacy.

    Computed by Renyi accounting.

    Args:
      noise_multiplier: as `DifferentiallyPrivateFactory` was given it (with adaptive clipping, of both parts together).
      rounds: how many rounds.
      clients_per_round: expected number of clients a round (poisson), or the number (fixed_size).
      num_clients: how many clients there are.
      delta: in (0, 1); well below one over num_clients.
      sampling: "poisson": each client takes part with the same probability, and neighbors differ by one client more,
        which moves the sum of updates by up to the clipping norm. "fixed_size": that many are drawn without
        replacement, and neighbors differ by one client exchanged, which moves the sum by up to twice that norm. Both
        hold if the cohort is secret.

    Returns:
      Epsilon; infinity without noise.

    Raises:
      InputError: an argument is out of range.
      MissingLibraryError: dp-accounting is not installed.
    """
    dp = _library()
    _check("noise_multiplier", noise_multiplier, least=0)
    _check_rounds(rounds, delta)
    accountant, event = _mechanism(dp, clients_per_round, num_clients, sampling)
    return float(accountant().compose(event(noise_multiplier), rounds).get_epsilon(delta))


def gaussian_noise_multiplier(
    epsilon: float,
    rounds: int,
    clients_per_round: int,
    num_clients: int,
    delta: float,
    sampling: str = "poisson",
) -> float:
    """Return the smallest noise multiplier with at most this epsilon (to 1e-4).

    Args:
      epsilon: at most this.
      rounds: number of rounds.
      clients_per_round: size of a cohort.
      num_clients: number of all clients.
      delta: probability of a larger loss of privacy.
      sampling: "poisson" or "fixed_size", see `gaussian_epsilon`.

    Raises:
      InputError: an argument is out of range, or no noise is enough.
      MissingLibraryError: dp-accounting is not installed.
    """
    dp = _library()
    _check("epsilon", epsilon, above=0)
    _check_rounds(rounds, delta)
    accountant, event = _mechanism(dp, clients_per_round, num_clients, sampling)
    try:
        found = dp.calibrate_dp_mechanism(
            accountant,
            lambda noise: dp.SelfComposedDpEvent(event(noise), rounds),
            epsilon,
            delta,
            dp.LowerEndpointAndGuess(0.0, 1.0),
            tol=1e-4,
        )
    except dp.NoBracketIntervalFoundError as error:
        raise InputError(
            f"privacy accounting: no noise is enough for epsilon {epsilon:g} and delta {delta:g}."
        ) from error
    return float(found)


_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")
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
    """

    noise_multiplier: float
    clients_per_round: float
    clip: float | QuantileEstimation
    record_aggregation_factory: Factory = dataclasses.field(default_factory=SumFactory)
    noise_seed: int | None = None

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

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "DifferentiallyPrivateFactory")
        inner = as_aggregator(ClippingFactory(self.clip, self.record_aggregation_factory), wide)

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            found = inner.report(state, accumulator, jax.random.fold_in(key, 1))
            stddev = self.noise_multiplier * found.measurements["clipping_norm"]
            leaves, form = jax.tree.flatten(found.result)
            keys = jax.random.split(jax.random.fold_in(key, 0), len(leaves))
            noisy = [
                (x + stddev * jax.random.normal(k, x.shape, x.dtype)) / self.clients_per_round
                for x, k in zip(leaves, keys, strict=True)
            ]
            result = cast_like(jax.tree.unflatten(form, noisy), template)
            return MeasuredProcessOutput(found.state, result, {**found.measurements, "noise_stddev": stddev})

        def accumulate(state: Any, accumulator: Any, updates: Any, key: Any) -> Any:
            updates = updates._replace(update=cast_like(updates.update, wide))
            return inner.accumulate(state, accumulator, updates, jax.random.fold_in(key, 1))

        why = "differential privacy bounds each client's share"
        return dataclasses.replace(
            inner,
            accumulate=accumulate,
            report=report,
            refuses_weights=why,
            guarantees=inner.guarantees | ({"differential privacy"} if self.noise_multiplier else set()),
            is_secret=True,
            noise_seed=self.noise_seed,
            covered=inner.covered | {"noise_stddev"},
        )
