"""Write a federated algorithm from its parts: averaging on digits.

The model is a softmax regression.

Each of ten clients has the examples of one digit, so no client alone can learn to tell digits apart. The local parts
are JAX functions, what happens where is a federated computation. All types are float64, which turns 64-bit arithmetic
on in these functions (jax_enable_x64 may be off), so that the numbers can be computed again elsewhere.

    pip install 'tf2jax-lite[core]' scikit-learn
    python examples/custom_federated_algorithms.py
"""

from __future__ import annotations

import federated_language as fl
import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated import core
from tf2jax_lite.learning import data

PIXELS, DIGITS = 64, 10
BATCH_SIZE = 50
ROUNDS = 5
LEARNING_RATE = 0.5

# -- the types ---------------------------------------------------------------------------------------------------------

BATCH = core.to_type({"x": (np.float64, [None, PIXELS]), "y": (np.int32, [None])})
MODEL = core.to_type({"weights": (np.float64, [PIXELS, DIGITS]), "bias": (np.float64, [DIGITS])})
BATCHES = fl.SequenceType(BATCH)
SERVER_MODEL = fl.FederatedType(MODEL, fl.SERVER)
SERVER_RATE = fl.FederatedType(np.float64, fl.SERVER)
CLIENT_DATA = fl.FederatedType(BATCHES, fl.CLIENTS)

# -- one batch: JAX ----------------------------------------------------------------------------------------------------


@core.jax_computation(MODEL, BATCH)
def batch_loss(model, batch):
    """Return the mean cross-entropy of a batch."""
    log_probabilities = jax.nn.log_softmax(batch["x"] @ model["weights"] + model["bias"])
    return -jnp.mean(jnp.sum(jax.nn.one_hot(batch["y"], DIGITS) * log_probabilities, axis=1))


@core.jax_computation(MODEL, BATCH, np.float64)
def batch_train(initial_model, batch, learning_rate):
    """One step of gradient descent."""
    gradients = jax.grad(batch_loss)(initial_model, batch)
    return jax.tree.map(lambda weight, gradient: weight - learning_rate * gradient, initial_model, gradients)


@core.jax_computation(np.float64)
def decay(learning_rate):
    """Return the next round's learning rate."""
    return learning_rate * 0.9


# -- one client: sequences of batches ----------------------------------------------------------------------------------


@fl.federated_computation(MODEL, np.float64, BATCHES)
def local_train(initial_model, learning_rate, all_batches):
    """One pass over a client's batches."""

    @fl.federated_computation(MODEL, BATCH)
    def step(model, batch):
        return batch_train(model, batch, learning_rate)

    return fl.sequence_reduce(all_batches, initial_model, step)


@fl.federated_computation(MODEL, BATCHES)
def local_eval(model, all_batches):
    """Return the sum of the losses of a client's batches."""

    @fl.federated_computation(BATCH)
    def loss(batch):
        return batch_loss(model, batch)

    return fl.sequence_sum(fl.sequence_map(loss, all_batches))


# -- all clients -------------------------------------------------------------------------------------------------------


@fl.federated_computation(SERVER_MODEL, CLIENT_DATA)
def federated_eval(model, client_data):
    """Return the clients' mean loss."""
    return fl.federated_mean(fl.federated_map(local_eval, [fl.federated_broadcast(model), client_data]))


@fl.federated_computation(SERVER_MODEL, SERVER_RATE, CLIENT_DATA)
def federated_train(model, learning_rate, client_data):
    """One round: every client trains the server's model, and the results are averaged."""
    arguments = [fl.federated_broadcast(model), fl.federated_broadcast(learning_rate), client_data]
    new_model = fl.federated_mean(fl.federated_map(local_train, arguments))
    return new_model, fl.federated_map(decay, learning_rate)


# -- the run -----------------------------------------------------------------------------------------------------------


def load_clients() -> tuple[data.FederatedData, data.FederatedData]:
    """Return scikit-learn's digits: 120 to train on, 25 to test on, by client.

    There are ten clients, of one digit each.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    examples = {"x": digits.data / 16.0, "y": digits.target.astype(np.int32)}
    held_out = np.arange(len(examples["y"])) % 5 == 0
    parts = [{name: array[rows] for name, array in examples.items()} for rows in (~held_out, held_out)]
    clients = [data.partition_by_label(part, DIGITS, labels_per_client=1, seed=0) for part in parts]
    # Equal sizes: few different batches to compile for (50, 50, 20 and 25 examples).
    train, test = (
        part.preprocess_client(lambda _, examples, n=size: {name: array[:n] for name, array in examples.items()})
        for part, size in zip(clients, (120, 25), strict=True)
    )
    return train, test


def run(rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Train, and return training and test losses before and after each round."""
    core.set_default_context()
    train, test = ([client.batch(batch_size=BATCH_SIZE) for _, client in part.clients()] for part in load_clients())
    model = {"weights": np.zeros([PIXELS, DIGITS]), "bias": np.zeros([DIGITS])}
    learning_rate = LEARNING_RATE
    losses: dict[str, list[float]] = {"train": [], "test": []}
    for round_num in range(rounds + 1):
        losses["train"].append(np.asarray(federated_eval(model, train)).item())
        losses["test"].append(np.asarray(federated_eval(model, test)).item())
        if round_num < rounds:
            model, learning_rate = federated_train(model, learning_rate, train)
    return losses


if __name__ == "__main__":
    print("batch_loss     ", batch_loss.type_signature)
    print("local_train    ", local_train.type_signature)
    print("federated_train", federated_train.type_signature)
    for round_num, (train_loss, test_loss) in enumerate(zip(*run().values(), strict=True)):
        print(f"round {round_num}: train loss {train_loss:.6f}, test loss {test_loss:.6f}")
