"""APFL against numpy, float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tests.federated import workload
from tests.federated.workload import Logistic, batches, tree, weighted_mean
from tf2jax_lite.errors import InputError
from tf2jax_lite.learning.states import restored_state, state_arrays

CLIENTS = workload.make_clients(3, seed=6, low=5, high=9, shape=(6,), classes=4)
LR, SIZE, START = 0.4, 4, 0.3


def reference(rounds):
    """Return the server's weights, and each client's (v, a)."""
    server, own = Logistic.zeros(6, 4), {}
    for chosen in rounds:
        finals = []
        for i in chosen:
            w = server
            v, a = own.get(i, (server, dict.fromkeys(server, START)))
            for batch in batches(CLIENTS[i], SIZE):
                mixed = {k: a[k] * v[k] + (1 - a[k]) * w[k] for k in w}
                g = Logistic.grad(mixed, batch)
                shares = {k: np.clip(a[k] - LR * ((v[k] - w[k]) * g[k]).sum(), 0, 1) for k in w}
                w = tree(lambda w, g: w - LR * g, w, Logistic.grad(w, batch))
                v, a = tree(lambda v, g: v - LR * g, v, g), shares
            own[i] = v, a
            finals.append(tree(np.subtract, w, server))
        server = tree(np.add, server, weighted_mean(finals, [len(CLIENTS[i]["y"]) for i in chosen]))
    return server, own


@pytest.mark.full
def test_apfl_agrees_with_numpy():
    process = fed.build_apfl(
        workload.jax_logistic(6, 4),
        optax.sgd(LR),
        client_coefficient=START,
        client_batching=fed.BatchHParams(batch_size=SIZE),
    )
    state, rounds = process.initialize(), [[0, 1], [1, 2], [0, 1]]
    for chosen in rounds:
        state, _ = process.next(state, [(i, fed.ClientDataset(CLIENTS[i])) for i in chosen])
    server, own = reference(rounds)
    np.testing.assert_allclose(state.weights.trainable["w"], server["w"], atol=1e-5)
    for i, (v, a) in own.items():
        found = state.clients.of(i)
        for name in server:
            np.testing.assert_allclose(found.interpolation_coefficients[name], a[name], atol=1e-5)
            mixed = a[name] * v[name] + (1 - a[name]) * server[name]
            np.testing.assert_allclose(fed.apfl_model_weights(state, i).trainable[name], mixed, atol=1e-5)
    assert fed.apfl_model_weights(state, "new") is state.weights
    restored = restored_state(process.initialize(), state_arrays(state))
    np.testing.assert_array_equal(restored.clients.of(2).params["w"], state.clients.of(2).params["w"])


@pytest.mark.full
def test_apfl_options():
    with pytest.raises(InputError, match="client_coefficient"):
        fed.build_apfl(workload.jax_logistic(6, 4), optax.sgd(LR), client_coefficient=2)
    process = fed.build_apfl(workload.jax_logistic(6, 4), optax.sgd(LR), client_batching=fed.BatchHParams(4))
    with pytest.raises(InputError, match="pairs"):
        process.next(process.initialize(), [fed.ClientDataset(CLIENTS[0])])
    assert jax.tree.all(jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), process.initialize().weights))
