"""The command: options, output, exit codes."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import InputError

from . import models


def run(*args):
    return CliRunner().invoke(app, ["verify", *(str(a) for a in args)])


@pytest.mark.full
def test_everything_at_once(tmp_path):
    with tf2jax.override_op("Softmax", models.softmax):
        result = run(
            models.TESTDATA / "tf_module",
            "--grad",
            "--train",
            *("--seed", 1, "--seed", 2, "--batch-size", 2, "--batch-size", 5, "--rtol", 1e-5),
            *("--repro", tmp_path / "repro", "--report", tmp_path / "report.html", "--json"),
        )
    assert result.exit_code == 1, result.output
    found = json.loads(result.output)
    repeat, serving = found["signatures"]
    assert repeat["ok"] and repeat["bisection"] is None and not serving["ok"]
    assert [(c["seed"], c["batch"]) for c in serving["cases"]] == [(1, 2), (1, 5), (2, 2), (2, 5)]
    assert serving["bisection"]["suspects"][0]["node"] == "Softmax"
    assert (tmp_path / "report.html").exists() and found["repro"] == str(tmp_path / "repro" / "repro.py")


def test_text(tmp_path):
    with tf2jax.override_op("Softmax", models.softmax):
        result = run(models.TESTDATA / "tf_module", "--signature", "serving_default", "--repro", tmp_path)
    assert result.exit_code == 1
    assert "first differing node" in result.output and "(Softmax)" in result.output
    assert "repro.py" in result.output and "MatMul" not in result.output


@pytest.mark.full
def test_no_bisect():
    with tf2jax.override_op("Softmax", models.softmax):
        result = run(models.TESTDATA / "tf_module", "--no-bisect", "--json")
    assert result.exit_code == 1
    assert all(s["bisection"] is None for s in json.loads(result.output)["signatures"])


@pytest.mark.full
def test_bisect_on_request(tmp_path):
    np.savez(tmp_path / "x.npz", tokens=np.int32([[1, 2, 10]]))
    options = ["--bisect", "--node-data", tmp_path / "data", "--inputs", tmp_path / "x.npz"]
    result = run(models.TESTDATA / "tf_keras_save", "--json", *options)
    assert result.exit_code == 0, result.output
    nodes = json.loads(result.output)["signatures"][0]["bisection"]["nodes"]
    assert len(nodes) > 10 and all(node["seconds"] > 0 for node in nodes)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["error.json", "seconds.json"]


@pytest.mark.full
@pytest.mark.parametrize("args", [["--batch-size", "-1"], ["--rtol", "-1"]])
def test_bad_options(args):
    assert isinstance(run(models.TESTDATA / "tf_module", *args).exception, InputError)  # exit code 2, by cli.main
