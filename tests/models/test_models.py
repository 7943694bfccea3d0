"""Keras 3 and tf_keras models agree: forward, gradients, vmap, batches."""

import functools

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf2jax_lite as tf2jax

from . import builders
from .agreement import check_forward, check_gradients, check_vmap, relative_error

KERAS = {"keras": keras, "tf_keras": tf_keras}

SMALL = {
    "small_cnn": builders.small_cnn,
    "text_cnn": builders.text_cnn,
    "tabular": builders.tabular,
    "lstm": functools.partial(builders.recurrent, kind="LSTM"),
    "gru": functools.partial(builders.recurrent, kind="GRU"),
    "bidirectional_lstm": functools.partial(builders.recurrent, kind="LSTM", bidirectional=True),
    "stacked_bidirectional_gru": functools.partial(builders.recurrent, kind="GRU", bidirectional=True, stacked=True),
    "unmasked_lstm": functools.partial(builders.recurrent, kind="LSTM", masking=False, stacked=True),
    "simple_rnn": functools.partial(builders.recurrent, kind="SimpleRNN"),
    "bert_like": functools.partial(builders.transformer, causal=False),
    "gpt_like": functools.partial(builders.transformer, causal=True),
}
BIG = {
    "mobilenet_v2": functools.partial(builders.application, name="MobileNetV2", alpha=0.35),
    "mobilenet_v3": functools.partial(builders.application, name="MobileNetV3Small"),
    "efficientnet_b0": functools.partial(builders.application, name="EfficientNetB0"),
    "resnet50": functools.partial(builders.application, name="ResNet50"),
    "densenet121": functools.partial(builders.application, name="DenseNet121"),
    "convnext_tiny": functools.partial(builders.application, name="ConvNeXtTiny"),
}


# In tf_keras these are nearly the graphs that Keras 3 makes.
SAME_IN_BOTH = ("bidirectional_lstm", "stacked_bidirectional_gru", "bert_like", "gpt_like", "lstm", "gru")
BOTH = [
    pytest.param(library, name, marks=pytest.mark.full if library == "tf_keras" and name in SAME_IN_BOTH else ())
    for name in SMALL
    for library in KERAS
]


@pytest.mark.full
@pytest.mark.parametrize(("library", "name"), BOTH)
def test_small_model(library, name):
    model, x = SMALL[name](KERAS[library])
    jax_fn, params = check_forward(model, x)
    check_gradients(model, jax_fn, params, x)
    check_vmap(jax_fn, params, x)


@pytest.mark.full
@pytest.mark.parametrize("library", KERAS)
@pytest.mark.parametrize("name", BIG)
def test_big_model(library, name):
    _check_big(library, name)


def _check_big(library, name):
    model, x = BIG[name](KERAS[library])
    jax_fn, params = check_forward(model, x)
    check_gradients(model, jax_fn, params, x)


@pytest.mark.full
@pytest.mark.parametrize("name", ["small_cnn", "lstm", "gpt_like"])
def test_float64(name):
    keras.config.set_dtype_policy("float64")
    try:
        with jax.enable_x64(True):
            model, x = SMALL[name](keras, **({"dtype": np.float64} if name == "small_cnn" else {}))
            check_forward(model, x, rtol=1e-10)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.full
@pytest.mark.parametrize("name", ["small_cnn", "bert_like", "gpt_like", "text_cnn"])
def test_symbolic_batch(name):
    """jax.export with a symbolic batch size works for another batch size."""
    model, x = SMALL[name](keras)
    jax_fn, params = check_forward(model, x)
    (batch,) = jax.export.symbolic_shape("b")
    call = jax.jit(lambda params, x: jax_fn(params, x)[0])
    exported = jax.export.export(call)(
        jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), params),
        jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype),
    )
    x = np.concatenate([x, x, x])
    assert relative_error(model(x, training=False), exported.call(params, x)) <= 1e-4


@pytest.mark.full
def test_named_scopes_point_back_to_tensorflow():
    model, x = builders.text_cnn(keras)
    jax_fn, params = check_forward(model, x)
    text = jax.jit(jax_fn).lower(params, x).as_text(debug_info=True)
    assert "conv1d" in text


@pytest.mark.full
def test_big_constants_are_no_literals():
    table = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)
    jax_fn = tf2jax.convert_functional(lambda i: tf.gather(tf.constant(table), i), tf.TensorSpec([2], tf.int32))
    jaxpr = jax.make_jaxpr(jax_fn)(np.array([1, 2], np.int32))
    assert len(str(jaxpr)) < 20_000
    assert any(np.shape(c) == table.shape for c in jaxpr.consts)
