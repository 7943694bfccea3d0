"""Execution of rounds: backends, reused memory, and convolutions on CPU."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from tests.federated import workload
from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.federated.aggregators import SumFactory
from tf2jax_lite.federated.algorithms.agnostic import build_agnostic_fed_avg
from tf2jax_lite.federated.algorithms.evaluation import build_fed_eval
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.algorithms.kmeans import build_fed_kmeans
from tf2jax_lite.federated.algorithms.scaffold import build_scaffold
from tf2jax_lite.federated.client_work import build_model_delta_client_work
from tf2jax_lite.federated.execution import Cohort, CohortRunner
from tf2jax_lite.federated.execution.backends import Context, can_be_batched, choose_backend, has_slow_convolution
from tf2jax_lite.federated.execution.cpu_pool import Arena, CpuPool, Pool
from tf2jax_lite.federated.execution.runner import _chunk_size
from tf2jax_lite.learning.data import BatchHParams, ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.metrics import PerDomainMetric, SequenceTokenAccuracy, SequenceTokenCrossEntropyLoss
from tf2jax_lite.learning.model import evaluate_model
from tf2jax_lite.learning.sources import create_model_from_fn
from tf2jax_lite.xla_cpu import optimize

DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def convolution(params, batch, groups=1):
    x = lax.conv_general_dilated(
        batch["x"], params["k"], (1, 1), "SAME", dimension_numbers=DIMENSIONS, feature_group_count=groups
    )
    return jnp.sum(x, axis=(1, 2))


def grouped(params, batch):
    return convolution(params, batch, groups=2)


def exported(params, batch):
    """As an artifact's StableHLO is called."""
    shapes = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), (params, batch))
    return jax.export.deserialize(jax.export.export(jax.jit(convolution))(*shapes).serialize(vjp_order=1)).call(
        params, batch
    )


@pytest.mark.full
@pytest.mark.parametrize("backend", ["scan", "cpu_pool", "vmap", "loop"])
@pytest.mark.filterwarnings("error")
def test_metrics_by_position(backend):
    """Their statistics have more dimensions; training and evaluation agree."""
    rng = np.random.default_rng(0)
    metrics = {
        "hits": SequenceTokenAccuracy(per_position=True),
        "by domain": PerDomainMetric(SequenceTokenCrossEntropyLoss(per_position=True), 2),
    }
    table = rng.normal(size=(7, 7)).astype(np.float32)
    model = create_model_from_fn(
        {"t": table},
        lambda p, b: p["t"][b["x"]],
        named_loss("sparse_categorical_crossentropy", from_logits=True),
        metrics,
    )
    clients = [{n: rng.integers(0, 7, (size, 4)).astype(np.int32) for n in ("x", "y")} for size in (5, 2, 7)]
    clients = [{**c, "domain_id": rng.integers(0, 2, len(c["x"])).astype(np.int32)} for c in clients]
    together = {name: np.concatenate([c[name] for c in clients]) for name in clients[0]}
    expected = evaluate_model(model, {"t": table}, [together])
    datasets, options = [ClientDataset(c) for c in clients], {"client_batching": BatchHParams(3)}
    evaluation = build_fed_eval(model, client_execution=backend, **options)
    found = evaluation.next(evaluation.initialize(), datasets).metrics["client_work"]["eval"]
    # A learning rate of zero: training measures the first weights.
    training = build_weighted_fed_avg(model, optax.sgd(0.0), train_metrics=metrics, client_execution=backend, **options)
    measured = training.next(training.initialize(), datasets).metrics["client_work"]["train"]
    for name in metrics:
        np.testing.assert_allclose(found["current_round_metrics"][name], expected[name], rtol=1e-5)
        np.testing.assert_allclose(measured[name], expected[name], rtol=1e-5)


@pytest.mark.default_cases("grouped-2-loop")
@pytest.mark.parametrize(
    ("apply", "channels", "backend"), [(convolution, 4, "cpu_pool"), (grouped, 2, "loop"), (exported, 4, "loop")]
)
def test_what_cannot_be_rewritten_runs_as_a_loop(apply, channels, backend):
    """XLA's CPU backend is slow at convolutions inside loops of any source."""
    params = {"k": np.ones((3, 3, channels, 4), np.float32)}
    model = create_model_from_fn(params, apply, named_loss("sparse_categorical_crossentropy", from_logits=True))
    work = build_model_delta_client_work(model, optax.sgd(0.1))
    context = Context(work.initialize(), (), model.init(jax.random.key(0)), jax.random.key(1), jax.random.key(2))
    batch = {"x": np.ones((2, 5, 5, 4), np.float32), "y": np.zeros(2, np.int32)}
    assert choose_backend(work, context, batch, None) == backend
    assert choose_backend(work, context, batch, None, alone=False) == "scan"
    assert can_be_batched(work, context, batch, None) == (apply is not exported)


def test_vmap_is_refused_for_functions_that_cannot_be_batched():
    model = create_model_from_fn(
        {"k": np.ones((3, 3, 4, 4), np.float32)},
        exported,
        named_loss("sparse_categorical_crossentropy", from_logits=True),
    )
    process = build_weighted_fed_avg(model, optax.sgd(0.1), client_execution="vmap")
    with pytest.raises(InputError, match="backend='source'"):
        process.next(process.initialize(), [[{"x": np.ones((2, 5, 5, 4), np.float32), "y": np.zeros(2, np.int32)}]])


@pytest.mark.full
def test_rewritten_convolutions_are_not_slow_in_loops():
    x, kernel = np.ones((2, 5, 5, 4), np.float32), np.ones((3, 3, 1, 4), np.float32)

    def depthwise(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=DIMENSIONS, feature_group_count=4)

    def gradient(fn):
        return jax.grad(lambda x, kernel: jnp.sum(fn(x, kernel) ** 2), (0, 1))

    def ordinary(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))

    images = np.ones((2, 4, 5, 5), np.float32), np.ones((3, 4, 3, 3), np.float32)
    for fn, args in ((depthwise, (x, kernel)), (ordinary, images)):
        assert has_slow_convolution(gradient(fn), *args)
        assert not has_slow_convolution(gradient(optimize(fn)), *args)
    assert not has_slow_convolution(jnp.add, x, x)


def test_memory_is_used_again_and_aligned():
    arena = Arena()
    first = arena.empty("x", (3, 5), np.float32)
    assert first.ctypes.data % 64 == 0
    again = arena.empty("x", (2, 2), np.int16)
    assert np.shares_memory(first, again) and not np.shares_memory(first, arena.empty("y", (3,), np.int8))
    assert not np.shares_memory(first, arena.empty("x", (100,), np.float64))
    pool = Pool(Arena)
    a, b = pool.borrow(2), pool.borrow(2)
    assert not set(map(id, a)) & set(map(id, b))
    pool.give_back(a)
    assert pool.borrow(3)[:2] == a


@pytest.mark.full
@pytest.mark.parametrize("backend", ["scan", "cpu_pool", "vmap", "loop"])
def test_rounds_in_threads_do_not_disturb_each_other(backend):
    """They share a runner, and more chunks than there are buffers."""
    process = build_weighted_fed_avg(
        workload.jax_logistic(6, 4),
        optax.sgd(0.5),
        client_batching=ShuffleRepeatBatchHParams(batch_size=7, fill_remainder=False),
        client_execution=backend,
        clients_per_chunk=2,
    )
    cohorts = [
        [ClientDataset(c) for c in workload.make_clients(14, seed=s, low=10, high=14, shape=(6,), classes=4)]
        for s in range(3)
    ]
    state = process.initialize()
    expected = [process.next(state, c).state.weights.trainable for c in cohorts]
    before = jax.tree.map(np.array, expected)
    found = [None] * len(cohorts)

    def run(i):
        for _ in range(3):
            found[i] = process.next(state, cohorts[i]).state.weights.trainable

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(cohorts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    # A round's results do not change when its memory is reused.
    jax.tree.map(np.testing.assert_array_equal, before, expected)


def test_a_mesh_needs_chunks():
    mesh = jax.make_mesh((1,), ("clients",))
    work = build_model_delta_client_work(workload.jax_logistic(6, 4), optax.sgd(0.1))
    with pytest.raises(InputError, match="a mesh shares chunks"):
        CohortRunner(work, SumFactory().create(np.zeros(2)), "loop", mesh=mesh)


MESH_CLIENTS = [ClientDataset(c) for c in workload.make_clients(5, seed=1, low=10, high=14, shape=(6,), classes=4)]
MESH_OPTIONS = {"client_batching": ShuffleRepeatBatchHParams(batch_size=7, fill_remainder=False)}
ON_A_MESH = {
    "scaffold": (
        lambda **k: build_scaffold(workload.jax_logistic(6, 4), 9, 0.3, **MESH_OPTIONS, **k),
        lambda clients: list(enumerate(clients)),
    ),
    "kmeans": (lambda **k: build_fed_kmeans(3, (6,), **MESH_OPTIONS, **k), list),
    "agnostic": (
        lambda **k: build_agnostic_fed_avg(
            workload.jax_logistic(6, 4),
            optax.sgd(0.3),
            init_domain_weights=[1, 2],
            init_domain_window=[[5, 5]],
            **MESH_OPTIONS,
            **k,
        ),
        lambda clients: [ClientDataset({**c.all_examples(), "domain_id": np.arange(len(c)) % 2}) for c in clients],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", ON_A_MESH)
def test_algorithms_with_a_state_of_their_own_run_on_a_mesh(name):
    """Per-client inputs and outputs work on a mesh. See also test_mesh.py."""
    build, data = ON_A_MESH[name]
    found = []
    for options in ({}, {"mesh": jax.make_mesh((1,), ("clients",))}):
        process = build(**options)
        state = process.initialize()
        for _ in range(2):
            state, metrics = process.next(state, [*data(MESH_CLIENTS)])
        assert int(metrics["clients"]["participated"]) == 5
        found.append(process.get_model_weights(state))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *found)


@pytest.mark.parametrize(
    ("feature", "says"),
    [
        ({"__mask__": np.ones(3, bool)}, "named '__mask__', which is the mask's name; rename it"),
        (
            {"y": np.zeros(3, "M8[s]")},
            "'y' is datetime64.s., which JAX has not; a prep.* must make numbers",
        ),
        ({"y": np.zeros(3, [("a", "i4")])}, "'y' is .*, which JAX has not"),
        ({"y": np.array(["a", "b", "c"])}, "'y' is text; a preprocessor must make numbers of it"),
    ],
)
@pytest.mark.parametrize("kind", [ClientDataset, lambda examples: [examples]], ids=["dataset", "batches"])
def test_features_that_are_not_numeric(feature, says, kind):
    """In ready batches the mask is a mask."""
    clients = [None, kind({"x": np.ones((3, 2), np.float32), **feature})]
    cohort = Cohort(clients, ShuffleRepeatBatchHParams(batch_size=2, num_epochs=1))
    if "__mask__" in feature and isinstance(clients[1], list):
        assert [client.steps for client in cohort.prepared()] == [1]
        return
    with pytest.raises(DataError, match=f"client 1 of the round: .*{says}"):
        list(cohort.prepared())


@pytest.mark.full
def test_bytes_in_another_order():
    """As files of big-endian numbers are read."""
    cohort = Cohort([[{"x": np.array([1, 2], ">f4"), "y": np.array([3, 4], ">i2")}]], None)
    (client,) = cohort.prepared()
    assert {name: (v.dtype, v.tolist()) for name, v in client.examples.items()} == {
        "x": (np.dtype("<f4"), [1, 2]),
        "y": (np.dtype("<i2"), [3, 4]),
    }


@pytest.mark.parametrize(
    ("clients", "batch_bytes", "workers", "size"),
    [
        (10, 1 << 16, 1, 10),
        (10, 1 << 16, 2, 5),  # few clients: a chunk for each core
        (3, 1 << 16, 4, 1),
        (100, 1 << 16, 1, 25),
        (100, 1 << 16, 3, 17),  # six chunks: as many for each core
        (1000, 1 << 24, 2, 16),
        (1000, 64, 2, 125),
    ],
)
def test_each_core_gets_as_many_chunks(clients, batch_bytes, workers, size):
    assert _chunk_size(clients, {"x": np.zeros(batch_bytes, np.int8)}, workers) == size


def test_a_small_cohort_runs_on_all_cores(monkeypatch):
    found = []
    workers = CpuPool.workers
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(CpuPool, "workers", lambda self, count, zero: found.append(count) or workers(self, count, zero))
    model = create_model_from_fn({"w": np.zeros(3, np.float32)}, lambda p, b: b["x"] @ p["w"], "mean_squared_error")
    process = build_weighted_fed_avg(
        model, optax.sgd(0.1), client_batching=BatchHParams(2), client_execution="cpu_pool"
    )
    rng = np.random.default_rng(0)
    clients = [
        ClientDataset({"x": rng.normal(size=(n, 3)).astype(np.float32), "y": np.ones(n, np.float32)}) for n in (4, 6)
    ]
    process.next(process.initialize(), clients)
    assert found == [2]
