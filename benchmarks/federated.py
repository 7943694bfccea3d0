"""Federated rounds against a native loop: seconds per round, peak memory.

    python -m benchmarks.federated --json out.jsonl        # rounds, ways and scaling; --only selects
    python -m benchmarks.render_federated out.jsonl        # writes docs/federated-performance.md

The rounds of both alternate, so that other work on the machine affects them equally. CPU time is more reliable than
wall time on a shared machine. Memory is measured in separate processes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.federated import workload
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.select import choose_backend
from tf2jax_lite.federated.models.sources import create_model_from_fn, create_model_from_tf
from tf2jax_lite.federated.templates.client_work import build_model_delta_client_work

BATCHING = ShuffleRepeatBatchHParams(batch_size=20, skip_shuffle=True, fill_remainder=False)
PARTS = ("rounds", "memory", "ways", "scaling")
SIZES = (10, 100, 1000, 10000)
GOALS = {"logistic regression": 0.6, "CNN": 0.5, "CNN converted from Keras": 0.5, "larger CNN": 0.67}
WAYS = ("cpu_pool", "scan", "vmap", "loop")


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
    return _params(
        {"conv1": (3, 3, 1, 16), "conv2": (3, 3, 16, 32), "dense1": (800, 64), "dense2": (64, workload.CLASSES)}
    )


def _params(shapes):
    params = {}
    for i, (name, shape) in enumerate(shapes.items()):
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        params[name] = jax.random.normal(jax.random.key(i), shape) * scale
        params[name + "_b"] = jnp.zeros(shape[-1])
    return params


def larger_cnn(params, batch):
    """FedJAX's network for EMNIST, without dropout."""
    x = batch["x"]
    for name in ("conv1", "conv2"):
        x = jax.lax.conv_general_dilated(x, params[name], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + params[name + "_b"])
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ params["dense1"] + params["dense1_b"])
    return x @ params["dense2"] + params["dense2_b"]


def larger_cnn_params():
    return _params(
        {"conv1": (3, 3, 1, 32), "conv2": (3, 3, 32, 64), "dense1": (9216, 128), "dense2": (128, workload.CLASSES)}
    )


def keras_cnn():
    """Return the same network in Keras, converted, with the same weights."""
    import keras

    L = keras.layers
    network = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            L.Conv2D(16, 3, activation="relu"),
            L.MaxPooling2D(),
            L.Conv2D(32, 3, activation="relu"),
            L.MaxPooling2D(),
            L.Flatten(),
            L.Dense(64, activation="relu"),
            L.Dense(workload.CLASSES),
        ]
    )
    network.set_weights([np.asarray(value) for value in cnn_params().values()])
    return create_model_from_tf(network, "sparse_categorical_crossentropy")


def exported_cnn():
    """Return the network as an artifact's StableHLO, for batches of 20.

    It cannot be rewritten.
    """
    shapes = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), cnn_params())
    x = {"x": jax.ShapeDtypeStruct((20, 28, 28, 1), jnp.float32)}
    held = jax.export.deserialize(jax.export.export(jax.jit(cnn))(shapes, x).serialize(vjp_order=1))
    return create_model_from_fn(
        cnn_params(), lambda params, batch: held.call(params, {"x": batch["x"]}), "sparse_categorical_crossentropy"
    )


def native(apply, make):
    return lambda: create_model_from_fn(make(), apply, "sparse_categorical_crossentropy")


# Name to the model of this library, the native network, its params, and clients per round.
MODELS = {
    "logistic regression": (native(logistic, logistic_params), logistic, logistic_params, 100),
    "CNN": (native(cnn, cnn_params), cnn, cnn_params, 10),
    "CNN converted from Keras": (keras_cnn, cnn, cnn_params, 10),
    "CNN in StableHLO": (exported_cnn, cnn, cnn_params, 10),
    "larger CNN": (native(larger_cnn, larger_cnn_params), larger_cnn, larger_cnn_params, 10),
}
# Models whose clients are given as ready batches.
READY = {"larger CNN"}


def native_loop(apply, params):
    """Return a native round: a jitted step for each client's batches; the mean."""

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


def contestants(name, **options):
    """Return our round and the native loop, as functions to the new weights.

    A model's clients are `ClientDataset`s, or lists of ready batches (`READY`).
    """
    build, apply, make, size = MODELS[name]
    clients = workload.make_clients()
    chosen = [clients[i] for i in workload.cohort(0, 200, size)]
    process = build_weighted_fed_avg(build(), optax.sgd(0.1), client_batching=BATCHING, **options)
    state = process.initialize()
    datasets = [workload.batches(c, 20) if name in READY else ClientDataset(c) for c in chosen]
    plain, start = native_loop(apply, make()), make()
    return (
        lambda: jax.block_until_ready(process.next(state, datasets).state.weights.trainable),
        lambda: plain(start, chosen),
    )


def in_turns(functions, repeats):
    """Return each function's median seconds, of the clock and the processor."""
    found = {name: ([], []) for name in functions}
    for _ in range(repeats):
        for name, fn in functions.items():
            clock, processor = time.perf_counter(), time.process_time()
            fn()
            found[name][0].append(time.perf_counter() - clock)
            found[name][1].append(time.process_time() - processor)
    return {n: {"clock": statistics.median(c), "processor": statistics.median(p)} for n, (c, p) in found.items()}


def one_round(name, repeats):
    """Return a record of a model's rounds: ours and the native loop."""
    ours, hand = contestants(name)
    found, expected = ours(), hand()
    if len(found) == len(expected) and set(found) != set(expected):  # Keras's names; no two weights have one shape
        by_shape = {np.shape(value): value for value in expected.values()}
        expected = {key: by_shape[np.shape(value)] for key, value in found.items()}
    error = max(float(np.max(np.abs(found[k] - expected[k]))) for k in expected)
    times = in_turns({"ours": ours, "native": hand}, repeats)
    return {"what": "rounds", "model": name, "clients": MODELS[name][3], "times": times, "difference": error}


def ways(name, repeats):
    """Return a record of execution backends, interleaved, and the default one.

    None stands for backends that are not supported.
    """
    found = {way: contestants(name, client_execution=way)[0] for way in WAYS}
    for way, fn in list(found.items()):
        try:
            fn()
        except InputError:  # an artifact's StableHLO cannot be batched
            del found[way]
    model, key = MODELS[name][0](), jax.random.key(0)
    work = build_model_delta_client_work(model, optax.sgd(0.1))
    batch = workload.batches(workload.make_clients(1, low=20, high=20)[0], 20)[0]
    chosen = choose_backend(work, Context(work.initialize(), (), model.init(key), key, key), batch, None)
    times = dict.fromkeys(WAYS) | in_turns(found, repeats)
    return {"what": "ways", "model": name, "times": times, "chosen": chosen}


def peak(name, who):
    """Print the peak memory of one round, and that after creation of data."""
    ours, hand = contestants(name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    {"ours": ours, "native": hand}[who]()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak": after // 1024, "more": (after - before) // 1024}))


def scale(number):
    """Print a round of logistic regression over ``number`` clients, 200 distinct."""
    clients = [ClientDataset(c) for c in workload.make_clients()]
    process = build_weighted_fed_avg(workload.jax_logistic(), optax.sgd(0.1), client_batching=BATCHING)
    state = process.initialize()
    state, _ = process.next(state, clients[:40])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cohort = [clients[i % 200] for i in range(number)]
    begin = time.perf_counter()
    jax.block_until_ready(process.next(state, cohort).state.weights.trainable)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"clients": number, "seconds": seconds, "peak": after // 1024, "more": (after - before) // 1024}))


def _elsewhere(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.federated", *arguments]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return json.loads(done.stdout.splitlines()[-1])


def records(only: str | None = None, repeats: int = 5) -> Iterator[dict[str, Any]]:
    """Yield records: see `render_federated`."""
    parts = PARTS if only is None else only.split(",")
    if "rounds" in parts:
        for name in GOALS:
            yield one_round(name, repeats)
    if "memory" in parts:
        for name in ("logistic regression", "CNN"):
            found = {who: _elsewhere("--peak", who, "--model", name) for who in ("ours", "native")}
            yield {"what": "memory", "model": name, "clients": MODELS[name][3], **found}
    if "ways" in parts:
        for name in ("logistic regression", "CNN", "CNN in StableHLO"):
            yield ways(name, repeats)
    if "scaling" in parts:
        for number in SIZES:
            yield {"what": "scaling", **_elsewhere("--clients", str(number))}


def main(options: Any = None) -> Iterator[dict[str, Any]]:
    """Yield all records; the suite ``federated`` of ``python -m benchmarks``."""
    del options
    yield from records()


def _command_line() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"comma separated: {', '.join(PARTS)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="append the records to this file")
    parser.add_argument("--clients", type=int, help="measure one size, in this process")
    parser.add_argument("--peak", choices=("ours", "native"), help="measure memory, in this process")
    parser.add_argument("--model", choices=MODELS, default="logistic regression")
    options = parser.parse_args()
    if options.clients:
        scale(options.clients)
    elif options.peak:
        peak(options.model, options.peak)
    else:
        for record in records(options.only, options.repeats):
            line = json.dumps({"suite": "federated", "load": os.getloadavg()[0], **record})
            print(line, flush=True)
            if options.json:
                with open(options.json, "a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    _command_line()
