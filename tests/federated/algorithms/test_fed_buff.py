"""FedBuff against a simulation of events in numpy, float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.federated import workload
from tests.federated.workload import Logistic, local_sgd, tree
from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.checkpoints import CheckpointFile

SIZE, LR, BUFFER, CONCURRENCY, ROUNDS = 8, 0.3, 2, 4, 7
CLIENTS = workload.make_clients(9, seed=4, low=3, high=30, shape=(5,), classes=3)
MODEL = workload.jax_logistic(5, 3)
OPTIONS = {
    "client_batching": fed.ShuffleRepeatBatchHParams(batch_size=SIZE, skip_shuffle=True, fill_remainder=False),
    "client_execution": "scan",
}


def latency(client_id, num_examples, rng):
    """Return seconds that float32 holds, and that differ much between clients."""
    return 1.0 + (7 * client_id) % 5 + num_examples / 64


def candidates(number):
    """Return a round's candidates: all clients, from another one on."""
    return [(i % len(CLIENTS), fed.ClientDataset(CLIENTS[i % len(CLIENTS)])) for i in range(number, number + 9)]


def process(**options):
    given = {"buffer_size": BUFFER, "concurrency": CONCURRENCY, "latency": latency, **OPTIONS, **options}
    return fed.build_fed_buff(MODEL, optax.sgd(LR), **given)


def run(training, rounds=ROUNDS, clients=candidates, state=None):
    state = training.initialize() if state is None else state
    found = []
    for number in range(int(state.round), rounds):
        state, metrics = training.next(state, clients(number))
        found.append(metrics)
    return state, found


def simulated(exponent=0.5, weights=lambda i: 1.0, rounds=ROUNDS):
    """Return weights, stalenesses and times of the rounds, by the clock."""
    p, version, clock = Logistic.zeros(5, 3), 0, 0.0
    training, ages, times = {}, [], []  # id to (time, version, weights)
    order = [i for i, _ in candidates(0)]
    used, buffer = set(), []
    while version < rounds:
        for i in order:
            if len(training) < CONCURRENCY and i not in used:
                used.add(i)
                training[i] = (clock + latency(i, len(CLIENTS[i]["y"]), None), version, p)
        first = min(training, key=lambda i: training[i][0])
        clock, began, start = training.pop(first)
        factor = (1 + version - began) ** -exponent
        update = tree(lambda a, b, s=factor: s * (a - b), start, local_sgd(start, CLIENTS[first], LR, SIZE))
        buffer.append((version - began, weights(first), update))
        if len(buffer) == BUFFER:
            total = sum(weight for _, weight, _ in buffer)
            for _, weight, update in buffer:
                p = tree(lambda a, d, s=weight / total: a - s * d, p, update)
            version += 1
            ages.append(np.mean([age for age, _, _ in buffer]))
            times.append(clock)
            order, used, buffer = [i for i, _ in candidates(version)], set(training), []
    return p, ages, np.diff([0, *times])


@pytest.mark.parametrize("exponent", [0.5, pytest.param(0.0, marks=pytest.mark.full)])
@pytest.mark.parametrize("weighting", ["uniform", "num_examples"])
def test_fed_buff(exponent, weighting):
    state, metrics = run(process(staleness_exponent=exponent, client_weighting=weighting))
    weights = (lambda i: 1.0) if weighting == "uniform" else lambda i: len(CLIENTS[i]["y"])
    expected, ages, seconds = simulated(exponent, weights)
    for name, value in expected.items():
        np.testing.assert_allclose(state.params[name], value, rtol=0, atol=1e-5, err_msg=name)
    assert [float(m["buffer"]["staleness"]) for m in metrics] == ages and max(ages) > 0
    np.testing.assert_allclose([m["buffer"]["seconds"] for m in metrics], seconds, rtol=1e-6)
    assert all(int(m["buffer"]["pending"]) == CONCURRENCY - 1 for m in metrics)
    assert all(int(m["clients"]["participated"]) == BUFFER for m in metrics)


def test_a_full_buffer_is_federated_averaging():
    """No client is stale if all answer in the round in which they begin."""
    clients = [fed.ClientDataset(c) for c in CLIENTS[:4]]
    found, _ = run(process(buffer_size=4), 2, lambda number: [*enumerate(clients)])
    expected, _ = run(fed.build_unweighted_fed_avg(MODEL, optax.sgd(LR), **OPTIONS), 2, lambda number: clients)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), found.weights, expected.weights)


def test_times_are_drawn_with_the_key():
    training = process(latency=None)
    first, again, other = (
        run(training, 3, state=training.initialize(jax.random.key(seed)))[1][-1]["buffer"]["seconds"]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_resumed_training_has_the_same_bits(tmp_path):
    """Clients that are training are in the checkpoint, with their results."""
    training = process(latency=None, client_diagnostics=True)
    whole, history = fed.run_rounds(training, candidates, 5)
    for rounds in (2, 5):
        state, resumed = fed.run_rounds(training, candidates, rounds, checkpoint_dir=CheckpointFile(tmp_path))
    assert resumed == history and list(state.clients) == list(whole.clients)
    jax.tree.map(np.testing.assert_array_equal, state._replace(key=0), whole._replace(key=0))


def test_clients_that_fail_take_a_place_in_the_buffer():
    """They are counted when they answer, and have no part in any sum."""
    bad = {**CLIENTS[1], "x": np.full_like(CLIENTS[1]["x"], np.nan)}
    cohort = [
        (0, None),
        (1, fed.ClientDataset(bad)),
        (2, fed.ClientDataset(CLIENTS[2])),
        (3, fed.ClientDataset(CLIENTS[3])[:0]),
    ]
    training = process(buffer_size=4, client_diagnostics=True)
    state, metrics = training.next(training.initialize(), cohort)
    counts = {name: int(value) for name, value in metrics["clients"].items()}
    assert counts == {"participated": 1, "dropped": 1, "empty": 1, "non_finite": 1, "round_refused": 0}
    assert metrics["refused_clients"] == [1] and np.isfinite(metrics["client_work"]["train"]["loss"])
    assert set(metrics["client_diagnostics"]) == {1, 2}
    alone, _ = training.next(training.initialize(), [(2, fed.ClientDataset(CLIENTS[2]))])
    jax.tree.map(np.testing.assert_array_equal, state.weights, alone.weights)


def test_a_round_without_clients_changes_nothing():
    training = process()
    state, metrics = training.next(training.initialize(), [])
    jax.tree.map(np.testing.assert_array_equal, state.weights, training.initialize().weights)
    assert int(state.round) == 1 and not any(map(int, metrics["clients"].values()))
    state, metrics = run(training, 3)
    state, metrics = training.next(state, [])  # those that are training answer
    assert int(metrics["clients"]["participated"]) == BUFFER


def test_statistics_of_batches_move_by_the_buffer():
    """They are scaled as the other weights are."""

    def train(weights, batch):
        moved = {"mean": 0.5 * weights.non_trainable["mean"] + 0.5 * batch["x"].mean()}
        return fed.TrainOutput(batch["x"] * weights.trainable["w"], moved)

    model = fed.create_model_from_fn(
        lambda key: fed.ModelWeights({"w": jnp.ones(())}, {"mean": jnp.zeros(())}),
        train,
        "mse",
        apply_eval=lambda weights, batch: batch["x"] * weights.trainable["w"],
    )
    data = [(i, fed.ClientDataset({"x": np.full(2, i + 1, np.float32), "y": np.zeros(2, np.float32)})) for i in (0, 1)]
    training = fed.build_fed_buff(
        model,
        optax.sgd(0.0),
        buffer_size=1,
        concurrency=2,
        latency=lambda client_id, number, rng: 1.0 + client_id,
        client_batching=fed.BatchHParams(2),
    )
    state, _ = training.next(training.initialize(), data)
    assert float(state.weights.non_trainable["mean"]) == 0.5
    state, _ = training.next(state, [])  # client 1 began a round ago, at 0
    np.testing.assert_allclose(float(state.weights.non_trainable["mean"]), 0.5 + 2**-0.5, rtol=1e-6)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """Keeps the numbers of examples that latencies were asked for."""

    counts: list = dataclasses.field(default_factory=list)

    def __call__(self, client_id, num_examples, rng):
        self.counts.append(num_examples)
        return float(rng.random())


@pytest.mark.parametrize("private", [False, True])
def test_private_times_do_not_depend_on_data(private):
    """Otherwise one client's data would decide which others are in a buffer."""
    seen = _Seen()
    factory = agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, BUFFER, 1.0) if private else None
    run(process(latency=seen, aggregator=factory), 1)
    assert (set(seen.counts) == {1}) is private


def test_aggregators_with_promises():
    with pytest.raises(InputError, match="takes no weights"):
        factory = agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, BUFFER, 1.0)
        process(aggregator=factory, client_weighting="num_examples")
    for factory in (agg.CoordinateMedianFactory(), agg.secure_aggregator(weighted=False)):
        state, metrics = run(process(aggregator=factory), 3)
        assert int(metrics[-1]["clients"]["participated"]) == BUFFER
        assert np.isfinite(np.asarray(state.params["w"])).all() and np.asarray(state.params["w"]).any()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: process(latency=lambda *args: -1.0).next(process().initialize(), candidates(0)), "finite seconds"),
        (lambda: process(latency=lambda *args: np.inf).next(process().initialize(), candidates(0)), "finite seconds"),
        (lambda: process().next(process().initialize(), [fed.ClientDataset(CLIENTS[0])]), "pairs"),
        (lambda: process().next(process().initialize(), candidates(0)[:1] * 2), "twice"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(InputError, match=match):
        call()
