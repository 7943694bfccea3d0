"""Graph gradients of list elements: compiled loops of any length."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.lowering.scan_opt.scans import carried_shapes

RNG = np.random.default_rng(0)
STEPS = 300  # more than are unrolled


def scanned(x):
    return tf.scan(lambda h, e: tf.tanh(h * 0.9 + e), x, tf.zeros(x.shape[1:]))


def mapped(x):
    return tf.map_fn(lambda e: tf.sin(e) * tf.reduce_sum(e), x)


def read_twice(x):
    """Two elements of one list in each iteration, one of them again and again."""
    xa = tf.TensorArray(tf.float32, x.shape[0], clear_after_read=False).unstack(x)
    body = lambda i, h: (i + 1, tf.tanh(h * 0.9 + xa.read(i) * xa.read(0)))  # noqa: E731
    return tf.while_loop(lambda i, _: i < x.shape[0], body, (0, tf.zeros(x.shape[1:])))[1]


def backwards(x):
    xa, ta = tf.TensorArray(tf.float32, x.shape[0]).unstack(x), tf.TensorArray(tf.float32, x.shape[0])
    last = x.shape[0] - 1

    def body(i, h, ta):
        h = tf.tanh(h * 0.9 + xa.read(last - i))
        return i + 1, h, ta.write(last - i, h)

    return tf.while_loop(lambda i, *_: i <= last, body, (0, tf.zeros(x.shape[1:]), ta))[2].stack()


def recurrent(x):
    return LSTM(tf.transpose(x, [1, 0, 2]))


def two_indices(x):
    """Read a list elsewhere than it is written: halves depend on halves."""
    half = x.shape[0] // 2
    ta = tf.TensorArray(tf.float32, 2 * half, clear_after_read=False).unstack(x)

    def body(i, ta):
        return i + 1, ta.write(half + i, tf.sin(ta.read(i)) + ta.read(half + i))

    return tf.while_loop(lambda i, _: i < half, body, (0, ta))[1].stack()


LSTM = tf.keras.layers.LSTM(4, return_sequences=True)
LSTM.build((None, None, 3))


def gradient_of(function):
    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(function(x)))
        return tape.gradient(loss, x)

    return gradient


@pytest.mark.full
@pytest.mark.parametrize("function", [scanned, mapped, read_twice, backwards, recurrent, two_indices])
def test_gradients_taken_in_the_graph(function):
    x = RNG.normal(size=(STEPS, 2, 3)).astype(np.float32)
    gradient = gradient_of(function)
    converted, params = tf2jax.convert(gradient, tf.TensorSpec(x.shape, tf.float32))
    traced = jax.make_jaxpr(lambda p, x: converted(p, x)[0])(params, x)
    assert sum(e.primitive.name in ("scan", "custom_jvp_call") for e in traced.eqns) >= 2
    assert len(traced.eqns) < STEPS
    # Copied in each iteration, a list makes time grow with the square of its length. So it is where iterations add to
    # two elements of its gradient.
    carried = any(STEPS in shape for shape in carried_shapes(traced.jaxpr))
    assert carried == (function in (read_twice, two_indices))
    actual = jax.jit(lambda p, x: converted(p, x)[0])(params, x)
    np.testing.assert_allclose(actual, gradient(x), rtol=1e-4, atol=1e-5)


def lists(x, how):
    """Sum of lists of which some have one element alone."""
    zeros = tf.raw_ops.TensorListReserve(element_shape=[3], num_elements=4, element_dtype=tf.float32)
    alone = [tf.raw_ops.TensorListSetItem(input_handle=zeros, index=i, item=x[i] * 2) for i in (1, 3, 1)]
    whole = tf.raw_ops.TensorListFromTensor(tensor=tf.sin(x), element_shape=[3])
    total = how(whole, alone)
    return tf.raw_ops.TensorListStack(input_handle=total, element_shape=[3], element_dtype=tf.float32)


SUMS = {
    "one": lambda whole, alone: tf.raw_ops.AddN(inputs=[whole, alone[0]]),
    "the other way": lambda whole, alone: tf.raw_ops.AddN(inputs=[alone[0], whole]),
    "several": lambda whole, alone: tf.raw_ops.AddN(inputs=[alone[0], whole, *alone[1:]]),
    "two whole ones": lambda whole, alone: tf.raw_ops.AddN(inputs=[whole, alone[0], whole]),
    "none whole": lambda whole, alone: tf.raw_ops.AddN(inputs=alone),
    "through": lambda whole, alone: tf.raw_ops.AddN(inputs=[whole, tf.identity(alone[1])]),
}


@pytest.mark.default_cases("the other way")
@pytest.mark.parametrize("how", SUMS.values(), ids=SUMS)
def test_sums_of_lists(how):
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    function = tf.function(lambda x: lists(x, how), autograph=False)
    converted = tf2jax.convert_functional(function, tf.TensorSpec(x.shape, tf.float32))
    expected = function(x)
    np.testing.assert_allclose(converted(x), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(converted)(x), expected, rtol=1e-6)
