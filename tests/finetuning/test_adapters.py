"""Low-rank adapters and learning rates by param: training, files, refusals."""

import json

import numpy as np
import optax
import pytest
import safetensors.numpy
import tensorflow as tf
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tests.artifacts.conftest import make_examples
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import InputError
from tf2jax_lite.export import export_functions
from tf2jax_lite.finetuning import finetune, finetune_artifact
from tf2jax_lite.finetuning.adapters import adapted, merge_adapters
from tf2jax_lite.finetuning.options import AdapterOptions
from tf2jax_lite.learning.optimizers import with_multipliers
from tf2jax_lite.learning.sources import create_model_from_fn

TRAIN = make_examples(64, 0)
OPTIONS = {
    "loss": "sparse_categorical_crossentropy",
    "from_logits": True,
    "epochs": 2,
    "batch_size": 16,
    "learning_rate": 0.02,
}
X = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
DATA = {"x": X, "y": (X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)}


def two_layers():
    params = {"a/kernel": np.full((3, 4), 0.1, np.float32), "b/kernel": np.full((4, 1), 0.2, np.float32)}
    return create_model_from_fn(params, lambda p, b: b["x"] @ p["a/kernel"] @ p["b/kernel"], "mse")


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [
        ((6, 8), (6, 8)),
        ((3, 3, 16, 32), (144, 32)),  # a convolution: patches to channels
        ((64, 4, 16), (64, 64)),  # attention: width to heads
        ((4, 16, 64), (64, 64)),  # and back
    ],
)
def test_kernels_are_matrices_of_few_numbers(shape, matrix):
    model = create_model_from_fn({"kernel": np.zeros(shape, np.float32)}, lambda p, b: p["kernel"], "mse")
    shapes = adapted(model, AdapterOptions(lora_rank=2)).shapes.trainable["kernel"]
    assert (shapes["a"].shape, shapes["b"].shape) == ((matrix[0], 2), (2, matrix[1]))


def test_adapters_train_alone_and_merge(artifact, tmp_path):
    """Merged params equal the old ones plus the adapters' file; others are unchanged."""
    lora = {"lora_rank": 2, "lora_alpha": 4.0, "lora_targets": "hidden/kernel"}
    report = finetune_artifact(artifact, TRAIN, tmp_path / "out", **OPTIONS, **lora)
    assert report.history.records[-1]["loss"] < report.history.records[1]["loss"]
    _, before = tf2jax.load(artifact, "serving_default")
    _, after = tf2jax.load(tmp_path / "out", "serving_default")
    changed = {n for n in before if not np.array_equal(before[n], after[n]) and "moving" not in n and "seed" not in n}
    assert {n.split("/")[-2:] == ["hidden", "kernel"] for n in changed} == {True}
    (name,) = changed
    arrays = safetensors.numpy.load_file(tmp_path / "out" / "adapters.safetensors")
    a, b = arrays[f"{name}/lora_a"], arrays[f"{name}/lora_b"]
    assert a.shape == (6, 2) and b.shape == (2, 8)
    np.testing.assert_allclose(after[name], before[name] + 2.0 * a @ b, rtol=1e-5, atol=1e-6)
    args = ["merge-adapters", artifact, tmp_path / "out" / "adapters.safetensors", "--out", tmp_path / "merged"]
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    _, merged = tf2jax.load(tmp_path / "merged", "serving_default")
    np.testing.assert_allclose(merged[name], after[name], rtol=1e-6, atol=1e-7)
    recorded = json.loads((tmp_path / "out" / "metadata.json").read_text())["options"]["training"][0]
    assert lora.items() <= recorded.items()
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({f"{name}/lora_a": a[:3], f"{name}/lora_b": b}, other, {"rank": "2", "alpha": "4.0"})
    for file, says in ((other, "does not fit the params"), (tmp_path / "out" / "metadata.json", "not a file of adapt")):
        with pytest.raises(InputError, match=says):
            merge_adapters(artifact, file, tmp_path / "x")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lora_rank": 2, "lora_targets": "gamma"}, "no parameter of two or more axes is adapted"),
        ({"lora_rank": 0}, "lora_rank is an integer of at least 1"),
        ({"lora_rank": 2, "lora_targets": "("}, "regular expression"),
    ],
)
def test_adapters_that_do_not_fit(options, says):
    with pytest.raises(InputError, match=says):
        adapted(two_layers(), AdapterOptions(**options))


@pytest.mark.full
def test_learning_rates_by_param():
    """SGD steps are in proportion to the rate; params without a rule have factor 1."""

    def change(*rules):
        optimizer = with_multipliers(optax.sgd(0.1), rules, ["a/kernel", "b/kernel"])
        weights, _ = finetune(two_layers(), DATA, optimizer=optimizer, epochs=1, batch_size=32)
        start = two_layers().init(None).trainable
        return {name: np.asarray(weights.trainable[name]) - start[name] for name in start}

    plain, scaled = change(), change("^a=0.5", "a=9")
    np.testing.assert_allclose(scaled["a/kernel"], 0.5 * plain["a/kernel"], rtol=1e-5)
    np.testing.assert_allclose(scaled["b/kernel"], plain["b/kernel"], rtol=1e-6)
    assert not change("kernel=0")["b/kernel"].any()


@pytest.mark.parametrize("rule", ["a", "=2", "a=-1", "a=x", "(=1", "a=inf", "gamma=2"])
def test_multipliers_that_do_not_fit(rule):
    with pytest.raises(InputError, match=r"multiplier is REGEX=FACTOR|no trained param"):
        with_multipliers(optax.sgd(0.1), [rule], ["a/kernel"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, None),
        ({"alpha": "NaN"}, "a finite number"),
        ({"alpha": "Infinity"}, "a finite number"),
        ({"alpha": '"1"'}, "a finite number"),
        ({"rank": "-2"}, "positive"),
        ({"rank": "0"}, "positive"),
        ({"rank": "2.0"}, "positive"),
        ({"rank": "true"}, "positive"),
        ({"rank": "1"}, "for rank 1"),
        ({"rank": None}, "KeyError"),
        ({"b": np.ones((3, 2), np.float32)}, "for rank 2"),
        ({"b": np.ones(2, np.float32)}, "for rank 2"),
        ({"a": np.ones((4, 2), np.int32)}, "floating point"),
        ({"b": np.full((2, 2), np.nan, np.float32)}, "floating point"),
        ({"b": None}, "KeyError"),
        ({"a": None}, "unexpected arrays"),
        ({"a": None, "b": None}, "no adapters"),
        ({"a": np.ones((3, 2), np.float32)}, "does not fit the params"),
        ({"name": "n"}, "does not fit the params"),
        ({"name": "missing"}, "does not fit the params"),
        ({"a": np.full((4, 2), 3e38, np.float32)}, "beyond the range"),
    ],
    ids=str,
)
def test_files_of_adapters_that_are_damaged(given, says, tmp_path):
    variables = [tf.Variable(np.ones((4, 2), t), name=n) for n, t in (("w", np.float32), ("n", np.int32))]
    function = tf.function(lambda x: x @ (variables[0] + tf.cast(variables[1], tf.float32)), autograph=False)
    converted = tf2jax.convert(function, tf.TensorSpec([None, 4], tf.float32))
    export_functions({"f": converted}, tmp_path / "model", platforms=["cpu"])
    name = given.get("name", "w")
    arrays = {"a": np.ones((4, 2), np.float32), "b": np.ones((2, 2), np.float32)} | given
    stored = {f"{name}/lora_{part}": arrays[part] for part in "ab" if arrays[part] is not None}
    metadata = {k: v for k, v in ({"rank": "2", "alpha": "2"} | given).items() if k in ("rank", "alpha") and v}
    safetensors.numpy.save_file(stored, tmp_path / "a.safetensors", metadata)
    out = tmp_path / "out"
    if says is None:
        merge_adapters(tmp_path / "model", tmp_path / "a.safetensors", out)
        np.testing.assert_array_equal(tf2jax.load(out, "f")[1]["w"], np.full((4, 2), 3.0))
        return
    with pytest.raises(InputError, match=says):
        merge_adapters(tmp_path / "model", tmp_path / "a.safetensors", out)
    assert not out.exists()
