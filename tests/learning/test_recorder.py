"""Records and checkpoints of all kinds of client ids and metrics."""

import csv
import io
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

import tf2jax_lite.federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.learning.recorder import ProgressBar, flat_metrics, scalars_of
from tf2jax_lite.learning.states import ByClient, restored_state, state_arrays

EXAMPLES = {"x": np.ones((4, 2), np.float32), "y": np.array([0, 1, 1, 0], np.int32)}
BATCHING = fed.BatchHParams(4)
IDS = {
    "text": ["a", "b/c", "ü"],
    "bytes": [b"f0000_14", b"\xff\x00", b"a"],
    "ints": [-1, 0, 2**70],
    "numpy ints": list(np.arange(3)),
    "numpy text": list(np.array(["a", "b", "c"])),
    "numpy bytes": list(np.array([b"a", b"b", b"c"])),
    "floats": [0.1, 1e300, -2.5],
    "tuples": [("a", 1), ("a", 2), (b"b", (0.5,))],
    "bools": [False, True, np.int8(2)],
}


def model(**metrics):
    return fed.create_model_from_fn(
        {"w": np.zeros((2, 2), np.float32)},
        lambda p, batch: batch["x"] @ p["w"],
        fed.named_loss("sparse_categorical_crossentropy", from_logits=True),
    ).replace(
        train_loss=lambda batch, out: optax.softmax_cross_entropy_with_integer_labels(out, batch["y"]),
        eval_metrics=metrics,
    )


def clients(ids):
    return lambda number: [(client_id, fed.ClientDataset(EXAMPLES)) for client_id in ids]


@pytest.mark.parametrize("kind", IDS)
def test_states_keep_all_kinds_of_ids(kind):
    state = ByClient({"c": np.zeros(2)}, {i: {"c": np.full(2, n, float)} for n, i in enumerate(IDS[kind])})
    found = restored_state(ByClient({"c": np.zeros(2)}), state_arrays(state))
    assert list(found) == IDS[kind] and [hash(i) for i in found] == [hash(i) for i in IDS[kind]]
    for number, client_id in enumerate(IDS[kind]):
        np.testing.assert_array_equal(found[client_id]["c"], number)


@pytest.mark.default_cases("bytes")
@pytest.mark.parametrize("kind", IDS)
def test_a_training_goes_on_after_a_checkpoint(kind, tmp_path):
    process = fed.build_scaffold(model(), 3, 0.1, client_batching=BATCHING, client_diagnostics=True)
    states = []
    for rounds in (1, 2):
        store = fed.CheckpointFile(tmp_path / "store")
        state, history = fed.run_rounds(process, clients(IDS[kind]), rounds, checkpoint_dir=store)
        states.append(state)
    whole, all_of_it = fed.run_rounds(process, clients(IDS[kind]), 2)
    assert history == all_of_it and list(states[1].clients) == IDS[kind]
    jax.tree.map(np.testing.assert_array_equal, states[1].weights, whole.weights)


@pytest.mark.default_cases("client_id1")
@pytest.mark.parametrize("client_id", [frozenset("a"), (b"a", frozenset()), float("nan"), np.datetime64("2020-01-01")])
def test_ids_that_cannot_be_stored_are_refused_before_the_first_round(client_id, tmp_path):
    process, done = fed.build_scaffold(model(), 3, 0.1, client_batching=BATCHING), []
    with pytest.raises(InputError, match="a checkpoint keeps client ids that are text, bytes, numbers"):
        fed.run_rounds(
            process, clients([client_id]), 2, checkpoint_dir=fed.CheckpointFile(tmp_path), report=done.append
        )
    assert not done and not list(tmp_path.iterdir())
    fed.run_rounds(process, clients([client_id]), 1)


def with_state(extra):
    """A process whose state has a further part."""

    def next_fn(state, client_data):
        return fed.LearningProcessOutput(state, {})

    return fed.LearningProcess(lambda key, params: extra, next_fn, lambda state: state, lambda state, weights: state)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": jnp.zeros(1)}, "a/b": jnp.zeros(1)}, "two leaves named 'a/b'"),
        ({"a": np.array(["text"], object)}, "cannot store the state's 'a'"),
    ],
)
def test_states_that_cannot_be_stored_are_refused_before_the_first_round(state, message, tmp_path):
    done = []
    with pytest.raises(InputError, match=message):
        fed.run_rounds(with_state(state), lambda number: [], 2, checkpoint_dir=tmp_path, report=done.append)
    assert not done


NESTED = {
    "loss": np.float32(0.5),
    "count": np.int64(3),
    "half": jnp.bfloat16(0.25),
    "flag": np.bool_(True),
    "vector": jnp.arange(2.0),
    "matrix": np.arange(4).reshape(2, 2),
    "inner": {"list": [1, 2], b"bytes": 1.5, 7: {"deep": np.float64(2)}},
    "several": [{"a": 1.0}, {"a": 2.0}],
    "text": "no",
    "nothing": None,
    "key": jax.random.key(0),
}
FLAT = {
    "loss": 0.5,
    "count": 3.0,
    "half": 0.25,
    "flag": 1.0,
    "vector": [0.0, 1.0],
    "matrix": [[0.0, 1.0], [2.0, 3.0]],
    "inner/list": [1.0, 2.0],
    "inner/bytes": 1.5,
    "inner/7/deep": 2.0,
    "several/0/a": 1.0,
    "several/1/a": 2.0,
}


def test_nested_metrics_by_path():
    assert flat_metrics(NESTED) == FLAT and json.loads(json.dumps(FLAT)) == FLAT
    scalars = scalars_of(FLAT)
    assert (scalars["matrix/1/0"], scalars["vector/1"], scalars["loss"]) == (2, 1, 0.5)


@pytest.mark.default_cases("bytes")
@pytest.mark.parametrize("kind", ["bytes", "ints"])
def test_records_have_vectors_and_clients_metrics_wherever_they_go(kind, tmp_path):
    ids = [*IDS[kind], IDS[kind][0]]  # one is drawn twice
    process = fed.build_agnostic_fed_avg(
        model(confusion=fed.metrics.ConfusionMatrix(num_classes=2)),
        optax.sgd(0.1),
        init_domain_weights=[0.5, 0.5],
        init_domain_window=[[1.0, 1.0]],
        client_batching=BATCHING,
        client_diagnostics=True,
    )
    data = fed.ClientDataset({**EXAMPLES, "domain_id": np.array([0, 1, 0, 1], np.int32)})
    memory, events = fed.MemoryReleaseManager(), {}
    managers = [
        memory,
        fed.CSVFileReleaseManager(tmp_path / "metrics.csv"),
        fed.JSONLinesReleaseManager(tmp_path / "own.jsonl"),
        fed.TensorBoardReleaseManager(tmp_path / "events"),
        dict.clear,  # a callback that changes its record
    ]
    managers[3]._writer = types.SimpleNamespace(
        add_scalar=lambda tag, value, step: events.update({tag: value}), flush=lambda: None, close=lambda: None
    )
    options = {"checkpoint_dir": fed.CheckpointFile(tmp_path / "store"), "checkpoint_every": 1}
    kept = model(confusion=fed.metrics.ConfusionMatrix(num_classes=2))
    for rounds in (1, 2):
        _, history = fed.train_model(
            process,
            lambda number: [(client_id, data) for client_id in ids],
            rounds,
            callbacks=managers,
            evaluate=lambda weights: fed.evaluate_model(kept, weights, [EXAMPLES]),
            metrics_file=tmp_path / "metrics.jsonl" if kind == "bytes" else None,
            **options,
        )
    names = ["f0000_14", "\\xff\x00", "a"] if kind == "bytes" else ["-1", "0", str(2**70)]
    for record in history:
        found = record["client_diagnostics"]
        assert set(found) == set(names) and len(found[names[0]]) == 2
        assert found[names[1]] == found[names[0]][1] and found[names[1]]["num_examples"] == 4
        assert len(record["finalizer/domain_weights"]) == 2
        assert np.sum(record["eval/confusion"]) == 4
    assert json.loads(json.dumps(history)) == history == list(memory.values().values())
    assert fed.read_history(tmp_path / "own.jsonl") == history
    if kind == "bytes":
        assert fed.read_history(tmp_path / "metrics.jsonl") == history
    with open(tmp_path / "metrics.csv") as file:
        row = list(csv.DictReader(file))[1]
    assert json.loads(row["client_diagnostics"]) == history[1]["client_diagnostics"]
    assert json.loads(row["finalizer/domain_weights"]) == history[1]["finalizer/domain_weights"]
    assert events["finalizer/domain_weights/1"] == history[1]["finalizer/domain_weights"][1]
    assert events[f"client_diagnostics/{names[1]}/loss"] == history[1]["client_diagnostics"][names[1]]["loss"]


def test_clusters_keep_entries_of_a_client_that_is_there_twice():
    data, far = fed.ClientDataset(EXAMPLES), fed.ClientDataset({**EXAMPLES, "y": 1 - EXAMPLES["y"]})
    process = fed.build_hyp_cluster(model(), 2, optax.sgd(0.1), client_batching=BATCHING, client_diagnostics=True)
    weights = [{"w": np.float32([[s, 0], [0, 0]])} for s in (1, -1)]
    _, metrics = process.next(process.initialize(params=weights), [("a", data), ("a", far), ("b", far), ("a", data)])
    found = metrics["client_diagnostics"]
    assert len(found["a"]) == 3 and found["b"]["cluster_id"] in (0, 1)


def test_a_record_that_json_cannot_hold_is_refused_at_once(tmp_path):
    process = fed.build_weighted_fed_avg(model(), optax.sgd(0.1), client_batching=BATCHING)
    with pytest.raises(InputError, match="summarize returns JSON values by name"):
        fed.run_rounds(
            process, clients("a"), 3, checkpoint_dir=fed.CheckpointFile(tmp_path), summarize=lambda metrics: metrics
        )


@pytest.mark.parametrize("done", [0, 2])
def test_a_bar_says_compiling_until_the_first_round_is_done(done):
    """An evaluation before it is a record, too."""
    shown = io.StringIO()
    with ProgressBar("round", 5, done, console=Console(file=shown, force_terminal=True, width=200)) as bar:
        for number, is_compiling in ((None, True), (done, True), (done + 1, False)):
            if number is not None:
                bar.on_record({"round": number, "eval/loss": 0.5})
            shown.truncate(0)
            bar._bar.refresh()
            text = shown.getvalue()
            assert ("compiling" in text) == is_compiling and ("eval/loss 0.5" in text) == (number is not None)
