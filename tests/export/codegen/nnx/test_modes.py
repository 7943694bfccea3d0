"""flax.nnx source is one model of both modes, which trains as TensorFlow does."""

import importlib.util

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
import tensorflow as tf
from flax import nnx
from keras import layers

import tf2jax_lite as tf2jax
from tests._support import close


def normalized():
    """Batch normalization and dropout; an inner layer that does not train."""
    x = inputs = keras.Input((6,))
    for i in range(3):
        x = layers.Dense(6, name=f"dense_{i}")(x)
        x = layers.BatchNormalization(name=f"norm_{i}", momentum=0.9)(x)
        x = layers.Dropout(0.1, name=f"drop_{i}")(layers.Activation("tanh", name=f"tanh_{i}")(x))
    x = layers.BatchNormalization(name="frozen", trainable=False)(x)
    return keras.Model(inputs, layers.Dense(3, name="head")(x)), (5, 6)


def encoder():
    ids = keras.Input((12,), dtype="int32", name="ids")
    x = layers.Embedding(50, 16, name="tokens")(ids)
    for i in range(3):
        attention = layers.MultiHeadAttention(2, 8, dropout=0.1, flash_attention=False, name=f"layer_{i}_attention")
        x = x + layers.Dropout(0.1, name=f"layer_{i}_first")(attention(x, x))
        x = layers.LayerNormalization(epsilon=1e-6, name=f"layer_{i}_attention_norm")(x)
        hidden = layers.Dense(32, activation="gelu", name=f"layer_{i}_up")(x)
        hidden = layers.Dropout(0.1, name=f"layer_{i}_second")(layers.Dense(16, name=f"layer_{i}_down")(hidden))
        x = layers.LayerNormalization(epsilon=1e-6, name=f"layer_{i}_norm")(x + hidden)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return keras.Model(ids, layers.Dense(2, name="classifier")(x)), (4, 12)


def recurrent():
    """Masked sequences of unknown length."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(50, 8, mask_zero=True, name="tokens")(ids)
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True), name="both")(x)
    return keras.Model(ids, layers.Dense(2, name="head")(layers.GRU(5, name="gru")(x))), (4, 7)


def unet():
    x = inputs = keras.Input((16, 16, 3))
    skips = []
    for i, filters in enumerate((4, 8)):
        for j in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"down{i}_{j}_conv")(x)
            x = layers.BatchNormalization(name=f"down{i}_{j}_norm")(x)
            x = layers.Activation("relu", name=f"down{i}_{j}_relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D(name=f"down{i}_pool")(x)
    x = layers.Dropout(0.2, name="drop")(layers.DepthwiseConv2D(3, padding="same", name="middle")(x))
    for i, filters in enumerate((8, 4)):
        x = layers.Conv2DTranspose(filters, 2, strides=2, padding="same", name=f"up{i}_transposed")(x)
        x = layers.Concatenate(name=f"up{i}_both")([x, skips.pop()])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"up{i}_conv")(x)
    return keras.Model(inputs, layers.Conv2D(2, 1, name="head")(x)), (2, 16, 16, 3)


class Positions(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="uniform", name="table")

    def call(self, x):
        return x + self.table


def vit():
    inputs = keras.Input((16, 16, 3))
    x = layers.Reshape((16, 24), name="flat")(layers.Conv2D(24, 4, strides=4, name="patches")(inputs))
    x = Positions(name="positions")(x)
    for i in range(3):
        y = layers.LayerNormalization(epsilon=1e-6, name=f"block_{i}_first")(x)
        x = x + layers.MultiHeadAttention(3, 8, dropout=0.1, flash_attention=False, name=f"block_{i}_heads")(y, y)
        y = layers.LayerNormalization(epsilon=1e-6, name=f"block_{i}_second")(x)
        y = layers.Dense(48, activation="gelu", name=f"block_{i}_up")(y)
        x = x + layers.Dropout(0.1, name=f"block_{i}_drop")(layers.Dense(24, name=f"block_{i}_down")(y))
    x = layers.GlobalAveragePooling1D(name="pool")(layers.LayerNormalization(name="norm")(x))
    return keras.Model(inputs, layers.Dense(5, name="head")(x)), (2, 16, 16, 3)


def resnet():
    return keras.applications.ResNet50(input_shape=(32, 32, 3), weights=None, classes=7), (8, 32, 32, 3)


def mobilenet():
    return keras.applications.MobileNetV3Small((32, 32, 3), weights=None, classes=7), (8, 32, 32, 3)


# Classes of Flax that a model's source has.
MODELS = {
    normalized: {"Linear", "BatchNorm", "Dropout"},
    encoder: {"Embed", "MultiHeadAttention", "LayerNorm", "Linear", "Dropout"},
    recurrent: {"Embed", "OptimizedLSTMCell", "Linear"},
    unet: {"Conv", "ConvTranspose", "BatchNorm", "Dropout"},
    vit: {"Conv", "MultiHeadAttention", "LayerNorm", "Linear", "Dropout"},
    resnet: {"Conv", "BatchNorm", "Linear"},
    mobilenet: {"Conv", "BatchNorm", "Dropout"},
}


def exported(make, folder):
    """Return a Keras model, an input, and the source of both modes."""
    keras.utils.set_random_seed(0)
    model, shape = make()
    rng = np.random.default_rng(0)
    for variable in model.variables:
        if "moving" in variable.path:
            variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    if model.inputs[0].dtype == "int32":
        x = rng.integers(1, 50, shape).astype(np.int32)
        x[1, 4:] = 0
    else:
        x = rng.normal(size=shape).astype(np.float32)
    spec = tf.TensorSpec([None, *model.inputs[0].shape[1:]], x.dtype)
    functions = {
        name: tf2jax.convert(tf.function(lambda inputs, t=t: model(inputs, training=t)), spec)
        for name, t in (("serving_default", False), ("train", True))
    }
    tf2jax.export_functions(functions, folder, stablehlo=False, framework="nnx")
    spec = importlib.util.spec_from_file_location(folder.name, folder / "model.py")
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    return model, x, source, source.load_params(*folder.glob("*.safetensors"))


def without_dropout(module):
    for _, node in nnx.iter_graph(module):
        for name in ("rate", "dropout_rate"):
            if isinstance(node, nnx.Module) and getattr(node, name, 0):
                setattr(node, name, 0.0)
    return module


def trained(module, x, count, steps=30):
    """Return the losses of some steps on one batch."""
    labels = jnp.asarray(np.random.default_rng(1).integers(0, count, np.shape(module(x))[:-1]))
    optimizer = nnx.Optimizer(module, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer):
        def loss_fn(module):
            return optax.softmax_cross_entropy_with_integer_labels(
                jnp.log(1e-6 + jax.nn.softmax(module(x))), labels
            ).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(module)
        optimizer.update(module, grads)
        return loss

    return [float(step(module, optimizer)) for _ in range(steps)]


@pytest.mark.default_cases("normalized")
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_one_model_of_both_modes(make, tmp_path):
    model, x, source, params = exported(make, tmp_path / "out")
    text = (tmp_path / "out" / "model.py").read_text()
    classes = {name for name in dir(nnx) if f" = nnx.{name}(" in text} - {"Param", "List", "BatchStat"}
    assert classes == MODELS[make], text
    expected = model(x, training=False).numpy()
    close(nnx.jit(lambda module, x: module(x))(source.Model.from_params(params), x), expected, rtol=1e-5, atol=1e-6)

    new = source.Model(rngs=nnx.Rngs(0))
    new.train()
    assert {v.shape for v in jax.tree.leaves(nnx.state(new, nnx.Param))} == {
        v.shape for v in jax.tree.leaves(nnx.state(source.Model.from_params(params), nnx.Param))
    }
    losses = trained(new, x, expected.shape[-1])
    assert min(losses[-5:]) < losses[0]
    new.eval()
    np.testing.assert_array_equal(new(x), new(x))
    if "BatchNorm" in classes:
        # Deep models amplify rounding errors of a batch's statistics, those of `convert` as much.
        compare_training(model, x, source, params, 1e-3 if make in (resnet, mobilenet) else 1e-5)


def compare_training(model, x, source, params, tolerance):
    """Compare results and moving statistics in training mode, without dropout."""
    for layer in model._flatten_layers():
        if isinstance(layer, layers.Dropout):
            layer.rate = 0.0
    expected = model(x, training=True).numpy()
    variables = source.to_variables(params)
    module = without_dropout(source.Model.from_params(variables))
    module.train()
    close(module(x), expected, rtol=tolerance, atol=tolerance)
    after = tf2jax.flatten_params(variables)
    for variable in model.variables:
        if "moving" in variable.path:
            close(after[variable.path][...], variable.numpy(), rtol=tolerance, atol=tolerance)


def test_load_selects_the_mode(tmp_path):
    """An artifact's functions draw by their key, and return updated statistics."""
    model, x, _, _ = exported(normalized, tmp_path / "out")
    serving, params = tf2jax.load(tmp_path / "out", "serving_default", backend="source")
    close(serving(params, x)[0], model(x, training=False).numpy())
    train, params = tf2jax.load(tmp_path / "out", "train", backend="source")
    first, after = jax.jit(train)(params, x, rng=jax.random.key(0))
    again, _ = jax.jit(train)(params, x, rng=jax.random.key(0))
    other, _ = jax.jit(train)(params, x, rng=jax.random.key(1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    changed = {name for name in params if not np.array_equal(after[name], params[name])}
    assert changed == {f"norm_{i}/moving_{kind}" for i in range(3) for kind in ("mean", "variance")}
