"""Federated rounds against a plain JAX loop of jitted steps, written by hand: seconds a round and peak memory.

    python benchmarks/federated.py            # logistic regression and a CNN, 100 of 200 clients a round
    python benchmarks/federated.py --scaling  # 10, 100, 1,000 and 10,000 simulated clients a round

Each measurement is the best of several rounds, taken in turns: other work on the machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.federated import workload
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.federated.model_sources import create_model_from_fn

BATCHING = ShuffleRepeatBatchHParams(batch_size=20, skip_shuffle=True, fill_remainder=False)


def logistic(params, batch):
    return batch["x"].reshape(batch["x"].shape[0], -1) @ params["w"] + params["b"]


def logistic_params():
    return {"w": jnp.zeros((workload.PIXELS, workload.CLASSES)), "b": jnp.zeros(workload.CLASSES)}


def cnn(params, batch):
    x = batch["x"]
    for name in ("conv1", "conv2"):
        x = jax.lax.conv_general_dilated(x, params[name], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + params[name + "_b"])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["dense1"] + params["dense1_b"])
    return x @ params["dense2"] + params["dense2_b"]


def cnn_params():
    shapes = {"conv1": (3, 3, 1, 16), "conv2": (3, 3, 16, 32), "dense1": (800, 64), "dense2": (64, workload.CLASSES)}
    params = {}
    for i, (name, shape) in enumerate(shapes.items()):
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        params[name] = jax.random.normal(jax.random.key(i), shape) * scale
        params[name + "_b"] = jnp.zeros(shape[-1])
    return params


MODELS = {"logistic": (logistic, logistic_params), "cnn": (cnn, cnn_params)}


def by_hand(apply, params):
    """Returns a round as people write it: for each client, for each batch, a jitted step; then the mean."""

    @jax.jit
    def step(params, batch):
        def loss(params):
            log = jax.nn.log_softmax(apply(params, batch))
            return -jnp.mean(jnp.take_along_axis(log, batch["y"][:, None], 1))

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    @jax.jit
    def add(total, new, old, weight):
        return jax.tree.map(lambda t, n, o: t + weight * (n - o), total, new, old)

    def round_fn(params, clients):
        total, weight = jax.tree.map(jnp.zeros_like, params), 0
        for client in clients:
            local = params
            for batch in workload.batches(client, 20):
                local = step(local, batch)
            total = add(total, local, params, len(client["y"]))
            weight += len(client["y"])
        return jax.block_until_ready(jax.tree.map(lambda p, t: p + t / weight, params, total))

    return round_fn


def compare(name, repeats):
    apply, make = MODELS[name]
    clients = workload.make_clients()
    chosen = [clients[i] for i in workload.cohort(0, 200, 100)]
    model = create_model_from_fn(make(), apply, "sparse_categorical_crossentropy")
    process = build_weighted_fed_avg(model, optax.sgd(0.1), client_batching=BATCHING)
    state = process.initialize()
    datasets = [ClientDataset(c) for c in chosen]
    plain = by_hand(apply, make())

    def ours():
        return jax.block_until_ready(process.next(state, datasets).state.weights.trainable)

    found, expected = ours(), plain(make(), chosen)
    error = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True))
    times = {"ours": [], "by hand": []}
    for _ in range(repeats):
        for key, fn in (("ours", ours), ("by hand", lambda: plain(make(), chosen))):
            begin = time.perf_counter()
            fn()
            times[key].append(time.perf_counter() - begin)
    best = {key: min(values) for key, values in times.items()}
    median = {key: sorted(values)[len(values) // 2] for key, values in times.items()}
    print(
        f"{name}: {best['ours']:.3f} s a round, by hand {best['by hand']:.3f} s; "
        f"ratio {best['ours'] / best['by hand']:.2f} "
        f"(medians {median['ours'] / median['by hand']:.2f}); largest difference of weights {error:.1e}",
        flush=True,
    )


def scale(number):
    """One round of logistic regression over ``number`` clients, of which 200 are different."""
    clients = [ClientDataset(c) for c in workload.make_clients()]
    cohort = [clients[i % 200] for i in range(number)]
    process = build_weighted_fed_avg(workload.jax_logistic(), optax.sgd(0.1), client_batching=BATCHING)
    state = process.initialize()
    state, _ = process.next(state, cohort[:20])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    jax.block_until_ready(process.next(state, cohort).state.weights.trainable)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {"clients": number, "seconds": round(seconds, 2), "peak MiB": peak // 1024, "more": (peak - before) // 1024}
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--clients", type=int, help="measure one size, in this process")
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.clients:
        scale(options.clients)
    elif options.scaling:
        for number in (10, 100, 1000, 10000):
            subprocess.run([sys.executable, __file__, "--clients", str(number)], check=True)
    else:
        for name in [options.model] if options.model else MODELS:
            compare(name, options.repeats)


if __name__ == "__main__":
    main()
