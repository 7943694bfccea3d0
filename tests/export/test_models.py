"""Whole models as artifacts: source, StableHLO and TensorFlow agree.

These are slow; tests/models/test_demo_set.py runs a few.
"""

import functools

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.models import builders

SMALL = {
    "lstm": functools.partial(builders.recurrent, kind="LSTM", masking=False),
    "bert_like": functools.partial(builders.transformer, causal=False),
}
BIG = {
    "resnet50": functools.partial(builders.application, name="ResNet50"),
    "efficientnet_b0": functools.partial(builders.application, name="EfficientNetB0"),
    "mobilenet_v3": functools.partial(builders.application, name="MobileNetV3Small"),
    "convnext_tiny": functools.partial(builders.application, name="ConvNeXtTiny"),
    "gpt_like": functools.partial(builders.transformer, causal=True),
}


@pytest.mark.full
@pytest.mark.parametrize("name", [*SMALL, *BIG])
def test_artifact_agrees_with_tensorflow(name, tmp_path):
    model, x = {**SMALL, **BIG}[name](keras)
    spec = tf.TensorSpec([None, *x.shape[1:]], x.dtype)
    function = tf.function(lambda inputs: model(inputs, training=False))
    expected = function(x).numpy()
    report = tf2jax.export_functions({"model": tf2jax.convert(function, spec)}, tmp_path / "out", platforms=["cpu"])
    assert not report.warnings
    scale = np.abs(expected).max()
    for backend in ("stablehlo", "source"):
        fn, params = tf2jax.load(tmp_path / "out", backend=backend)
        actual = np.asarray(jax.jit(fn)(params, x)[0])
        np.testing.assert_allclose(actual / scale, expected / scale, rtol=1e-5, atol=1e-5)
