"""The demo set as files, each with inputs and an op to plant a fault in."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
from jax import lax

from tf2jax_lite.lowering.op_lowerings.xla_call_module import xla_call_module

from . import builders

ROOT = Path(__file__).parent.parent.parent
DIGITS = ROOT / "tf2jax_lite" / "demo" / "digits_cnn"


@dataclasses.dataclass(frozen=True)
class Demo:
    """One model.

    Attributes:
      make: writes the model's file into a folder; returns its path and inputs by name.
      slow: whether it is too large for every run.
      within: part of the path of the first node that is wrong then.
    """

    make: Callable[[Path], tuple[Path, dict[str, np.ndarray]]]
    op: str
    wrong: Callable[..., Any]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    slow: bool = False
    within: str = ""


def _digits(folder):
    return DIGITS, {"image": np.random.default_rng(0).uniform(size=(3, 8, 8, 1)).astype(np.float32)}


def _keras(folder, build):
    model, x = build(keras)
    path = folder / "model.keras"
    model.save(path)
    return path, {"inputs": x}


def _frozen(folder):
    """Write a frozen TF1 network: convolutions, batch norm, two results."""
    rng = np.random.default_rng(0)
    v1 = tf.compat.v1

    def weight(*shape):
        return tf.constant((rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32))

    with tf.Graph().as_default() as graph:
        image = v1.placeholder(tf.float32, [None, 12, 12, 3], "image")
        x = v1.nn.conv2d(image, weight(3, 3, 3, 8), strides=[1, 2, 2, 1], padding="SAME", name="stem")
        x, _, _ = v1.nn.fused_batch_norm(
            x, weight(1, 8)[0] + 1, weight(1, 8)[0], weight(1, 8)[0], weight(1, 8)[0] ** 2 + 1, is_training=False
        )
        x = tf.nn.relu6(x)
        one = v1.nn.conv2d(x, weight(1, 1, 8, 4), padding="SAME")
        pooled = v1.nn.max_pool(x, [1, 3, 3, 1], [1, 1, 1, 1], "SAME")
        two = v1.nn.conv2d(pooled, weight(3, 3, 8, 4), padding="SAME")
        x = tf.nn.lrn(tf.nn.relu(tf.concat([one, two], 3)), 2, 1.0, 2e-2, 0.75, name="mixed")
        x = v1.nn.avg_pool(x, [1, 6, 6, 1], [1, 1, 1, 1], "VALID")
        logits = v1.nn.xw_plus_b(v1.squeeze(x, [1, 2]), weight(8, 5), weight(1, 5)[0], name="logits")
        tf.nn.softmax(logits, name="probabilities")
    path = folder / "frozen.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path, {"image": rng.uniform(size=(2, 12, 12, 3)).astype(np.float32)}


def _jax2tf(folder):
    """Write a JAX function by jax2tf: one opaque XlaCallModule."""
    from jax.experimental import jax2tf

    rng = np.random.default_rng(0)
    weights = {
        "first": rng.normal(size=(3, 3, 1, 6)).astype(np.float32) / 3,
        "second": rng.normal(size=(6, 4)).astype(np.float32),
    }

    def network(params, x):
        dims = ("NHWC", "HWIO", "NHWC")
        x = jnp.tanh(lax.conv_general_dilated(x, params["first"], (1, 1), "SAME", dimension_numbers=dims))
        x, _ = lax.scan(lambda c, _: (c + 0.1 * jnp.sin(c), None), x.mean((1, 2)), None, length=4)
        return jax.nn.log_softmax(x @ params["second"])

    module = tf.Module()
    module.weights = tf.nest.map_structure(tf.Variable, weights)
    call = jax2tf.convert(network, polymorphic_shapes=[None, "(b, 8, 8, 1)"], with_gradient=True)
    spec = tf.TensorSpec([None, 8, 8, 1], tf.float32, "x")
    module.call = tf.function(lambda x: {"scores": call(module.weights, x)}, autograph=False, input_signature=[spec])
    path = folder / "saved"
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(path), signatures=module.call, options=options)
    return path, {"x": rng.normal(size=(2, 8, 8, 1)).astype(np.float32)}


# Wrong versions of ops: right on most of their domain, or off by little.


def _relu(features):
    return jnp.maximum(features, 0) + 0.001


def _softmax(logits):
    return jax.nn.softmax(logits * 1.01)


def _sigmoid(x):
    return jax.nn.sigmoid(x) * 1.01


def _erfc(x):
    return lax.erfc(x) * 1.05


def _lrn(input, *, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5):
    """Forget the neighbours."""
    return input / (bias + alpha * input**2) ** beta


@functools.wraps(xla_call_module)
def _module(*args, **kwargs):
    return [1.01 * result for result in xla_call_module(*args, **kwargs)]


def _application(name):
    return functools.partial(_keras, build=functools.partial(builders.application, name=name))


DEMO_SET = {
    "digits_cnn": Demo(_digits, "Relu", _relu, within="conv2d"),
    "frozen": Demo(_frozen, "LRN", _lrn, within="mixed"),
    "jax2tf": Demo(_jax2tf, "XlaCallModule", _module, within="XlaCallModule"),
    "lstm": Demo(
        functools.partial(_keras, build=functools.partial(builders.recurrent, kind="LSTM", masking=False)),
        "Sigmoid",
        _sigmoid,
        within="lstm",
    ),
    "bert_like": Demo(
        functools.partial(_keras, build=functools.partial(builders.transformer, causal=False)),
        "Erfc",
        _erfc,
    ),
    "gpt_like": Demo(
        functools.partial(_keras, build=functools.partial(builders.transformer, causal=True)),
        "Softmax",
        _softmax,
        within="attention",
    ),
    "resnet50": Demo(_application("ResNet50"), "Relu", _relu, slow=True, within="conv1_relu"),
    "efficientnet_b0": Demo(_application("EfficientNetB0"), "Sigmoid", _sigmoid, slow=True, within="stem_activation"),
}
