"""Weights that stay with each client, against rounds of plain NumPy."""

import dataclasses

import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.learning.model import TrainOutput
from tf2jax_lite.learning.states import restored_state, state_arrays

RNG = np.random.default_rng(0)
DATA = {i: {"x": RNG.normal(size=(4, 2)).astype(np.float32), "y": np.full(4, 1.0 + i, np.float32)} for i in range(2)}
START = fed.ModelWeights({"body": np.ones(2, np.float32), "bias": np.float32(0)}, {"seen": np.float32(0)})


def predict(weights, batch):
    return batch["x"] @ weights.trainable["body"] + weights.trainable["bias"]


def train(weights, batch, rng):
    return TrainOutput(predict(weights, batch), {"seen": weights.non_trainable["seen"] + 1})


MODEL = fed.Model(lambda key: START, train, predict, fed.named_loss("mse"))


def build(is_local, **options):
    work = fed.build_model_delta_client_work(MODEL, optax.sgd(0.1))
    work, states = fed.with_local_weights(MODEL, work, is_local)
    return fed.compose_learning_process(
        MODEL,
        client_work=work,
        aggregator=fed.aggregators.MeanFactory(),
        finalizer=fed.build_add_finalizer(),
        client_states=states,
        **options,
    )


@pytest.mark.default_cases("scan")
@pytest.mark.parametrize("execution", ["scan", "vmap"])
def test_with_local_weights_stay_with_each_client(execution):
    process = build(lambda name: name in ("bias", "seen"), client_execution=execution)
    state = process.initialize()
    body, bias = np.ones(2), {0: 0.0, 1: 0.0}
    for taking_part in ([0, 1], [1]):
        state, _ = process.next(state, [(i, [DATA[i]]) for i in taking_part])
        steps = []
        for i in taking_part:
            error = 2 * (DATA[i]["x"] @ body + bias[i] - DATA[i]["y"]) / 4
            steps.append(-0.1 * DATA[i]["x"].T @ error)
            bias[i] -= 0.1 * error.sum()
        body = body + np.mean(steps, axis=0)
    np.testing.assert_allclose(state.weights.trainable["body"], body, rtol=1e-5)
    for i, seen in ((0, 1), (1, 2)):
        own = fed.local_model_weights(state, i)
        np.testing.assert_allclose(own.trainable["bias"], bias[i], rtol=1e-5)
        assert own.non_trainable["seen"] == seen
        assert own.trainable["body"] is state.weights.trainable["body"]
    assert fed.local_model_weights(state, "new").trainable["bias"] == 0 == state.weights.trainable["bias"]
    restored = restored_state(process.initialize(), state_arrays(state))
    assert restored.clients.of(1)["trainable"]["bias"] == state.clients.of(1)["trainable"]["bias"]


def test_with_local_weights_refusals():
    with pytest.raises(InputError, match="no weight is local; there are bias, body, seen"):
        build(lambda name: False)
    process = build(lambda name: name == "bias")
    with pytest.raises(InputError, match="list of pairs"):
        process.next(process.initialize(), [[DATA[0]]])
    with pytest.raises(InputError, match="client_states is a ByClient"):
        build(lambda name: name == "bias", survey=object())


@pytest.mark.default_cases("False-True")
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("builtin", [True, False])
def test_client_work_that_reads_states_which_the_process_does_not_keep(ids, builtin):
    work = fed.build_model_delta_client_work(MODEL, optax.sgd(0.1))
    data = [DATA[0]]
    if builtin:  # it ignores client_input, so that the cause is another one
        data = [{"x": DATA[0]["x"][:, :1], "y": DATA[0]["y"]}]
        says = "does not take the batches of the first client"
    else:
        init = work.client_init

        def read(state, message, key, own):
            return init(state, message._replace(trainable=message.trainable | {"bias": own}), key, None)

        work = dataclasses.replace(work, client_init=read)
        says = "The client work reads client_input"
    process = fed.compose_learning_process(
        MODEL, client_work=work, aggregator=fed.aggregators.MeanFactory(), finalizer=fed.build_add_finalizer()
    )
    with pytest.raises(InputError, match=says) as found:
        process.next(process.initialize(), [(0, data)] if ids else [data])
    assert ("client_states=ByClient(first)" in str(found.value)) != builtin
