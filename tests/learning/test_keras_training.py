"""Training of converted Keras models against fit; unsupported parts raise by name."""

import jax
import keras
import numpy as np
import optax
import pytest
import tensorflow as tf
import tf_keras

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError, UnsupportedError
from tf2jax_lite.finetuning import finetune

LIBRARIES = {"keras": keras, "tf_keras": tf_keras}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(10, 6)).astype(np.float32), RNG.normal(size=(10, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, 10).astype(np.int32)
IDS = RNG.integers(1, 9, (10, 6)).astype(np.int32)
IDS[:4, 2:], IDS[4:9, 5:], IDS[9] = 0, 0, 0
STEPS, STEP_LABELS = RNG.normal(size=(10, 6, 3)).astype(np.float32), RNG.integers(0, 3, (10, 6)).astype(np.int32)
SEQUENCES = RNG.normal(size=(10, 6, 4)).astype(np.float32)
SEQUENCES[::2, 3:] = 0
RATE = 0.1


class Activity:
    """Layers that add losses of activities, whose value depends on the whole batch."""

    def __new__(cls, K):
        class Sparse(K.layers.Layer):
            def call(self, x):
                self.add_loss(0.3 * tf.reduce_mean(tf.square(tf.reduce_mean(x, 0))))
                return x

        return Sparse()


class Centered:
    """Layers that subtract the batch's mean, so that examples interact."""

    def __new__(cls, K):
        class Mean(K.layers.Layer):
            def call(self, x):
                return x - tf.reduce_mean(x, 0, keepdims=True)

        return Mean()


def in_batch_negatives(y_true, y_pred):
    scores = tf.matmul(y_pred, tf.cast(y_true, y_pred.dtype), transpose_b=True)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(scores)[0]), scores)


def dense(K, *layers, **options):
    return K.Sequential([K.layers.Input((6,)), K.layers.Dense(5, "tanh", **options), *layers, K.layers.Dense(3)])


def embedding(K, width=3, activation=None):
    L = K.layers
    layers = [L.Embedding(9, 4, mask_zero=True), L.GRU(5, return_sequences=True), L.Dense(width, activation)]
    return K.Sequential([L.Input((6,), dtype="int32"), *layers])


def masking(K):
    L = K.layers
    return K.Sequential([L.Input((6, 4)), L.Masking(), L.SimpleRNN(5, return_sequences=True), L.Dense(3)])


def sparse(K, **options):
    return K.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


# Name to the model, its inputs and targets, and the arguments of compile.
CASES = {
    "a loss": (dense, X, Y, lambda K: {"loss": "mse"}),
    "regularizers": (
        lambda K: dense(K, kernel_regularizer="l2", bias_regularizer="l1"),
        X,
        Y,
        lambda K: {"loss": "mse"},
    ),
    "activity_regularizer": (lambda K: dense(K, activity_regularizer="l2"), X, Y, lambda K: {"loss": "mse"}),
    "add_loss": (lambda K: dense(K, Activity(K)), X, Y, lambda K: {"loss": "mse"}),
    "a mean over the batch": (lambda K: dense(K, Centered(K)), X, Y, lambda K: {"loss": "mse"}),
    "in-batch negatives": (dense, X, Y, lambda K: {"loss": in_batch_negatives}),
    "loss_weights": (dense, X, Y, lambda K: {"loss": "mae", "loss_weights": [0.25]}),
    "loss_weights of a Keras loss": (dense, X, Y, lambda K: {"loss": [K.losses.Huber(0.3)], "loss_weights": [2.0]}),
    "a function": (dense, X, Y, lambda K: {"loss": lambda target, output: tf.abs(target - output)}),
    "a function of flat targets": (
        lambda K: K.Sequential([K.layers.Input((6,)), K.layers.Dense(1)]),
        X,
        LABELS.astype(np.float32),
        lambda K: {"loss": lambda target, output: tf.square(target - output)},
    ),
    "without effect": (
        dense,
        X,
        Y,
        lambda K: {"loss": "mse", "metrics": ["mae"], "weighted_metrics": ["mse"], "steps_per_execution": 2},
    ),
    "mask_zero": (embedding, IDS, STEPS, lambda K: {"loss": "mse"}),
    "mask_zero, classes": (embedding, IDS, STEP_LABELS, lambda K: {"loss": sparse(K)}),
    "mask_zero, a function": (
        embedding,
        IDS,
        STEPS,
        lambda K: {"loss": lambda y, p: tf.reduce_mean(tf.abs(y - p), -1)},
    ),
    "Masking": (masking, SEQUENCES, STEPS, lambda K: {"loss": "mae"}),
    "ignore_class": (dense, X, LABELS, lambda K: {"loss": sparse(K, ignore_class=1)}),
    "ignore_class, masked": (embedding, IDS, STEP_LABELS, lambda K: {"loss": sparse(K, ignore_class=1)}),
    "frozen": (lambda K: dense(K, K.layers.Dense(4, trainable=False)), X, Y, lambda K: {"loss": "mse"}),
    "label smoothing": (
        lambda K: softmax(K),
        X,
        np.eye(3, dtype=np.float32)[LABELS],
        lambda K: {"loss": K.losses.CategoricalCrossentropy(label_smoothing=0.2)},
    ),
    "a name of probabilities": (lambda K: softmax(K), X, LABELS, lambda K: {"loss": "sparse_categorical_crossentropy"}),
}


def softmax(K):
    return K.Sequential([K.layers.Input((6,)), K.layers.Dense(3, "softmax")])


def trained_by_fit(net, x, y, batch_size):
    start = net.get_weights()
    net.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
    found = {
        (getattr(v, "path", None) or v.name).split(":")[0]: w
        for v, w in zip(net.weights, net.get_weights(), strict=True)
    }
    net.set_weights(start)
    return found


def trained_here(net, x, y, batch_size, loss=None):
    model = fed.create_model_from_tf(net, loss)
    process = fed.build_weighted_fed_avg(
        model, optax.sgd(RATE), client_batching=fed.BatchHParams(batch_size=batch_size)
    )
    state = process.initialize()
    for _ in range(2):
        state, _ = process.next(state, [fed.ClientDataset({"x": x, "y": y})])
    return {**state.weights.trainable, **state.weights.non_trainable}


@pytest.mark.full
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", CASES)
def test_trains_as_fit_does(case, library):
    """Two epochs of full and short batches, for one client."""
    K = LIBRARIES[library]
    make, x, y, options = CASES[case]
    K.utils.set_random_seed(1)
    net = make(K)
    net.compile(K.optimizers.SGD(RATE), **options(K))
    wanted, found = trained_by_fit(net, x, y, 4), trained_here(net, x, y, 4)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=2e-5, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("case", ["activity_regularizer", "mask_zero"])
def test_central_training_is_fit(case):
    make, x, y, options = CASES[case]
    net = make(keras)
    net.compile(keras.optimizers.SGD(RATE), **options(keras))
    wanted = trained_by_fit(net, x, y, 10)
    weights, _ = finetune(
        fed.create_model_from_tf(net), {"x": x, "y": y}, optimizer=optax.sgd(RATE), epochs=2, batch_size=10
    )
    for name, value in wanted.items():
        np.testing.assert_allclose({**weights.trainable, **weights.non_trainable}[name], value, atol=2e-5, err_msg=name)


def own(K, **members):
    class Own(K.Model):
        def __init__(self):
            super().__init__()
            self.d = K.layers.Dense(3, name="d")

        def call(self, v):
            return self.d(v)

    net = type("Own", (Own,), members)()
    net(X)
    net.compile("sgd", "mse")
    return net


def compiled(net, **options):
    net.compile("sgd", **options)
    return net


def with_step(K):
    net = compiled(dense(K), loss="mse")
    net.train_step = lambda data: {"loss": 0.0}
    return net


def unknown_option(K):
    net = compiled(dense(K), loss="mse")
    net._compile_config.config["noise_scale"] = 3
    return net


REFUSED = {
    "compute_loss": (
        lambda K: own(K, compute_loss=lambda self, **k: 0.0),
        r"more than steps of its loss: compute_loss\(\)",
    ),
    "train_step": (lambda K: own(K, train_step=lambda self, data: {}), r"train_step\(\)"),
    "fit": (lambda K: own(K, fit=lambda self, *a: None), r"fit\(\)"),
    "train_step of the object": (with_step, r"train_step\(\)"),
    "an unknown option": (unknown_option, r"compile\(noise_scale=...\)"),
    "a constraint": (
        lambda K: compiled(dense(K, kernel_constraint="non_neg"), loss="mse"),
        "kernel' has the constraint NonNeg",
    ),
    "two losses": (lambda K: compiled(dense(K), loss=["mse", "mae"]), "not compiled with one loss"),
    "a sum": (lambda K: compiled(dense(K), loss=K.losses.MeanSquaredError(reduction="sum")), "a sum over the batch"),
    "no reduction": (
        lambda K: compiled(dense(K), loss=K.losses.MeanSquaredError(reduction="none")),
        "reduction='none'",
    ),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case, library):
    make, says = REFUSED[case]
    net = make(LIBRARIES[library])
    with pytest.raises(InputError, match=says):
        fed.create_model_from_tf(net)


def test_overrides_without_effect_on_training_are_taken():
    members = {"metrics": property(lambda self: []), "test_step": lambda self, data: {}, "get_config": lambda self: {}}
    assert fed.create_model_from_tf(own(keras, **members))
    assert fed.create_model_from_tf(own(keras, train_step=lambda self, data: {}), "mse")


def test_scales_of_float8_are_refused():
    net = dense(keras)
    net.compile("sgd", "mse")
    net.layers[0].quantize("float8")
    with pytest.raises(InputError, match="overwrite_with_gradient"):
        fed.create_model_from_tf(net)


def test_a_mask_of_weights_is_refused():
    L = keras.layers
    net = keras.Sequential([L.Input((6, 4)), L.Dense(4), L.Masking(), L.GRU(3, return_sequences=True)])
    with pytest.raises(UnsupportedError, match="depends on its weights"):
        fed.create_model_from_tf(net, "mse")


class Pooled(keras.layers.Layer):
    supports_masking = True

    def call(self, x):
        return tf.reduce_mean(x, 1)


def test_a_mask_that_does_not_fit_is_refused():
    L = keras.layers
    net = keras.Sequential([L.Input((6,), dtype="int32"), L.Embedding(9, 4, mask_zero=True), Pooled(), L.Dense(3)])
    model = fed.create_model_from_tf(net, "mse")
    with pytest.raises(InputError, match=r"mask of shape .* does not fit losses"):
        fed.evaluate_model(model, model.init(None), [{"x": IDS, "y": Y}])


@pytest.mark.default_cases("keras")
@pytest.mark.parametrize("library", LIBRARIES)
def test_evaluation_leaves_masked_steps_out(library):
    K = LIBRARIES[library]
    net = embedding(K)
    net.compile("sgd", "mse")
    model = fed.create_model_from_tf(net)
    batches = fed.ClientDataset({"x": IDS, "y": STEPS}).padded_batch(batch_size=4)
    found = fed.evaluate_model(model, model.init(jax.random.key(0)), batches)["loss"]
    np.testing.assert_allclose(found, net.evaluate(IDS, STEPS, batch_size=4, verbose=0), rtol=1e-5)
