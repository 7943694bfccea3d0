"""Fine-tuning: against Keras and numpy, on artifacts, resumed, and errors."""

import json
import math
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import CheckpointError, ExportError, InputError, Tf2JaxError, TrainingError
from tf2jax_lite.finetuning import finetune, finetune_artifact
from tf2jax_lite.learning.optimizers import OPTIMIZERS, named_optimizer
from tf2jax_lite.learning.sources import create_model_from_fn

from .conftest import make_examples

TRAIN, TEST = make_examples(90, 0), make_examples(60, 1)
OPTIONS = {
    "loss": "sparse_categorical_crossentropy",
    "from_logits": True,
    "epochs": 3,
    "batch_size": 20,
    "learning_rate": 0.02,
}


def linear(loss="mse", start=0.0):
    return create_model_from_fn(
        lambda key: {"w": np.full((3, 1), start, np.float32)}, lambda params, batch: batch["x"] @ params["w"], loss
    )


@pytest.mark.full
def test_sgd_is_that_of_numpy():
    """With full batches order does not matter, and no random number does."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    y = (x @ [[1.0], [-2.0], [0.5]]).astype(np.float32)
    weights, history = finetune(
        linear(), {"x": x, "y": y}, optimizer=optax.sgd(0.1, momentum=0.9), epochs=12, batch_size=40
    )
    w, velocity = np.zeros((3, 1)), np.zeros((3, 1))
    for i in range(12):
        error = x.astype(float) @ w - y
        np.testing.assert_allclose(history.records[i + 1]["loss"], np.mean(error**2), rtol=1e-4)
        velocity = 0.9 * velocity + 2 * x.T.astype(float) @ error / 40
        w = w - 0.1 * velocity
    np.testing.assert_allclose(weights.trainable["w"], w, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["adamw", *(pytest.param(n, marks=pytest.mark.full) for n in OPTIMIZERS if n != "adamw")]
)
def test_every_optimizer_lowers_the_loss(name):
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    data = {"x": x, "y": (x @ [[1.0], [-2.0], [0.5]]).astype(np.float32)}
    optimizer = named_optimizer(name, 0.02, schedule="cosine", warmup_steps=4, total_steps=40, clip_norm=5.0)
    model = linear(start=0.5)  # steps of lamb are in proportion to the weights: from 0 it goes nowhere soon
    _, history = finetune(model, data, optimizer=optimizer, epochs=10, batch_size=16, eval_examples=data)
    assert history.records[-1]["eval/loss"] < 0.98 * history.records[0]["eval/loss"]


@pytest.fixture(scope="module")
def trained(artifact, tmp_path_factory):
    """Return an artifact trained without interruption, and the report."""
    out = tmp_path_factory.mktemp("trained") / "out"
    return out, finetune_artifact(artifact, TRAIN, out, eval_examples=TEST, **OPTIONS)


@pytest.mark.full
def test_an_artifact_is_fine_tuned(artifact, trained):
    out, report = trained
    first, last = report.history.records[0], report.history.records[-1]
    assert last["eval/accuracy"] > max(0.7, first["eval/accuracy"] + 0.2) and last["eval/loss"] < first["eval/loss"]
    assert report.signatures == ("train", "serving_default") and report.from_logits
    # The written parameters are the measured ones: the loaded artifact has the accuracy of the last record.
    fn, params = tf2jax.load(out, "serving_default")
    logits = np.asarray(fn(params, TEST["features"])[0])
    assert np.mean(logits.argmax(-1) == TEST["y"]) == pytest.approx(last["eval/accuracy"], abs=1e-6)
    # Statistics of BatchNormalization moved, as training mode says.
    _, before = tf2jax.load(artifact, "serving_default")
    moved = {name for name in params if not np.array_equal(params[name], before[name])}
    assert any("moving_mean" in name for name in moved) and any("kernel" in name for name in moved)
    lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert lines == report.history.records and [r["epoch"] for r in lines] == [0, 1, 2, 3]
    assert (out / "history.svg").read_text().count("<polyline") == 3
    done = json.loads((out / "metadata.json").read_text())["options"]["training"]
    assert [d["kind"] for d in done] == ["finetune"] and done[0]["optimizer"] == "adamw"


@pytest.mark.full
def test_training_again_adds_to_the_record(artifact, tmp_path):
    for source, out in ((artifact, tmp_path / "one"), (tmp_path / "one", tmp_path / "two")):
        finetune_artifact(source, TRAIN, out, **{**OPTIONS, "epochs": 1}, freeze=["hidden"])
    done = json.loads((tmp_path / "two" / "metadata.json").read_text())["options"]["training"]
    assert [d["freeze"] for d in done] == [["hidden"], ["hidden"]]
    _, before = tf2jax.load(artifact, "serving_default")
    _, after = tf2jax.load(tmp_path / "two", "serving_default")
    for name in before:
        if "hidden" in name:
            np.testing.assert_array_equal(before[name], after[name])
    assert any(not np.array_equal(before[n], after[n]) for n in before if "head" in n)


@pytest.mark.full
def test_interrupted_and_resumed_ends_with_the_same_bits(artifact, trained, tmp_path):
    out, whole = trained

    class Stop(Exception):
        pass

    def stop(record):
        if record["epoch"] == 2:
            raise Stop

    where = {"checkpoint_dir": tmp_path / "state"}
    with pytest.raises(Stop):
        finetune_artifact(artifact, TRAIN, tmp_path / "out", **OPTIONS, **where, eval_examples=TEST, report=stop)
    assert not (tmp_path / "out").exists()
    resumed = finetune_artifact(artifact, TRAIN, tmp_path / "out", **OPTIONS, **where, eval_examples=TEST)
    same = [{k: v for k, v in r.items() if k != "seconds"} for r in resumed.history.records]
    assert same == [{k: v for k, v in r.items() if k != "seconds"} for r in whole.history.records]
    a, b = (tf2jax.load(path, "serving_default")[1] for path in (out, tmp_path / "out"))
    jax.tree.map(np.testing.assert_array_equal, dict(a), dict(b))
    with pytest.raises(CheckpointError, match=r"learning_rate: 0.02 then, 0.5 now"):
        finetune_artifact(artifact, TRAIN, tmp_path / "x", **{**OPTIONS, "learning_rate": 0.5}, **where)
    with pytest.raises(CheckpointError, match="data"):
        finetune_artifact(artifact, TEST, tmp_path / "x", **OPTIONS, **where)
    file = tmp_path / "state" / "training.safetensors"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(CheckpointError, match="cannot be read"):
        finetune_artifact(artifact, TRAIN, tmp_path / "x", **OPTIONS, **where)
    assert not (tmp_path / "x").exists()


@pytest.mark.default_cases(
    "change3-InputError-more steps in total",
    "change5-InputError-no targets 'target' among",
    "change8-InputError-regular expressions",
    "change13-InputError-not nan, adamw",
    "change14-CheckpointError-too long",
    "change19-Tf2JaxError-nothing",
)
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"loss": "hinge"}, InputError, "no loss 'hinge'"),
        ({"optimizer": "adamax"}, InputError, "no optimizer"),
        ({"momentum": 0.9}, InputError, "goes with sgd, rmsprop"),
        ({"schedule": "cosine", "warmup_steps": 99}, InputError, "more steps in total"),
        ({"learning_rate": 0.0}, InputError, "above 0"),
        ({"label": "target"}, InputError, "no targets 'target' among"),
        ({"label": "inputs"}, InputError, "is an input of the model"),
        ({"freeze": ["."]}, InputError, "no param trains"),
        ({"freeze": ["("]}, InputError, "regular expressions"),
        ({"eval_examples": {"features": TEST["features"]}}, InputError, "the evaluation data: no targets"),
        ({"examples": {**TRAIN, "y": TRAIN["y"][:3]}}, InputError, "differ in the number"),
        (
            {"examples": {"a": TRAIN["y"], "b": TRAIN["y"], "y": TRAIN["y"]}},
            InputError,
            r"of the columns \['a', 'b'\] has shape",
        ),
        ({"learning_rate": 1e30, "optimizer": "sgd"}, TrainingError, "lower the learning rate"),
        ({"weight_decay": math.nan}, InputError, "not nan, adamw"),
        ({"checkpoint_dir": "x" * 300}, CheckpointError, "too long"),
        ({"checkpoint_dir": Path(__file__)}, CheckpointError, "exists"),  # before training, not at its first checkpoint
        ({"epochs": -1}, InputError, "epochs is an integer of at least 0"),
        ({"seed": 2**63}, InputError, "seed is an integer"),
        ({"seed": 1.5}, InputError, "seed is an integer"),
        ({"train_signature": "nothing"}, Tf2JaxError, "nothing"),
    ],
)
def test_what_is_refused(artifact, tmp_path, change, error, says):
    options = {**OPTIONS, "epochs": 1, "examples": TRAIN, **change}
    with pytest.raises(error, match=says):
        finetune_artifact(artifact, options.pop("examples"), tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_from_the_shell(artifact, tmp_path):
    np.savez(tmp_path / "train.npz", x=TRAIN["features"].astype(np.float64), y=TRAIN["y"])
    np.savez(tmp_path / "test.npz", x=TEST["features"], y=TEST["y"])
    args = [
        "finetune",
        artifact,
        "--from-logits",
        "--data",
        tmp_path / "train.npz",
        "--eval",
        tmp_path / "test.npz",
        "--epochs",
        "1",
    ]
    args = [str(a) for a in [*args, "--learning-rate", "0.02", "--out", tmp_path / "out"]]
    result = CliRunner().invoke(app, [*args, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["history"][-1]["eval/loss"] < report["history"][0]["eval/loss"]
    # In a process of its own: TensorFlow is never imported.
    args[args.index("--out") + 1] = str(tmp_path / "again")
    code = f"import sys; from tf2jax_lite.cli import main; sys.argv[1:] = {args}\n"
    code += "try: main()\nexcept SystemExit as e: assert not e.code, e.code\nassert 'tensorflow' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "eval/accuracy" in done.stdout
    a, b = (tf2jax.load(tmp_path / n, "serving_default")[1] for n in ("out", "again"))
    jax.tree.map(np.testing.assert_array_equal, dict(a), dict(b))
    with pytest.raises(ExportError, match="exists"):
        CliRunner().invoke(app, args, catch_exceptions=False)
