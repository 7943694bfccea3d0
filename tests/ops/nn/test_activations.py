"""Activations, softmax along the last axis and biases against TensorFlow."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.nn import softmax

BF16 = tf.bfloat16.as_numpy_dtype
X = np.array([[-3.0, -0.5, 0.0, 0.5, 6.0, 7.0]])
G = np.array([[1.0, -2.0, 3.0, 0.5, 2.0, 1.0]])
FLOATS = [np.float64, np.float32, np.float16, BF16]
ACTIVATIONS = ["Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu", "Softmax", "LogSoftmax"]
GRADS = ["ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad"]
IMAGE = np.random.default_rng(0).normal(size=(2, 3, 4, 5))

CASES = [
    *(case(name, X.astype(d)).using(name=np.dtype(d).name) for name in ACTIVATIONS for d in FLOATS),
    *(case(name, np.float32([[np.nan, np.inf, -np.inf, 1]])).using(name="hard", grad=False) for name in ACTIVATIONS),
    *(case(name, np.float32([[-100, 100, -40, 40]])).using(name="large") for name in ACTIVATIONS),
    *(case(name, X.astype(np.float32)).using(symbolic=("b, 6",), name="symbolic") for name in ACTIVATIONS),
    *(case(name, G.astype(d), X.astype(d)).using(name=np.dtype(d).name) for name in GRADS for d in FLOATS),
    *(case("LeakyRelu", X.astype(np.float32), alpha=a) for a in (0.0, 0.3, 1.5)),
    case("LeakyReluGrad", G, X, alpha=0.7),
    case("Relu", np.array([-2, 0, 5], np.int32)),
    case("BiasAdd", IMAGE, np.arange(5.0)),
    case("BiasAdd", IMAGE, np.arange(3.0), data_format="NCHW"),
    case("BiasAdd", X.astype(np.float32), np.arange(6, dtype=np.float32)).using(symbolic=("b, 6", "6")),
    case("BiasAddV1", IMAGE, np.arange(5.0)),
    case("BiasAddGrad", IMAGE),
    case("BiasAddGrad", IMAGE, data_format="NCHW"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("shape", [(6,), (2, 3, 5), (0, 4), (3, 0), (2, 1)], ids=str)
def test_softmax_has_jax_derivatives(shape):
    x, g = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)

    def derivatives(fn):
        first = jax.grad(lambda x: jnp.vdot(fn(x), g))
        return (
            fn(x),
            first(x),
            jax.jvp(fn, (x,), (g,))[1],
            jax.grad(lambda x: jnp.vdot(first(x), g))(x),
            jax.vmap(fn)(jnp.stack([x, g])),
        )

    ours = derivatives(softmax.softmax)
    for actual, expected in zip(ours, derivatives(lambda x: jax.nn.softmax(x, axis=-1)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


def test_softmax_is_materialized_for_its_derivative():
    """Else XLA:CPU computes quotients twice, and stores their divisor."""
    x = np.ones((64, 48), np.float32)

    def weighted(x):
        return jnp.sum(jnp.sin(softmax.softmax(x)))

    def marks(fn):
        return len(re.findall(r"call @materialize", jax.jit(fn).lower(x).as_text()))

    assert (marks(weighted), marks(jax.grad(weighted))) == (0, 2)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize("axis", [0, 1])
def test_log_softmax_in_half_precision_is_rounded_once(dtype, axis):
    def call(x):
        return tf.nn.log_softmax(x, axis=axis)

    x = (np.random.default_rng(0).normal(size=(40, 40)) * 6).astype(dtype)
    f = tf2jax.convert_functional(tf.function(call, autograph=False), tf.TensorSpec(x.shape, dtype))
    cotangent = np.random.default_rng(1).uniform(0.5, 1.5, x.shape).astype(dtype)
    got, pull = jax.vjp(f, x)
    with tf.GradientTape() as tape:
        reference = tf.constant(x.astype(np.float64))
        tape.watch(reference)
        want = call(reference)
    gradient = tape.gradient(want, reference, tf.constant(cotangent.astype(np.float64))).numpy()
    ulp = float(ml_dtypes.finfo(dtype).eps)
    tiny = float(ml_dtypes.finfo(dtype).smallest_normal)
    assert got.dtype == dtype
    np.testing.assert_allclose(np.float64(got), want.numpy(), rtol=ulp, atol=tiny)
    # From the rounded result, as TensorFlow's.
    np.testing.assert_allclose(np.float64(pull(cotangent)[0]), gradient, rtol=ulp, atol=30 * ulp)
