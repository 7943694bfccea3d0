"""tf.custom_gradient: values, gradients and variables agree."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax


def _clip_gradient():
    @tf.custom_gradient
    def fn(x):
        return tf.identity(x) * 2.0, lambda dy: tf.clip_by_value(dy, -0.1, 0.1)

    return fn


def _uses_forward_tensors():
    @tf.custom_gradient
    def fn(x, y):
        z = tf.tanh(x)

        def grad(dz, dw):
            return dz * z * 10.0 * y, dw * x

        return (z * y, x - y), grad

    return fn


@pytest.mark.full
@pytest.mark.parametrize("nested", [False, True])
def test_clip_gradient(nested):
    clip = _clip_gradient()

    def fn(x):
        return tf.reduce_sum(clip(clip(x) if nested else x) ** 2)

    x = np.array([0.01, -3.0, 2.0], np.float32)
    _compare(fn, [x])


@pytest.mark.full
def test_captured_tensors_and_several_results():
    custom = _uses_forward_tensors()

    def fn(x, y):
        a, b = custom(x, y)
        return tf.reduce_sum(a * a + tf.sin(b))

    _compare(fn, [np.array([0.3, -0.2], np.float32), np.array([1.5, 2.0], np.float32)])


@pytest.mark.full
def test_inside_a_called_function():
    custom = _uses_forward_tensors()

    @tf.function
    def inner(x):
        a, b = custom(x, x * 2.0)
        return a + b

    _compare(lambda x: tf.reduce_sum(inner(x) * x), [np.array([0.3, -0.2], np.float32)])


@pytest.mark.full
def test_variables():
    v = tf.Variable(3.0, name="v")

    @tf.custom_gradient
    def custom(x):
        def grad(dy, variables=None):
            return dy * 100.0 * v, [dy * 7.0 * x]

        return x * v, grad

    @tf.function
    def fn(x):
        return custom(x) * v

    jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([]))
    x = tf.constant(0.5)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x)
    expected = tape.gradient(y, [v, x])
    actual = jax.jit(jax.grad(lambda p, x: jax_fn(p, x)[0], (0, 1)))(params, np.float32(0.5))
    np.testing.assert_allclose(actual[0]["v"], expected[0], rtol=1e-6)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-6)


@pytest.mark.full
def test_switched_off():
    clip = _clip_gradient()
    with tf2jax.override_config("convert_custom_gradient", False):
        jax_fn = tf2jax.convert_functional(lambda x: clip(x), tf.TensorSpec([]))
    assert jax.grad(jax_fn)(1.0) == 2.0


@pytest.mark.full
def test_silu():
    """tf.nn.silu is a custom gradient."""
    _compare(lambda x: tf.reduce_sum(tf.nn.silu(x)), [np.linspace(-3, 3, 7).astype(np.float32)])


def _compare(fn, arrays):
    fn = tf.function(fn)
    jax_fn = tf2jax.convert_functional(fn, *[tf.TensorSpec(a.shape, a.dtype) for a in arrays])
    tensors = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = fn(*tensors)
    value, grads = jax.jit(jax.value_and_grad(jax_fn, tuple(range(len(arrays)))))(*arrays)
    np.testing.assert_allclose(value, y, rtol=1e-6)
    for e, a in zip(tape.gradient(y, tensors), grads, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5)


@pytest.mark.full
def test_constants_and_unused_results_are_left_out():
    """swish returns its input and a constant beside its result; one counts."""
    jax_fn, params = tf2jax.convert(tf.function(tf.nn.silu), tf.TensorSpec([3], tf.float32))
    found = jax.make_jaxpr(lambda x: jax_fn(params, x)[0])(np.ones(3, np.float32)).eqns
    assert sum(e.primitive.name == "stop_gradient" for e in found) == 1
    (node,) = (e for e in found if e.primitive.name == "custom_gradient")
    assert len(node.outvars) == 1
