"""FedNova, FedDyn and Ditto against numpy, float64, with clients that come and go."""

import numpy as np
import optax
import pytest

from tests.federated import workload
from tests.federated.workload import Logistic, local_sgd, tree, weighted_mean
from tf2jax_lite import federated as fed

SIZE, LR = 10, 0.3
CLIENTS = workload.make_clients(4, seed=2, low=5, high=33, shape=(6,), classes=4)
COHORTS = [[0, 1, 2], [3, 0, 1], [2, 3, 0]]
OPTIONS = {
    "client_batching": fed.ShuffleRepeatBatchHParams(batch_size=SIZE, skip_shuffle=True, fill_remainder=False),
    "client_execution": "scan",
}
MODEL = workload.jax_logistic(6, 4)


def zeros():
    return Logistic.zeros(6, 4)


def train(process):
    state = process.initialize()
    for cohort in COHORTS:
        state, metrics = process.next(state, [(i, fed.ClientDataset(CLIENTS[i])) for i in cohort])
    assert int(metrics["clients"]["participated"]) == 3
    return state


def close(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=name)


def with_momentum(p, client, momentum):
    """Return weights after SGD with momentum, and the sum of gradients' weights."""
    y, velocity, batches = p, tree(np.zeros_like, p), workload.batches(client, SIZE)
    for batch in batches:
        velocity = tree(lambda v, g: momentum * v + g, velocity, Logistic.grad(y, batch))
        y = tree(lambda a, v: a - LR * v, y, velocity)
    count = len(batches)
    # The gradient of step j is in the velocities of steps j, j + 1, ..., with the powers of the momentum.
    return y, sum(momentum**k for j in range(count) for k in range(count - j))


@pytest.mark.default_cases("0.6")
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_fed_nova(momentum):
    p = zeros()
    for cohort in COHORTS:
        found = [with_momentum(p, CLIENTS[i], momentum) for i in cohort]
        sizes = [len(CLIENTS[i]["y"]) for i in cohort]
        direction = weighted_mean([tree(lambda a, b, s=s: (a - b) / s, p, y) for y, s in found], sizes)
        steps = np.average([s for _, s in found], weights=sizes)
        p = tree(lambda a, d, s=steps: a - s * d, p, direction)
    close(train(fed.build_fed_nova(MODEL, LR, momentum=momentum, **OPTIONS)).params, p)


def test_fed_dyn():
    alpha, p, h = 0.5, zeros(), zeros()
    own = {i: zeros() for i in range(len(CLIENTS))}
    for cohort in COHORTS:
        trained = []
        for i in cohort:

            def direction(y, g, _, p=p, g_i=own[i]):
                return tree(lambda g, g_i, y, x: g - g_i + alpha * (y - x), g, g_i, y, p)

            y = local_sgd(p, CLIENTS[i], LR, SIZE, direction=direction)
            own[i] = tree(lambda g_i, y, x: g_i - alpha * (y - x), own[i], y, p)
            trained.append(y)
        mean = weighted_mean(trained, [1] * len(cohort))
        h = tree(lambda h, y, x: h - alpha * 3 / len(CLIENTS) * (y - x), h, mean, p)
        p = tree(lambda y, h: y - h / alpha, mean, h)
    state = train(fed.build_fed_dyn(MODEL, len(CLIENTS), alpha, optax.sgd(LR), **OPTIONS))
    close(state.params, p)
    close(state.finalizer, h)
    for i, expected in own.items():
        close(state.clients.of(i), expected)


def test_ditto():
    strength, p, own = 0.7, zeros(), {}
    for cohort in COHORTS:
        updates = []
        for i in cohort:
            updates.append(local_sgd(p, CLIENTS[i], LR, SIZE))

            def direction(v, g, _, p=p):
                return tree(lambda g, v, w: g + strength * (v - w), g, v, p)

            own[i] = local_sgd(own.get(i, p), CLIENTS[i], 0.1, SIZE, direction=direction)
        p = weighted_mean(updates, [len(CLIENTS[i]["y"]) for i in cohort])
    process = fed.build_ditto(MODEL, strength, optax.sgd(LR), personal_optimizer=optax.sgd(0.1), **OPTIONS)
    state = train(process)
    close(state.params, p)
    for i, expected in own.items():
        close(fed.ditto_model_weights(state, i).trainable, expected)
    close(fed.ditto_model_weights(state, "new").trainable, p)
