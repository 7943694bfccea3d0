"""New last layers: on artifacts from the command line, and on any function."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tests.artifacts.conftest import FEATURES, make_examples
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning import finetune_artifact, load_adapters, replace_head

CLASSES = 5
RNG = np.random.default_rng(7)
DATA = {
    "features": make_examples(60, 3)["features"],
    "y": np.arange(60, dtype=np.int32) % CLASSES,
}
DATA["features"][:, 0] += 3 * DATA["y"]  # which a new head can tell
OPTIONS = {
    "loss": "sparse_categorical_crossentropy",
    "from_logits": True,
    "epochs": 2,
    "batch_size": 20,
    "learning_rate": 0.05,
}


def changed(before, after):
    """Return the names of the params whose values differ."""
    return {str(n) for n, v in after.items() if n not in before or not np.array_equal(v, before[n])}


def command(tmp_path, artifact, *options):
    targets = {"three": DATA["y"] % 3} if "three" in options else {"y": DATA["y"]}
    np.savez(tmp_path / "data.npz", features=DATA["features"], **targets)
    given = ["finetune", artifact, "--data", tmp_path / "data.npz", "--out", tmp_path / "out", "--from-logits"]
    given += ["--epochs", 2, "--learning-rate", 0.05, *options]
    return CliRunner().invoke(app, [str(word) for word in given])


def test_finetune_trains_a_head_of_other_classes(artifact, tmp_path):
    """The backbone is frozen, with its statistics; the artifact trains again."""
    result = command(tmp_path, artifact, "--classes", CLASSES)
    assert result.exit_code == 0, result.output
    assert f"new params: head/bias [{CLASSES}], head/kernel [8, {CLASSES}]" in result.output
    assert "trainable params: 45 of 133 (33.83%)" in result.output
    before, (fn, after) = tf2jax.load(artifact, "serving_default")[1], tf2jax.load(tmp_path / "out", "serving_default")
    assert changed(before, after) == {"head/kernel", "head/bias"}
    scores = fn(after, DATA["features"])[0]
    assert jax.tree.leaves(scores)[0].shape == (60, CLASSES)
    records = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    assert records[-1]["loss"] < records[1]["loss"]
    recorded = json.loads((tmp_path / "out" / "metadata.json").read_text())["options"]["training"][0]
    assert recorded["classes"] == CLASSES and recorded["signatures"] == ["serving_default", "serving_default"]
    again = finetune_artifact(tmp_path / "out", DATA, tmp_path / "again", **OPTIONS)
    assert again.trainable == 117 and again.parameters == 133


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--classes", CLASSES, "--freeze", "hidden"], {"head/kernel", "head/bias", "gamma", "beta", "moving"}),
        (["--replace", "head", "--label", "three"], {"head/kernel", "head/bias"}),
        (["--train-fully", "head/bias", "--label", "three"], {"head/bias", "moving"}),
    ],
)
def test_some_params_of_the_backbone_train(options, names, artifact, tmp_path):
    result = command(tmp_path, artifact, *options)
    assert result.exit_code == 0, result.output
    before, after = (tf2jax.load(p, "serving_default")[1] for p in (artifact, tmp_path / "out"))
    found = {"moving" if "moving" in n else n.split("/")[-1] if "head" not in n else n for n in changed(before, after)}
    assert found == names


def test_head_trains_fully_beside_adapters(artifact, tmp_path):
    """One file has adapters and head, which apply to an artifact of these shapes."""
    base = finetune_artifact(artifact, DATA, tmp_path / "base", **{**OPTIONS, "epochs": 0}, classes=CLASSES)
    assert base.trainable == 45
    outs = []
    for seed in (0, 1):
        lora = {"lora_rank": 2, "lora_targets": "hidden/kernel", "train_fully": ["^head/"], "seed": seed}
        outs.append(tmp_path / f"adapted{seed}")
        report = finetune_artifact(tmp_path / "base", DATA, outs[-1], **OPTIONS, **lora)
        assert (report.trainable, report.parameters) == (2 * (FEATURES + 8) + 45, 133 + 28)
    arrays = safetensors.numpy.load_file(outs[0] / "adapters.safetensors")
    assert set(arrays) == {"hidden/kernel/lora_a", "hidden/kernel/lora_b", "head/kernel", "head/bias"}
    fn, params = tf2jax.load(tmp_path / "base", "serving_default")
    predict = jax.jit(lambda params, adapters, x: fn(adapters.applied_to(params), x)[0])
    for out in outs:
        merged_fn, merged = tf2jax.load(out, "serving_default")
        moving = {n: v for n, v in merged.items() if "moving" in n}
        found = predict({**params, **moving}, load_adapters(out), DATA["features"])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
            found,
            merged_fn(merged, DATA["features"])[0],
        )
    np.savez(tmp_path / "x.npz", features=DATA["features"])
    run = ["run", tmp_path / "base", "--adapters", outs[1] / "adapters.safetensors", "--input", tmp_path / "x.npz"]
    for number in range(2):  # the second time with the first one's program
        result = CliRunner().invoke(app, [str(word) for word in [*run, "--output", tmp_path / f"{number}.npz"]])
        assert result.exit_code == 0, result.output
        (written,) = np.load(tmp_path / f"{number}.npz").values()
        base = predict(params, load_adapters(outs[1]), DATA["features"])
        np.testing.assert_allclose(written, jax.tree.leaves(base)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="that with as many classes"):
        load_adapters(outs[0]).applied_to(tf2jax.load(artifact, "serving_default")[1])


def test_new_head_under_adapters_gets_none(artifact, tmp_path):
    finetune_artifact(artifact, DATA, tmp_path / "out", **OPTIONS, classes=CLASSES, lora_rank=2)
    arrays = safetensors.numpy.load_file(tmp_path / "out" / "adapters.safetensors")
    assert {"head/kernel", "hidden/kernel/lora_a"} <= set(arrays) and "head/kernel/lora_a" not in arrays


def mlp(params, x):
    hidden = jnp.tanh(x @ params["a/w"] + params["a/b"])
    return jax.nn.softmax(hidden @ params["out/w"].T + params["out/b"])


def mlp_params(hidden=6, classes=4):
    shapes = {"a/w": (3, hidden), "a/b": (hidden,), "out/w": (classes, hidden), "out/b": (classes,)}
    return {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("hidden", [6, 4])
def test_head_of_a_plain_function_is_found_by_shapes(hidden):
    """The axis of classes may be the first one, and as long as another."""
    x, params = np.ones((2, 3), np.float32), mlp_params(hidden)
    fn, found = replace_head(mlp, params, x, classes=9)
    assert found["out/w"].shape == (9, hidden) and not found["out/b"].any()
    assert found["a/w"] is params["a/w"] and fn(found, x).shape == (2, 9)


def test_same_classes_get_new_values():
    params = mlp_params()
    _, found = replace_head(mlp, params, np.ones((2, 3), np.float32), classes=4)
    assert found["out/w"].shape == (4, 6) and not np.array_equal(found["out/w"], params["out/w"])


def test_head_of_params_without_scopes():
    params = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    _, found = replace_head(lambda p, x: x @ p["w"] + p["b"], params, np.ones((2, 3), np.float32), classes=2)
    assert found["w"].shape == (3, 2) and found["b"].shape == (2,)


def test_head_of_a_converted_function():
    import tensorflow as tf

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input([3]), layers.Dense(6, "relu"), layers.Dense(4, name="top")])
    jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
    x = np.ones((2, 3), np.float32)
    fn, found = replace_head(jax_fn, params, x, classes=7)
    assert {n.partition("top")[1] + n.partition("top")[2] for n in found if found[n] is not params[n]} == {
        "top/kernel",
        "top/bias",
    }
    assert fn(found, x)[0].shape == (2, 7)
    assert all(name.trainable for name in found)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"classes": 3, "head": "nope"}, r"head=: no param is in the scope 'nope'; there are a, out"),
        ({"classes": 3, "head": "a"}, "the last layer of the 4 classes is not found among a"),
        ({"classes": 0}, "classes is an integer of at least 1"),
    ],
)
def test_heads_that_there_are_not(options, says):
    with pytest.raises(InputError, match=says):
        replace_head(mlp, mlp_params(), np.ones((2, 3), np.float32), **options)


def test_unknown_scope_is_an_error_of_the_shell(artifact, tmp_path):
    result = command(tmp_path, artifact, "--replace", "nope")
    assert result.exit_code != 0 and "no param is in the scope 'nope'" in str(result.exception)
    assert not (tmp_path / "out").exists()
