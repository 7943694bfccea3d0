"""Models from TensorFlow against Keras: training, evaluation, sharing."""

import jax
import keras
import numpy as np
import optax
import pytest
import tensorflow as tf
import tf_keras

from tf2jax_lite.errors import InputError
from tf2jax_lite.export import export_functions
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.model import changing_leaves, evaluate_model, examples_interact, model_value_and_grad
from tf2jax_lite.learning.sources import create_model_from_artifact, create_model_from_tf
from tf2jax_lite.pipeline.model_files import convert_keras_model

KERAS = {"keras": keras, "tf_keras": tf_keras}
X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 8).astype(np.int32)
BATCH = {"x": X, "y": Y}


def build(K, dropout=0.5, norm=True):
    K.utils.set_random_seed(0)
    L = K.layers
    layers = [K.Input((6,)), L.Dense(5, kernel_regularizer=K.regularizers.L2(0.1)), L.ReLU()]
    layers += [L.BatchNormalization(momentum=0.9)] * norm + [L.Dropout(dropout)] * bool(dropout)
    return K.Sequential([*layers, L.Dense(3)])


def values(variables):
    return {v.path if hasattr(v, "path") else v.name.split(":")[0]: v.numpy() for v in variables}


@pytest.mark.full
@pytest.mark.parametrize("library", KERAS)
def test_one_step_agrees_with_keras(library):
    """Regularized loss, gradients, and statistics agree; Dropout is off."""
    K = KERAS[library]
    net = build(K, dropout=0)
    model = create_model_from_tf(net, named_loss("sparse_categorical_crossentropy", from_logits=True))
    weights = model.init(None)
    assert examples_interact(model, BATCH)
    aux, grads = jax.jit(model_value_and_grad(model))(weights, BATCH, jax.random.key(0))
    with tf.GradientTape() as tape:
        logits = net(X, training=True)
        loss = K.losses.SparseCategoricalCrossentropy(from_logits=True)(Y, logits)
        total = loss + tf.add_n(net.losses)
    expected = tape.gradient(total, net.trainable_variables)
    assert abs(float(aux.loss) - float(loss)) < 1e-5
    for variable, gradient in zip(net.trainable_variables, expected, strict=True):
        name = next(iter(values([variable])))
        np.testing.assert_allclose(grads[name], gradient, atol=1e-5, err_msg=name)
    for name, value in values(net.non_trainable_variables).items():
        np.testing.assert_allclose(aux.non_trainable[name], value, atol=1e-5, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("library", KERAS)
def test_dropout_draws_with_the_key(library):
    model = create_model_from_tf(
        build(KERAS[library], norm=False), named_loss("sparse_categorical_crossentropy", from_logits=True)
    )
    weights = model.init(None)
    assert not examples_interact(model, BATCH)  # a seed that counts is no statistic of the batch
    assert not any(changing_leaves(model, weights.non_trainable))
    train = jax.jit(lambda key: model.apply_for_train(weights, {"x": X}, key).predictions)
    first, again, other = (train(jax.random.key(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(np.asarray(first) - np.asarray(other)).max() > 1e-3


@pytest.mark.full
def test_evaluation_agrees_with_keras():
    net = build(keras)
    model = create_model_from_tf(net, named_loss("sparse_categorical_crossentropy", from_logits=True))
    found = evaluate_model(
        model, model.init(None), [{k: v[:5] for k, v in BATCH.items()}, {k: v[5:] for k, v in BATCH.items()}]
    )
    expected = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(Y, net(X, training=False))
    assert abs(float(found["loss"]) - float(expected)) < 1e-5


@pytest.mark.full
def test_artifact_trains_as_the_model_that_it_came_from(tmp_path):
    net = build(keras, dropout=0)
    export_functions(convert_keras_model(net), tmp_path / "out", platforms=["cpu"])
    direct = create_model_from_tf(net, named_loss("sparse_categorical_crossentropy", from_logits=True))
    model = create_model_from_artifact(
        tmp_path / "out", named_loss("sparse_categorical_crossentropy", from_logits=True)
    )
    optimizer = optax.sgd(0.1)

    def train(model):
        weights = model.init(None)
        grad = jax.jit(model_value_and_grad(model))
        state = optimizer.init(weights.trainable)
        for step in range(3):
            aux, grads = grad(weights, BATCH, jax.random.key(step))
            updates, state = optimizer.update(grads, state)
            weights = weights._replace(
                trainable=optax.apply_updates(weights.trainable, updates), non_trainable=aux.non_trainable
            )
        return weights

    found, expected = train(model), train(direct)
    assert set(found.trainable) == set(expected.trainable)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), dict(found.trainable), dict(expected.trainable)
    )
    for name, value in found.non_trainable.items():
        np.testing.assert_allclose(value, expected.non_trainable[name], atol=1e-5, err_msg=name)
    assert model.changes == {name: "moving" in name for name in model.changes}


@pytest.mark.full
def test_functions_need_specs():
    with pytest.raises(InputError, match="specs"):
        create_model_from_tf(tf.function(lambda x: x), "mse")
