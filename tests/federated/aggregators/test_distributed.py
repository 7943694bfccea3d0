"""Distributed differential privacy against numpy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.aggregators import secure as distributed
from tf2jax_lite.learning.process import ClientUpdates

TEMPLATE = {"a": jax.ShapeDtypeStruct((3, 5), jnp.float32), "b": jax.ShapeDtypeStruct((4,), jnp.float32)}
N = 6
MASK = np.array([True, True, False, True, True, True])


def given(scale=1.0):
    rng = np.random.default_rng(0)
    update = {name: scale * rng.normal(size=(N, *t.shape)).astype(np.float32) for name, t in TEMPLATE.items()}
    update["a"][2] = np.nan
    return ClientUpdates(update, np.ones(N, np.float32), MASK, np.arange(N, dtype=np.int32))


def vectors(updates):
    return np.concatenate([updates.update[name].reshape(N, -1) for name in ("a", "b")], axis=1)[MASK]


def clipped_sum(updates, norm):
    x = vectors(updates)
    return (x * np.minimum(1, norm / np.linalg.norm(x, axis=1))[:, None]).sum(0)


def flat(result):
    return np.concatenate([np.asarray(result[name]).reshape(-1) for name in ("a", "b")])


@pytest.mark.full
def test_without_noise_it_is_the_clipped_sum():
    """Up to the rounding to integers, which is unbiased and of less than a step."""
    process = agg.DistributedDpSumFactory(0.0, N, bits=20, l2_clip=3.0).create(TEMPLATE)
    updates = given()
    found = process.next(process.initialize(), updates, jax.random.key(0))
    step = 1 / float(found.measurements["scale_factor"])
    assert np.abs(flat(found.result) - clipped_sum(updates, 3.0)).max() < step * np.sqrt(32) * 2
    assert step < 1e-4 and int(found.measurements["padded_dim"]) == 32
    assert int(found.measurements["actual_num_clients"]) == MASK.sum()


@pytest.mark.full
def test_scale_leaves_room_for_the_sum():
    """The equation of the scale, solved by numpy."""
    factory = agg.DistributedDpSumFactory(1.0, 100, bits=16, l2_clip=0.5)
    template = {"x": jax.ShapeDtypeStruct((64,), jnp.float32)}
    none = ClientUpdates({"x": np.zeros((1, 64), np.float32)}, np.ones(1), np.zeros(1, bool), np.arange(1))
    found = factory.create(template).next((), none, jax.random.key(0)).measurements
    gamma, k, sigma = 1 / float(found["scale_factor"]), 3.890592, 0.05
    spread = (0.5 * 100) ** 2 / 64 + (gamma**2 / 4 + sigma**2) * 100
    np.testing.assert_allclose(2 * k * np.sqrt(spread) / gamma, 2**16, rtol=1e-4)
    np.testing.assert_allclose(found["scaled_local_stddev"], sigma / gamma, rtol=1e-5)
    np.testing.assert_allclose(found["scaled_inflated_l2"], (0.5 + 1e-5) / gamma + 8, rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("bits", [10, 18, 22])
def test_noise_of_all_clients_has_the_asked_deviation(bits):
    """10 bits draw Poisson numbers; with 22, float32 does not hold the rate."""
    template = {"x": jax.ShapeDtypeStruct((4096,), jnp.float32)}
    process = agg.DistributedDpSumFactory(2.0, 8, bits=bits, l2_clip=0.5).create(template)
    none = ClientUpdates({"x": np.zeros((8, 4096), np.float32)}, np.ones(8), np.ones(8, bool), np.arange(8))
    found = np.asarray(jax.jit(process.next)((), none, jax.random.key(1)).result["x"])
    np.testing.assert_allclose(found.std(), 2.0 * 0.5, rtol=0.05)
    assert abs(found.mean()) < 4 * found.std() / 64
    assert abs(np.mean(found**4) / found.var() ** 2 - 3) < 0.4


def test_clipping_follows_the_median_norm():
    process = agg.DistributedDpSumFactory(0.0, N, 20, 0.1, auto_l2_clip=True).create(TEMPLATE)
    state = process.initialize()
    step = jax.jit(process.next)
    for number in range(60):
        state = step(state, given(), jax.random.key(number)).state
    norms = np.sort(np.linalg.norm(vectors(given()), axis=1))
    assert norms[0] < float(state) < norms[-1]


@pytest.mark.full
def test_recommended_combination_trains():
    process = agg.ddp_secure_aggregator(0.1, N).create(TEMPLATE)
    found = jax.jit(process.next)(process.initialize(), given(0.01), jax.random.key(0))
    mean = vectors(given(0.01)).mean(0)
    assert np.abs(flat(found.result) - mean).max() < 6 * 0.1 * 0.1 / 5 + 0.01
    assert float(found.measurements["zeroing_norm"]) == 21


def test_too_few_bits_raise():
    with pytest.raises(InputError, match="4 bits are too few for 100 clients"):
        agg.DistributedDpSumFactory(1.0, 100, bits=4, l2_clip=1.0)
    with pytest.raises(InputError, match="bits is"):
        agg.DistributedDpSumFactory(1.0, 100, bits=23, l2_clip=1.0)


def skellam_draws(stddev, count=2**21):
    draw = jax.jit(distributed._skellam, static_argnums=2)
    return np.asarray(draw(jax.random.key(int(stddev * 8)), jnp.float32(stddev), (count,)), np.int64)


# Poisson variables of rate stddev**2 / 2 change their algorithm at a rate of 10, and become normal ones above 2048.
@pytest.mark.default_cases("4.5", "64.5")
@pytest.mark.parametrize("stddev", [0.5, 4.45, 4.5, 30.0, 63.5, 64.0, 64.5, 361.0, 363.0, 5000.0], ids=str)
def test_noise_is_skellams_around_each_change_of_algorithm(stddev):
    """Mean, variance, and chi-square by the exact probabilities."""
    found = skellam_draws(stddev)
    n, rate = len(found), stddev**2 / 2
    assert abs(found.mean()) < 5 * stddev / math.sqrt(n)
    assert abs(found.var() / stddev**2 - 1) < 5 * math.sqrt((2 + 1 / stddev**2) / n)
    far = int(4 * stddev) + 1
    values = np.arange(-far, far + 1)
    # scipy's sums lose digits of wide distributions; the saddle point's error is of order 1 / stddev**4 there.
    exact = stats.skellam.pmf(values, rate, rate) if stddev < 30 else saddle_point(values, rate)
    width = max(1, len(values) // 200)
    kept = len(values) // width * width
    counted = np.bincount(found[np.abs(found) <= far] + far, minlength=len(values))
    counted, expected = (x[:kept].reshape(-1, width).sum(1) for x in (counted, n * exact))
    likely = expected > 10
    statistic = np.sum((counted - expected)[likely] ** 2 / expected[likely])
    assert statistic < likely.sum() + 5 * math.sqrt(2 * likely.sum())


def saddle_point(x, rate):
    """Return Skellam probabilities by the saddle point with its second-order term."""
    t = np.arcsinh(x / (2 * rate))
    variance = 2 * rate * np.cosh(t)
    skew, kurtosis = 2 * rate * np.sinh(t) / variance**1.5, 1 / variance
    log = 2 * rate * (np.cosh(t) - 1) - t * x
    return np.exp(log) / np.sqrt(2 * np.pi * variance) * (1 + kurtosis / 8 - 5 * skew**2 / 24)
