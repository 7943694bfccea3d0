"""Means, clipping, zeroing and screening against numpy in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.aggregators.base import row_norms
from tf2jax_lite.learning.process import ClientUpdates

from .cohort import MASK, TEMPLATE, N, aggregate, flat, make, vector

ORDERS = {1: lambda x: np.abs(x).sum(1), 2: lambda x: np.sqrt((x**2).sum(1)), math.inf: lambda x: np.abs(x).max(1)}


def mean(x, weight):
    return (x * weight[:, None]).sum(0) / weight.sum()


def weights(updates):
    return updates.weight[MASK].astype(float)


@pytest.mark.full
@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (agg.MeanFactory(), lambda x, w: mean(x, w)),
        (agg.UnweightedMeanFactory(), lambda x, w: x.mean(0)),
        (agg.SumFactory(), lambda x, w: x.sum(0)),
    ],
)
def test_means_and_sums(factory, expected):
    updates = make()
    found = aggregate(factory.create(TEMPLATE), updates, whole=True)
    np.testing.assert_allclose(vector(found.result), expected(flat(updates), weights(updates)), rtol=1e-5, atol=1e-6)
    assert found.measurements == {}


@pytest.mark.full
@pytest.mark.parametrize("factory", [agg.MeanFactory(), agg.robust_aggregator(), agg.GeometricMedianFactory()])
def test_a_round_without_clients_changes_nothing(factory):
    updates = make()._replace(mask=np.zeros(N, bool))
    process = factory.create(TEMPLATE)
    found = process.next(process.initialize(), updates, jax.random.key(0))
    np.testing.assert_array_equal(vector(found.result), 0)
    jax.tree.map(np.testing.assert_array_equal, found.state, process.initialize())


@pytest.mark.full
@pytest.mark.parametrize("order", list(ORDERS))
def test_clipping_and_zeroing(order):
    updates = make()
    x, w = flat(updates), weights(updates)
    norms = ORDERS[order](x)
    bound = float(np.sort(norms)[3]) * 1.001
    clipped = x * np.minimum(1, bound / norms)[:, None]
    found = aggregate(agg.ClippingFactory(bound, norm_order=order).create(TEMPLATE), updates)
    np.testing.assert_allclose(vector(found.result), mean(clipped, w), rtol=1e-5, atol=1e-6)
    assert int(found.measurements["clipped_count"]) == 3
    zeroed = np.where((norms <= bound)[:, None], x, 0)
    found = aggregate(agg.ZeroingFactory(bound, norm_order=order).create(TEMPLATE), updates)
    np.testing.assert_allclose(vector(found.result), mean(zeroed, w), rtol=1e-5, atol=1e-6)
    assert int(found.measurements["zeroed_count"]) == 3


@pytest.mark.full
def test_norms_neither_overflow_nor_vanish():
    for scale in (1e-30, 1e30):
        updates = make(scale=scale)
        x = flat(updates)
        expected = mean(x / np.sqrt((x**2).sum(1))[:, None], weights(updates)) * min(1, scale)
        bound = min(1.0, scale)
        found = aggregate(agg.ClippingFactory(bound).create(TEMPLATE), updates)
        np.testing.assert_allclose(vector(found.result) / min(1, scale), expected / min(1, scale), rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_the_largest_numbers_are_clipped():
    """A quotient by 3e38 was a product with 0: the norm was 0.

    An attacker passed unclipped.
    """
    updates = {"a": np.float32([[3e38, 0, 0], [0, -1e38, 0], [3, 0, 4]]), "b": np.float32([[0], [2], [0]])}
    norms = jax.jit(row_norms)(updates)
    np.testing.assert_allclose(norms, [3e38, 1e38, 5], rtol=1e-6)
    form = {"a": jax.ShapeDtypeStruct((3,), np.float32), "b": jax.ShapeDtypeStruct((1,), np.float32)}
    process = agg.ClippingFactory(1.0, agg.SumFactory()).create(form)
    given = ClientUpdates(updates, np.ones(3, np.float32), np.ones(3, bool), np.arange(3, dtype=np.int32))
    found = jax.jit(process.next)(process.initialize(), given, jax.random.key(0))
    assert int(found.measurements["clipped_count"]) == 3
    assert np.linalg.norm(np.concatenate(list(found.result.values()))) <= 3


@pytest.mark.full
def test_an_adaptive_norm_follows_its_quantile():
    """Five rounds against the formula; then until the requested quantile."""
    norm = agg.QuantileEstimation(10.0, target_quantile=0.6, learning_rate=0.5, multiplier=2.0, increment=0.25)
    process = agg.ClippingFactory(norm, agg.UnweightedMeanFactory()).create(TEMPLATE)
    state, estimate, step = process.initialize(), 10.0, jax.jit(process.next)
    for i in range(5):
        updates = make(i)
        x = flat(updates)
        norms, bound = ORDERS[2](x), 2 * estimate + 0.25
        found = step(state, updates, jax.random.key(i))
        expected = (x * np.minimum(1, bound / norms)[:, None]).mean(0)
        np.testing.assert_allclose(vector(found.result), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.measurements["clipping_norm"], bound, rtol=1e-5)
        estimate *= math.exp(-0.5 * (np.mean(norms <= estimate) - 0.6))
        state = found.state
    for i in range(60):
        state = step(state, updates, jax.random.key(i)).state
    settled = float(state[0])
    assert np.mean(norms <= settled * 1.2) >= 0.6 - 1 / 7 and np.mean(norms <= settled / 1.2) <= 0.6 + 1 / 7


@pytest.mark.full
def test_zeroing_removes_outliers():
    """Default zeroing lets ordinary updates pass, not a million times larger."""
    updates = make()
    updates.update["w"][1] *= 1e6
    updates.update["w"][3, 0, 0] = np.nan
    process = agg.robust_aggregator(clipping=False, weighted=False).create(TEMPLATE)
    found = aggregate(process, updates)
    x = flat(make())
    x[[1, 2]] = 0  # clients 1 and 3 of nine are the second and third of those that count
    np.testing.assert_allclose(vector(found.result), x.mean(0), rtol=1e-5, atol=1e-6)
    assert int(found.measurements["zeroed_count"]) == 2


@pytest.mark.full
def test_screening_counts_each_kind():
    updates = make()
    updates.update["b"][0, 1] = np.nan
    updates.weight[1] = 0
    updates.weight[3] = -1
    x = np.concatenate([updates.update[k].reshape(N, -1) for k in ("b", "w")], 1).astype(float)
    found = aggregate(agg.ScreeningFactory().create(TEMPLATE), updates)
    kept = [4, 5, 7, 8]
    np.testing.assert_allclose(vector(found.result), mean(x[kept], updates.weight[kept].astype(float)), rtol=1e-5)
    counts = {name: int(count) for name, count in found.measurements.items()}
    assert counts == {
        "num_clients": 9,
        "num_dropped": 2,
        "num_empty": 1,
        "num_non_finite": 2,
        "num_aggregated": 4,
    }
    present = np.arange(N) != 2
    screened, counts = agg.screen_updates(updates, num_examples=np.arange(N), present=present)
    assert {k: int(v) for k, v in counts.items()} == {
        "num_clients": 8,
        "num_dropped": 1,
        "num_empty": 1,
        "num_non_finite": 1,
        "num_aggregated": 5,
    }
    # Masked rows are zero, so that no gradient or product downstream becomes NaN.
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((screened.update, screened.weight)))


@pytest.mark.full
def test_dtypes():
    """Sums are float32, results have the update's dtype; integers are exact."""
    template = {"h": jax.ShapeDtypeStruct((4,), jnp.bfloat16)}
    ones = {"h": jnp.ones((1000, 4), jnp.bfloat16) * 0.01}
    updates = ClientUpdates(ones, np.ones(1000, np.float32), np.ones(1000, bool), np.arange(1000, dtype=np.int32))
    for factory in (agg.MeanFactory(), agg.ClippingFactory(100.0), agg.CompressionFactory(agg.TopK(1.0))):
        found = factory.create(template).next(factory.create(template).initialize(), updates, jax.random.key(0)).result
        assert found["h"].dtype == jnp.bfloat16
        np.testing.assert_array_equal(found["h"], ones["h"][0])
    whole = {"n": jax.ShapeDtypeStruct((), jnp.int32)}
    counts = updates._replace(update={"n": np.full(1000, 2**20 + 1, np.int32)})
    assert int(agg.SumFactory().create(whole).next((), counts, None).result["n"]) == 1000 * (2**20 + 1)
    for factory in (agg.MeanFactory(), agg.ClippingFactory(1.0), agg.KrumFactory(), agg.SecureSumFactory(1.0)):
        with pytest.raises(InputError, match=r"update\['n'\] is int32"):
            factory.create(whole)


@pytest.mark.full_cases("<lambda>-delta")
@pytest.mark.parametrize(
    ("make_factory", "says"),
    [
        (lambda: agg.ClippingFactory(0.0), "above 0"),
        (lambda: agg.ZeroingFactory(1.0, norm_order=3), "norm_order"),
        (lambda: agg.QuantileEstimation(-1.0), "initial_estimate"),
        (lambda: agg.QuantileEstimation(1.0, 1.5), "target_quantile"),
        (lambda: agg.QuantileEstimation(1.0, below_estimate_stddev=1.0), "clients_per_round"),
        (lambda: agg.MeanFactory().create({}), "no arrays"),
        (lambda: agg.MeanFactory().create({"a": 1.0}), "is a float, not an array"),
        (lambda: agg.TrimmedMeanFactory(0.5), "trim_fraction"),
        (lambda: agg.KrumFactory(3).create(TEMPLATE).zero((), 8), "at least 9"),
        (lambda: agg.GeometricMedianFactory(smoothing=0.0), "smoothing"),
        (lambda: agg.UniformQuantizer(1), "num_levels"),
        (lambda: agg.UniformQuantizer(4, "zip"), "coding"),
        (lambda: agg.TopK(0.0), "fraction"),
        (lambda: agg.SecureSumFactory(0.0), "bound"),
        (lambda: agg.SecureSumFactory(1.0, 64), "modulus_bits"),
        (lambda: agg.SecureSumFactory(1.0, num_neighbors=3), "even"),
        (lambda: agg.SecureSumFactory(1.0, 8).create(TEMPLATE).zero((), 200), "too small"),
        (lambda: agg.DifferentiallyPrivateFactory(-1.0, 10, 1.0), "noise_multiplier"),
        (lambda: agg.dp_aggregator(10.0, 10), "clipped_count_stddev must exceed"),
        (lambda: agg.gaussian_epsilon(1.0, 1, 20, 10, 1e-5), "20 clients a round of 10"),
        (lambda: agg.gaussian_epsilon(1.0, 1, 1, 10, 1e-5, "all"), "sampling"),
        (lambda: agg.gaussian_epsilon(1.0, 1, 1, 10, 1.0), "delta"),
    ],
)
def test_errors_say_what_is_wrong(make_factory, says):
    with pytest.raises(InputError, match=says):
        make_factory()
