"""Many rounds: killed and resumed with the same bits; history and plots."""

import json
import os
import sys

import jax
import ml_dtypes
import numpy as np
import optax
import pytest
import tensorflow as tf

from tests.federated import workload
from tf2jax_lite.errors import CheckpointError, DataError, InputError, MissingLibraryError
from tf2jax_lite.federated.algorithms.fed_avg import build_fed_opt, build_weighted_fed_avg
from tf2jax_lite.federated.algorithms.scaffold import build_scaffold
from tf2jax_lite.learning import loop
from tf2jax_lite.learning.checkpoints import CheckpointFile
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.loop import run_rounds, train_model
from tf2jax_lite.learning.recorder import JSONLinesReleaseManager, TensorBoardReleaseManager, read_history
from tf2jax_lite.learning.sources import create_model_from_fn

CLIENTS = [ClientDataset(c) for c in workload.make_clients(8, seed=1, low=5, high=9, shape=(6,), classes=4)]
PROCESS = build_fed_opt(
    workload.jax_logistic(6, 4), optax.sgd(0.5), "adam", 0.1, client_batching=ShuffleRepeatBatchHParams(batch_size=10)
)


def chosen(number):
    return [CLIENTS[i] for i in workload.cohort(number, 8, 3)]


class Killed(Exception):
    """Simulates a killed process."""


def killer(at):
    def clients(number):
        if number == at:
            raise Killed
        return chosen(number)

    return clients


@pytest.mark.default_cases("3")
@pytest.mark.parametrize("at", [1, 2, 3])
def test_resumed_training_has_the_same_bits(tmp_path, at):
    """Shuffling, Adam's state and history included, also for repeated rounds.

    Checkpoints come every two rounds.
    """
    options = {
        "checkpoint_every": 2,
        "key": jax.random.key(3),
        "evaluate": lambda w: {"norm": np.abs(w.trainable["w"]).sum()},
    }
    whole, history = run_rounds(PROCESS, chosen, 4, key=jax.random.key(3), evaluate=options["evaluate"])
    files = {"checkpoint_dir": tmp_path / "c", "metrics_file": tmp_path / "m.jsonl"}
    with pytest.raises(Killed):
        run_rounds(PROCESS, killer(at), 4, **options, **files)
    with (tmp_path / "m.jsonl").open("a") as file:
        file.write('{"round": 9, "unfin')
    found, resumed = run_rounds(PROCESS, chosen, 4, **options, **files)
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.tree.map(np.asarray, found._replace(key=0)),
        jax.tree.map(np.asarray, whole._replace(key=0)),
    )
    assert resumed == history == read_history(tmp_path / "m.jsonl")


@pytest.mark.parametrize(("every", "rounds", "saved"), [(2, 5, [2, 4, 5]), (3, 3, [3]), (9, 2, [2])])
def test_checkpoints_of_each_interval_and_of_the_last_round(tmp_path, monkeypatch, every, rounds, saved):
    numbers = []
    monkeypatch.setattr(CheckpointFile, "save", lambda self, number, state, record=None: numbers.append(number))
    run_rounds(PROCESS, chosen, rounds, checkpoint_dir=CheckpointFile(tmp_path), checkpoint_every=every)
    assert numbers == saved


@pytest.mark.full
def test_what_scaffold_keeps_by_client_is_resumed(tmp_path):
    """Text and integers as ids, and clients that join later."""
    process = build_scaffold(
        workload.jax_logistic(6, 4), 8, 0.3, client_batching=ShuffleRepeatBatchHParams(batch_size=10)
    )

    def clients(number):
        return [(str(i) if i % 2 else int(i), CLIENTS[i]) for i in workload.cohort(number, 8, 3)]

    whole, history = run_rounds(process, clients, 4, key=jax.random.key(3))
    first = CheckpointFile(tmp_path, identity={"algorithm": "scaffold"})
    run_rounds(process, clients, 2, key=jax.random.key(3), checkpoint_dir=first)
    first.close()
    found, resumed = run_rounds(
        process,
        clients,
        4,
        key=jax.random.key(3),
        checkpoint_dir=CheckpointFile(tmp_path, identity={"algorithm": "scaffold"}),
    )
    assert list(found.clients) == list(whole.clients) and len(whole.clients) > 3
    same = [jax.tree.map(np.asarray, state._replace(key=0)) for state in (found, whole)]
    jax.tree.map(np.testing.assert_array_equal, *same)
    assert resumed == history
    with pytest.raises(CheckpointError, match="algorithm: 'scaffold' then, 'mime' now"):
        CheckpointFile(tmp_path, identity={"algorithm": "mime"}).restore(whole)
    with pytest.raises(InputError, match="ids that are text, bytes, numbers or tuples"):
        CheckpointFile(tmp_path / "x").save(1, process.next(whole, [(frozenset([1]), CLIENTS[0])]).state)


@pytest.mark.full
def test_every_dtype_comes_back(tmp_path):
    """Numpy readers lack some dtypes: bfloat16 was once reported as damaged."""
    names = [n for n in dir(ml_dtypes) if n.startswith(("bfloat", "float4", "float8", "int", "uint"))]
    kinds = [np.dtype(getattr(ml_dtypes, n)) for n in names] + ["float16", "float64", "complex128", "bool"]
    state = {str(np.dtype(k)): np.asarray([[1, 0, 1], [0, 1, 1]]).astype(k).T for k in kinds}
    state |= {"scalar": np.asarray(1.5, ml_dtypes.bfloat16), "none": np.zeros((0, 2), ml_dtypes.float8_e5m2)}
    checkpoints = CheckpointFile(tmp_path)
    checkpoints.save(1, state)
    with jax.enable_x64(True):
        found = checkpoints.restore(state).state
    for name, value in state.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].shape == value.shape and np.asarray(found[name]).tobytes() == value.tobytes(), name


@pytest.mark.full
def test_a_training_in_bfloat16_is_resumed(tmp_path):
    model = create_model_from_fn(
        {"w": np.zeros((), ml_dtypes.bfloat16)}, lambda p, b: b["x"].astype(p["w"].dtype) * p["w"], lambda b, q: q
    )
    process = build_weighted_fed_avg(model, optax.sgd(0.1, momentum=0.9))
    clients = [[{"x": np.full(4, value, np.float32)}] for value in (1, 2)]
    whole, _ = run_rounds(process, lambda number: clients, 2)
    run_rounds(process, lambda number: clients, 1, checkpoint_dir=CheckpointFile(tmp_path))
    found, _ = run_rounds(process, lambda number: clients, 2, checkpoint_dir=CheckpointFile(tmp_path))
    assert found.weights.trainable["w"] == whole.weights.trainable["w"] != 0


def test_a_damaged_checkpoint_is_refused(tmp_path):
    CheckpointFile(tmp_path).save(1, {"w": np.zeros(3, np.float32)})
    path = tmp_path / "training.safetensors"
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], b"\xff" * 64):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"cannot be read|contradicts itself"):
            CheckpointFile(tmp_path).restore({"w": np.zeros(3, np.float32)})


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_checkpoint_without_an_end_is_refused(tmp_path, kind):
    path = tmp_path / "training.safetensors"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    for call in (CheckpointFile(tmp_path).latest, lambda: CheckpointFile(tmp_path).restore({})):
        with pytest.raises(CheckpointError, match=r"training\.safetensors is not a regular file"):
            call()


def test_checkpoint_of_another_model_is_refused(tmp_path):
    checkpoints = CheckpointFile(tmp_path)
    checkpoints.save(1, {"w": np.zeros(3, np.float32)})
    with pytest.raises(DataError, match="lacks 'v'"):
        checkpoints.restore({"v": np.zeros(3, np.float32)})
    with pytest.raises(DataError, match="'w' is float32"):
        checkpoints.restore({"w": np.zeros(4, np.float32)})


def test_plot_and_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX")
    _, history = run_rounds(PROCESS, chosen, 2, plot_file=tmp_path / "p.svg", tensorboard_dir=tmp_path / "tb")
    assert (tmp_path / "p.svg").read_text().count("<polyline") == sum("loss" in name for name in history[0])
    with pytest.raises(InputError, match=r"p\.png: plots are SVG"):
        run_rounds(PROCESS, killer(0), 2, plot_file=tmp_path / "p.png")
    from tensorflow.core.util import event_pb2

    (file,) = (tmp_path / "tb").iterdir()
    # TensorFlow's own reader checks the framing and the checksums.
    events = [event_pb2.Event.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(file))]
    found = {(e.step, v.tag): v.simple_value for e in events for v in e.summary.value}
    expected = {(r["round"], name): np.float32(v) for r in history for name, v in r.items() if name != "round"}
    assert found == expected


class Closed(TensorBoardReleaseManager):
    """Counts how often it is ended."""

    def __init__(self, directory=None):
        self.records, self.ends = [], 0
        ENDED.append(self)

    def on_record(self, record):
        self.records.append(record)

    def on_end(self):
        self.ends += 1


ENDED = []


def test_recorders_are_ended_after_an_error(tmp_path, monkeypatch):
    """Those of options, of callbacks, and the checkpoints."""
    ENDED.clear()
    monkeypatch.setattr(loop, "TensorBoardReleaseManager", Closed)
    monkeypatch.setattr(loop, "ProgressBar", lambda *args: Closed())
    closed = []
    monkeypatch.setattr(CheckpointFile, "close", lambda self: closed.append(self))
    options = {"tensorboard_dir": tmp_path, "progress": True, "plot_file": tmp_path / "p.svg"}
    with pytest.raises(Killed):
        train_model(PROCESS, killer(1), 4, callbacks=[Closed()], checkpoint_dir=tmp_path / "c", **options)
    assert [(len(recorder.records), recorder.ends) for recorder in ENDED] == [(1, 1)] * 3
    assert len(closed) == 1 and "<polyline" in (tmp_path / "p.svg").read_text()  # of one round


def test_released_rounds_replace_those_of_an_earlier_run(tmp_path):
    """A resumed training releases the rounds before it again."""
    file = tmp_path / "m.jsonl"
    file.write_text("of another run")
    lines = JSONLinesReleaseManager(file)
    for key, loss in ((0, 9.0), (1, 2.0), (2, 1.0), (1, 3.0), (2, 2.0)):
        lines.release({"loss": loss}, key)
    assert read_history(file) == [{"round": 0, "loss": 9.0}, {"round": 1, "loss": 3.0}, {"round": 2, "loss": 2.0}]


def test_damaged_history(tmp_path):
    file = tmp_path / "m.jsonl"
    for content, says in (
        (json.dumps({"round": 1}).encode() + b"\nnonsense\n", "line 2"),
        (b"\xff\xfe\n", "m.jsonl: not a history"),
    ):
        file.write_bytes(content)
        with pytest.raises(DataError, match=says):
            read_history(file)
    with pytest.raises(DataError, match=r"nothing\.jsonl: cannot be read"):
        read_history(tmp_path / "nothing.jsonl")


def test_event_files_need_tensorboardx(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'tf2jax-lite\[tensorboard\]'"):
        run_rounds(PROCESS, chosen, 1, tensorboard_dir=tmp_path)


@pytest.mark.parametrize(
    ("option", "error"),
    [("metrics_file", DataError), ("checkpoint_dir", CheckpointError), ("tensorboard_dir", DataError)],
)
def test_what_cannot_be_written_is_said_before_training(tmp_path, option, error):
    """A path below a regular file cannot be created."""
    (tmp_path / "file").write_bytes(b"")

    def clients(number):
        raise Killed

    with pytest.raises(error, match="file/below"):
        run_rounds(PROCESS, clients, 1, **{option: tmp_path / "file" / "below"})


@pytest.mark.full
def test_a_metrics_file_that_is_a_folder(tmp_path):
    with pytest.raises(DataError, match="is not a regular file"):
        run_rounds(PROCESS, chosen, 1, metrics_file=tmp_path)
