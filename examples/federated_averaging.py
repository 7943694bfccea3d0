"""Federated averaging (McMahan et al. 2017) in plain JAX.

`build_weighted_fed_avg` adds to this padding, execution of many clients at once, aggregators, checkpoints and failing
clients.
"""

import jax
import jax.numpy as jnp


def loss(params, batch):
    """Return the mean squared error of a linear model."""
    return jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2)


@jax.jit
def step(params, batch, learning_rate):
    """Return params after a step of SGD."""
    grads = jax.grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - learning_rate * g, params, grads)


def train_client(params, batches, learning_rate):
    """Return a client's update, initial minus final params, and its example count."""
    trained = params
    for batch in batches:
        trained = step(trained, batch, learning_rate)
    return jax.tree.map(jnp.subtract, params, trained), sum(len(batch["y"]) for batch in batches)


def weighted_mean(trees, weights):
    """Return the mean of trees of arrays."""
    total = sum(weights)
    return jax.tree.map(lambda *parts: sum(w / total * part for w, part in zip(weights, parts, strict=True)), *trees)


def federated_averaging(params, clients, rounds, learning_rate=0.1, server_learning_rate=1.0):
    """Train params on clients, each a list of batches."""
    for _ in range(rounds):
        updates, examples = zip(*(train_client(params, batches, learning_rate) for batches in clients), strict=True)
        mean = weighted_mean(updates, examples)
        params = jax.tree.map(lambda p, u: p - server_learning_rate * u, params, mean)
    return params
