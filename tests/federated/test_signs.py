"""Client updates are initial minus final weights, as in FedJAX and TFF."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tests.federated import workload
from tests.federated.workload import Logistic, local_sgd, tree
from tf2jax_lite.learning.process import MeasuredProcessOutput

CLIENTS = workload.make_clients(3, seed=4, low=5, high=9, shape=(6,), classes=4)
BATCHING = fed.BatchHParams(batch_size=4)
LR = 0.3


@pytest.mark.full
def test_client_updates_are_initial_minus_final():
    weights = fed.ModelWeights(jax.tree.map(jnp.float32, Logistic.zeros(6, 4)), ())
    batches = workload.batches(CLIENTS[0], 4)
    work = fed.build_model_delta_client_work(workload.jax_logistic(6, 4), optax.sgd(LR))
    found = work.next(work.initialize(), weights, batches, jax.random.key(0)).result
    final = local_sgd(Logistic.zeros(6, 4), CLIENTS[0], LR, 4)
    np.testing.assert_allclose(found.update["w"], -final["w"], atol=1e-5)
    assert found.update_weight == len(CLIENTS[0]["y"])


def test_client_updates_of_fed_sgd_are_gradients():
    weights = fed.ModelWeights(jax.tree.map(jnp.float32, Logistic.zeros(6, 4)), ())
    work = fed.build_fed_sgd_client_work(workload.jax_logistic(6, 4))
    found = work.next(work.initialize(), weights, workload.batches(CLIENTS[0], 4), jax.random.key(0)).result
    np.testing.assert_allclose(found.update["w"], Logistic.grad(Logistic.zeros(6, 4), CLIENTS[0])["w"], atol=1e-5)


def minus_finalizer():
    """Return a finalizer written as in TFF: the aggregate is a gradient."""

    def step(state, weights, aggregate):
        new = jax.tree.map(lambda w, g: w - 0.5 * g, weights.trainable, aggregate)
        return MeasuredProcessOutput(state, weights._replace(trainable=new), {})

    return fed.Finalizer(lambda weights: (), step)


def own_work():
    """Return SGD client work written as in TFF, on params alone."""
    grad = fed.model_grad(workload.jax_logistic(6, 4))

    def step(state, message, carry, batch):
        weights, count = carry
        grads = grad(message._replace(trainable=weights), batch).trainable
        count += jnp.sum(batch.get("__mask__", jnp.ones(len(batch["y"]), bool)))
        return jax.tree.map(lambda w, g: w - LR * g, weights, grads), count

    def final(state, message, carry):
        update = jax.tree.map(jnp.subtract, message.trainable, carry[0])
        return fed.ClientResult(update=update, update_weight=carry[1].astype(jnp.float32))

    return fed.ClientWork(lambda: (), lambda s, m, key, own: (m.trainable, jnp.int32(0)), step, final)


@pytest.mark.full
@pytest.mark.parametrize("execution", ["scan", pytest.param("vmap", marks=pytest.mark.full)])
def test_ported_blocks_descend(execution):
    process = fed.compose_learning_process(
        workload.jax_logistic(6, 4),
        client_work=own_work(),
        aggregator=fed.aggregators.MeanFactory(),
        finalizer=minus_finalizer(),
        client_batching=BATCHING,
        client_execution=execution,
    )
    state, _ = process.next(process.initialize(), [fed.ClientDataset(c) for c in CLIENTS])
    expected = workload.fed_avg(Logistic.zeros(6, 4), [CLIENTS], lr=LR, size=4, server_lr=0.5)
    np.testing.assert_allclose(state.weights.trainable["w"], expected["w"], atol=1e-5)


@pytest.mark.full
def test_non_trainable_differences_have_the_same_sign():
    def train(weights, batch, rng):
        return fed.TrainOutput(weights.trainable["w"] * batch["x"], {"mean": jnp.mean(batch["x"])})

    start = fed.ModelWeights({"w": jnp.float32(1)}, {"mean": jnp.float32(1)})
    model = fed.Model(lambda key: start, train, lambda w, b: w.trainable["w"] * b["x"], fed.named_loss("mse"))
    work = fed.build_model_delta_client_work(model, optax.sgd(0.1))
    batch = {"x": np.full(4, 3, np.float32), "y": np.zeros(4, np.float32)}
    found = work.next(work.initialize(), start, [batch], jax.random.key(0)).result
    assert found.non_trainable == [-2.0]
    process = fed.build_weighted_fed_avg(model, optax.sgd(0.1))
    state, _ = process.next(process.initialize(), [[batch]])
    assert state.weights.non_trainable["mean"] == 3
    np.testing.assert_allclose(state.weights.trainable["w"], 1 - 0.1 * 18, rtol=1e-6)


@pytest.mark.full
def test_scaffold_takes_its_aggregate_for_a_gradient():
    """Both parts: weights and control variates."""
    process = fed.build_scaffold(workload.jax_logistic(6, 4), 3, LR, client_batching=BATCHING)
    state, _ = process.next(process.initialize(), [(i, fed.ClientDataset(c)) for i, c in enumerate(CLIENTS)])
    finals = [local_sgd(Logistic.zeros(6, 4), c, LR, 4) for c in CLIENTS]
    steps = [-(-len(c["y"]) // 4) for c in CLIENTS]
    controls = [tree(lambda y, k=k: -y / (k * LR), y) for y, k in zip(finals, steps, strict=True)]
    np.testing.assert_allclose(state.weights.trainable["w"], np.mean([y["w"] for y in finals], 0), atol=1e-5)
    np.testing.assert_allclose(state.finalizer["w"], np.mean([c["w"] for c in controls], 0), atol=1e-5)
