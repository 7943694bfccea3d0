"""Swap a block of federated averaging: clients that clip gradients.

The clients' batches, the server's optimizer, the mean and the runner stay as they are.

    python examples/federated_clipping_client_work.py
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import MeanFactory
from tf2jax_lite.federated.client_work import ClientWork, build_model_delta_client_work
from tf2jax_lite.federated.compose import build_apply_optimizer_finalizer, compose_learning_process
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.sources import create_model_from_fn


def build_clipping_client_work(model, learning_rate: float, max_norm: float) -> ClientWork:
    """Return FedAvg's client work with steps of at most ``lr * max_norm``."""
    work = build_model_delta_client_work(model, optax.sgd(learning_rate))

    def client_step(state, message, carry, batch):
        new = work.client_step(state, message, carry, batch)
        moved = jax.tree.map(jnp.subtract, new.trainable, carry.trainable)
        scale = jnp.minimum(1.0, learning_rate * max_norm / jnp.maximum(optax.tree.norm(moved), 1e-12))
        return new._replace(trainable=jax.tree.map(lambda old, m: old + scale * m, carry.trainable, moved))

    return dataclasses.replace(work, client_step=client_step)


def build_process(model, client_work: ClientWork):
    """Return FedAvg with the given client work; other blocks are as usual."""
    return compose_learning_process(
        model,
        client_work=client_work,
        aggregator=MeanFactory(),
        finalizer=build_apply_optimizer_finalizer(optax.sgd(1.0)),
        client_batching=ShuffleRepeatBatchHParams(batch_size=10, skip_shuffle=True, fill_remainder=False),
    )


def main() -> None:
    """Trains with and without clipping, and prints how far a round moves the weights."""
    rng = np.random.default_rng(0)
    clients = [
        ClientDataset(
            {"x": 5 * rng.normal(size=(30, 4)).astype(np.float32), "y": rng.integers(0, 3, 30).astype(np.int32)}
        )
        for _ in range(5)
    ]
    params = {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3)}
    model = create_model_from_fn(
        params, lambda p, b: b["x"] @ p["w"] + p["b"], named_loss("sparse_categorical_crossentropy", from_logits=True)
    )
    works = {
        "plain": build_model_delta_client_work(model, optax.sgd(0.5)),
        "clipped": build_clipping_client_work(model, 0.5, max_norm=0.1),
    }
    for name, work in works.items():
        process = build_process(model, work)
        _, metrics = process.next(process.initialize(), clients)
        print(f"{name}: the update's norm is {float(metrics['finalizer']['update_norm']):.4f}")


if __name__ == "__main__":
    main()
