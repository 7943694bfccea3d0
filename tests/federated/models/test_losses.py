"""Cross entropies by name: the model's source determines the kind."""

import json
import warnings

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from tf2jax_lite.export import export_functions
from tf2jax_lite.federated import (
    Model,
    create_model_from_artifact,
    create_model_from_fn,
    create_model_from_tf,
    evaluate_model,
    model_per_example_loss,
    named_loss,
)
from tf2jax_lite.finetuning.trained_artifact import trainable_model
from tf2jax_lite.pipeline.model_files import convert_keras_model

NAME = "sparse_categorical_crossentropy"
RNG = np.random.default_rng(0)
BATCH = {"x": RNG.normal(size=(6, 4)).astype(np.float32), "y": np.arange(6) % 3}


def keras_model(activation):
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation=activation, name="out")])


def keras_loss(model, activation):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=activation is None)
    return float(loss(BATCH["y"], model(BATCH["x"])))


@pytest.mark.full
@pytest.mark.parametrize("activation", ["softmax", None])
def test_named_loss_follows_the_model(activation, tmp_path):
    net = keras_model(activation)
    wanted = keras_loss(net, activation)
    export_functions(convert_keras_model(net), tmp_path / "out", platforms=["cpu"])
    kernel, bias = (np.asarray(v) for v in net.weights)
    activate = jax.nn.softmax if activation else lambda x: x
    models = [
        create_model_from_tf(net, NAME),
        create_model_from_artifact(tmp_path / "out", NAME, inputs="x"),
        create_model_from_fn({"k": kernel, "b": bias}, lambda p, b: activate(b["x"] @ p["k"] + p["b"]), NAME),
        trainable_model(tmp_path / "out", NAME, label="y").model,
    ]
    batches = [BATCH, BATCH, BATCH, {**BATCH, artifact_input(tmp_path / "out"): BATCH["x"]}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model, batch in zip(models, batches, strict=True):
            weights = model.init(jax.random.key(0))
            np.testing.assert_allclose(evaluate_model(model, weights, [batch])["loss"], wanted, rtol=1e-5)
            losses = jax.jit(model_per_example_loss(model))(weights, batch, jax.random.key(0))
            np.testing.assert_allclose(losses.mean(), wanted, rtol=1e-5)


def artifact_input(path):
    return json.loads((path / "metadata.json").read_text())["signatures"]["train"]["inputs"][0]["name"]


@pytest.mark.full
def test_named_loss_is_bound_by_any_model():
    def predict(weights, batch):
        return jax.nn.softmax(batch["x"] @ weights.trainable)

    base = create_model_from_fn(jnp.ones((4, 3)), lambda p, b: b["x"] @ p, NAME)
    model = Model(base.init, base.apply_for_train, predict, named_loss(NAME))
    probabilities = predict(model.init(jax.random.key(0)), BATCH)
    explicit = named_loss(NAME, from_logits=False)
    np.testing.assert_array_equal(model.train_loss(BATCH, probabilities), explicit(BATCH, probabilities))
    assert named_loss(NAME, from_logits=True).takes_logits(BATCH)


def test_named_loss_without_evidence_warns_and_follows_keras():
    model = create_model_from_fn(jnp.ones((4, 3)), lambda p, b: jax.nn.relu(b["x"] @ p), NAME)
    probabilities = jnp.full((6, 3), 1 / 3)
    with pytest.warns(UserWarning, match="taken for probabilities, as in Keras"):
        found = model.train_loss(BATCH, probabilities)
    np.testing.assert_allclose(found, np.log(3), rtol=1e-5)


@pytest.mark.full
def test_trainable_model_warns_where_predictions_contradict(tmp_path):
    export_functions(convert_keras_model(keras_model("softmax")), tmp_path / "out", platforms=["cpu"])
    with pytest.warns(UserWarning, match="treated as logits, .* look like probabilities"):
        subject = trainable_model(tmp_path / "out", NAME, sample=BATCH, from_logits=True)
    assert subject.from_logits
