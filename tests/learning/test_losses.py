"""Losses by name take probabilities, as in Keras, in every entry; logits are said."""

import json
import warnings

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
import tf_keras

from tf2jax_lite import federated as fed
from tf2jax_lite.artifacts.model import trainable_model
from tf2jax_lite.errors import InputError
from tf2jax_lite.export import export_functions
from tf2jax_lite.finetuning import finetune
from tf2jax_lite.learning.losses import check_probabilities
from tf2jax_lite.learning.model import model_value_and_grad
from tf2jax_lite.learning.options import ModelOptions
from tf2jax_lite.pipeline.model_files import convert_keras_model

NAME = "sparse_categorical_crossentropy"
LIBRARIES = {"keras": keras, "tf_keras": tf_keras}
RNG = np.random.default_rng(0)
BATCH = {"x": 2 * RNG.normal(size=(6, 4)).astype(np.float32), "y": np.arange(6) % 3}
BATCHING = fed.BatchHParams(batch_size=6)


def total(values):
    return jnp.sum(values, -1, keepdims=True)


FORMS = {
    "softmax": jax.nn.softmax,
    "squares": lambda x: jnp.square(x) / total(jnp.square(x)),
    "softplus": lambda x: jax.nn.softplus(x) / total(jax.nn.softplus(x)),
    "elu + 1": lambda x: (jax.nn.elu(x) + 1.001) / total(jax.nn.elu(x) + 1.001),
    "t-distribution": lambda x: (1 / (1 + x * x)) / total(1 / (1 + x * x)),
    "ordinal": lambda x: jnp.diff(
        jnp.pad(jax.nn.sigmoid(jnp.sort(x[:, 1:])), ((0, 0), (1, 1)), constant_values=(0, 1))
    ),
    "exponential of a difference": lambda x: jnp.exp(x - jax.nn.logsumexp(x, -1, keepdims=True)),
}


def model_of(activate, loss=NAME, kernel=None):
    kernel = RNG.normal(size=(4, 3)).astype(np.float32) if kernel is None else kernel
    return fed.create_model_from_fn({"k": kernel}, lambda p, b: activate(b["x"] @ p["k"]), loss)


@pytest.mark.parametrize("form", FORMS)
def test_a_name_takes_what_a_model_normalizes(form):
    """Whatever the form, the loss is that of Keras, without a warning."""
    model = model_of(FORMS[form])
    weights = model.init(None)
    predictions = FORMS[form](BATCH["x"] @ weights.trainable["k"])
    wanted = float(np.mean(keras.losses.sparse_categorical_crossentropy(BATCH["y"], np.asarray(predictions))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fed.evaluate_model(model, weights, [BATCH])["loss"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def one_round(build):
    def run(model):
        process = build(model)
        return process.next(process.initialize(), [("a", fed.ClientDataset(BATCH))])

    return run


ENTRIES = {
    "evaluation": lambda model: fed.evaluate_model(model, model.init(None), [BATCH]),
    "federated averaging": one_round(
        lambda model: fed.build_weighted_fed_avg(model, optax.sgd(0.1), client_batching=BATCHING)
    ),
    "scaffold": one_round(
        lambda model: fed.build_scaffold(model, num_clients=1, client_learning_rate=0.1, client_batching=BATCHING)
    ),
    "federated evaluation": one_round(lambda model: fed.build_fed_eval(model, client_batching=BATCHING)),
    "central training": lambda model: finetune(model, BATCH, optimizer=optax.sgd(0.1), epochs=1, batch_size=6),
    "a gradient": lambda model: model_value_and_grad(model)(model.init(None), BATCH, jax.random.key(0)),
}


@pytest.mark.default_cases(
    "logits-federated averaging",
    "zeros-central training",
    "positive-federated evaluation",
    "no sum of 1-a gradient",
    "logits-scaffold",
)
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("activate", "kernel"),
    [(lambda x: x, None), (lambda x: x, np.zeros((4, 3), np.float32)), (jax.nn.relu, None), (jax.nn.sigmoid, None)],
    ids=["logits", "zeros", "positive", "no sum of 1"],
)
def test_a_name_refuses_logits_at_the_first_batch(entry, activate, kernel):
    with pytest.raises(InputError, match=r"takes probabilities, as in Keras, and the predictions .*from_logits=True"):
        ENTRIES[entry](model_of(activate, NAME, kernel))
    ENTRIES[entry](model_of(activate, fed.named_loss(NAME, from_logits=True), kernel))


@pytest.mark.parametrize(
    ("values", "loss", "problem"),
    [
        ([[0.5, 0.5], [0.1, 0.9]], NAME, None),
        ([[0.5, 0.5], [0.0, 0.0]], NAME, None),  # a padded step
        ([[0.5, 0.5], [np.nan, np.nan]], NAME, None),
        ([[0.5, 0.6]], "categorical_crossentropy", "sum 1.1"),
        ([[0.0, 0.0]], NAME, "sum 0"),
        ([[1.5, -0.5]], NAME, r"outside of \[0, 1\], from -0.5 to 1.5"),
        ([[0.3], [0.9]], "binary_crossentropy", None),
        ([[0.3], [-2.0]], "binary_crossentropy", r"outside of \[0, 1\]"),
        (np.asarray(jax.nn.softmax(RNG.normal(size=(8, 1000)).astype(jnp.bfloat16))), NAME, None),
        (np.asarray(jax.nn.softmax(RNG.normal(size=(8, 1000)).astype(np.float16))), NAME, None),
    ],
)
def test_check_probabilities(values, loss, problem):
    array = np.asarray(values) if hasattr(values, "dtype") else np.array(values, np.float32)
    if problem is None:
        return check_probabilities(array, loss)
    with pytest.raises(InputError, match=problem):
        check_probabilities(array, loss)


def test_zeros_of_a_linear_layer_warn_under_a_binary_loss():
    model = fed.create_model_from_fn(
        {"k": np.zeros((4, 1), np.float32)}, lambda p, b: b["x"] @ p["k"], "binary_crossentropy"
    )
    with pytest.warns(UserWarning, match="ends in a linear layer, .*from_logits=True"):
        fed.evaluate_model(model, model.init(None), [{**BATCH, "y": BATCH["y"] % 2}])


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_from_logits_is_said(value):
    with pytest.raises(InputError, match="from_logits is True or False"):
        fed.named_loss(NAME, from_logits=value)


def dense(library, activation):
    L = library.layers
    return library.Sequential([L.Input((4,)), L.Dense(3, activation=activation, name="out")])


@pytest.mark.full
@pytest.mark.parametrize("library", LIBRARIES)
def test_keras_models_and_artifacts(library, tmp_path):
    """Values are those of Keras; logits warn at creation, and raise later."""
    K = LIBRARIES[library]
    for activation in ("softmax", None):
        net, out = dense(K, activation), tmp_path / str(activation)
        export_functions(convert_keras_model(net), out, platforms=["cpu"])
        entry = json.loads((out / "metadata.json").read_text())["signatures"]["train"]["inputs"][0]["name"]
        batch = {**BATCH, entry: BATCH["x"]}
        loss = fed.named_loss(NAME, from_logits=activation is None)
        wanted = float(
            K.losses.SparseCategoricalCrossentropy(from_logits=activation is None)(BATCH["y"], net(BATCH["x"]))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            models = [
                fed.create_model_from_tf(net, loss if activation is None else NAME),
                fed.create_model_from_artifact(out, loss, inputs=entry),
                trainable_model(
                    out,
                    ModelOptions(loss=NAME, from_logits=activation is None),
                    sample={entry: BATCH["x"], "y": BATCH["y"]},
                ).model,
            ]
            for model in models:
                np.testing.assert_allclose(
                    fed.evaluate_model(model, model.init(None), [batch])["loss"], wanted, rtol=1e-5
                )
        if activation is None:
            for make in (
                lambda net=net: fed.create_model_from_tf(net, NAME),
                lambda out=out, entry=entry: fed.create_model_from_artifact(out, NAME, inputs=entry),
            ):
                with pytest.warns(UserWarning, match="ends in a linear layer"):
                    model = make()
                with pytest.raises(InputError, match="takes probabilities"):
                    fed.evaluate_model(model, model.init(None), [batch])
            with pytest.warns(UserWarning, match="ends in"), pytest.raises(InputError, match="from_logits=True"):
                trainable_model(out, ModelOptions(loss=NAME), sample={entry: BATCH["x"], "y": BATCH["y"]})


@pytest.mark.full
def test_trainable_model_warns_where_predictions_contradict(tmp_path):
    export_functions(convert_keras_model(dense(keras, "softmax")), tmp_path / "out", platforms=["cpu"])
    with pytest.warns(UserWarning, match="treated as logits, .* look like probabilities"):
        subject = trainable_model(tmp_path / "out", ModelOptions(loss=NAME, from_logits=True), sample=BATCH)
    assert subject.from_logits
