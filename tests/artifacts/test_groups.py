"""Algorithms that train several models, or weigh domains, from the shell."""

import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.artifacts.algorithms import count_domains
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import DataError, ExportError, InputError
from tf2jax_lite.finetuning import federate_artifact
from tf2jax_lite.learning.data import InMemoryFederatedData

from .conftest import CLASSES, make_examples

COMMON = {"loss": "sparse_categorical_crossentropy", "from_logits": True, "batch_size": 8, "client_learning_rate": 0.3}


def rotated(examples):
    """Return the same features with permuted labels: no single model fits."""
    return {**examples, "y": ((examples["y"] + 1) % CLASSES).astype(np.int32)}


def shell(artifact, out, *more):
    args = [
        "federate",
        artifact,
        "--from-logits",
        "--out",
        out,
        "--batch-size",
        "8",
        "--client-learning-rate",
        "0.3",
        "--json",
        *more,
    ]
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.mark.full
def test_each_cluster_becomes_an_artifact(artifact, tmp_path):
    """Clients with contradictory labels separate into fitting artifacts."""
    folder = tmp_path / "clients"
    folder.mkdir()
    for i in range(6):
        examples = make_examples(40, 30 + i)
        np.savez(folder / f"c{i}.npz", **(rotated(examples) if i % 2 else examples))
    test = make_examples(90, 7)
    np.savez(tmp_path / "test.npz", **test)
    args = ["--data", folder, "--algorithm", "hyp_cluster", "--num-clusters", "2", "--rounds", "4"]
    args += ["--clients-per-round", "6", "--client-epochs", "3", "--eval", tmp_path / "test.npz"]
    result = shell(artifact, tmp_path / "out", *args)
    assert result.exit_code == 0, (result.output, result.exception)
    report = json.loads(result.output)
    files = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert set(report["files"]) == files
    last = report["history"][-1]
    assert last["clients/participated"] == 6
    assert {last[f"cluster_{k}/clients/participated"] for k in (0, 1)} == {3}
    hits = []
    for k in (0, 1):
        fn, params = tf2jax.load(tmp_path / "out" / f"cluster_{k}", "serving_default")
        found = np.asarray(fn(params, test["features"])[0]).argmax(-1)
        hits.append([np.mean(found == test["y"]), np.mean(found == rotated(test)["y"])])
        assert last[f"eval/cluster_{k}/accuracy"] == pytest.approx(hits[k][0], abs=1e-6)
    assert np.max(hits, 0).min() > 0.7 and np.argmax(hits[0]) != np.argmax(hits[1])
    with pytest.raises(ExportError, match=r"several artifacts: \['cluster_0', 'cluster_1'\]"):
        tf2jax.load(tmp_path / "out")
    assert shell(artifact, tmp_path / "out", *args, "--rounds", "0", "--force").exit_code == 0


@pytest.mark.full
def test_domains_are_weighed_by_their_loss(artifact, tmp_path):
    """The mixture after a round, from the losses that the history has."""
    rng = np.random.default_rng(0)
    clients = {i: make_examples(16, 50 + i) for i in range(4)}
    joined = {n: np.concatenate([c[n] for c in clients.values()]) for n in ("features", "y")}
    domain = (rng.random(64) < 0.3).astype(np.int64)
    joined["y"] = np.where(domain == 1, (joined["y"] + 1) % CLASSES, joined["y"]).astype(np.int32)
    np.savez(tmp_path / "clients.npz", client_id=np.repeat(np.arange(4), 16), group=domain, **joined)
    args = ["--data", tmp_path / "clients.npz", "--algorithm", "agnostic_fed_avg", "--domain-key", "group"]
    args += ["--domain-learning-rate", "0.5", "--clients-per-round", "4", "--rounds", "2"]
    result = shell(artifact, tmp_path / "out", *args)
    assert result.exit_code == 0, (result.output, result.exception)
    mixture = np.array([0.5, 0.5])
    for record in json.loads(result.output)["history"][1:]:
        assert record["finalizer/domain_num_examples"] == np.bincount(domain).tolist()
        mixture = mixture * np.exp(0.5 * np.array(record["finalizer/domain_loss"]))
        mixture /= mixture.sum()
        np.testing.assert_allclose(record["finalizer/domain_weights"], mixture, rtol=1e-5)
    assert mixture[1] > 0.5
    assert tf2jax.load(tmp_path / "out", "serving_default")


def test_domains_are_counted():
    data = InMemoryFederatedData({0: {"d": np.array([0, 2, 2])}, 1: {"d": np.array([1])}, 2: {"d": np.zeros(0, int)}})
    found = count_domains(data, "d", 2, rounds=2)
    np.testing.assert_allclose(found.window, [np.array([1, 1, 2]) * 2 / 3] * 2)
    np.testing.assert_allclose(found.weights, [1 / 3] * 3)


CLIENTS = {i: {"inputs": c["features"], "y": c["y"]} for i in range(3) if (c := make_examples(8, i))}


def with_domains(values):
    return InMemoryFederatedData({i: {**c, "domain_id": np.asarray(values)} for i, c in CLIENTS.items()})


AGNOSTIC = {"algorithm": "agnostic_fed_avg"}


@pytest.mark.default_cases(
    "change9-InputError-domain_learning_rate is a finite",
    "change10-DataError-client 0: .* from -1 to 6",
    "change12-InputError-without gaps; .* \\\\[0, 24\\\\]",
)
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"algorithm": "fed_kmeans"}, InputError, "does not train a model.*build_fed_kmeans"),
        ({"num_clusters": 3}, InputError, "num_clusters goes with hyp_cluster"),
        ({"algorithm": "hyp_cluster", "num_clusters": 4}, InputError, "4 clusters need as many usable clients"),
        ({"algorithm": "hyp_cluster", "num_clusters": 0}, InputError, "at least 1"),
        ({"domain_key": "group"}, InputError, "domain_key goes with agnostic_fed_avg"),
        ({"proximal_strength": 0.1}, InputError, "proximal_strength goes with fed_prox"),
        ({**AGNOSTIC, "domain_key": "group"}, DataError, "client 0: no array 'group'"),
        ({**AGNOSTIC, "domain_key": "y"}, InputError, "'y' is an array that the model takes"),
        ({**AGNOSTIC, "domain_window": 0}, InputError, "domain_window is an integer of at least 1"),
        (
            {**AGNOSTIC, "domain_learning_rate": float("nan")},
            InputError,
            "domain_learning_rate is a finite",
        ),
        ({**AGNOSTIC, "clients": with_domains(np.arange(8) - 1)}, DataError, "client 0: .* from -1 to 6"),
        ({**AGNOSTIC, "clients": with_domains(np.ones(8))}, DataError, "integers from 0 .* float64"),
        ({**AGNOSTIC, "clients": with_domains(np.ones(8, int))}, InputError, r"without gaps; .* \[0, 24\]"),
        ({**AGNOSTIC, "clients": with_domains(np.zeros((8, 1), int))}, DataError, r"int64\[8, 1\]"),
        ({"algorithm": "fed_sgd", "client_learning_rate": 0.1}, InputError, "its rate is server_learning_rate"),
        ({"first_order": True}, InputError, "first_order goes with per_fed_avg"),
        ({"algorithm": "fed_buff", "aggregator": "dp", "noise_multiplier": 1.0}, InputError, "not a drawn cohort"),
    ],
)
def test_what_is_refused(artifact, tmp_path, change, error, says):
    options = {"clients": with_domains(np.arange(8) % 2), **COMMON, "rounds": 1, "clients_per_round": 3, **change}
    if change.get("algorithm") != "fed_sgd":
        options.pop("client_learning_rate")
    with pytest.raises(error, match=says):
        federate_artifact(artifact, options.pop("clients"), tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_the_rate_of_fed_sgd_is_the_servers(artifact, tmp_path):
    """One client, one batch: the change of the weights is in proportion to the rate."""
    clients = InMemoryFederatedData({0: make_examples(8, 0)})
    options = {name: COMMON[name] for name in ("loss", "from_logits")}
    options |= {"batch_size": 8, "clients_per_round": 1, "rounds": 1, "algorithm": "fed_sgd"}
    params = {}
    for name, more in {"half": {"server_learning_rate": 0.5}, "one": {"server_learning_rate": 1.0}, "own": {}}.items():
        federate_artifact(artifact, clients, tmp_path / name, **options, **more)
        params[name] = dict(tf2jax.load(tmp_path / name, "serving_default")[1])
    start = dict(tf2jax.load(artifact, "serving_default")[1])
    kernel = next(n for n in start if "head" in n and "kernel" in n)
    change = {name: np.asarray(found[kernel] - start[kernel]) for name, found in params.items()}
    np.testing.assert_allclose(change["half"], 0.5 * change["one"], atol=1e-6)
    np.testing.assert_allclose(change["own"], 0.1 * change["one"], atol=1e-6)
    assert np.abs(change["one"]).max() > 1e-3


@pytest.mark.full
def test_clusters_go_on_from_a_checkpoint(artifact, tmp_path):
    clients = InMemoryFederatedData({i: rotated(c) if i % 2 else c for i, c in CLIENTS.items()})
    options = {**COMMON, "algorithm": "hyp_cluster", "clients_per_round": 2}
    federate_artifact(artifact, clients, tmp_path / "whole", rounds=3, **options)
    for rounds in (1, 3):
        federate_artifact(
            artifact, clients, tmp_path / "out", rounds=rounds, checkpoint_dir=tmp_path / "s", overwrite=True, **options
        )
    for k in (0, 1):
        a, b = (tf2jax.load(tmp_path / n / f"cluster_{k}", "serving_default")[1] for n in ("whole", "out"))
        jax.tree.map(np.testing.assert_array_equal, dict(a), dict(b))
