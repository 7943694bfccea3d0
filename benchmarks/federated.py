"""The suites federated and federated_algorithms: rounds, and curves of algorithms.

federated: rounds against a native loop, memory, execution backends, scaling, several devices, programs of algorithms,
and simulated times; ``--only rounds,memory,ways,scaling,mesh,programs,asynchronous`` selects. Memory is measured in
processes of their own. federated_algorithms: losses
and accuracies by round on synthetic EMNIST; classes and brightness differ among clients, and all algorithms have the
same cohorts, batches and local epochs. The privacy budget needs the extra ``dp``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.federated import workload
from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators
from tf2jax_lite.federated.client_work import build_model_delta_client_work
from tf2jax_lite.federated.execution.backends import Context, choose_backend
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.sources import create_model_from_fn, create_model_from_tf

from .records import Result
from .timing import in_process, in_turns, reset_peak, resident, seconds

BATCHING = ShuffleRepeatBatchHParams(batch_size=20, skip_shuffle=True, fill_remainder=False)
PARTS = ("rounds", "memory", "ways", "scaling", "mesh", "programs", "asynchronous")
SIZES = {"small": (2, 4), "full": (10, 1000, 100_000, 1_000_000)}
DEVICES = {"small": (1, 2), "full": (1, 8)}
WAYS = ("cpu_pool", "scan", "vmap", "loop")
LOSS = named_loss("sparse_categorical_crossentropy", from_logits=True)


def logistic(params, batch):
    return batch["x"].reshape(batch["x"].shape[0], -1) @ params["w"] + params["b"]


def logistic_params(inputs=workload.PIXELS, classes=workload.CLASSES):
    return {"w": jnp.zeros((inputs, classes)), "b": jnp.zeros(classes)}


def cnn(params, batch, *, pools=2):
    """Two convolutions, the last ``pools`` of them with pooling, and two dense layers."""
    x = batch["x"]
    for number, name in enumerate(("conv1", "conv2")):
        x = jax.lax.conv_general_dilated(x, params[name], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + params[name + "_b"])
        if number >= 2 - pools:
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["dense1"] + params["dense1_b"])
    return x @ params["dense2"] + params["dense2_b"]


def larger_cnn(params, batch):
    """FedJAX's network for EMNIST, without dropout."""
    return cnn(params, batch, pools=1)


def cnn_params(first=16, second=32, flat=800, dense=64):
    shapes = {"conv1": (3, 3, 1, first), "conv2": (3, 3, first, second), "dense1": (flat, dense)}
    params = {}
    for i, (name, shape) in enumerate((shapes | {"dense2": (dense, workload.CLASSES)}).items()):
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        params[name] = jax.random.normal(jax.random.key(i), shape) * scale
        params[name + "_b"] = jnp.zeros(shape[-1])
    return params


def larger_cnn_params():
    return cnn_params(32, 64, 9216, 128)


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
    return create_model_from_tf(network, LOSS)


def exported_cnn():
    """Return the network as an artifact's StableHLO, for batches of 20.

    It cannot be rewritten.
    """
    shapes = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), cnn_params())
    x = {"x": jax.ShapeDtypeStruct((20, 28, 28, 1), jnp.float32)}
    held = jax.export.deserialize(jax.export.export(jax.jit(cnn))(shapes, x).serialize(vjp_order=1))
    return create_model_from_fn(cnn_params(), lambda params, batch: held.call(params, {"x": batch["x"]}), LOSS)


def native(apply, make):
    return lambda: create_model_from_fn(make(), apply, LOSS)


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
    process = fed.build_weighted_fed_avg(build(), optax.sgd(0.1), client_batching=BATCHING, **options)
    state = process.initialize()
    datasets = [workload.batches(c, 20) if name in READY else ClientDataset(c) for c in chosen]
    plain, start = native_loop(apply, make()), make()
    return (
        lambda: jax.block_until_ready(process.next(state, datasets).state.weights.trainable),
        lambda: plain(start, chosen),
    )


def _rounds(name: str, options: Any) -> Result:
    """Return the times of a model's rounds, and the difference of weights."""
    ours, hand = contestants(name)
    found, expected = ours(), hand()
    if len(found) == len(expected) and set(found) != set(expected):  # Keras's names; no two weights have one shape
        by_shape = {np.shape(value): value for value in expected.values()}
        expected = {key: by_shape[np.shape(value)] for key, value in found.items()}
    error = max(float(np.max(np.abs(found[k] - expected[k]))) for k in expected)
    times = _times({"tf2jax_lite": ours, "native": hand}, options)
    return {"what": "rounds", "model": name, "clients": MODELS[name][3]}, {"times": times, "difference": error}


def _times(runs: dict[str, Callable[[], Any]], options: Any) -> dict[str, Any]:
    timed = {name: lambda run=run: seconds(run) for name, run in runs.items()}
    return in_turns(timed, rounds=options.rounds or 5, budget=float("inf"))


def _ways(name: str, options: Any) -> Result:
    """Return the times of execution backends, and the default one."""
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
    return {"what": "ways", "model": name}, {"times": _times(found, options), "chosen": chosen}


def _memory(name: str, who: str) -> dict[str, int]:
    """Return the peak memory of one round, and that above its data, in bytes."""
    ours, hand = contestants(name)
    reset_peak()
    before = resident()
    {"ours": ours, "native": hand}[who]()
    return {"peak": resident(), "more": resident() - before}


def _scaling(number: int) -> dict[str, Any]:
    """Run a round of logistic regression over ``number`` clients, 200 distinct."""
    clients = [ClientDataset(c) for c in workload.make_clients()]
    process = fed.build_weighted_fed_avg(workload.jax_logistic(), optax.sgd(0.1), client_batching=BATCHING)
    state = process.initialize()
    state, _ = process.next(state, clients[:40])
    reset_peak()
    before = resident()
    cohort = [clients[i % 200] for i in range(number)]
    begin = time.perf_counter()
    jax.block_until_ready(process.next(state, cohort).state.weights.trainable)
    return {"seconds": time.perf_counter() - begin, "memory": {"peak": resident(), "more": resident() - before}}


def _on_devices(number: int) -> tuple[dict[str, Any], Any]:
    """Return the times of rounds of 200 clients over devices, and the last weights."""
    clients = [ClientDataset(c) for c in workload.make_clients()]
    mesh = jax.make_mesh((number,), ("clients",)) if number > 1 else None
    process = fed.build_weighted_fed_avg(workload.jax_logistic(), optax.sgd(0.1), client_batching=BATCHING, mesh=mesh)
    state, found = process.initialize(), []
    for _ in range(5):
        begin = time.perf_counter()
        state = jax.block_until_ready(process.next(state, clients).state)
        found.append(time.perf_counter() - begin)
    return {"first": found[0], "later": statistics.median(found[1:])}, jax.device_get(state.weights.trainable)


def _mesh(options: Any) -> Iterator[Result]:
    """Yield the times of rounds over virtual devices, and weights beside one's."""
    alone = None
    for number in DEVICES[options.size]:
        flags = f"--xla_force_host_platform_device_count={number}"
        times, weights = in_process(_on_devices, number, XLA_FLAGS=flags)
        alone = weights if alone is None else alone
        difference = max(
            float(np.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (alone, weights)), strict=True)
        )
        yield {"what": "mesh", "devices": number}, {"seconds": times, "difference": difference}


def rounds(options: Any) -> Iterator[Result]:
    """Yield the results of the suite federated."""
    parts = options.only.split(",") if options.only else PARTS
    if "rounds" in parts:
        for name in ("logistic regression", "CNN", "CNN converted from Keras", "larger CNN"):
            yield _rounds(name, options)
    if "memory" in parts:
        for name in ("logistic regression", "CNN"):
            found = {who: in_process(_memory, name, who) for who in ("ours", "native")}
            yield {"what": "memory", "model": name, "clients": MODELS[name][3]}, {"memory": found}
    if "ways" in parts:
        for name in ("logistic regression", "CNN", "CNN in StableHLO"):
            yield _ways(name, options)
    if "scaling" in parts:
        for number in SIZES[options.size]:
            yield {"what": "scaling", "clients": number}, in_process(_scaling, number)
    if "mesh" in parts:
        yield from _mesh(options)
    if "programs" in parts:
        yield from _programs(options)
    if "asynchronous" in parts:
        yield from _asynchronous(options)


def _each_algorithm() -> dict[str, Any]:
    """Return processes of logistic regression that take the same clients."""
    model, sgd, options = workload.jax_logistic(), optax.sgd(0.1), {"client_batching": BATCHING}
    private = aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.5, 10, 0.5)
    return {
        "FedAvg": fed.build_weighted_fed_avg(model, sgd, **options),
        "FedProx": fed.build_weighted_fed_prox(model, 0.1, sgd, **options),
        "FedSGD": fed.build_fed_sgd(model, **options),
        "FedAdam": fed.build_fed_opt(model, sgd, "adam", 0.003, **options),
        "FedNova": fed.build_fed_nova(model, 0.1, **options),
        "FedDyn": fed.build_fed_dyn(model, 200, 0.1, sgd, **options),
        "SCAFFOLD": fed.build_scaffold(model, 200, 0.1, **options),
        "Mime": fed.build_mime(model, sgd, **options),
        "Ditto": fed.build_ditto(model, 0.1, sgd, **options),
        "APFL": fed.build_apfl(model, sgd, **options),
        "Per-FedAvg": fed.build_per_fed_avg(model, 0.1, sgd, **options),
        "HypCluster": fed.build_hyp_cluster(model, 2, sgd, **options),
        "FedBuff": fed.build_fed_buff(model, sgd, concurrency=20, **options),
        "DP-FedAvg": fed.build_unweighted_fed_avg(model, sgd, aggregator=private, **options),
        "median of clients": fed.build_unweighted_fed_avg(
            model, sgd, aggregator=aggregators.CoordinateMedianFactory(), **options
        ),
    }


@contextlib.contextmanager
def _compiled() -> Iterator[list[str]]:
    """Yield the messages of XLA's compilations."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("jax")
    kept, logger.handlers = logger.handlers, [handler]
    try:
        with jax.log_compiles():
            yield found
    finally:
        logger.handlers = kept


def _programs(options: Any) -> Iterator[Result]:
    """Yield each algorithm's programs of clients' work, and its time for a round."""
    clients = [(f"client {i}", ClientDataset(c)) for i, c in enumerate(workload.make_clients())]
    number = 4 if options.size == "small" else 20
    for name, process in _each_algorithm().items():
        rng, state, times = np.random.default_rng(0), process.initialize(), []
        with _compiled() as messages:
            for _ in range(number):
                chosen = [clients[i] for i in rng.choice(200, int(rng.integers(5, 21)), replace=False)]
                begin = time.process_time()
                state = jax.block_until_ready(process.next(state, chosen).state)
                times.append((time.process_time() - begin) / len(chosen))
        programs = sum("Finished XLA compilation of jit(run)" in message for message in messages)
        later = statistics.median(times[number // 2 :])
        yield {"what": "programs", "algorithm": name}, {"programs": programs, "rounds": number, "seconds": later}


def _asynchronous(options: Any) -> Iterator[Result]:
    """Yield simulated seconds to a loss, by how rounds wait for clients.

    It is the loss of 40 rounds that wait for all of their clients.
    """
    small = options.size == "small"
    settings = Settings(clients=10, clients_per_round=2, rounds=2) if small else Settings(clients_per_round=10)
    model, sgd = logistic_regression(), optax.sgd(settings.client_rate)
    train, test = _emnist(settings)
    batches = list(fed.padded_batch_federated_data(test, batch_size=256))
    latency, each = fed.lognormal_latency(1.0, 1.0), settings.clients_per_round
    batching = {"client_batching": fed.ShuffleRepeatBatchHParams(settings.batch_size, fill_remainder=False)}
    average = fed.build_unweighted_fed_avg(model, sgd, **batching)
    buffered = fed.build_fed_buff(model, sgd, buffer_size=each, concurrency=2 * each, latency=latency, **batching)
    goal = 0.0
    for name, process, drawn in (
        ("all clients", average, each),
        ("the first of 1.5 times as many", average, each * 3 // 2),
        ("FedBuff, twice as many at a time", buffered, 2 * each),
    ):
        sampler: Any = fed.UniformGetClientSampler(train, num_clients=drawn, seed=0)
        if process is average:
            sampler = fed.DeadlineSampler(sampler, each, latency)
        state, spent, number, loss = process.initialize(jax.random.key(0)), 0.0, 0, np.inf
        while number < settings.rounds if not goal else loss > goal and number < 10 * settings.rounds:
            state, metrics = process.next(state, sampler.sample())
            spent += sampler.seconds if process is average else float(metrics["buffer"]["seconds"])
            number += 1
            loss = float(fed.evaluate_model(model, process.get_model_weights(state), batches)["loss"])
        goal = goal or loss
        yield {"what": "asynchronous", "waits": name}, {"simulated": spent, "rounds": number, "loss": loss}


# --- Curves of algorithms


@dataclasses.dataclass(frozen=True)
class Settings:
    """The size of the experiment."""

    clients: int = 200
    clients_per_round: int = 20
    rounds: int = 40
    every: int = 2  # rounds between evaluations
    epochs: int = 2
    batch_size: int = 20
    client_rate: float = 0.05
    noise_multiplier: float = 0.5
    clip: float = 0.5


def as_example(client_id: Any, examples: Any) -> dict[str, Any]:
    """Return flat images, dark on white as 0 on 1 in EMNIST, with ink as 1."""
    return {"x": 1 - examples["pixels"].reshape(-1, 784), "y": examples["label"]}


def logistic_regression() -> fed.Model:
    return create_model_from_fn(logistic_params(784, 62), logistic, LOSS, {"accuracy": fed.metrics.Accuracy()})


def processes(settings: Settings) -> dict[str, Any]:
    """Return the algorithms by name."""
    model, sgd = logistic_regression(), optax.sgd(settings.client_rate)
    batching = fed.ShuffleRepeatBatchHParams(settings.batch_size, num_epochs=settings.epochs, fill_remainder=False)
    options: dict[str, Any] = {"client_batching": batching}
    private = aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        settings.noise_multiplier, settings.clients_per_round, settings.clip
    )
    return {
        "FedAvg": fed.build_weighted_fed_avg(model, sgd, **options),
        "FedProx": fed.build_weighted_fed_prox(model, 0.1, sgd, **options),
        "SCAFFOLD": fed.build_scaffold(model, settings.clients, settings.client_rate, **options),
        "FedAdam": fed.build_fed_opt(model, sgd, "adam", 0.003, **options),
        "Mime": fed.build_mime(model, optax.sgd(settings.client_rate, momentum=0.9), **options),
        "DP-FedAvg": fed.build_unweighted_fed_avg(model, sgd, aggregator=private, **options),
    }


def _emnist(settings: Settings) -> list[Any]:
    """Return clients to train on, and others."""
    return [
        fed.datasets.EMNIST.synthetic(number, seed=seed).preprocess_client(as_example)
        for seed, number in enumerate((settings.clients, max(settings.clients // 5, 1)))
    ]


def curve(process: Any, settings: Settings) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield loss and accuracy on clients that do not train, with the round."""
    train, test = _emnist(settings)
    batches = list(fed.padded_batch_federated_data(test, batch_size=256))
    sampler = fed.UniformGetClientSampler(train, num_clients=settings.clients_per_round, seed=0)
    model, state = logistic_regression(), process.initialize(jax.random.key(0))
    for number in range(settings.rounds + 1):
        if number % settings.every == 0:
            metrics = fed.evaluate_model(model, process.get_model_weights(state), batches)
            yield number, {name: round(float(metrics[name]), 4) for name in ("loss", "accuracy")}
        if number < settings.rounds:
            state, _ = process.next(state, sampler.sample())


def algorithms(options: Any) -> Iterator[Result]:
    """Yield the settings, the privacy budget of DP-FedAvg, and the curves.

    The size "small" is for tests.
    """
    small = options.size == "small"
    settings = Settings(clients=10, clients_per_round=2, rounds=2, every=1, epochs=1) if small else Settings()
    delta = 1 / (10 * settings.clients)
    epsilon = aggregators.gaussian_epsilon(
        settings.noise_multiplier,
        settings.rounds,
        settings.clients_per_round,
        settings.clients,
        delta,
        sampling="fixed_size",
    )
    yield {"what": "settings"}, dataclasses.asdict(settings)
    yield {"what": "privacy", "algorithm": "DP-FedAvg"}, {"epsilon": round(epsilon, 2), "delta": delta}
    for name, process in processes(settings).items():
        for number, values in curve(process, settings):
            yield {"algorithm": name, "round": number}, values
