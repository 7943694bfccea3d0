"""Flower's round equals the simulation's, with messages passed here."""

import copy
import functools
import tomllib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    QFedAvg,
)

from tests.docs.blocks import DOCS, blocks
from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import flower
from tf2jax_lite.federated.aggregators import CoordinateMedianFactory, UnweightedMeanFactory, robust_aggregator
from tf2jax_lite.federated.client_work import build_model_delta_client_work
from tf2jax_lite.federated.compose import build_add_finalizer, build_apply_optimizer_finalizer, compose_learning_process
from tf2jax_lite.learning.checkpoints import CheckpointFile
from tf2jax_lite.learning.model import evaluate_model
from tf2jax_lite.learning.process import ModelWeights

from . import apps


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch):
    """Flower's newer messages ask which run they belong to; its processes set that."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(identity, name, 1, raising=False)


DATA = {}


@functools.cache
def _client_app(batching, mods=()):
    """Return one app for all tests, which compiles once, and looks data up."""
    return flower.client_app(
        apps.MODEL, lambda context: DATA[context.node_id], client_work=apps.WORK, client_batching=batching, mods=mods
    )


class Grid:
    """Simulated network: node ids are not indices, and replies are reordered."""

    run = SimpleNamespace(run_id=1)

    def __init__(self, datasets, fail=(), mods=()):
        self._data = {1000 - 7 * index: dataset for index, dataset in enumerate(datasets)}
        self._fail = set(fail)
        self._states = {node: RecordDict() for node in self._data}
        self.app = _client_app(apps.BATCHING, mods)
        self.sent, self.received, self.run_config = [], [], {}

    def fails(self, message):
        """Return whether a message's client drops out."""
        return message.metadata.dst_node_id in self._fail

    def get_node_ids(self):
        return list(self._data)

    def context(self, node):
        """Return a client's context, with the state that it keeps."""
        place = {"partition-id": list(self._data).index(node), "num-partitions": len(self._data)}
        return Context(run_id=1, node_id=node, node_config=place, state=self._states[node], run_config=self.run_config)

    def cohorts(self, size):
        """Return the data of the nodes that trained, by round."""
        nodes = [m.metadata.dst_node_id for m in self.sent if m.metadata.message_type == "train"]
        return [[(n, self._data[n]) for n in nodes[i : i + size]] for i in range(0, len(nodes), size)]

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        assert isinstance(messages, list), "Flower's grid goes over them twice"
        for message in messages:
            self.sent.append(message)
            node = message.metadata.dst_node_id
            DATA[node] = self._data[node]
            context = self.context(node)
            if self.fails(message):
                replies.append(Message(Error(code=1, reason="it broke"), reply_to=message))
            else:
                replies.append(self.app(copy.deepcopy(message), context))  # a network copies, too
        self.received += replies
        return replies[::-1]


def _server_context(**run_config):
    return Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=run_config)


def _run(strategy, grid, num_rounds=apps.ROUNDS, **options):
    found = []
    app = flower.server_app(
        strategy, apps.MODEL, num_rounds=num_rounds, on_result=lambda *result: found.append(result), **options
    )
    app(grid, _server_context())
    return found[0]


@functools.cache
def _process(finalizer, batching, aggregator):
    return compose_learning_process(
        apps.MODEL,
        client_work=apps.WORK,
        aggregator=aggregator or apps.aggregator(),
        client_batching=batching,
        finalizer=finalizer or build_add_finalizer(),
    )


def _simulated(datasets, rounds=apps.ROUNDS, finalizer=None, batching=apps.BATCHING, aggregator=None):
    process = _process(finalizer, batching, aggregator)
    state = process.initialize()
    for _ in range(rounds):
        state, metrics = process.next(state, datasets)
    return state, metrics


def _assert_same(weights, expected):
    assert jax.tree.structure(weights) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(weights), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=1e-5, atol=1e-6)


def _same_round(weights, datasets):
    """Compare weights with those of one round of the simulation."""
    _assert_same(weights, _simulated(datasets, rounds=1)[0].weights)


def _in_order_of_nodes(datasets):
    """Return datasets by falling node ids: rounds' cohorts are sorted by node."""
    return list(datasets)[::-1]


@pytest.mark.parametrize("finalizer", [None, build_apply_optimizer_finalizer(optax.adam(0.1))], ids=["add", "adam"])
def test_blocks_are_the_simulation(finalizer):
    datasets = apps.clients(3)
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), finalizer=finalizer)
    weights, result = _run(strategy, Grid(datasets))
    state, metrics = _simulated(_in_order_of_nodes(datasets), finalizer=finalizer)
    _assert_same(weights, state.weights)
    assert int(strategy.state.round) == apps.ROUNDS
    train = result.train_metrics_clientapp[apps.ROUNDS]
    assert train["clients/participated"] == 3
    np.testing.assert_allclose(train["loss"], metrics["client_work"]["train"]["loss"], rtol=1e-5)


@pytest.mark.parametrize(
    "factory", [CoordinateMedianFactory(), UnweightedMeanFactory()], ids=lambda f: type(f).__name__
)
def test_other_aggregators(factory):
    datasets = apps.clients(3)
    weights, _ = _run(flower.BlocksStrategy(apps.MODEL, aggregator=factory, evaluate=False), Grid(datasets))
    _assert_same(weights, _simulated(_in_order_of_nodes(datasets), aggregator=factory)[0].weights)


@pytest.mark.parametrize("fill", [False, True])
def test_flowers_own_fedavg(fill):
    """FedAvg averages weights by example counts, as simulation does changes.

    What fills up a last batch does not count in either.
    """
    datasets = apps.clients(2)
    # FedAvg sends no client index, so each client would shuffle as the first of a cohort: keep the order instead.
    grid = Grid(datasets)
    plain = apps.BATCHING.replace(skip_shuffle=True, fill_remainder=fill)
    grid.app = _client_app(plain)
    weights, result = _run(FedAvg(), grid)
    state, _ = _simulated(datasets, batching=plain)
    _assert_same(weights, state.weights)
    assert set(result.evaluate_metrics_clientapp[1]) >= {"loss"}


def test_failing_clients_count_for_nothing():
    datasets = apps.clients(3)
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator())
    weights, result = _run(strategy, Grid(datasets, fail=[1000 - 7]))
    ordered = _in_order_of_nodes(datasets)
    ordered[1] = None
    _assert_same(weights, _simulated(ordered)[0].weights)
    assert result.train_metrics_clientapp[1]["clients/failed"] == 1


def test_clients_without_data_and_an_empty_cohort():
    datasets = apps.clients(2)
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator())
    weights, result = _run(strategy, Grid([datasets[0], datasets[1][:0]]))
    _assert_same(weights, _simulated([None, datasets[0]])[0].weights)
    assert result.train_metrics_clientapp[1]["clients/empty"] == 1
    weights, _ = _run(flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator()), Grid(datasets, fail=[1000, 993]))
    _assert_same(weights, apps.MODEL.init(jax.random.key(0)))


def test_evaluation():
    datasets = apps.clients(2)
    seen = []
    weights, result = _run(
        flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator()),
        Grid(datasets),
        evaluate_fn=lambda number, weights: seen.append((number, weights)) or {"norm": float(number)},
    )
    losses = [float(evaluate_model(apps.MODEL, weights, [d.all_examples()])["loss"]) for d in datasets]
    expected = np.average(losses, weights=[len(d) for d in datasets])
    np.testing.assert_allclose(result.evaluate_metrics_clientapp[apps.ROUNDS]["loss"], expected, rtol=1e-5)
    assert [number for number, _ in seen] == [0, 1, 2, 3] and isinstance(seen[-1][1], ModelWeights)
    assert result.evaluate_metrics_serverapp[2]["norm"] == 2.0


def test_some_nodes_a_round():
    grid = Grid(apps.clients(5))
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), clients_per_round=2, evaluate=False)
    _run(strategy, grid)
    cohorts = [[m.metadata.dst_node_id for m in grid.sent[i : i + 2]] for i in range(0, 6, 2)]
    assert all(len(set(cohort)) == 2 for cohort in cohorts) and len({tuple(c) for c in cohorts}) > 1
    again = Grid(apps.clients(5))
    _run(flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), clients_per_round=2, evaluate=False), again)
    assert [m.metadata.dst_node_id for m in again.sent] == [m.metadata.dst_node_id for m in grid.sent]


def test_a_training_goes_on_from_its_state():
    datasets = apps.clients(2)
    first = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator())
    _run(first, Grid(datasets))
    second = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator())
    second.state = first.state
    weights, _ = _run(second, Grid(datasets))
    _assert_same(weights, _simulated(_in_order_of_nodes(datasets), rounds=2 * apps.ROUNDS)[0].weights)


OF_PROCESS = {"client_batching": apps.BATCHING}
PROCESSES = {
    "scaffold": lambda rate=0.3: fed.build_scaffold(apps.MODEL, 4, rate, server_learning_rate=0.7, **OF_PROCESS),
    "apfl": lambda: fed.build_apfl(apps.MODEL, optax.sgd(0.3), **OF_PROCESS),
    "ditto": lambda: fed.build_ditto(apps.MODEL, 0.2, optax.sgd(0.3), **OF_PROCESS),
    "fed_dyn": lambda: fed.build_fed_dyn(apps.MODEL, 4, 0.1, optax.sgd(0.3), **OF_PROCESS),
    "fed_nova": lambda: fed.build_fed_nova(apps.MODEL, 0.3, momentum=0.5, **OF_PROCESS),
    "per_fed_avg": lambda: fed.build_per_fed_avg(apps.MODEL, 0.1, optax.sgd(0.3), **OF_PROCESS),
    "clipped scaffold": lambda: fed.build_scaffold(
        apps.MODEL, 4, 0.3, aggregator=robust_aggregator(weighted=False), **OF_PROCESS
    ),
}


def _trained(process, grid, work=None, **options):
    """Return weights, the strategy and the simulation's state; 3 nodes a round."""
    grid.app = flower.client_app(apps.MODEL, lambda context: DATA[context.node_id], client_work=work or process)
    strategy = flower.BlocksStrategy(apps.MODEL, process=process, clients_per_round=3, evaluate=False)
    weights, _ = _run(strategy, grid, **options)
    state = process.initialize()
    for cohort in grid.cohorts(3):
        lost = [i for i, (node, _) in enumerate(cohort) if node in grid._fail]
        cohort = [(node, None if i in lost else own) for i, (node, own) in enumerate(cohort)]
        state, _ = process.next(state, cohort)
    return weights, strategy, state


@pytest.mark.default_cases("scaffold", "apfl")
@pytest.mark.parametrize("name", PROCESSES)
def test_processes_are_the_simulation(name):
    """States of clients and of the server included."""
    process, grid = PROCESSES[name](), Grid(apps.clients(4), fail=[1000 - 7])
    weights, strategy, state = _trained(process, grid)
    _assert_same(weights, state.weights)
    for part in ("aggregator", "finalizer", "round"):
        _assert_same(getattr(strategy.state, part), getattr(state, part))
    if not process.takes_client_ids:
        with pytest.raises(InputError, match="keep no state"):
            flower.client_state(grid.context(1000), process)
        return
    assert len(state.clients) >= 2
    for node in grid.get_node_ids():
        _assert_same(
            flower.client_state(grid.context(node), process), jax.tree.map(jnp.asarray, state.clients.of(node))
        )


def test_settings_make_processes():
    process, grid = PROCESSES["scaffold"](), Grid(apps.clients(3))
    work = lambda settings: PROCESSES["scaffold"](settings["learning-rate"])  # noqa: E731
    weights, _, state = _trained(process, grid, work, train_config={"learning-rate": 0.3})
    _assert_same(weights, state.weights)


def test_a_client_whose_result_is_not_finite_keeps_its_state():
    datasets = apps.clients(3)
    examples = datasets[1].all_examples()
    datasets[1] = type(datasets[1])({**examples, "x": np.full_like(examples["x"], np.nan)})
    process, grid = PROCESSES["scaffold"](), Grid(datasets)
    weights, _, state = _trained(process, grid)
    _assert_same(weights, state.weights)
    assert list(state.clients) == [1000 - 14, 1000]
    kept = flower.client_state(grid.context(1000 - 7), process)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(kept))


@pytest.mark.parametrize("q", [0.0, 0.5])
def test_flowers_own_q_fed_avg(q):
    """One round, by the formulas of Li et al. 2020."""
    datasets, rate = apps.clients(3), 0.3
    plain = apps.BATCHING.replace(skip_shuffle=True)
    grid = Grid(datasets)
    grid.app = _client_app(plain)
    weights, _ = _run(QFedAvg(rate, q, train_loss_key="loss"), grid, num_rounds=1)
    start = {name: a.numpy().astype(np.float64) for name, a in flower.to_arrays(apps.MODEL.init(None)).items()}
    total, divisor = dict.fromkeys(start, 0.0), 0.0
    for dataset in datasets:
        state, metrics = _simulated([dataset], rounds=1, batching=plain)
        loss = float(metrics["client_work"]["train"]["loss"])
        gradient = {name: (start[name] - a.numpy()) / rate for name, a in flower.to_arrays(state.weights).items()}
        total = {name: total[name] + loss**q * gradient[name] for name in total}
        divisor += q * loss ** (q - 1) * sum((s**2).sum() for s in gradient.values()) + loss**q / rate
    for name, array in flower.to_arrays(weights).items():
        np.testing.assert_allclose(array.numpy(), start[name] - total[name] / divisor, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_the_quickstart_of_the_page_trains():
    pytest.importorskip("flax")
    found = {}
    (block,) = [b for b in blocks(DOCS / "flower.md") if b.heading == "Flower's quickstart for JAX"]
    (settings,) = [b for b in blocks(DOCS / "flower.md", "toml") if b.heading == block.heading]
    exec(compile(block.code, "flower.md", "exec"), found)
    grid = Grid(dict.fromkeys(range(6)))
    grid.app, grid.run_config = found["client"], tomllib.loads(settings.code)["tool"]["flwr"]["app"]["config"]
    results = []
    strategy = FedAvg(fraction_train=0.5)
    server = flower.server_app(strategy, found["model"], on_result=lambda *result: results.append(result[1]))
    server(grid, _server_context(**grid.run_config))
    losses = [metrics["loss"] for _, metrics in sorted(results[0].evaluate_metrics_clientapp.items())]
    assert len(losses) == 3 and losses[2] < 0.8 * losses[0]
    assert results[0].evaluate_metrics_clientapp[3]["accuracy"] > 0.3


class Killed(Exception):
    """Simulates a killed server."""


class MortalGrid(Grid):
    """Kills the server before a message."""

    def fails(self, message):
        if len(self.sent) > 3:
            raise Killed
        return False


@pytest.mark.parametrize("reply", ["update", "weights"])
def test_a_killed_server_resumes(tmp_path, reply):
    """Adam's moments and the draw of nodes included."""
    datasets = apps.clients(4)

    def strategy():
        return flower.BlocksStrategy(
            apps.MODEL,
            aggregator=apps.aggregator(),
            finalizer=build_apply_optimizer_finalizer(optax.adam(0.1)),
            clients_per_round=2,
            evaluate=False,
            reply=reply,
        )

    grid = Grid(datasets)
    whole, _ = _run(strategy(), grid)
    mortal, rest = MortalGrid(datasets), Grid(datasets)
    with pytest.raises(Killed):
        _run(strategy(), mortal, checkpoint_dir=CheckpointFile(tmp_path))
    seen = []
    weights, _ = _run(
        strategy(),
        rest,
        checkpoint_dir=CheckpointFile(tmp_path),
        evaluate_fn=lambda number, weights: seen.append(number) or {},
    )
    jax.tree.map(np.testing.assert_array_equal, weights, whole)
    assert seen == [1, 2, 3] and len(rest.sent) == 4
    nodes = [m.metadata.dst_node_id for m in grid.sent]
    assert [m.metadata.dst_node_id for m in rest.sent] == nodes[-len(rest.sent) :]
    again, _ = _run(strategy(), Grid(datasets), checkpoint_dir=CheckpointFile(tmp_path))  # nothing is left to do
    jax.tree.map(np.testing.assert_array_equal, again, whole)


def test_new_weights_as_reply_are_the_simulation():
    datasets = apps.clients(3)
    weights, _ = _run(flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), reply="weights"), Grid(datasets))
    _assert_same(weights, _simulated(_in_order_of_nodes(datasets))[0].weights)


def _clipped_mean(datasets, norm):
    """Return weights after a round of updates that are clipped over all arrays."""
    start = flower.to_arrays(apps.MODEL.init(jax.random.key(0)))
    start = {name: array.numpy().astype(np.float64) for name, array in start.items()}
    total = dict.fromkeys(start, 0.0)
    for index, dataset in enumerate(_in_order_of_nodes(datasets)):
        alone = [dataset if place == index else None for place in range(len(datasets))]
        after = flower.to_arrays(_simulated(alone, rounds=1)[0].weights)
        change = {name: after[name].numpy() - value for name, value in start.items()}
        length = np.sqrt(sum((value**2).sum() for value in change.values()))
        total = {name: total[name] + len(dataset) * change[name] * min(1, norm / length) for name in total}
        assert length > norm
    size = sum(map(len, datasets))
    return {name: value + total[name] / size for name, value in start.items()}


@pytest.mark.parametrize(
    ("wrapper", "mods"),
    [
        (DifferentialPrivacyServerSideFixedClipping, ()),
        (DifferentialPrivacyClientSideFixedClipping, (fixedclipping_mod,)),
    ],
    ids=["server", "client"],
)
def test_flowers_wrappers_and_mods_for_differential_privacy(wrapper, mods):
    """Clipping is Flower's, at either side; its noise reaches the next round."""
    datasets, norm = apps.clients(3), 0.5
    blocks = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), reply="weights", evaluate=False)
    weights, _ = _run(wrapper(blocks, 0.0, norm, 3), Grid(datasets, mods=mods), num_rounds=1)
    expected = _clipped_mean(datasets, norm)
    for name, array in flower.to_arrays(weights).items():
        np.testing.assert_allclose(array.numpy(), expected[name], rtol=1e-4, atol=1e-5)
    blocks = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), reply="weights", evaluate=False)
    grid, seen = Grid(datasets, mods=mods), []
    noise = {"evaluate_fn": lambda number, weights: seen.append(weights) or {}}
    noisy, _ = _run(wrapper(blocks, 0.1, norm, 3), grid, num_rounds=2, **noise)
    sent = flower.from_arrays(grid.sent[3].content["arrays"], apps.MODEL.init(jax.random.key(0)))
    jax.tree.map(np.testing.assert_array_equal, sent, seen[1])
    assert np.abs(noisy.trainable["w"] - blocks.state.weights.trainable["w"]).max() > 1e-4


class DroppingGrid(Grid):
    """A client drops out between the stages of secure aggregation."""

    def fails(self, message):
        configs = message.content.config_records.get("secaggplus_configs", {})
        return super().fails(message) and configs.get("stage") == "collect_masked_vectors"


@pytest.mark.full_cases("dropped")
@pytest.mark.parametrize("fail", [(), (1000 - 7,)], ids=["all", "dropped"])
def test_flowers_secure_aggregation(fail):
    """The mean of the simulation, up to quantization, of updates that no reply has."""
    mod = pytest.importorskip("flwr.client.mod").secaggplus_mod
    workflow = pytest.importorskip("flwr.server.workflow").SecAggPlusWorkflow(
        num_shares=1.0, reconstruction_threshold=0.5, max_weight=200.0
    )
    datasets, found = apps.clients(4), []
    app = flower.secure_server_app(
        workflow, apps.MODEL, num_rounds=2, min_available_nodes=4, on_result=lambda *result: found.append(result)
    )
    grid = DroppingGrid(datasets, fail, (mod,))
    grid.app = _client_app(apps.BATCHING.replace(skip_shuffle=True), (mod,))  # indices are drawn
    app(grid, _server_context())
    cohort = [None if 1000 - 7 * index in fail else dataset for index, dataset in enumerate(datasets)]
    state, _ = _simulated(cohort, rounds=2, batching=apps.BATCHING.replace(skip_shuffle=True))
    for one, other in zip(jax.tree.leaves(found[0][0]), jax.tree.leaves(state.weights), strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), atol=2e-4)
    assert all(not record for m in grid.received if m.has_content() for record in m.content.array_records.values())


def test_the_trainings_key_stays_at_the_server():
    """Who has it can draw the noise that a private aggregation adds."""
    grid = Grid(apps.clients(2))
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), key=jax.random.key(1234))
    _run(strategy, grid)
    keys = [list(m.content["config"]["key"]) for m in grid.sent if "key" in m.content["config"]]
    assert len(keys) == 6 and np.asarray(jax.random.key_data(jax.random.key(1234))).tolist() not in keys


@pytest.mark.parametrize(
    "tree",
    [
        {"a": jnp.arange(3, dtype=jnp.int8), "b": [jnp.float16(2.5), jnp.zeros((0, 2))]},
        ModelWeights({"w": jnp.array([1.1, -3e38], jnp.bfloat16)}, ()),
        {"key": jax.random.key(7), "flag": jnp.array([True, False])},
        jnp.ones(2),
        [],
    ],
)
def test_records_keep_pytrees(tree):
    record = flower.to_arrays(tree)
    assert isinstance(record, ArrayRecord)
    back = flower.from_arrays(record, jax.eval_shape(lambda: tree))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert one.dtype == other.dtype
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_messages_for_another_model():
    template = {"w": jnp.zeros((2, 3))}
    with pytest.raises(InputError, match=r"\['w'\].* are missing, .*\['v'\].* are unknown"):
        flower.from_arrays(flower.to_arrays({"v": jnp.zeros(2)}), template)
    with pytest.raises(InputError, match=r"shape \[2\] where the model has \[2, 3\]"):
        flower.from_arrays(flower.to_arrays({"w": jnp.zeros(2)}), template)
    grid = Grid(apps.clients(1))
    content = RecordDict({"arrays": flower.to_arrays(template), "config": ConfigRecord()})
    with pytest.raises(InputError, match="a message of type train is not of this model"):
        grid.send_and_receive([Message(content, message_type="train", dst_node_id=1000)])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: flower.server_app("fedavg", apps.MODEL), "a strategy is a BlocksStrategy"),
        (lambda: flower.server_app(FedAvg(), apps.MODEL, num_rounds=-1), "num_rounds"),
        (lambda: flower.BlocksStrategy(apps.MODEL, aggregator=3), "aggregator"),
        (lambda: flower.BlocksStrategy(apps.MODEL), "either a process"),
        (
            lambda: flower.BlocksStrategy(apps.MODEL, process=PROCESSES["apfl"](), aggregator=apps.aggregator()),
            "either a process",
        ),
        (
            lambda: flower.BlocksStrategy(apps.MODEL, process=PROCESSES["scaffold"](), reply="weights"),
            "reply='update'",
        ),
        (lambda: flower.BlocksStrategy(apps.MODEL, process=fed.build_mime(apps.MODEL, optax.sgd(0.1))), "work once"),
        (
            lambda: flower.BlocksStrategy(apps.MODEL, process=fed.build_fed_buff(apps.MODEL, optax.sgd(0.1))),
            "work once",
        ),
        (
            lambda: flower.server_app(
                flower.BlocksStrategy(apps.MODEL, process=PROCESSES["scaffold"]()), apps.MODEL, checkpoint_dir="x"
            ),
            "for a run",
        ),
        (lambda: flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), clients_per_round=0), ">= 1"),
        (lambda: flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), reply="both"), "update, weights"),
        (lambda: flower.server_app(FedAvg(), apps.MODEL, checkpoint_dir="x"), "a BlocksStrategy has a state to save"),
        (
            lambda: flower.secure_server_app(None, apps.MODEL, min_available_nodes=2),
            "min_available_nodes is .* least 3",
        ),
        (lambda: flower.client_app(apps.MODEL, [], client_work=apps.WORK), "data_fn is a function"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(InputError, match=match):
        call()


@pytest.mark.parametrize(("name", "match"), [("scaffold", "not of this model"), ("fed_nova", "more than weights")])
def test_flowers_own_strategies_have_weights_alone(name, match):
    grid = Grid(apps.clients(2))
    grid.app = flower.client_app(
        apps.MODEL, lambda context: DATA[context.node_id], client_work=PROCESSES[name](), client_batching=apps.BATCHING
    )
    with pytest.raises(InputError, match=match):
        _run(FedAvg(), grid)


@pytest.mark.parametrize("own", [True, False], ids=["BlocksStrategy", "FedAvg"])
def test_settings_reach_client_work_and_batching(own):
    """The server's win over the run's; all rounds share one client work."""
    seen, datasets = [], apps.clients(3)
    plain = apps.BATCHING.replace(skip_shuffle=True)  # FedAvg sends no client index, see above

    def work(settings):
        seen.append(dict(settings))
        return build_model_delta_client_work(apps.MODEL, optax.sgd(settings["learning-rate"]))

    grid = Grid(datasets)
    grid.run_config = {"learning-rate": 7.0, "batch-size": 8}
    grid.app = flower.client_app(
        apps.MODEL,
        lambda context: DATA[context.node_id],
        client_work=work,
        client_batching=lambda settings: plain.replace(batch_size=settings["batch-size"]),
    )
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator()) if own else FedAvg()
    weights, _ = _run(strategy, grid, train_config={"learning-rate": 0.3})
    _assert_same(weights, _simulated(_in_order_of_nodes(datasets), batching=plain)[0].weights)
    assert seen == [{"learning-rate": 0.3, "batch-size": 8}]
