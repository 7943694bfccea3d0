"""Losses and metrics of Keras and TensorFlow in federated models, against Keras."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
import tensorflow as tf
import tf_keras

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated.models.model import model_value_and_grad

RNG = np.random.default_rng(0)
BATCH = {"x": RNG.normal(size=(6, 4)).astype(np.float32), "y": RNG.integers(0, 2, (6, 1)).astype(np.float32)}
LIBRARIES = {"keras": keras, "tf_keras": tf_keras}


class Focal(keras.losses.Loss):
    def call(self, y_true, y_pred):
        share = y_true * y_pred + (1 - y_true) * (1 - y_pred) + 1e-7
        return tf.reduce_mean(-((1 - share) ** 2) * tf.math.log(share), -1)


def network(library=keras):
    layers = [library.Input((4,)), library.layers.Dense(1, activation="sigmoid", kernel_initializer="ones")]
    return library.Sequential(layers)


def squared(y_true, y_pred):
    return tf.reduce_mean((y_true - y_pred) ** 2, -1)


LOSSES = {
    "object": lambda lib: Focal() if lib is keras else lib.losses.Huber(0.3),
    "class": lambda lib: lib.losses.BinaryCrossentropy,
    "function": lambda lib: lib.losses.mean_absolute_error,
    "other name": lambda lib: "huber",
    "user function": lambda lib: squared,
}


@pytest.mark.default_cases("other name-tf_keras")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", LOSSES)
def test_create_model_from_tf_takes_keras_losses(kind, library):
    lib = LIBRARIES[library]
    net, loss = network(lib), LOSSES[kind](lib)
    model = fed.create_model_from_tf(net, loss)
    weights = model.init(None)
    found, grads = jax.jit(model_value_and_grad(model))(weights, BATCH, jax.random.key(0))
    function = lib.losses.get(loss) if isinstance(loss, str) else loss() if isinstance(loss, type) else loss
    with tf.GradientTape() as tape:
        wanted = tf.reduce_mean(function(tf.constant(BATCH["y"]), net(BATCH["x"])))
    np.testing.assert_allclose(found.loss, wanted, rtol=1e-5)
    expected = tape.gradient(wanted, [getattr(v, "value", v) if lib is keras else v for v in net.trainable_variables])
    for name, gradient in zip(sorted(grads, key=lambda n: "bias" in n), expected, strict=True):
        np.testing.assert_allclose(grads[name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_create_model_from_tf_takes_losses_of_either_ops():
    net = network()
    losses = {
        "tf": lambda batch, predictions: tf.reduce_mean((batch["y"] - predictions) ** 2, -1),
        "jax": lambda batch, predictions: jnp.mean((batch["y"] - predictions) ** 2, -1),
    }
    batching = fed.data.BatchHParams(batch_size=3)
    results = []
    for loss in losses.values():
        process = fed.build_weighted_fed_avg(
            fed.create_model_from_tf(net, loss), optax.sgd(0.1), client_batching=batching
        )
        state, _ = process.next(process.initialize(), [fed.data.ClientDataset(BATCH)])
        results.append(state.weights.trainable)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *results)


@pytest.mark.default_cases("tf_keras")
@pytest.mark.parametrize("library", LIBRARIES)
def test_create_model_from_tf_takes_compiled_losses(library):
    net = network(LIBRARIES[library])
    with pytest.raises(InputError, match="not compiled with one loss"):
        fed.create_model_from_tf(net)
    net.compile("sgd", LIBRARIES[library].losses.BinaryCrossentropy(label_smoothing=0.1))
    model = fed.create_model_from_tf(net)
    found = fed.evaluate_model(model, model.init(None), [BATCH])["loss"]
    np.testing.assert_allclose(found, net.evaluate(BATCH["x"], BATCH["y"], verbose=0), rtol=1e-5)


def test_create_model_from_tf_refuses_sums_over_the_batch():
    with pytest.raises(InputError, match="is a sum over the batch"):
        fed.create_model_from_tf(network(), keras.losses.MeanSquaredError(reduction="sum"))


@pytest.mark.full
@pytest.mark.parametrize("library", LIBRARIES)
def test_create_model_from_tf_takes_keras_metrics(library):
    lib = LIBRARIES[library]
    net = network(lib)
    metrics = {"auc": lib.metrics.AUC(num_thresholds=20), "error": lib.metrics.MeanAbsoluteError()}
    model = fed.create_model_from_tf(net, "binary_crossentropy", {**metrics, "class": lib.metrics.Precision})
    dataset = fed.data.ClientDataset(BATCH)
    found = fed.evaluate_model(model, model.init(None), dataset.padded_batch(batch_size=4))
    predictions = net(BATCH["x"])
    for name, metric in {**metrics, "class": lib.metrics.Precision()}.items():
        metric.reset_state()
        metric.update_state(BATCH["y"], predictions)
        np.testing.assert_allclose(found[name], metric.result(), rtol=1e-5)
