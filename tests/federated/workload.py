"""A federated workload, and logistic regression in numpy as the oracle."""

from __future__ import annotations

import numpy as np

CLASSES = 62
PIXELS = 28 * 28


def make_clients(clients=200, seed=0, low=20, high=120, shape=(28, 28, 1), classes=CLASSES):
    """Return each client's ``x`` float32 (n, *shape) in [0, 1], ``y`` int32 (n,).

    Every client has its own mix of classes and its own style (brightness), so that clients differ.
    """
    rng = np.random.default_rng(seed)
    prototypes = rng.random((classes, *shape)).astype(np.float32)
    found = []
    for _ in range(clients):
        n = int(rng.integers(low, high + 1))
        mix = rng.dirichlet(np.full(classes, 0.5))
        y = rng.choice(classes, n, p=mix).astype(np.int32)
        noise = rng.random((n, *shape), dtype=np.float32)
        x = (0.5 + 0.5 * rng.random()) * (0.6 * prototypes[y] + 0.4 * noise)
        found.append({"x": x.astype(np.float32), "y": y})
    return found


def cohort(round_number, clients, size):
    """Return the round's clients: the same for everybody who runs the workload."""
    return np.sort(np.random.default_rng([7, round_number]).choice(clients, size, replace=False))


class Logistic:
    """Logistic regression in float64: weights (features, classes) and bias (classes,)."""

    @staticmethod
    def zeros(features=PIXELS, classes=CLASSES):
        return {"w": np.zeros((features, classes)), "b": np.zeros(classes)}

    @staticmethod
    def value_and_grad(p, batch, weights=None):
        """Return mean loss and gradient; ``weights`` are factors of the losses."""
        x = np.asarray(batch["x"], np.float64).reshape(len(batch["y"]), -1)
        y = np.asarray(batch["y"])
        z = x @ p["w"] + p["b"]
        z = z - z.max(1, keepdims=True)
        prob = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        rows = np.arange(len(y))
        scale = np.full(len(y), 1 / len(y)) if weights is None else np.asarray(weights, np.float64)
        loss = -(scale * np.log(prob[rows, y])).sum()
        d = prob.copy()
        d[rows, y] -= 1
        d *= scale[:, None]
        return loss, {"w": x.T @ d, "b": d.sum(0)}

    @classmethod
    def grad(cls, p, batch):
        return cls.value_and_grad(p, batch)[1]


def batches(client, size):
    """Return a client's batches in order, the last one short."""
    n = len(client["y"])
    return [{k: v[s : s + size] for k, v in client.items()} for s in range(0, n, size)]


def tree(fn, *trees):
    """Return ``fn`` of each entry of flat dicts."""
    return {k: fn(*(t[k] for t in trees)) for k in trees[0]}


def weighted_mean(updates, weights):
    """Return the weighted mean of flat dicts."""
    total = sum(weights)
    return tree(lambda *u: sum(w * v for w, v in zip(weights, u, strict=True)) / total, *updates)


def local_sgd(p, client, lr, size, epochs=1, direction=None):
    """Return weights after SGD on batches; ``direction`` replaces the gradient.

    It is called as ``direction(y, grad, batch)``.
    """
    y = p
    for _ in range(epochs):
        for batch in batches(client, size):
            g = Logistic.grad(y, batch)
            g = g if direction is None else direction(y, g, batch)
            y = tree(lambda a, b: a - lr * b, y, g)
    return y


def fed_avg(p, rounds, lr=0.1, size=20, server_lr=1.0):
    """Return weights after FedAvg over lists of clients (one list a round)."""
    for clients in rounds:
        updates = [tree(lambda a, b: a - b, local_sgd(p, c, lr, size), p) for c in clients]
        step = weighted_mean(updates, [len(c["y"]) for c in clients])
        p = tree(lambda a, b: a + server_lr * b, p, step)
    return p


def jax_logistic(features=PIXELS, classes=CLASSES, eval_metrics=None):
    """Return the same regression as a model of this library."""
    import jax.numpy as jnp

    from tf2jax_lite.learning.losses import named_loss
    from tf2jax_lite.learning.sources import create_model_from_fn

    def apply(params, batch):
        return batch["x"].reshape(batch["x"].shape[0], -1) @ params["w"] + params["b"]

    params = {"w": jnp.zeros((features, classes)), "b": jnp.zeros(classes)}
    loss = named_loss("sparse_categorical_crossentropy", from_logits=True)
    return create_model_from_fn(params, apply, loss, eval_metrics or {})
