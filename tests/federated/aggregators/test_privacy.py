"""Differential privacy: numpy's mechanism, noise, and closed-form costs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg

from .cohort import TEMPLATE, aggregate, flat, make, vector


@pytest.mark.full
def test_without_noise_it_is_the_clipped_mean_over_a_fixed_number():
    updates = make()
    x = flat(updates)
    bound = 3.0
    expected = (x * np.minimum(1, bound / np.linalg.norm(x, axis=1))[:, None]).sum(0) / 20
    factory = agg.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 20, bound)
    found = aggregate(factory.create(TEMPLATE), updates)
    np.testing.assert_allclose(vector(found.result), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.full
def test_noise_has_the_standard_deviation_of_the_mechanism():
    template = {"a": jax.ShapeDtypeStruct((40_000,), jnp.float32), "b": jax.ShapeDtypeStruct((40_000,), jnp.float32)}
    process = agg.DifferentiallyPrivateFactory.gaussian_fixed(1.5, 10, 2.0).create(template)
    updates = make()._replace(update={k: np.zeros((9, 40_000), np.float32) for k in template})
    draws = [process.next(process.initialize(), updates, jax.random.key(k)).result for k in (0, 1)]
    noise = [np.asarray(d[k]) for d in draws for k in sorted(d)]
    stddev = 1.5 * 2.0 / 10
    for i, a in enumerate(noise):
        assert abs(a.std() / stddev - 1) < 5 / math.sqrt(2 * a.size)
        assert abs(a.mean()) < 5 * stddev / math.sqrt(a.size)
        for b in noise[:i]:  # leaves and rounds are independent
            assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(a.size)


@pytest.mark.full
def test_adaptive_clipping_spends_the_budget_as_the_paper_says():
    values, stddev = agg.adaptive_clip_noise_params(0.8, 100)
    assert stddev == 5.0
    # Theorem 1: the two mechanisms together are one with the multiplier asked for. The count's sensitivity is one half.
    np.testing.assert_allclose((values**-2 + (2 * stddev) ** -2) ** -0.5, 0.8, rtol=1e-12)
    process = agg.dp_aggregator(0.8, 100, zeroing=False).create(TEMPLATE)
    estimates = jax.vmap(lambda k: process.next(process.initialize(), make(), k).state[0][0])(
        jax.random.split(jax.random.key(0), 4000)
    )
    below = np.sum(np.linalg.norm(flat(make()), axis=1) <= 0.1)
    count = (-np.log(np.asarray(estimates, np.float64) / 0.1) / 0.2 + 0.5 - 0.5) * 100 + 0.5 * 7
    assert below == 0 and abs(count.mean() - below) < 5 * stddev / math.sqrt(4000)
    assert abs(count.std() / stddev - 1) < 5 / math.sqrt(2 * 4000)


def exact_epsilon(noise, delta):
    """Return the least epsilon of a Gaussian mechanism of sensitivity 1.

    Source: Balle and Wang, 2018, theorem 8.
    """
    from scipy import optimize, stats

    def excess(epsilon):
        a, b = 1 / (2 * noise) - epsilon * noise, -1 / (2 * noise) - epsilon * noise
        return stats.norm.cdf(a) - math.exp(epsilon) * stats.norm.cdf(b) - delta

    return optimize.brentq(excess, 0, 100)


@pytest.mark.full
@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (4.0, 1), (4.0, 10)])
def test_epsilon_lies_between_the_exact_value_and_the_textbook_bound(noise, rounds):
    pytest.importorskip("dp_accounting")
    delta, effective = 1e-5, noise / math.sqrt(rounds)
    found = agg.gaussian_epsilon(noise, rounds, 50, 50, delta)
    orders = np.linspace(1.01, 200, 20_000)
    textbook = np.min(orders / (2 * effective**2) + math.log(1 / delta) / (orders - 1))
    assert exact_epsilon(effective, delta) <= found <= textbook


def test_sampling_amplifies_and_calibration_inverts():
    pytest.importorskip("dp_accounting")
    full = agg.gaussian_epsilon(1.0, 100, 1000, 1000, 1e-5)
    poisson = agg.gaussian_epsilon(1.0, 100, 10, 1000, 1e-5)
    fixed = agg.gaussian_epsilon(1.0, 100, 10, 1000, 1e-5, "fixed_size")
    assert poisson < fixed < full
    assert agg.gaussian_epsilon(0.0, 1, 1, 10, 1e-5) == math.inf
    noise = agg.gaussian_noise_multiplier(2.0, 100, 10, 1000, 1e-5)
    assert agg.gaussian_epsilon(noise, 100, 10, 1000, 1e-5) <= 2.0
    assert agg.gaussian_epsilon(noise - 2e-3, 100, 10, 1000, 1e-5) > 2.0


@pytest.mark.full
@pytest.mark.parametrize(
    ("epsilon", "sampling"),
    [(1e6, "poisson"), (2.0, "fixed_size"), pytest.param(1e6, "fixed_size", marks=pytest.mark.full)],
)
def test_calibration_starts_at_no_noise(epsilon, sampling):
    """dp-accounting would divide by 0 there."""
    pytest.importorskip("dp_accounting")
    noise = agg.gaussian_noise_multiplier(epsilon, 10, 10, 100, 1e-5, sampling)
    assert 0 < noise < 10
    assert agg.gaussian_epsilon(noise, 10, 10, 100, 1e-5, sampling) <= epsilon


@pytest.mark.default_cases("poisson")
@pytest.mark.parametrize("sampling", ["poisson", "fixed_size"])
def test_noise_whose_square_overflows(sampling):
    """Or is lost beside 1."""
    pytest.importorskip("dp_accounting")
    found = [agg.gaussian_epsilon(noise, 10, 10, 100, 1e-5, sampling) for noise in (5e-324, 1e-200, 1e9, 1e200)]
    assert found[:2] == [math.inf, math.inf] and 0 <= found[2] == found[3] < 0.1


@pytest.mark.parametrize("build", [fed.build_weighted_fed_avg, fed.build_mime])
@pytest.mark.parametrize("around", [lambda inner: inner, lambda inner: agg.ClippingFactory(1.0, inner)])
def test_weighted_algorithm_under_privacy_raises(build, around):
    model = fed.create_model_from_fn({"w": np.zeros(2, np.float32)}, lambda p, b: b["x"] * p["w"], "mse")
    private = around(agg.DifferentiallyPrivateFactory.gaussian_fixed(0.1, 2, 1.0))
    args = (model, optax.sgd(0.1))
    with pytest.raises(InputError, match=r"takes no weights .*Use build_unweighted_fed_avg"):
        build(*args, aggregator=private)
    more = {"full_gradient_aggregator": private} if build is fed.build_mime else {}
    if build is fed.build_hyp_cluster:
        with pytest.raises(InputError, match="which cluster a client chooses"):
            build(*args, aggregator=private, client_weighting="uniform")
        return
    build(*args, aggregator=private, client_weighting="uniform", **more)
