"""Federated training of artifacts: numpy, files, interruptions, errors."""

import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.artifacts.algorithms import ALGORITHMS, aggregator_names, named_aggregator, named_process
from tf2jax_lite.cli import main
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import CheckpointError, DataError, InputError, TrainingError
from tf2jax_lite.federated.algorithms import server_optimizer
from tf2jax_lite.finetuning import federate, federate_artifact
from tf2jax_lite.learning.data import InMemoryFederatedData, SQLiteFederatedDataBuilder
from tf2jax_lite.learning.data.client_files import open_clients
from tf2jax_lite.learning.optimizers import named_optimizer, named_server_optimizer
from tf2jax_lite.learning.sources import create_model_from_fn

from .conftest import make_examples

TEST = make_examples(60, 1)
CLIENTS = {f"c{i}": make_examples(8 + 3 * i, 10 + i) for i in range(6)}
NAN = float("nan")
OPTIONS = {
    "loss": "sparse_categorical_crossentropy",
    "from_logits": True,
    "rounds": 3,
    "clients_per_round": 3,
    "batch_size": 8,
}
X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)
LINEAR = InMemoryFederatedData({i: {"x": X[6 * i : 6 * i + 6], "y": Y[6 * i : 6 * i + 6]} for i in range(10)})


def linear():
    return create_model_from_fn({"w": np.zeros((3, 1), np.float32)}, lambda p, batch: batch["x"] @ p["w"], "mse")


@pytest.mark.full
def test_rounds_are_those_of_numpy():
    """All clients each round and whole batches: nothing is drawn, so numpy can follow."""
    model = linear()
    process = named_process("fed_avg", model, named_optimizer("sgd", 0.05), batch_size=6, client_epochs=2)
    state, history = federate(process, model, LINEAR, rounds=4, clients_per_round=10, eval_examples={"x": X, "y": Y})
    w = np.zeros((3, 1))
    for number in range(4):
        models = []
        for i in range(10):
            x, y, own = X[6 * i : 6 * i + 6].astype(float), Y[6 * i : 6 * i + 6].astype(float), w
            for _ in range(2):
                own = own - 0.05 * 2 * x.T @ (x @ own - y) / 6
            models.append(own)
        w = np.mean(models, 0)
        np.testing.assert_allclose(history.records[number + 1]["eval/loss"], np.mean((X @ w - Y) ** 2), rtol=1e-4)
    np.testing.assert_allclose(state.weights.trainable["w"], w, rtol=1e-4, atol=1e-6)
    assert history.records[1]["clients/participated"] == 10


@pytest.mark.full
def test_a_round_without_clients_has_no_loss():
    """A loss of 0 would look perfect."""
    model = linear()
    process = named_process("fed_avg", model, named_optimizer("sgd", 0.05), batch_size=6)
    empty = InMemoryFederatedData({i: {"x": X[:0], "y": Y[:0]} for i in range(3)})
    _, history = federate(process, model, empty, rounds=1, clients_per_round=3)
    record = history.records[1]
    assert record.get("train/loss") is None and record["clients/empty"] == 3


# Domains and clusters need clients of groups: test_groups.py has those two.
@pytest.mark.default_cases("scaffold")
@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n not in ("agnostic_fed_avg", "hyp_cluster")])
def test_every_algorithm_learns(name):
    model = linear()
    optimizer = named_optimizer("sgd", 0.05)
    process = named_process(name, model, optimizer, batch_size=3, num_clients=10, learning_rates=(0.05, 1.0))
    data = {"x": X, "y": Y}
    _, history = federate(process, model, LINEAR, rounds=4, clients_per_round=5, eval_examples=data, eval_every=4)
    assert history.records[-1]["eval/loss"] < 0.6 * history.records[0]["eval/loss"]
    assert "eval/loss" not in history.records[2]


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["dp", *(pytest.param(n, marks=pytest.mark.full) for n in aggregator_names() if n != "dp")]
)
def test_every_aggregator_learns(name):
    given = {"noise_multiplier": 0.01, "clip_norm": 10.0} if name == "dp" else {}
    options = {"noise_multiplier": 0.01, "clip": 10.0} if name == "local_dp" else {}
    aggregator = named_aggregator(name, clients_per_round=5, options=options, **given)
    model = linear()
    optimizer = named_optimizer("sgd", 0.05)
    algorithm = "unweighted_fed_avg" if given or options else "fed_avg"
    process = named_process(algorithm, model, optimizer, batch_size=3, aggregator=aggregator)
    _, history = federate(process, model, LINEAR, rounds=3, clients_per_round=5, eval_examples={"x": X, "y": Y})
    assert history.records[-1]["eval/loss"] < 0.9 * history.records[0]["eval/loss"]


@pytest.mark.parametrize(("given", "means"), [("True", True), ("FALSE", False), ("true", True), (False, False)])
def test_booleans_are_written_as_in_python_or_json(given, means):
    aggregator = named_aggregator("drive", clients_per_round=5, options={"unbiased": given})
    assert aggregator.codec.unbiased is means


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the same clients in three kinds of files."""
    folder = tmp_path_factory.mktemp("clients")
    with SQLiteFederatedDataBuilder(folder / "clients.sqlite") as builder:
        builder.add_many(CLIENTS.items())
    joined = {n: np.concatenate([c[n] for c in CLIENTS.values()]) for n in ("features", "y")}
    owner = np.concatenate([[i] * len(c["y"]) for i, c in CLIENTS.items()])
    np.savez(folder / "clients.npz", client_id=owner, **joined)
    (folder / "npz").mkdir()
    for name, client in CLIENTS.items():
        np.savez(folder / "npz" / f"{name}.npz", **client)
    return folder


def test_clients_from_files_are_the_same(files):
    for name in ("clients.sqlite", "clients.npz", "npz"):
        found = open_clients(files / name)
        assert list(found.client_ids()) == list(CLIENTS), name
        for client_id, dataset in found.clients():
            jax.tree.map(np.testing.assert_array_equal, dataset.all_examples(), CLIENTS[client_id])


def test_a_private_artifact_has_only_covered_values(artifact, files, tmp_path):
    """Neither files nor reports have the seed, counts, or losses of clients."""
    reported = []
    federate_artifact(
        artifact,
        open_clients(files / "clients.sqlite"),
        tmp_path / "out",
        **{**OPTIONS, "rounds": 2},
        algorithm="unweighted_fed_avg",
        aggregator="dp",
        target_epsilon=0.5,  # accounting of less noise takes seconds
        sampling="poisson",
        clip_norm=1.0,
        train_signature="serving_default",  # the training mode changes statistics, which are not private
        seed=271828,
        eval_examples=TEST,
        report=reported.append,
        checkpoint_dir=tmp_path / "checkpoints",
    )
    training = json.loads((tmp_path / "out" / "metadata.json").read_text())["options"]["training"][-1]
    assert "seed" not in training and 0 < training["privacy"]["epsilon"] <= 0.5 < training["privacy"]["epsilon"] + 0.1
    history = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    names = {name for record in [*history, *reported, training["result"]] for name in record}
    covered = {"aggregator/clipping_norm", "aggregator/noise_stddev", "finalizer/update_norm"}
    assert names - covered == {"round", "eval/loss", "eval/accuracy"}
    text = "".join(path.read_text(errors="replace") for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert "271828" not in text and "clipped_count" not in text and "train/loss" not in text


@pytest.mark.parametrize("aggregator", ["dp", "median", "secure"])
def test_clusters_that_begin_at_clients_are_not_protected(artifact, files, tmp_path, aggregator):
    noise = {"noise_multiplier": 0.5, "clip_norm": 1.0} if aggregator == "dp" else {}
    with pytest.raises(InputError, match=r"statistics|begins at the weights of single clients"):
        federate_artifact(
            artifact,
            open_clients(files / "clients.sqlite"),
            tmp_path / "out",
            **OPTIONS,
            algorithm="hyp_cluster",
            aggregator=aggregator,
            **noise,
        )


@pytest.mark.full
def test_an_artifact_is_trained_interrupted_and_resumed(artifact, files, tmp_path):
    clients = open_clients(files / "clients.sqlite")
    options = {**OPTIONS, "eval_examples": TEST, "client_epochs": 3}
    whole = federate_artifact(artifact, clients, tmp_path / "whole", **options)
    first, last = whole.history.records[0], whole.history.records[-1]
    assert last["eval/loss"] < first["eval/loss"] and last["round"] == 3
    fn, params = tf2jax.load(tmp_path / "whole", "serving_default")
    hits = np.asarray(fn(params, TEST["features"])[0]).argmax(-1) == TEST["y"]
    assert hits.mean() == pytest.approx(last["eval/accuracy"], abs=1e-6)
    assert (tmp_path / "whole" / "history.svg").read_text().startswith("<svg")

    class Stop(Exception):
        pass

    def stop(record):
        if record["round"] == 2:
            raise Stop

    where = {"checkpoint_dir": tmp_path / "state"}
    with pytest.raises(Stop):
        federate_artifact(artifact, clients, tmp_path / "out", **options, **where, report=stop)
    federate_artifact(artifact, clients, tmp_path / "out", **options, **where)
    a, b = (tf2jax.load(tmp_path / n, "serving_default")[1] for n in ("whole", "out"))
    jax.tree.map(np.testing.assert_array_equal, dict(a), dict(b))
    with pytest.raises(CheckpointError, match="algorithm"):
        federate_artifact(artifact, clients, tmp_path / "x", **options, **where, algorithm="fed_prox")


@pytest.mark.default_cases("sgd-options4-expected4")
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        *[(name, {}, server_optimizer(name, 0.5)) for name in ("adam", "yogi", "adagrad")],
        ("adam", {"tau": 0.1}, server_optimizer("adam", 0.5, tau=0.1)),
        ("sgd", {"momentum": 0.9}, server_optimizer("momentum", 0.5)),
        ("lion", {}, named_optimizer("lion", 0.5)),
    ],
)
def test_server_optimizers_of_the_shell_are_the_papers(name, options, expected):
    found, weights = [], np.ones(3, np.float32)
    for optimizer in (named_server_optimizer(name, 0.5, **options), expected):
        state = optimizer.init(weights)
        for grads in np.float32([[1e-3, 2, 0], [-1e-2, 1, 0]]):
            updates, state = optimizer.update(grads, state, weights)
        found.append(updates)
    np.testing.assert_array_equal(*found)


@pytest.mark.default_cases(
    "change13-InputError-no server optimizer",
    "change24-InputError-noise_multiplier .* of at least 0",
    "change25-InputError-noise_multiplier .* of at least 0",
    "change31-InputError-bound",
    "change34-InputError-rounds is an integer of at least 0",
)
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"algorithm": "gossip"}, InputError, "no algorithm"),
        ({"aggregator": "mode"}, InputError, "no aggregator"),
        ({"target_epsilon": 1.0}, InputError, "target_epsilon goes with the aggregator dp"),
        ({"sampling": "all"}, InputError, "sampling is one of fixed_size, poisson"),
        ({"seed": 2**63}, InputError, "seed is an integer"),
        ({"client_optimizer": ""}, InputError, "no optimizer ''"),
        ({"server_optimizer": ""}, InputError, "no optimizer ''"),
        ({"server_tau": 0.1}, InputError, "tau goes with adagrad, adam, yogi; not with sgd"),
        ({"server_optimizer": "adam", "server_tau": -0.1}, InputError, "tau is a finite number of at least 0"),
        ({"server_optimizer": "yogi", "server_momentum": 0.9}, InputError, "goes with sgd, rmsprop; not 0.9, yogi"),
        ({"algorithm": "mime", "server_tau": 0.1}, InputError, "goes with adagrad"),
        ({"aggregator": "dp"}, InputError, "needs a noise multiplier"),
        ({"noise_multiplier": 1.0}, InputError, "goes with the aggregator dp"),
        ({"algorithm": "mime", "server_optimizer": "adam"}, InputError, "no server optimizer"),
        ({"algorithm": "scaffold", "client_optimizer": "adam"}, InputError, "step with sgd"),
        ({"algorithm": "scaffold", "client_decay": 0.9}, InputError, "client_decay does not go with scaffold"),
        ({"client_decay": 0.0}, InputError, "client_decay is a finite number above 0"),
        ({"client_decay": NAN}, InputError, "client_decay is a finite number above 0"),
        ({"algorithm": "mime", "server_learning_rate": NAN}, InputError, "finite numbers above 0, not nan"),
        ({"algorithm": "scaffold", "server_learning_rate": -1.0}, InputError, "finite numbers above 0, not -1"),
        (
            {"algorithm": "fed_prox", "proximal_strength": NAN},
            InputError,
            "proximal_strength .* at least 0",
        ),
        ({"clip_norm": NAN}, InputError, "norm"),
        ({"zeroing_norm": NAN}, InputError, "norm"),
        (
            {"aggregator": "dp", "noise_multiplier": NAN},
            InputError,
            "noise_multiplier .* of at least 0",
        ),
        (
            {"aggregator": "dp", "noise_multiplier": -1.0},
            InputError,
            "noise_multiplier .* of at least 0",
        ),
        (
            {"aggregator": "dp", "noise_multiplier": -1.0, "clip_norm": 1.0},
            InputError,
            "noise_multiplier .* of at least 0",
        ),
        ({"aggregator_options": {"bound": 1.0}}, InputError, "without an aggregator"),
        ({"aggregator": "krum", "aggregator_options": {"f": 1}}, InputError, "krum has no option 'f'; it has"),
        (
            {"aggregator": "krum", "aggregator_options": {"num_byzantine": "x"}},
            InputError,
            "a number such as 0, not 'x'",
        ),
        (
            {"aggregator": "drive", "aggregator_options": {"unbiased": "yes"}},
            InputError,
            "unbiased is true or false",
        ),
        ({"aggregator": "trimmed_mean", "aggregator_options": {"trim_fraction": 2.0}}, InputError, "trim_fraction"),
        ({"aggregator": "secure", "aggregator_options": {"bound": -1.0}}, InputError, "bound"),
        ({"zeroing_norm": -1.0}, InputError, "norm"),
        ({"clients_per_round": 7}, DataError, "7 clients cannot be drawn from 6"),
        ({"rounds": -1}, InputError, "rounds is an integer of at least 0"),
        ({"label": "target"}, InputError, "no targets 'target'"),
        ({"clients": InMemoryFederatedData({})}, DataError, "no client has any examples"),
        # After the first round the weights are still finite.
        ({"client_learning_rate": 1e30}, TrainingError, "round [12]: no client's update was finite .3 were not."),
    ],
)
def test_what_is_refused(artifact, tmp_path, change, error, says):
    options = {"clients": InMemoryFederatedData(CLIENTS), **OPTIONS, **change}
    with pytest.raises(error, match=says):
        federate_artifact(artifact, options.pop("clients"), tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_scaffold_and_krum_from_the_shell(files, artifact, tmp_path):
    """SCAFFOLD's state resumes from a checkpoint; aggregator options apply."""
    common = ["--data", files / "clients.sqlite", "--clients-per-round", "4", "--batch-size", "8", "--json"]

    def run(out, rounds, *more):
        args = ["federate", artifact, "--from-logits", *common, "--out", tmp_path / out, "--rounds", rounds, *more]
        result = CliRunner().invoke(app, [str(a) for a in args])
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.output)["history"]

    scaffold = ["--algorithm", "scaffold", "--client-learning-rate", "0.05"]
    run("whole", 3, *scaffold)
    run("half", 2, *scaffold, "--checkpoint-dir", tmp_path / "state")
    run("resumed", 3, *scaffold, "--checkpoint-dir", tmp_path / "state")
    a, b, c = (tf2jax.load(tmp_path / n, "serving_default")[1] for n in ("whole", "resumed", "half"))
    jax.tree.map(np.testing.assert_array_equal, dict(a), dict(b))
    assert any(not np.array_equal(a[n], c[n]) for n in a)
    krum = ["--aggregator", "krum", "--aggregator-option", "num-byzantine=1", "--clients-per-round", "5"]
    history = run("krum", 1, *krum, "--client-decay", "0.5")
    assert history[-1]["clients/participated"] == 5


@pytest.mark.full
def test_the_rate_of_clients_decays():
    """Whole batches and one step a round: numpy follows."""
    model = linear()
    process = named_process("fed_avg", model, named_optimizer("sgd", 0.05), batch_size=6, client_decay=0.5)
    state, _ = federate(process, model, LINEAR, rounds=3, clients_per_round=10)
    w = np.zeros((3, 1))
    for number in range(3):
        w = w - 0.05 * 0.5**number * 2 * X.T.astype(float) @ (X.astype(float) @ w - Y) / 60
    np.testing.assert_allclose(state.weights.trainable["w"], w, rtol=1e-4, atol=1e-6)


ODD_FILES = {
    "missing": ("clients.sqlite", None),
    "not sqlite": ("clients.sqlite", b"nonsense" * 100),
    "not npz": ("clients.npz", b"PK nonsense"),
    "empty": ("clients.npz", b""),
    "not hdf5": ("clients.h5", b"nonsense" * 100),
}


@pytest.mark.default_cases("not hdf5")
@pytest.mark.parametrize("case", ODD_FILES)
def test_odd_files_end_with_exit_code_2(artifact, tmp_path, case, monkeypatch, capsys):
    name, content = ODD_FILES[case]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    args = [
        "tf2jax-lite",
        "federate",
        artifact,
        "--from-logits",
        "--data",
        tmp_path / name,
        "--out",
        tmp_path / "out",
        "--rounds",
        "1",
    ]
    monkeypatch.setattr("sys.argv", [str(a) for a in args])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    captured = capsys.readouterr()
    assert name in (captured.err + captured.out).replace("\n", "") and "Traceback" not in captured.err
    assert not (tmp_path / "out").exists()


def test_from_the_shell(artifact, files, tmp_path):
    np.savez(tmp_path / "test.npz", **TEST)
    args = [
        "federate",
        artifact,
        "--from-logits",
        "--data",
        files / "clients.npz",
        "--out",
        tmp_path / "out",
        "--rounds",
        "2",
    ]
    args += ["--clients-per-round", "3", "--eval", tmp_path / "test.npz", "--server-optimizer", "sgd"]
    result = CliRunner().invoke(app, [str(a) for a in [*args, "--server-momentum", "0.5", "--json"]])
    assert result.exit_code == 0, (result.output, result.exception)
    report = json.loads(result.output)
    assert [r["round"] for r in report["history"]] == [0, 1, 2]
    assert set(report["files"]) == {p.name for p in (tmp_path / "out").iterdir()}
    with pytest.raises(DataError, match="no array 'owner'"):
        CliRunner().invoke(app, [str(a) for a in [*args, "--client-key", "owner", "--force"]], catch_exceptions=False)
