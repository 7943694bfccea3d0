"""Models with strings: the prefix stays, the core is compared."""

import json
import warnings

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app

from . import models


class Scores(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.random.stateless_normal([16, 3], [1, 2]), name="w")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text"), tf.TensorSpec([None, 3], tf.float32, "x")])
    def __call__(self, text, x):
        ids = tf.strings.to_hash_bucket_fast(tf.strings.substr(text, 0, 2), 16)
        best = tf.nn.softmax(tf.gather(self.w, ids) + x)
        return {"scores": best, "name": tf.strings.as_string(tf.argmax(best, -1))}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "model"
    module = Scores()
    tf.saved_model.save(module, str(path), signatures=module.__call__)
    return path


def run(*args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CliRunner().invoke(app, [str(a) for a in args])


def test_convert_run_and_verify(model, tmp_path):
    out = tmp_path / "out"
    result = run("convert", model, out, "--split-host")
    assert result.exit_code == 0, result.output
    assert "StringToHashBucketFast" in result.output and "the cut is at:" in result.output
    assert "left out, being strings: name" in result.output

    host_fn, jax_fn, params = _quiet_split(model)
    arrays = host_fn(text=["ab", "cd", "xy"], x=np.ones((3, 3), np.float32))
    np.savez(tmp_path / "x.npz", **arrays)
    result = run("run", out, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_allclose(found["scores"], jax_fn(params, **arrays)[0]["scores"], rtol=1e-5)

    # The artifact says by itself that it is a core.
    result = run("verify", model, out, "--source", "--grad", "--train", "--json")
    assert result.exit_code == 0, result.output
    outputs = json.loads(result.output)["signatures"][0]["outputs"]
    assert {(o["name"], o["against"]) for o in outputs} >= {("scores", "jax"), ("scores", "stablehlo"), ("w", "jax")}


def _quiet_split(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tf2jax.convert_saved_model(model, split_host=True)


@pytest.mark.full
def test_a_fault_in_the_core_is_found(model):
    with tf2jax.override_op("Softmax", models.softmax):
        result = run("verify", model, "--split-host", "--json")
    assert result.exit_code == 1, result.output
    (signature,) = json.loads(result.output)["signatures"]
    assert signature["bisection"]["suspects"][0]["op"] == "Softmax"


@pytest.mark.full
def test_inputs_that_tensorflow_refuses(model, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3), np.float32), text=np.array(["a", "b"]))
    assert run("verify", model, "--split-host", "--inputs", tmp_path / "x.npz").exit_code == 0
    assert run("verify", model, "--split-host", "--no-bisect", "--seed", 3, "--batch-size", 2).exit_code == 0
