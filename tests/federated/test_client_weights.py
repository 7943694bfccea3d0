"""Examples that fill a client's last batch do not increase the client's weight."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.learning.data import BatchHParams, ClientDataset, ShuffleRepeatBatchHParams

SIZES, VALUES = (1, 20, 7), (1.0, -1.0, 3.0)
CLIENTS = [ClientDataset({"x": np.full(n, v, np.float32)}) for n, v in zip(SIZES, VALUES, strict=True)]


def model():
    """Its gradient is the mean of x."""
    return fed.create_model_from_fn({"w": jnp.zeros(())}, lambda p, batch: batch["x"] * p["w"], lambda batch, q: q)


def step(process, clients=CLIENTS):
    state = process.next(process.initialize(), clients).state
    return -float(process.get_model_weights(state).trainable["w"])


MEAN = np.average(VALUES, weights=SIZES)  # as fedjax.algorithms.fed_avg weighs: by the size of the dataset


@pytest.mark.default_cases("build_weighted_fed_avg-loop")
@pytest.mark.parametrize("execution", ["scan", "vmap", "loop"])
@pytest.mark.parametrize("build", [fed.build_weighted_fed_avg, fed.build_mime, fed.build_mime_lite])
def test_weights_are_the_numbers_of_examples(build, execution):
    batching = ShuffleRepeatBatchHParams(batch_size=20)
    process = build(model(), optax.sgd(1.0), client_batching=batching, client_execution=execution)
    np.testing.assert_allclose(step(process), MEAN, rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    ("batching", "steps", "weights"),
    [
        (ShuffleRepeatBatchHParams(20, num_epochs=3), (1, 3, 2), SIZES),  # of 3, 60 and 21 examples
        (ShuffleRepeatBatchHParams(20, num_epochs=3, fill_remainder=False), (1, 3, 2), SIZES),
        (ShuffleRepeatBatchHParams(4, num_epochs=None, num_steps=2), (2, 2, 2), SIZES),
        (ShuffleRepeatBatchHParams(5, num_steps=3), (1, 3, 2), SIZES),
        (ShuffleRepeatBatchHParams(5, drop_remainder=True), (0, 4, 1), SIZES),
        (ShuffleRepeatBatchHParams(5, drop_remainder=True, fill_remainder=False), (0, 4, 1), (0, 20, 5)),
        # Without filling, processed examples count, as in TFF.
        (ShuffleRepeatBatchHParams(4, num_epochs=None, num_steps=2, fill_remainder=False), (2, 2, 2), (8, 8, 8)),
        (BatchHParams(4), (1, 5, 2), SIZES),
    ],
)
def test_batchings(batching, steps, weights):
    process = fed.build_weighted_fed_avg(model(), optax.sgd(1.0), client_batching=batching)
    expected = np.average(np.multiply(VALUES, steps), weights=weights)
    np.testing.assert_allclose(step(process), expected, rtol=1e-6)


def test_equal_weights_stay_equal():
    process = fed.build_unweighted_fed_avg(model(), optax.sgd(1.0), client_batching=ShuffleRepeatBatchHParams(20))
    np.testing.assert_allclose(step(process), np.mean(VALUES), rtol=1e-6)


@pytest.mark.full
def test_clients_with_batches_of_their_own():
    """Ready batches are taken as they are, beside datasets."""
    clients = [CLIENTS[0], [{"x": np.full(8, -1.0, np.float32)}], None, CLIENTS[2]]
    process = fed.build_weighted_fed_avg(model(), optax.sgd(1.0), client_batching=ShuffleRepeatBatchHParams(20))
    np.testing.assert_allclose(step(process, clients), (1 * 1.0 + 8 * -1.0 + 7 * 3.0) / 16, rtol=1e-6)
