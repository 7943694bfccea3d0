"""Per-FedAvg against numpy, float64; personal steps lower the clients' losses."""

import jax
import numpy as np
import optax
import pytest

from tests.federated import workload
from tests.federated.workload import Logistic, tree, weighted_mean
from tf2jax_lite import federated as fed

SIZE, ALPHA, BETA = 8, 0.4, 0.3
CLIENTS = workload.make_clients(4, seed=5, low=5, high=27, shape=(5,), classes=3)
CLIENTS[1] = {name: value[:17] for name, value in CLIENTS[1].items()}  # one example is left for the last batch
COHORTS = [[0, 1, 2], [3, 1, 0]]
BATCHING = fed.ShuffleRepeatBatchHParams(batch_size=SIZE, skip_shuffle=True, fill_remainder=False)
MODEL = workload.jax_logistic(5, 3)


def hessian_product(p, batch, direction):
    """Return the Hessian times a direction, by central differences of the gradient."""
    step = 1e-5
    ahead, behind = (Logistic.grad(tree(lambda a, d, s=s: a + s * d, p, direction), batch) for s in (step, -step))
    return tree(lambda a, b: (a - b) / (2 * step), ahead, behind)


def meta_gradient(p, batch, first_order):
    """Return (I - alpha H) g(p - alpha g(p)), and the loss there."""
    first = {name: value[0::2] for name, value in batch.items()}
    second = {name: value[1::2] for name, value in batch.items()} if len(batch["y"]) > 1 else first
    personal = tree(lambda a, g: a - ALPHA * g, p, Logistic.grad(p, first))
    loss, outer = Logistic.value_and_grad(personal, second)
    if not first_order:
        outer = tree(lambda g, h: g - ALPHA * h, outer, hessian_product(p, first, outer))
    return loss, outer


def trained(first_order):
    """Return weights after the rounds, and the mean loss of the last round."""
    p = Logistic.zeros(5, 3)
    for cohort in COHORTS:
        found, losses = [], []
        for i in cohort:
            y = p
            for batch in workload.batches(CLIENTS[i], SIZE):
                loss, grad = meta_gradient(y, batch, first_order)
                y = tree(lambda a, g: a - BETA * g, y, grad)
                losses.append((loss, len(batch["y"])))
            found.append(y)
        p = weighted_mean(found, [len(CLIENTS[i]["y"]) for i in cohort])
    return p, np.average([loss for loss, _ in losses], weights=[count for _, count in losses])


def process(first_order=False, batching=BATCHING, **options):
    return fed.build_per_fed_avg(
        MODEL, ALPHA, optax.sgd(BETA), first_order=first_order, client_batching=batching, **options
    )


@pytest.mark.parametrize("execution", ["scan", pytest.param("vmap", marks=pytest.mark.full), "debug"])
@pytest.mark.parametrize("first_order", [False, True], ids=["hessian", "first order"])
def test_per_fed_avg(first_order, execution):
    training = process(first_order, client_execution=execution)
    state = training.initialize()
    for cohort in COHORTS:
        state, metrics = training.next(state, [fed.ClientDataset(CLIENTS[i]) for i in cohort])
    expected, loss = trained(first_order)
    for name, value in expected.items():
        np.testing.assert_allclose(state.params[name], value, rtol=0, atol=2e-6, err_msg=name)
    train = metrics["client_work"]["train"]
    np.testing.assert_allclose(train["loss"], loss, rtol=1e-5)
    assert int(train["num_examples"]) == sum(len(CLIENTS[i]["y"]) for i in COHORTS[-1])


def test_filled_batches_count_as_short_ones():
    """A last batch may have one example of the epoch, and others that fill it."""
    clients = [fed.ClientDataset(CLIENTS[i]) for i in (1, 2)]
    filled = process(batching=BATCHING.replace(fill_remainder=True))
    _, metrics = filled.next(filled.initialize(), clients)
    assert int(metrics["client_work"]["train"]["num_examples"]) == sum(map(len, clients))
    assert np.isfinite(metrics["client_work"]["train"]["loss"])


def test_a_step_personalizes():
    """Clients' labels contradict each other: no weights fit all of them."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 5)) * 2
    clients = []
    for i in range(12):
        y = rng.integers(0, 3, 48).astype(np.int32)
        x = (centers[y] + rng.normal(size=(48, 5))).astype(np.float32)
        clients.append(fed.ClientDataset({"x": x, "y": (y + i) % 3}))
    step = fed.build_model_delta_client_work(MODEL, optax.sgd(ALPHA))
    evaluate = fed.build_personalization_eval(
        MODEL, {"step": (step, fed.ShuffleRepeatBatchHParams(batch_size=24, num_epochs=1, skip_shuffle=True))}
    )
    split = [(client[:24], client[24:]) for client in clients]
    training = process()
    state = training.initialize()
    for _ in range(3):
        state, _ = training.next(state, clients)
    found = evaluate(state.params, split, jax.random.key(0))
    assert found["step"]["loss"].mean() < 0.8 * found["baseline"]["loss"].mean()
