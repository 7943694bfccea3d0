"""Clients as iterables of ready batches: lists, generators, Grain's datasets."""

import numpy as np
import optax
import pytest

from tests.federated import workload
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg

CLIENTS = workload.make_clients(3, seed=1, low=9, high=30, shape=(6,), classes=4)


def generator(client):
    yield from workload.batches(client, 8)


def grain_dataset(client):
    grain = pytest.importorskip("grain")
    rows = [{name: value[i] for name, value in client.items()} for i in range(len(client["y"]))]
    return grain.MapDataset.source(rows).batch(8)


def grain_iterator(client):
    return grain_dataset(client).to_iter_dataset()


@pytest.mark.full
@pytest.mark.parametrize("given", [generator, grain_dataset, grain_iterator], ids=lambda given: given.__name__)
def test_iterables_of_batches_give_the_reference_weights(given):
    process = build_weighted_fed_avg(workload.jax_logistic(6, 4), optax.sgd(0.5))
    state = process.initialize()
    for _ in range(2):
        state, _ = process.next(state, [given(client) for client in CLIENTS])
    expected = workload.fed_avg(workload.Logistic.zeros(6, 4), [CLIENTS] * 2, lr=0.5, size=8)
    for name, value in expected.items():
        np.testing.assert_allclose(state.weights.trainable[name], value, rtol=0, atol=1e-5)
