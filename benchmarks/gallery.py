"""The suite gallery: models of public packages, compared with TensorFlow.

It needs keras, tf_keras, tensorflow-probability, flax and dm-haiku. Weights are random with a fixed seed, since trained
ones would have to be downloaded. Only with ``--times`` are calls timed: times of a machine with other work mean little.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import models
from .records import Result
from .timing import in_turns, waited, waited_tf


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of a package.

    Attributes:
      build: returns the TensorFlow function of arrays, the function and params that were converted from it, and the
        arrays.
    """

    package: str
    source: str
    kind: str
    build: Callable[[], tuple[Callable[..., Any], Any, Any, list[np.ndarray]]]


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _converted(function: Any, *inputs: np.ndarray) -> tuple[Callable[..., Any], Any, Any, list[np.ndarray]]:
    """Convert a function of arrays whose first dimension is free."""
    import tensorflow as tf

    import tf2jax_lite as tf2jax

    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in inputs]
    return function, *tf2jax.convert(function, *specs), list(inputs)


def _application(name: str) -> Any:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, classifier_activation=None)
    x = _normal(1, *model.input_shape[1:])
    return _converted(tf.function(functools.partial(model, training=False)), x)


def _keras2(name: str) -> Any:
    """Save a model of Keras 2 as a SavedModel, and convert that."""
    import tensorflow as tf
    import tf_keras

    import tf2jax_lite as tf2jax

    tf_keras.utils.set_random_seed(0)
    model = getattr(tf_keras.applications, name)(weights=None, classifier_activation=None)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, folder)
        converted = tf2jax.convert_saved_model(folder)
        signature = tf.saved_model.load(folder).signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    return lambda x: signature(**{name: x}), *converted, [_normal(1, *model.input_shape[1:])]


def _flow() -> Any:
    """Build the density of a masked autoregressive flow of five layers."""
    import tensorflow as tf
    import tensorflow_probability as tfp

    tf.random.set_seed(0)
    tfd, tfb = tfp.distributions, tfp.bijectors
    layers = []
    for _ in range(5):
        network = tfb.AutoregressiveNetwork(2, event_shape=[8], hidden_units=[64, 64], activation="relu")
        layers += [tfb.MaskedAutoregressiveFlow(network), tfb.Permute(list(range(8))[::-1])]
    flow = tfd.TransformedDistribution(tfd.MultivariateNormalDiag(tf.zeros(8)), tfb.Chain(layers))
    flow.log_prob(_normal(4, 8))  # makes the variables
    return _converted(tf.function(flow.log_prob), _normal(32, 8))


def _time_series() -> Any:
    """Build the likelihood of a structural time series, by a Kalman filter."""
    import tensorflow as tf
    import tensorflow_probability as tfp

    series = _normal(100).cumsum().astype(np.float32)
    sts = tfp.sts
    parts = [sts.LocalLinearTrend(observed_time_series=series), sts.Seasonal(12, observed_time_series=series)]
    model = sts.Sum(parts, observed_time_series=series)
    values = [p.prior.mean() if hasattr(p.prior, "_mean") else p.prior.quantile(0.5) for p in model.parameters]
    space = model.make_state_space_model(num_timesteps=100, param_vals=values)
    return _converted(tf.function(space.log_prob), (series + 0.1 * _normal(8, 100))[..., None])


def _hidden_markov() -> Any:
    """Build the most probable states of a hidden Markov model, and its likelihood."""
    import tensorflow as tf
    import tensorflow_probability as tfp

    tfd = tfp.distributions
    transition = np.full((5, 5), 0.05, np.float32) + 0.75 * np.eye(5, dtype=np.float32)
    model = tfd.HiddenMarkovModel(
        tfd.Categorical(probs=[0.2] * 5),
        tfd.Categorical(probs=transition),
        tfd.Normal(np.arange(5, dtype=np.float32), 1.0),
        num_steps=50,
    )
    return _converted(tf.function(lambda x: (model.log_prob(x), model.posterior_mode(x))), 2 + 2 * _normal(8, 50))


def _gaussian_process() -> Any:
    """Build mean and variance of a Gaussian process given observations."""
    import tensorflow as tf
    import tensorflow_probability as tfp

    points = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]
    observed = np.sin(5 * points[:, 0])

    def predict(x: Any) -> Any:
        kernel = tfp.math.psd_kernels.MaternFiveHalves(1.0, 0.5)
        found = tfp.distributions.GaussianProcessRegressionModel(
            kernel, x, points, observed, observation_noise_variance=0.01
        )
        return found.mean(), found.variance()

    return _converted(tf.function(predict), _normal(20, 1))


def _from_jax(apply: Callable[..., Any], weights: Any, x: np.ndarray) -> Any:
    """Bring a JAX model to TensorFlow with jax2tf, and convert it back."""
    import jax
    import tensorflow as tf
    from jax.experimental import jax2tf

    leaves, tree = jax.tree.flatten(weights)
    variables = [tf.Variable(np.asarray(leaf)) for leaf in leaves]
    shapes = [None, ", ".join(["b", *map(str, x.shape[1:])])]
    in_tensorflow = jax2tf.convert(lambda leaves, x: apply(tree.unflatten(leaves), x), polymorphic_shapes=shapes)
    return _converted(tf.function(lambda x: in_tensorflow(variables, x), autograph=False), x)


def _haiku(name: str) -> Any:
    import haiku as hk
    import jax

    def forward(x: Any, is_training: bool) -> Any:
        return getattr(hk.nets, name)(num_classes=1000)(x, is_training)

    x = _normal(1, 224, 224, 3)
    model = hk.without_apply_rng(hk.transform_with_state(forward))
    weights = model.init(jax.random.key(0), x, True)  # only training makes the moving averages
    weights = jax.tree.map(lambda w: w + 0.01 * np.abs(_normal(*w.shape)), weights)  # classifiers start at zero
    return _from_jax(lambda weights, x: model.apply(*weights, x, False)[0], weights, x)


def _flax(name: str, x: np.ndarray) -> Any:
    import jax
    from flax import linen

    models = {
        "attention": lambda: linen.MultiHeadDotProductAttention(num_heads=8, deterministic=True),
        "LSTM": lambda: linen.RNN(linen.OptimizedLSTMCell(256)),
    }
    model = models[name]()
    return _from_jax(model.apply, model.init(jax.random.key(0), x), x)


CASES = {
    "ResNet50V2": Case("keras", "keras.applications.ResNet50V2", "CNN", lambda: _application("ResNet50V2")),
    "DenseNet121": Case("keras", "keras.applications.DenseNet121", "CNN", lambda: _application("DenseNet121")),
    "EfficientNetV2B0": Case(
        "keras", "keras.applications.EfficientNetV2B0", "CNN", lambda: _application("EfficientNetV2B0")
    ),
    "NASNetMobile": Case("keras", "keras.applications.NASNetMobile", "CNN", lambda: _application("NASNetMobile")),
    "Xception": Case("keras", "keras.applications.Xception", "CNN", lambda: _application("Xception")),
    "MobileNetV2": Case(
        "tf_keras", "tf_keras.applications.MobileNetV2", "CNN (SavedModel)", lambda: _keras2("MobileNetV2")
    ),
    "RegNetX002": Case(
        "tf_keras", "tf_keras.applications.RegNetX002", "CNN (SavedModel)", lambda: _keras2("RegNetX002")
    ),
    "autoregressive flow": Case("tensorflow-probability", "tfp.bijectors.MaskedAutoregressiveFlow", "density", _flow),
    "structural time series": Case("tensorflow-probability", "tfp.sts.Sum", "Kalman filter", _time_series),
    "hidden Markov model": Case(
        "tensorflow-probability", "tfp.distributions.HiddenMarkovModel", "Viterbi path", _hidden_markov
    ),
    "Gaussian process": Case(
        "tensorflow-probability",
        "tfp.distributions.GaussianProcessRegressionModel",
        "regression",
        _gaussian_process,
    ),
    "ResNet18": Case("dm-haiku", "hk.nets.ResNet18", "CNN (jax2tf)", lambda: _haiku("ResNet18")),
    "MobileNetV1": Case("dm-haiku", "hk.nets.MobileNetV1", "CNN (jax2tf)", lambda: _haiku("MobileNetV1")),
    "attention": Case(
        "flax",
        "linen.MultiHeadDotProductAttention",
        "attention (jax2tf)",
        lambda: _flax("attention", _normal(1, 128, 512)),
    ),
    "LSTM": Case(
        "flax",
        "linen.RNN",
        "LSTM (jax2tf)",
        lambda: _flax("LSTM", _normal(1, 100, 64)),
    ),
}


def error(expected: Sequence[Any], found: Sequence[Any]) -> float:
    """Return the largest difference, relative to the largest magnitude of its result."""
    from jax import dtypes

    errors = [0.0]
    for a, b in zip(map(np.asarray, expected), map(np.asarray, found), strict=True):
        if dtypes.canonicalize_dtype(a.dtype) != b.dtype or a.shape != b.shape:
            raise ValueError(f"{a.dtype}{a.shape} became {b.dtype}{b.shape}")
        if a.dtype.kind == "f":
            largest = np.max(np.abs(a))
            if not 0 < largest < np.inf:
                raise ValueError(f"the largest magnitude of a result is {largest}")
            errors.append(float(np.max(np.abs(a - b)) / largest))
        elif not np.array_equal(a, b):
            raise ValueError(f"{np.sum(a != b)} of {a.size} integers differ")
    return max(errors)


def gallery(options: Any) -> Iterator[Result]:
    """Convert models; yield the size, the error, and times if requested."""
    for name in models.chosen(options, CASES):
        yield measure(name, budget=options.budget if options.times else None)


def measure(name: str, *, budget: float | None = None) -> Result:
    """Convert a model and compare it.

    Args:
      budget: seconds of calls, in turns with TensorFlow's; None for no times.
    """
    import jax
    import tensorflow as tf

    case = CASES[name]
    in_tensorflow, jax_fn, params, inputs = case.build()
    predict = jax.jit(lambda params, *inputs: jax_fn(params, *inputs)[0])
    tensors = [tf.constant(x) for x in inputs]
    expected, found = tf.nest.flatten(in_tensorflow(*tensors)), jax.tree.leaves(predict(params, *inputs))
    fields = {field: getattr(case, field) for field in ("package", "source", "kind")}
    values: dict[str, Any] = {
        "versions": {case.package: importlib.metadata.version(case.package)},
        "params": sum(np.size(value) for value in params.values()),
        "error": error(expected, found),
    }
    if budget is not None:
        ours = waited(predict, *jax.device_put((params, *inputs)))
        contestants = {"tf2jax_lite": ours, "tensorflow": waited_tf(in_tensorflow, *tensors)}
        values["times"] = in_turns(contestants, budget=budget)
    return {"name": name, **fields, "inputs": [list(x.shape) for x in inputs]}, values
