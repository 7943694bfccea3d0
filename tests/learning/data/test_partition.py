"""Partitions: every example once, the promised skew, the same for the same seed."""

import numpy as np
import pytest

from tf2jax_lite.errors import DataError
from tf2jax_lite.learning import data

N, LABELS = 600, 6
EXAMPLES = {"x": np.arange(N), "y": np.random.default_rng(0).permutation(np.arange(N) % LABELS)}
PARTITIONS = {
    "iid": lambda clients, seed: data.partition_iid(EXAMPLES, clients, seed=seed),
    "dirichlet": lambda clients, seed: data.partition_dirichlet(EXAMPLES, clients, 0.5, seed=seed),
    "tiny alpha": lambda clients, seed: data.partition_dirichlet(EXAMPLES, clients, 1e-4, seed=seed, min_size=0),
    "by_label": lambda clients, seed: data.partition_by_label(EXAMPLES, clients, 3, seed=seed),
    "quantity": lambda clients, seed: data.partition_quantity_skew(EXAMPLES, clients, 1.0, seed=seed),
}


def _counts(clients):
    """Examples of each label at each client."""
    return np.array([np.bincount(d.raw_examples["y"], minlength=LABELS) for _, d in clients.clients()])


@pytest.mark.parametrize("make", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("num", [2, 10, 37])
def test_every_example_once(make, num):
    clients = make(num, 3)
    assert clients.num_clients() == num
    assert list(clients.client_ids()) == [f"client_{i:0{len(str(num - 1))}d}" for i in range(num)]
    drawn = np.concatenate([dataset.raw_examples["x"] for _, dataset in clients.clients()])
    np.testing.assert_array_equal(np.sort(drawn), np.arange(N))
    for _, dataset in clients.clients():
        np.testing.assert_array_equal(dataset.raw_examples["y"], EXAMPLES["y"][dataset.raw_examples["x"]])


@pytest.mark.parametrize("make", PARTITIONS.values(), ids=PARTITIONS)
def test_seeds(make):
    def order(seed):
        return [dataset.raw_examples["x"].tolist() for _, dataset in make(10, seed).clients()]

    assert order(1) == order(1) != order(2)


def test_iid_sizes():
    sizes = [size for _, size in data.partition_iid(EXAMPLES, 7, seed=0).client_sizes()]
    assert set(sizes) == {85, 86}


@pytest.mark.parametrize("num", [2, 5, 10, 100])
@pytest.mark.parametrize("labels", [3, 4, 6])
def test_by_label_gives_each_client_so_many_labels(num, labels):
    counts = _counts(data.partition_by_label(EXAMPLES, num, labels, seed=5))
    np.testing.assert_array_equal((counts > 0).sum(axis=1), labels)
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    for label in range(LABELS):
        shares = counts[counts[:, label] > 0, label]
        assert shares.max() - shares.min() <= 1


def test_one_label_a_client():
    counts = _counts(data.partition_by_label(EXAMPLES, LABELS, 1, seed=0))
    np.testing.assert_array_equal(np.sort(counts, axis=1)[:, -2:], [[0, N // LABELS]] * LABELS)


def test_dirichlet_has_the_distributions_variance():
    """A label's share at a client has variance (1/c)(1 - 1/c)/(c alpha + 1)."""
    c, alpha, shares = 5, 0.7, []
    for seed in range(80):
        counts = _counts(data.partition_dirichlet(EXAMPLES, c, alpha, seed=seed, min_size=0))
        shares.append(counts / counts.sum(axis=0))
    expected = (1 / c) * (1 - 1 / c) / (c * alpha + 1)
    # 2,400 shares, of which those of one label hang together: the estimate's relative error is about 5 %.
    assert np.var(shares) == pytest.approx(expected, rel=0.15)


def test_quantity_skew_leaves_labels_and_skews_sizes():
    flat = _counts(data.partition_quantity_skew(EXAMPLES, 5, 1e4, seed=0)).sum(axis=1)
    steep = _counts(data.partition_quantity_skew(EXAMPLES, 5, 0.3, seed=0))
    assert np.ptp(flat) < 12 and np.ptp(steep.sum(axis=1)) > 100
    largest = steep[steep.sum(axis=1).argmax()]
    np.testing.assert_allclose(largest / largest.sum(), 1 / LABELS, atol=0.05)


def test_an_alpha_too_small_to_draw_gives_each_label_to_one_client_any_of_them():
    clients = data.partition_dirichlet(EXAMPLES, 4, 1e-300, seed=0, min_size=0)
    held = [set(dataset.raw_examples["y"].tolist()) for _, dataset in clients.clients()]
    assert sum(map(len, held)) == len(set(EXAMPLES["y"].tolist()))
    assert sum(map(bool, held)) > 1


@pytest.mark.parametrize("min_size", [1, 20])
def test_min_size(min_size):
    for make in (data.partition_dirichlet, data.partition_quantity_skew):
        clients = make(EXAMPLES, 10, 1.0, seed=0, min_size=min_size)
        assert min(size for _, size in clients.client_sizes()) >= min_size


@pytest.mark.full_cases("<lambda>-none of 200 draws0", "<lambda>-min_size .* at least 0, not -1")
@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: data.partition_iid(EXAMPLES, 601, seed=0), "from 1 to the number of examples, 600"),
        (lambda: data.partition_iid(EXAMPLES, 0, seed=0), "num_clients"),
        (lambda: data.partition_dirichlet(EXAMPLES, 3, 0.0, seed=0), "alpha"),
        (lambda: data.partition_dirichlet(EXAMPLES, 3, float("nan"), seed=0), "alpha"),
        (lambda: data.partition_dirichlet(EXAMPLES, 3, 1.0, seed=0, label="z"), r"no feature 'z'.*\['x', 'y'\]"),
        (lambda: data.partition_dirichlet(EXAMPLES, 3, 1.0, seed=0, min_size=201), "min_size"),
        (lambda: data.partition_dirichlet(EXAMPLES, 60, 1e-3, seed=0), "none of 200 draws"),
        (lambda: data.partition_quantity_skew(EXAMPLES, 60, 1e-3, seed=0), "none of 200 draws"),
        (lambda: data.partition_by_label(EXAMPLES, 2, 2, seed=0), "cannot hold all 6 labels"),
        (lambda: data.partition_by_label(EXAMPLES, 2, 7, seed=0), "labels_per_client .* at most 6, not 7"),
        (lambda: data.partition_by_label({"y": np.zeros((4, 2))}, 2, 1, seed=0), "shape"),
        (
            lambda: data.partition_by_label({"y": np.array(["a", 1], object)}, 2, 1, seed=0),
            "labels must be of one kind",
        ),
        (lambda: data.partition_by_label(EXAMPLES, 3, 2.5, seed=0), "labels_per_client is an integer"),
        (lambda: data.partition_by_label(EXAMPLES, 3, None, seed=0), "labels_per_client is an integer"),
        (lambda: data.partition_dirichlet(EXAMPLES, 3, "x", seed=0), "alpha is a finite number"),
        (lambda: data.partition_quantity_skew(EXAMPLES, 3, None, seed=0), "alpha is a finite number"),
        (lambda: data.partition_quantity_skew(EXAMPLES, 3, 1.0, seed=0, min_size=1.5), "min_size is an integer"),
        (lambda: data.partition_dirichlet(EXAMPLES, 3, 1.0, seed=0, min_size=None), "min_size is an integer"),
        (lambda: data.partition_dirichlet(EXAMPLES, 3, 1.0, seed=0, min_size=-1), "min_size .* at least 0, not -1"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(DataError, match=match):
        call()
