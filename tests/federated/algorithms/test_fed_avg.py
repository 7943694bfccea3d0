"""Federated averaging against plain numpy in float64."""

from typing import Any

import numpy as np
import optax
import pytest

from tests.federated import workload
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated.aggregators import MeanFactory, ZeroingFactory
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams

SMALL = workload.make_clients(12, seed=1, low=3, high=50, shape=(6,), classes=4)
IN_ORDER = ShuffleRepeatBatchHParams(batch_size=10, skip_shuffle=True, fill_remainder=False)


def assert_weights(found, expected, atol=1e-5):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("execution", ["auto", "scan", "vmap", "loop"])
def test_all_executions_agree_with_numpy(execution):
    process = build_weighted_fed_avg(
        workload.jax_logistic(6, 4),
        optax.sgd(0.5),
        client_batching=IN_ORDER,
        client_execution=execution,
        clients_per_chunk=5,
    )
    state = process.initialize()
    rounds = [SMALL[:7], SMALL[3:], SMALL]
    for clients in rounds:
        state, metrics = process.next(state, [ClientDataset(c) for c in clients])
    expected = workload.fed_avg(workload.Logistic.zeros(6, 4), rounds, lr=0.5, size=10)
    assert_weights(process.get_model_weights(state).trainable, expected)
    assert int(metrics["client_work"]["train"]["num_examples"]) == sum(len(c["y"]) for c in SMALL)
    assert int(metrics["clients"]["participated"]) == 12


@pytest.mark.full
@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.full)])
def test_rounds_of_the_workload(count):
    """200 clients, 100 a round, batches of 20: weights agree to 1e-5 after 20 rounds."""
    clients = workload.make_clients()
    process = build_weighted_fed_avg(
        workload.jax_logistic(), optax.sgd(0.1), client_batching=IN_ORDER.replace(batch_size=20)
    )
    state = process.initialize()
    rounds = [[clients[i] for i in workload.cohort(r, 200, 100)] for r in range(count)]
    for chosen in rounds:
        state, _ = process.next(state, [ClientDataset(c) for c in chosen])
    expected = workload.fed_avg(workload.Logistic.zeros(), rounds)
    assert_weights(process.get_model_weights(state).trainable, expected)


NO_MODEL: Any = len
NO_STATE: Any = None
DATA = ClientDataset({"x": np.ones((8, 6)), "y": np.zeros(8, np.int32)})
OTHER_WEIGHTS: Any = {"v": np.ones(3)}
MISUSE = {
    "no key": (lambda: avg().initialize("seed"), "key is a JAX key"),
    "a number for a key": (lambda: avg().initialize(3), "key is a JAX key"),
    "params of another structure": (
        lambda: avg().initialize(params={"w": np.zeros((6, 4))}),
        r"\['b'\] have shape none",
    ),
    "params of another shape": (lambda: avg().initialize(params=workload.Logistic.zeros(4, 6)), "params are not those"),
    "other weights": (lambda: avg().set_model_weights(avg().initialize(), OTHER_WEIGHTS), "are not those"),
    "a number for batching": (lambda: avg(client_batching=4), "client_batching is a ShuffleRepeat"),
    "a name for an optimizer": (lambda: avg(server_optimizer="adam"), "a server optimizer is an optax"),
    "an aggregator for an optimizer": (lambda: avg(server_optimizer=MeanFactory()), "a server optimizer is an optax"),
    "an aggregator's class": (lambda: avg(aggregator=MeanFactory), r"make one: MeanFactory\(\.\.\.\)"),
    "an inner aggregator of another kind": (
        lambda: avg(aggregator=ZeroingFactory(10.0, NO_MODEL)),
        "an aggregator is an AggregationProcess",
    ),
    "no state": (lambda: avg().next(NO_STATE, [DATA]), "state must be the result"),
    "features of another size": (
        lambda: avg().next(avg().initialize(), [ClientDataset({"x": np.ones((8, 5)), "y": np.zeros(8, np.int32)})]),
        r"batches of the first client \(.*x: float",
    ),
    "features of another name": (
        lambda: avg().next(avg().initialize(), [ClientDataset({"z": np.ones((8, 6)), "y": np.zeros(8, np.int32)})]),
        "KeyError: 'x'",
    ),
    "a function for a model": (
        lambda: build_weighted_fed_avg(NO_MODEL, optax.sgd(0.1)),
        "a model is a federated",
    ),
}


def avg(**options: Any):
    options.setdefault("client_batching", ShuffleRepeatBatchHParams(batch_size=4))
    return build_weighted_fed_avg(workload.jax_logistic(6, 4), optax.sgd(0.1), **options)


@pytest.mark.default_cases("a number for batching", "an inner aggregator of another kind")
@pytest.mark.parametrize("what", MISUSE)
def test_misuse_is_refused_before_a_round(what):
    call, message = MISUSE[what]
    with pytest.raises(InputError, match=message):
        call()
