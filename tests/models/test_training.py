"""Train-mode graphs: updated variables and optimizer steps agree."""

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf2jax_lite as tf2jax

X = np.random.default_rng(0).normal(size=(8, 6, 6, 2)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, (8,)).astype(np.int32)
KERAS = {"keras": keras, "tf_keras": tf_keras}


def _model(K, dropout=0.0):
    K.utils.set_random_seed(0)
    L = K.layers
    # No bias before BatchNorm: its gradient is 0 but for rounding, which Adam would make as large as any other.
    layers = [
        K.Input((6, 6, 2)),
        L.Conv2D(4, 3, use_bias=False),
        L.BatchNormalization(momentum=0.9),
        L.ReLU(),
        L.Flatten(),
    ]
    return K.Sequential([*layers, *([L.Dropout(dropout)] if dropout else []), L.Dense(3)])


def _assert_updated(updated, variables, rtol=1e-4):
    for variable in variables:
        name = variable.name.split(":")[0]
        np.testing.assert_allclose(updated[name], variable.numpy(), rtol=rtol, atol=1e-6, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("library", KERAS)
def test_batch_norm_in_training(library):
    model = _model(KERAS[library])
    fn = tf.function(lambda x: model(x, training=True))
    jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([None, 6, 6, 2]))
    out, updated = jax.jit(jax_fn)(params, X)
    np.testing.assert_allclose(out, fn(X), rtol=1e-4, atol=1e-5)
    variables = [v if isinstance(v, tf.Variable) else v.value for v in model.variables]
    captured = [v for v in variables if v.name.split(":")[0] in updated]
    assert len(captured) == 7
    _assert_updated(updated, captured)


@pytest.mark.full
@pytest.mark.parametrize("library", KERAS)
def test_dropout_in_training(library):
    K = KERAS[library]
    K.utils.set_random_seed(0)
    model = K.Sequential([K.Input((1000,)), K.layers.Dropout(0.3)])
    fn = tf.function(lambda x: model(x, training=True))
    jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([None, 1000]))
    x = np.ones((4, 1000), np.float32)
    out, _ = jax.jit(jax_fn)(params, x, rng=jax.random.key(0))
    kept = np.asarray(out) != 0
    assert abs(kept.mean() - 0.7) < 0.05
    np.testing.assert_allclose(np.asarray(out)[kept], 1 / 0.7, rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("library", KERAS)
@pytest.mark.parametrize("name", ["SGD", "SGD momentum", "Adam", "RMSprop", "Adagrad", "AdamW"])
def test_whole_train_step(library, name):
    K = KERAS[library]
    model = _model(K)
    if name == "SGD momentum":
        optimizer = K.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    else:
        optimizer = getattr(K.optimizers, name)(0.01)
    loss_fn = K.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        grads = tape.gradient(loss, model.trainable_variables)
        if library == "keras":
            optimizer.apply(grads, model.trainable_variables)
        else:
            optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    jax_fn, params = tf2jax.convert(step, tf.TensorSpec([None, 6, 6, 2]), tf.TensorSpec([None], tf.int32))
    run = jax.jit(jax_fn)
    for _ in range(3):
        loss, params = run(params, X, Y)
        expected = step(X, Y)
        np.testing.assert_allclose(loss, expected, rtol=1e-4)
    concrete = step.get_concrete_function(tf.TensorSpec([None, 6, 6, 2]), tf.TensorSpec([None], tf.int32))
    named = [v for v in concrete.variables if v.name.split(":")[0] in params]
    assert len(named) >= 7
    counts = {v.name: sum(w.name == v.name for w in named) for v in named}
    _assert_updated(params, [v for v in named if counts[v.name] == 1], rtol=2e-3)
