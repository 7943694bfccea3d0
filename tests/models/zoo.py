"""The small models of this folder's tests: functions, arguments and variables."""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.models import MODELS

from . import builders, test_box_losses, test_dropout, test_gradient_models, test_models, test_training


@dataclasses.dataclass(frozen=True)
class Member:
    """One model.

    Attributes:
      make: returns a function of TensorFlow, its arguments, and the variables to differentiate with respect to.
      any_batch: whether the first size of its arguments is symbolic.
      options: settings for the conversion, as `tf2jax_lite.override_config` takes them.
    """

    make: Callable[[], tuple[Any, tuple[Any, ...], list[Any]]]
    gradients: bool = True
    any_batch: bool = False
    x64: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def _keras_model(library, build):
    model, x = build(library)
    return tf.function(lambda inputs: model(inputs, training=False)), (x,), model.trainable_variables


def _unet(library):
    library.utils.set_random_seed(0)
    made = MODELS["unet"]
    return builders._randomize(made.build(library, "small")), made.inputs(2, "small")


def _inverted_bottlenecks():
    keras.utils.set_random_seed(1)
    inputs = keras.Input([6, 6, 3])
    h = test_gradient_models.inverted_bottleneck(inputs, 4, fused=True)
    model = keras.Model(inputs, test_gradient_models.inverted_bottleneck(h, 4, fused=False))
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 3)).astype(np.float32)
    return tf.function(lambda x: model(x, training=True)), (x,), model.trainable_variables


def _decoder(name):
    model = test_gradient_models.Decoder(**test_gradient_models.KINDS[name])
    x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(np.float32)
    return tf.function(tf.recompute_grad(model) if name == "llama" else model), (x,), list(model.trainable_variables)


def _ctc(name):
    made = test_gradient_models
    arrays = made.CTC_LOGITS, made.CTC_LABELS, made.CTC_LENGTHS, made.CTC_TIMES
    return tf.function(made.CTC[name]), arrays, []


def _box_loss(name):
    fn, which, given = test_box_losses.CASES[name]
    return tf.function(fn, autograph=False), (which, *given), []


def _dropout():
    layers = [make() for make in test_dropout.LAYERS.values()]
    x = np.linspace(1, 2, 2 * 5 * 3).astype(np.float32).reshape(2, 5, 3)
    return tf.function(lambda x: [layer(x, training=True) for layer in layers]), (x,), []


def _batch_norm_in_training(library):
    model = test_training._model(library)
    return tf.function(lambda x: model(x, training=True)), (test_training.X,), model.trainable_variables


def _probability(name):
    from . import test_probability

    fn, arrays, _ = test_probability.CASES[name]
    return tf.function(lambda *args: tf.nest.flatten(fn(*args))), arrays, []


def _solver(name):
    from . import test_ode_solvers

    return tf.function(test_ode_solvers._solution(name)), (np.float32(1.3), np.array([1.0, -2.0], np.float32)), []


def _probability_cases():
    if importlib.util.find_spec("tensorflow_probability") is None:
        return {}
    from . import test_probability

    return {
        f"tfp {name}": Member(functools.partial(_probability, name), gradients, x64=True)
        for name, (_, _, gradients) in test_probability.CASES.items()
    }


LIBRARIES = {"keras": keras, "tf_keras": tf_keras}
ZOO = {
    **{
        f"{library} {name}": Member(functools.partial(_keras_model, module, build), any_batch=True)
        for library, module in LIBRARIES.items()
        for name, build in test_models.SMALL.items()
    },
    **{
        f"{library} batch_norm_in_training": Member(functools.partial(_batch_norm_in_training, module), any_batch=True)
        for library, module in LIBRARIES.items()
    },
    "keras unet": Member(functools.partial(_keras_model, keras, _unet), any_batch=True),
    "inverted_bottlenecks": Member(_inverted_bottlenecks),
    **{f"decoder {name}": Member(functools.partial(_decoder, name)) for name in test_gradient_models.KINDS},
    **{
        f"ctc {name}": Member(functools.partial(_ctc, name), options={"dynamic_shape_bound": 12})
        for name in test_gradient_models.CTC
    },
    **{f"box loss {name}": Member(functools.partial(_box_loss, name)) for name in test_box_losses.CASES},
    "dropout": Member(_dropout),
    **_probability_cases(),
    **{f"ode {name}": Member(functools.partial(_solver, name)) for name in ("DormandPrince", "BDF")},
}
"""The models by name."""
