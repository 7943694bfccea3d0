"""Several outputs with losses of their own, against Keras."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning import finetune_artifact

from .conftest import exported

RNG = np.random.default_rng(0)
N = 24
X = RNG.normal(size=(N, 5)).astype(np.float32)
DATA = {
    "x": X,
    "age": (X[:, :1] - X[:, 1:2]).astype(np.float32),
    "kind": RNG.integers(0, 3, N).astype(np.int32),
}
LOSSES = {"age": "mse", "kind": "sparse_categorical_crossentropy"}
WEIGHTS = {"age": 0.25, "kind": 2.0}
TASKS = {
    "output_losses": [f"{name}={loss}" for name, loss in LOSSES.items()],
    "output_weights": [f"{name}={weight}" for name, weight in WEIGHTS.items()],
}


@pytest.fixture(scope="module")
def two_outputs(tmp_path_factory):
    """A Keras model of an age and a kind, and its artifact."""
    import keras

    keras.utils.set_random_seed(0)
    x = keras.Input((5,), name="x")
    hidden = keras.layers.Dense(8, activation="tanh", name="hidden")(x)
    outputs = {
        "age": keras.layers.Dense(1, name="years")(hidden),
        "kind": keras.layers.Dense(3, activation="softmax", name="classes")(hidden),
    }
    model = keras.Model(x, outputs)
    folder = tmp_path_factory.mktemp("two_outputs")
    model.save(folder / "model.keras")
    return model, exported(folder / "model.keras", folder / "model")


@pytest.mark.full
def test_weighted_losses_of_outputs_train_as_in_keras(two_outputs, tmp_path):
    """Whole epochs are batches, so that the order does not matter."""
    import keras

    model, artifact = two_outputs
    options = {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 3, "batch_size": N, **TASKS}
    report = finetune_artifact(artifact, DATA, tmp_path / "out", loss="mse", eval_examples=DATA, **options)
    trained = keras.models.clone_model(model)
    trained.set_weights(model.get_weights())
    trained.compile(optimizer=keras.optimizers.SGD(0.1), loss=LOSSES, loss_weights=WEIGHTS)
    targets = {name: DATA[name] for name in LOSSES}
    losses = trained.fit(X, targets, batch_size=N, epochs=3, verbose=0).history["loss"]
    records = report.history.records
    np.testing.assert_allclose([record["loss"] for record in records[1:]], losses, rtol=1e-5)
    _, params = tf2jax.load(tmp_path / "out", "serving_default")
    for variable in trained.weights:
        np.testing.assert_allclose(params[variable.path], variable.numpy(), rtol=1e-4, atol=1e-6)
    assert {"eval/age/mse", "eval/age/mae", "eval/kind/accuracy"} <= records[0].keys()
    predicted = trained.predict(X, verbose=0)
    expected = np.mean(np.argmax(predicted["kind"], -1) == DATA["kind"])
    assert records[-1]["eval/kind/accuracy"] == pytest.approx(expected)


@pytest.mark.full
def test_outputs_of_the_command_line(two_outputs, tmp_path):
    _, artifact = two_outputs
    np.savez(tmp_path / "train.npz", **DATA)
    args = ["finetune", artifact, "--data", tmp_path / "train.npz", "--out", tmp_path / "out", "--epochs", 1, "--json"]
    for name in LOSSES:
        args += ["--output-loss", f"{name}={LOSSES[name]}", "--output-weight", f"{name}={WEIGHTS[name]}"]
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == 0, (done.output, done.exception)
    (record,) = json.loads((tmp_path / "out" / "metadata.json").read_text())["options"]["training"]
    assert record["output_losses"] == TASKS["output_losses"] and record["output_weights"] == TASKS["output_weights"]
    for change, losses, says in (
        ({"kind": DATA["kind"] + 1}, TASKS["output_losses"], "the targets 'kind' go from 1 to 3"),
        ({"kind": None}, TASKS["output_losses"], "no targets 'kind'.*targets have their output's name"),
        ({}, ["height=mse"], "there is no 'height'"),
    ):
        data = {name: value for name, value in {**DATA, **change}.items() if value is not None}
        data = data if losses is TASKS["output_losses"] else {"x": X, "height": data["age"]}
        with pytest.raises(InputError, match=says):
            finetune_artifact(artifact, data, tmp_path / "no", loss="mse", output_losses=losses)
