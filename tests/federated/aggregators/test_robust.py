"""Robust rules against numpy, on cohorts with masked rows and with attackers."""

import jax
import numpy as np
import pytest

from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.process import ClientUpdates

from .cohort import MASK, TEMPLATE, aggregate, flat, make, vector


def trimmed(x, fraction):
    cut = int(fraction * len(x) + 1e-9)
    return np.sort(x, 0)[cut : len(x) - cut].mean(0)


def krum(x, byzantine, selected):
    scores = []
    for i in range(len(x)):
        others = sorted(((x[i] - x[j]) ** 2).sum() for j in range(len(x)) if j != i)
        scores.append(sum(others[: len(x) - byzantine - 2]))
    return x[np.argsort(scores)[:selected]].mean(0)


@pytest.mark.default_cases("False-factory6-<lambda>")
@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (agg.CoordinateMedianFactory(), lambda x: np.median(x, 0)),
        (agg.TrimmedMeanFactory(0.2), lambda x: trimmed(x, 0.2)),
        (agg.TrimmedMeanFactory(0.3), lambda x: trimmed(x, 0.3)),
        (agg.TrimmedMeanFactory(0.0), lambda x: x.mean(0)),
        (agg.KrumFactory(2), lambda x: krum(x, 2, 1)),
        (agg.KrumFactory(1, num_selected=3), lambda x: krum(x, 1, 3)),
        (agg.KrumFactory(0, num_selected=100), lambda x: x.mean(0)),
    ],
)
@pytest.mark.parametrize("even", [False, True])
def test_rules_are_those_of_numpy(factory, expected, even):
    updates = make(3)
    x = flat(updates)
    if even:  # of seven clients, six
        mask = MASK.copy()
        mask[4] = False
        updates, x = updates._replace(mask=mask), np.delete(x, 3, 0)
    found = aggregate(factory.create(TEMPLATE), updates, exact=not even, whole=even)
    np.testing.assert_allclose(vector(found.result), expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(("fraction", "size", "number"), [(0.1, 30, 3), (0.29, 100, 29), (1 / 3, 30, 10), (0.1, 29, 2)])
def test_trimming_counts_as_was_meant(fraction, size, number):
    """Where products with the fraction are just below an integer in floating point."""
    index = np.arange(size, dtype=np.int32)
    updates = ClientUpdates({"a": index.astype(np.float32)}, np.ones(size), np.ones(size, bool), index)
    process = agg.TrimmedMeanFactory(fraction).create({"a": jax.ShapeDtypeStruct((), np.float32)})
    assert int(process.next((), updates, None).measurements["num_trimmed"]) == number


@pytest.mark.default_cases("factory0", "factory1")
@pytest.mark.parametrize(
    "factory",
    [
        agg.CoordinateMedianFactory(),
        agg.TrimmedMeanFactory(0.3),
        agg.KrumFactory(2, num_selected=3),
        agg.GeometricMedianFactory(weighted=False),
    ],
)
def test_two_attackers_of_seven_do_not_move_the_result_far(factory):
    updates = make(6)
    honest = flat(updates)[2:]
    for leaf in updates.update.values():
        leaf[[0, 1]] = 1e6
    process = factory.create(TEMPLATE)
    found = vector(process.next((), updates, None).result)
    farthest = np.linalg.norm(honest - honest.mean(0), axis=1).max()
    assert np.linalg.norm(found - honest.mean(0)) < 1.5 * farthest


@pytest.mark.full
def test_krum_takes_what_overflows_for_far_away():
    updates = make(8)
    updates.update["w"][0] = 1e30
    found = agg.KrumFactory(1).create(TEMPLATE).next((), updates, None)
    np.testing.assert_allclose(vector(found.result), krum(flat(updates), 1, 1), rtol=1e-6)
