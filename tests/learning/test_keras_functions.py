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
from tf2jax_lite.learning.model import model_value_and_grad

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


def one_more(y_true, y_pred):
    return tf.reduce_mean(tf.abs(y_true - y_pred), -1) + 1


@pytest.mark.default_cases("keras")
@pytest.mark.parametrize("library", LIBRARIES)
def test_create_model_from_tf_takes_metrics_as_compile_does(library):
    lib = LIBRARIES[library]
    net = network(lib)

    def own():
        return [
            lib.metrics.AUC(num_thresholds=20, name="auc"),
            lib.metrics.MeanAbsoluteError(name="first"),
            lib.metrics.MeanAbsoluteError(name="first"),
            lib.metrics.LogCoshError,
            lambda: lib.metrics.Recall(name="made"),
            "accuracy",
            "mse",
            "crossentropy",
            one_more,
        ]

    model = fed.create_model_from_tf(net, "binary_crossentropy", own())
    found = fed.evaluate_model(model, model.init(None), fed.data.ClientDataset(BATCH).padded_batch(batch_size=4))
    names = "auc first first_1 logcosh made accuracy mse crossentropy one_more loss"
    assert set(found) == set(names.split())
    predictions = net(BATCH["x"])
    wanted = {
        "auc": lib.metrics.AUC(num_thresholds=20),
        "first_1": lib.metrics.MeanAbsoluteError(),
        "logcosh": lib.metrics.LogCoshError(),
        "made": lib.metrics.Recall(),
        "accuracy": lib.metrics.BinaryAccuracy(),
        "mse": lib.metrics.MeanSquaredError(),
        "crossentropy": lib.metrics.BinaryCrossentropy(),
        "one_more": lib.metrics.MeanMetricWrapper(one_more),
    }
    for name, metric in wanted.items():
        metric.update_state(BATCH["y"], predictions)
        np.testing.assert_allclose(found[name], metric.result(), rtol=1e-5, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3)], ids=["flat", "column", "one-hot"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_accuracy_by_name_is_chosen_by_shapes(library, shape):
    lib = LIBRARIES[library]
    net = lib.Sequential([lib.Input((4,)), lib.layers.Dense(3, activation="softmax")])
    classes = RNG.integers(0, 3, 6).astype(np.int32)
    y = np.eye(3, dtype=np.float32)[classes] if shape == (6, 3) else classes.reshape(shape)
    loss = "categorical_crossentropy" if shape == (6, 3) else "sparse_categorical_crossentropy"
    net.compile("sgd", loss, metrics=["acc"])
    model = fed.create_model_from_tf(net, loss, ["acc"])
    found = fed.evaluate_model(model, model.init(None), [{"x": BATCH["x"], "y": y}])
    np.testing.assert_allclose(found["acc"], net.evaluate(BATCH["x"], y, verbose=0)[1])


X, Y = tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])


@pytest.mark.default_cases("pair", "sized")
@pytest.mark.parametrize(
    "spec", [(X, Y), [X, Y], {"x": X, "y": Y}, (tf.TensorSpec([5, 4]), Y)], ids=["pair", "list", "dict", "sized"]
)
def test_tffs_arguments(spec):
    net = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])  # not yet built
    loss, metrics = keras.losses.BinaryCrossentropy(), [keras.metrics.BinaryAccuracy()]
    model = fed.from_keras_model(net, loss, spec, metrics=metrics)
    found = fed.evaluate_model(model, model.init(None), [BATCH])
    same = fed.create_model_from_tf(net, loss, metrics, input_spec=spec)
    assert found == fed.evaluate_model(same, same.init(None), [BATCH])
    assert set(found) == {"loss", "binary_accuracy"}
    by_function = fed.create_model_from_tf(lambda x: net(x), squared, input_spec=spec)
    assert by_function.init(None).trainable


def test_what_tffs_arguments_refuse():
    net = network()
    for arguments in ((["mse", "mae"], (X, Y)), ("mse", (X, Y), [0.5])):
        with pytest.raises(InputError, match=r"one loss, without loss_weights. .* create_model_from_tf"):
            fed.from_keras_model(net, *arguments)
    for spec in (X, (X, Y, Y), {"pixels": X, "label": Y}):
        with pytest.raises(InputError, match="input_spec has the specs of a batch, as a pair"):
            fed.from_keras_model(net, "mse", spec)
    with pytest.raises(InputError, match="input_spec is TFF's name of specs; give one"):
        fed.create_model_from_tf(net, "mse", specs=X, input_spec=(X, Y))
    for metrics in ((X, Y), [["accuracy"]], [fed.metrics.Accuracy()], 3, [len]):
        with pytest.raises(InputError, match="eval_metrics is a dict from name to metric, or a list of Keras metrics"):
            fed.create_model_from_tf(net, "mse", metrics)
    with pytest.raises(InputError, match="Keras has no metric 'nothing'"):
        fed.create_model_from_tf(net, "mse", ["nothing"])
