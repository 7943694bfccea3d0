"""Simulated secure aggregation: exact integer sums; updates look random."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.process import ClientUpdates

from .cohort import MASK, TEMPLATE, N, aggregate, flat, make, vector


def integer_sum(x, bound, levels):
    """In Python's integers, from float32 arithmetic as each client does it."""
    scaled = np.rint(np.clip(x.astype(np.float32) / np.float32(bound), -1, 1) * np.float32(levels))
    return scaled.astype(int).sum(0)


@pytest.mark.full
@pytest.mark.parametrize(("bits", "neighbors"), [(32, 2), pytest.param(12, None, marks=pytest.mark.full)])
def test_the_sum_is_exact_with_dropped_clients(bits, neighbors):
    updates = make()
    x = flat(updates)
    factory = agg.SecureSumFactory(2.0, bits, neighbors)
    found = aggregate(factory.create(TEMPLATE), updates, exact=True, whole=neighbors is None)
    levels = factory.levels(N)
    assert levels * N < 2 ** (bits - 1)
    integers = np.rint(vector(found.result) / (2.0 / levels))
    # The result is a float32 again: of integers beyond 24 bits it shows the leading ones.
    np.testing.assert_allclose(integers, integer_sum(x, 2.0, levels), rtol=1.2e-7 if bits == 32 else 0)
    assert int(found.measurements["secure_sum_survivors"]) == MASK.sum()
    assert int(found.measurements["secure_sum_clipped"]) == (np.abs(x) > 2.0).sum()


@pytest.mark.full
def test_within_the_bound_it_is_the_mean():
    updates = make()
    plain = aggregate(agg.MeanFactory().create(TEMPLATE), updates).result
    factory = agg.secure_aggregator(100.0, zeroing=False, clipping=False)
    found = aggregate(factory.create(TEMPLATE), updates)
    np.testing.assert_allclose(vector(found.result), vector(plain), atol=1e-6)
    assert int(found.measurements["mean_value"]["secure_sum_clipped"]) == 0


@pytest.mark.full
def test_one_update_looks_like_noise_and_the_sum_does_not():
    template = {"x": jax.ShapeDtypeStruct((60_000,), jnp.float32)}
    factory = agg.SecureSumFactory(1.0, num_neighbors=2)
    value = np.linspace(-1, 1, 60_000, dtype=np.float32)
    clear = np.asarray(factory.quantize({"x": value}, 4)["x"])
    key = jax.random.key(0)
    sent = [np.asarray(factory.client_mask(template, key, i, 4)["x"]) + clear for i in range(4)]
    top = [s >> 24 for s in sent]
    for i, a in enumerate(top):
        counts = np.bincount(a, minlength=256)
        chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255)
        assert abs(np.corrcoef(a, value)[0, 1]) < 5 / np.sqrt(a.size)
        for b in top[:i]:
            assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(a.size)
    # The pairwise masks cancel: the sum of the masks is that of the own ones.
    own = sum(np.asarray(factory.client_mask(template, key, i, 1)["x"]) for i in range(4))
    np.testing.assert_array_equal(sum(sent) - own, 4 * clear)


def test_too_few_survivors_fail_the_round():
    process = agg.SecureSumFactory(10.0, min_clients=8).create(TEMPLATE)
    found = jax.jit(process.next)((), make(), jax.random.key(0))
    assert bool(found.measurements["secure_sum_failed"])
    np.testing.assert_array_equal(vector(found.result), 0)


@pytest.mark.full
def test_a_cohort_of_one():
    updates = jax.tree.map(lambda x: x[:1], make())
    found = agg.SecureSumFactory(8.0).create(TEMPLATE).next((), updates, jax.random.key(0)).result
    np.testing.assert_allclose(vector(found), vector(jax.tree.map(lambda x: x[0], updates.update)), atol=1e-6)


@pytest.mark.full
def test_the_bound_follows_the_clients_largest_magnitudes():
    """The estimate moves by the share of clients within it, as in TFF."""
    estimation = agg.QuantileEstimation.no_noise(1.0, 0.5, 1.0, multiplier=2.0)
    process = agg.SecureSumFactory(estimation).create({"x": jax.ShapeDtypeStruct((2,), jnp.float32)})
    update = {"x": np.float32([[0.5, -3.0], [2.5, 0.0], [0.1, 0.2]])}
    given = ClientUpdates(update, np.ones(3, np.float32), np.ones(3, bool), np.arange(3, dtype=np.int32))
    found = process.next(process.initialize(), given, jax.random.key(0))
    np.testing.assert_allclose(found.result["x"], np.clip(update["x"], -2, 2).sum(0), atol=1e-6)
    counts = {
        name: float(found.measurements[f"secure_{name}"]) for name in ("upper_clipped_count", "lower_clipped_count")
    }
    assert counts == {"upper_clipped_count": 1, "lower_clipped_count": 1}
    assert float(found.measurements["secure_upper_threshold"]) == 2
    np.testing.assert_allclose(found.state, np.exp(-(1 / 3 - 0.5)), rtol=1e-6)
