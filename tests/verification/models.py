"""Models with an op that tests replace, for bisection to find."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import keras
from jax import lax

from tests.models import builders

ROOT = Path(__file__).parent.parent.parent
TESTDATA = ROOT / "testdata"
DIGITS = ROOT / "tf2jax_lite" / "demo" / "digits_cnn"


def saved(make, tmp_path):
    model, _ = make(keras)
    path = tmp_path / "model.keras"
    model.save(path)
    return path


lstm = functools.partial(saved, functools.partial(builders.recurrent, kind="LSTM"))
transformer = functools.partial(saved, functools.partial(builders.transformer, causal=True))


# Wrong versions of ops: right on most of their domain, or off by little.
def sigmoid(x):
    return jax.nn.sigmoid(x) * 1.01


def relu(features):
    return jnp.maximum(features, 0) + 0.001


def softmax(logits):
    return jax.nn.softmax(logits * 1.01)


def erfc(x):
    return lax.erfc(x) * 1.05


def rsqrt(x):
    return lax.rsqrt(x) * 1.002


def tanh(x):
    return jnp.tanh(x) * 0.99
