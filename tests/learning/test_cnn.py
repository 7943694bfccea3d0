"""A Keras CNN, converted, and in plain JAX: FedAvg gives equal weights."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
from jax import lax

from tests.federated import workload
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.sources import create_model_from_tf

BATCHING = ShuffleRepeatBatchHParams(batch_size=20, skip_shuffle=True, fill_remainder=False)


def network():
    keras.utils.set_random_seed(0)
    L = keras.layers
    layers = [
        keras.Input((28, 28, 1)),
        L.Conv2D(4, 3, activation="relu"),
        L.MaxPooling2D(),
        L.Conv2D(8, 3, activation="relu"),
        L.MaxPooling2D(),
        L.Flatten(),
        L.Dense(62),
    ]
    return keras.Sequential(layers)


def forward(params, x):
    """Return the network in plain JAX; params are in Keras's order."""
    k1, b1, k2, b2, w, b = params
    for kernel, bias in ((k1, b1), (k2, b2)):
        x = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias
        x = lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(x.shape[0], -1) @ w + b


@pytest.mark.full
def test_one_round():
    net = network()
    clients = workload.make_clients()[:12]
    model = create_model_from_tf(net, named_loss("sparse_categorical_crossentropy", from_logits=True))
    process = build_weighted_fed_avg(model, optax.sgd(0.1), client_batching=BATCHING)
    state, _ = process.next(process.initialize(), [ClientDataset(c) for c in clients])

    start = [jnp.asarray(v.numpy()) for v in net.trainable_variables]

    @jax.jit
    def step(params, batch):
        def loss(params):
            log = jax.nn.log_softmax(forward(params, batch["x"]))
            return -jnp.mean(jnp.take_along_axis(log, batch["y"][:, None], 1))

        return [p - 0.1 * g for p, g in zip(params, jax.grad(loss)(params), strict=True)]

    updates = []
    for client in clients:
        params = start
        for batch in workload.batches(client, 20):
            params = step(params, batch)
        updates.append([np.asarray(p, np.float64) - s for p, s in zip(params, start, strict=True)])
    weights = [len(c["y"]) for c in clients]
    for i, variable in enumerate(net.trainable_variables):
        mean = sum(w * u[i] for w, u in zip(weights, updates, strict=True)) / sum(weights)
        found = state.weights.trainable[variable.path]
        np.testing.assert_allclose(found, start[i] + mean, rtol=0, atol=1e-4, err_msg=variable.path)
        assert np.abs(mean).max() > 1e-3  # the round does move the weights
