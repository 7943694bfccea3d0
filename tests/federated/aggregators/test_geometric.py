"""The geometric median against float64, with masked rows and attackers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.process import ClientUpdates

from .cohort import MASK, TEMPLATE, aggregate, flat, make, vector

MOST = float(np.finfo(np.float32).max)
PROCESS = agg.GeometricMedianFactory().create({"a": jax.ShapeDtypeStruct((3,), jnp.float32)})
NEXT = jax.jit(PROCESS.next)


def weiszfeld(x, w):
    """Return the median of rows (n, d) in float64, iterated to its fixpoint."""
    point = np.median(x, 0)
    for _ in range(5000):
        by = w / np.maximum(np.linalg.norm(x - point, axis=1), 1e-12)
        point = (x * (by / by.sum())[:, None]).sum(0)
    return point


@pytest.mark.full
@pytest.mark.parametrize("weighted", [True, False])
def test_the_geometric_median_is_the_least_sum_of_distances(weighted):
    updates = make(4)
    x, w = flat(updates), updates.weight[MASK].astype(float) if weighted else np.ones(MASK.sum())
    factory = agg.GeometricMedianFactory(tolerance=0.0, num_iterations=300, weighted=weighted)
    found = vector(aggregate(factory.create(TEMPLATE), updates).result)
    away = (found - x) / np.linalg.norm(found - x, axis=1)[:, None]
    # At the minimum of a convex function the gradient vanishes; no iteration of ours is needed to know it.
    assert np.linalg.norm((w[:, None] * away).sum(0)) / w.sum() < 1e-4


@pytest.mark.full
def test_a_geometric_median_on_a_client():
    """Where most clients agree, that point is the median; no division by 0."""
    updates = make(5)
    for leaf in updates.update.values():
        leaf[[0, 1, 3, 4, 5]] = 0.25
    found = aggregate(agg.GeometricMedianFactory(weighted=False).create(TEMPLATE), updates)
    np.testing.assert_allclose(vector(found.result), 0.25, atol=1e-4)


def of(x, w, mask):
    return NEXT((), ClientUpdates({"a": x}, w, mask, np.arange(10, dtype=np.int32)), jax.random.key(0))


@pytest.mark.default_cases("1-1000000.0")
@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e18, 1e30, 3e38, MOST])
@pytest.mark.parametrize("attackers", [1, 4])
def test_attackers_pull_with_their_share_from_however_far(far, attackers):
    """They dominate the sum of distances in float32: no rule may look at it."""
    rng = np.random.default_rng(0)
    x = (10 + rng.normal(size=(10, 3))).astype(np.float32)
    x[:attackers] = far * np.float32([1, -1, 1])
    w = rng.integers(3, 5, 10).astype(np.float32)
    found = of(x, w, np.ones(10, bool))
    np.testing.assert_allclose(found.result["a"], weiszfeld(x.astype(np.float64), w), atol=1e-3)
    assert np.isfinite(found.measurements["distance"]) and found.measurements["num_iterations"] < 100


@pytest.mark.full
def test_steps_leave_a_client_that_they_begin_at():
    """It is the mean, not the median; a division by its distance would stop."""
    x = np.zeros((10, 3), np.float32)
    x[1:7, :2] = [[1, 0], [1, 0], [-0.5, 0.1], [-0.5, -0.1], [-0.5, 0.2], [-0.5, -0.2]]
    expected = weiszfeld(x[:7].astype(np.float64), np.ones(7))
    assert expected[0] < -0.2
    found = of(x, np.ones(10, np.float32), np.arange(10) < 7)
    np.testing.assert_allclose(found.result["a"], expected, atol=1e-3)
