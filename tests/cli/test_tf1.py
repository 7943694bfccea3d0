"""TF1 models of every kind in the shell: inspect, convert, run, verify.

Errors are a line.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests._support import invoke

from .test_cli import TESTDATA, shell

TF1 = TESTDATA / "tf1"

# Inspect's name of the kind, its signatures, variables, and the number of trainable ones.
KINDS = {
    "classifier": ("TF1 SavedModel", ["lookup", "serving_default"], {"dense/w/part_0", "bn/moving_mean"}, 5),
    "lstm": ("TF1 SavedModel", ["serving_default", "train"], {"lstm/kernel", "lstm/bias"}, 2),
    "hub": ("TF1 Hub module", ["default"], {"module/embedding"}, 1),
    "checkpoint/model.meta": ("TF1 MetaGraph", ["serving_default"], {"renamed"}, 1),
    "frozen_inception.pb": ("frozen GraphDef", ["serving_default"], set(), 13),
}


@pytest.mark.default_cases("classifier", "lstm")
@pytest.mark.parametrize("name", KINDS)
def test_inspect_names_the_kind(name):
    kind, signatures, variables, trainable = KINDS[name]
    result = invoke("inspect", TF1 / name, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["kind"], [s["name"] for s in found["signatures"]]) == (kind, signatures)
    assert found["supported"] and variables <= {v["name"] for v in found["variables"]}
    assert found["trainable"] == trainable
    assert all(s["inputs"] and s["outputs"] for s in found["signatures"])
    if name.endswith((".meta", ".pb")):
        text = invoke("inspect", TF1 / name).output
        assert kind in text and "every op is supported" in text


def test_inspect_takes_other_ends():
    result = invoke("inspect", TF1 / "checkpoint" / "model.meta", "--input", "x", "--output", "y", "--json")
    assert result.exit_code == 0, result.output
    (signature,) = json.loads(result.output)["signatures"]
    assert [t["name"] for t in signature["inputs"]] == ["x"] and [t["name"] for t in signature["outputs"]] == ["y"]
    assert "MatMul" in signature["ops"]


@pytest.mark.full
@pytest.mark.parametrize(
    "name, ends, recorded",
    [
        ("hub", [], ("default", "result")),
        pytest.param("frozen_inception.pb", [], ("image", "probabilities"), marks=pytest.mark.full),
        ("checkpoint/model.meta", ["--input", "x", "--output", "y"], None),
    ],
)
def test_convert_and_run(name, ends, recorded, tmp_path):
    result = invoke("convert", TF1 / name, tmp_path / "out", "--platforms", "cpu", "--quiet", *ends)
    assert result.exit_code == 0, result.output
    if recorded is None:
        x = np.eye(3, dtype=np.float32)
        expected, key = np.load(TF1 / "checkpoint.npz")["w"], "x"
    else:
        data = np.load(TF1 / f"{name.removesuffix('.pb')}.npz")
        key, result_name = recorded
        x, expected = data[key], data[result_name]
    np.savez(tmp_path / "x.npz", **{key: x})
    result = invoke("run", tmp_path / "out", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert result.exit_code == 0, result.output
    (found,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.default_cases("checkpoint/model.meta-ends0")
@pytest.mark.parametrize("name, ends", [("checkpoint/model.meta", ["--input", "x", "--output", "y"]), ("hub", [])])
def test_verify(name, ends):
    result = invoke("verify", TF1 / name, "--grad", "--batch-size", "2", "--json", *ends)
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["ok"] and all(s["outputs"] for s in found["signatures"])


@pytest.mark.full
def test_a_training_step_as_an_output(tmp_path):
    """The function returns the variables after a step, and no other result."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2], name="x")
        w = tf1.get_variable("w", initializer=np.float32([1, 2]), use_resource=False)
        loss = tf.reduce_sum(w * x, name="loss")
        tf1.train.GradientDescentOptimizer(0.5).minimize(loss, name="train")
        session.run(w.initializer)
        tf1.train.Saver().save(session, f"{tmp_path}/model")
    path, ends = tmp_path / "model.meta", ["--input", "x", "--output", "loss", "--output", "train"]
    assert invoke("inspect", path, *ends).exit_code == 0
    result = invoke("convert", path, tmp_path / "out", "--platforms", "cpu", "--quiet", *ends)
    assert result.exit_code == 0, result.output
    result = invoke("verify", path, tmp_path / "out", "--source", "--train", "--batch-size", "2", "--json", *ends)
    assert result.exit_code == 0, result.output
    found = {(o["kind"], o["against"]) for o in json.loads(result.output)["signatures"][0]["outputs"]}
    assert found == {(kind, against) for kind in ("result", "variable") for against in ("jax", "stablehlo", "source")}


@pytest.mark.full
def test_errors_are_one_line_with_exit_code_2(tmp_path):
    (tmp_path / "cut.meta").write_bytes((TF1 / "checkpoint" / "model.meta").read_bytes()[:100])
    done = shell("inspect", tmp_path / "cut.meta")
    assert done.returncode == 2 and done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1, done.stderr
    assert "cut.meta" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["inspect", TF1 / "frozen_inception.pb", "--output", "nothing"], "no node 'nothing'"),
        (["inspect", TF1 / "frozen_inception.pb", "--tag", "serve"], "--tag goes with SavedModels"),
        (["inspect", TF1 / "classifier", "--input", "x"], "--input and --output go with"),
        (["inspect", TF1 / "none.pb"], "none.pb"),
        (["verify", TF1 / "none.meta"], "none.meta"),
    ],
)
def test_errors_say_what_is_wrong(arguments, words):
    result = invoke(*arguments)
    assert result.exit_code != 0 and words in str(result.exception), (result.exception, result.output)
