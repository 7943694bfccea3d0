"""Statistics of clients' data against numpy's of all data at once."""

import collections

import numpy as np
import pytest

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated import analytics


def clients(count=60, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(rng.normal(), 1, int(rng.integers(0, 9))) for _ in range(count)]


def secure(norm):
    return agg.SecureSumFactory(norm)


@pytest.mark.parametrize("summation", [None, pytest.param(secure, marks=pytest.mark.full)])
def test_histograms_are_of_all_values(summation):
    given = clients()
    expected, _ = np.histogram(np.clip(np.concatenate(given), -2, 2), 8, (-2, 2))
    found = analytics.histogram(given, -2, 2, 8, max_records_per_client=9, summation=summation)
    np.testing.assert_allclose(found, expected, atol=1e-2)
    assert analytics.count_clients(given, summation=summation) == pytest.approx(
        sum(len(v) > 0 for v in given), abs=1e-2
    )
    assert analytics.histogram(given, -2, 2, 8).sum() == sum(len(v) > 0 for v in given)


def test_quantiles_are_within_a_bin():
    given = clients()
    shares = [0.1, 0.5, 0.9]
    found = analytics.quantiles(given, shares, -8, 8, levels=10, max_records_per_client=9)
    np.testing.assert_allclose(
        found, np.quantile(np.concatenate(given), shares, method="inverted_cdf"), atol=16 / 2**10
    )


WORDS = [["the", "cat", "the"], ["the"], ["a", "the"], ["cat", "category"], ["", "cat"], []]
NUMBERS = {"the": 7, "cat": 2**62, "category": 2**62 + 1, "a": 0, "": 255}
ITEMS = {
    "text": WORDS,
    "bytes": [[word.encode() for word in words] for words in WORDS],
    "integers": [[NUMBERS[word] for word in words] for words in WORDS],
}


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ITEMS)
def test_heavy_hitters_are_all_items_of_enough_clients(kind, threshold):
    counts = collections.Counter(item for items in ITEMS[kind] for item in set(items))
    found = analytics.heavy_hitters(ITEMS[kind], threshold, max_items_per_client=9)
    assert found == {item: count for item, count in counts.items() if count >= threshold}
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_a_client_counts_with_few_items():
    found = analytics.heavy_hitters([["a", "b", "c"]] * 10, 1, max_items_per_client=1)
    assert sum(found.values()) == 10


def test_items_of_several_kinds_raise():
    for items in (["a", 1], ["a", b"a"], [1.5], [-1], [True]):
        with pytest.raises(InputError, match="heavy_hitters"):
            analytics.heavy_hitters([items], 1, max_items_per_client=2)


def test_noise_has_the_stated_deviation():
    noise = analytics.histogram(
        [np.zeros(3)], 0, 1, 4000, max_records_per_client=2, summation=analytics.private_sum(3.0)
    )
    assert abs(noise.std() / 6 - 1) < 5 / np.sqrt(2 * 4000)
