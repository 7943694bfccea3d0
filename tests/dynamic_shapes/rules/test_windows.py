"""Convolutions and poolings along an axis of data-dependent size, under ``jit``."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

RANDOM = np.random.default_rng(0)
ROWS = tf.constant(RANDOM.normal(size=(9, 2)), tf.float32)
INPUTS = {
    "all": np.linspace(0.5, 1, 9),
    "some": np.array([1.5, -2, 3, -0.5, 5, 0.25, 1, -1, 2]),
    "two": np.array([-1, -2, -3, 4, -5, -6, -1, 2, -3]),
    "none": -np.ones(9),
}


def signal(x):
    """Return rows of two channels, as a batch of one: [1, dynamic, 2]."""
    return tf.boolean_mask(ROWS * x[:, None], x > 0)[None]


def kernel(*shape):
    return tf.constant(np.random.default_rng(sum(shape)).normal(size=shape), tf.float32)


def conv(width, stride, padding, dilation=1):
    return lambda x: tf.nn.conv1d(signal(x), kernel(width, 2, 3), stride, padding, dilations=dilation)


def pool(function, width, stride, padding):
    return lambda x: function(signal(x), width, stride, padding)


CASES = {
    f"conv of {width} by {stride}, {padding}": conv(width, stride, padding)
    for width in (1, 2, 3)
    for stride in (1, 2, 3)
    for padding in ("SAME", "VALID")
}
CASES |= {f"conv of {width}, gaps, {p}": conv(width, 1, p, 2) for width in (2, 3) for p in ("SAME", "VALID")}
CASES |= {
    f"{name} pool of {width} by {stride}, {padding}": pool(function, width, stride, padding)
    for name, function in (("max", tf.nn.max_pool1d), ("average", tf.nn.avg_pool1d))
    for width in (2, 3)
    for stride in (1, 2)
    for padding in ("SAME", "VALID")
}
CASES |= {
    "of each channel": lambda x: tf.nn.depthwise_conv2d(signal(x)[:, None], kernel(1, 3, 2, 2), [1] * 4, "SAME"),
    "causal": lambda x: tf.nn.conv1d(tf.pad(signal(x), [[0, 0], [2, 0], [0, 0]]), kernel(3, 2, 3), 1, "VALID"),
    "of integers": lambda x: tf.nn.max_pool2d(tf.cast(signal(x)[:, None] * 10, tf.int32), [1, 3], [1, 2], "SAME"),
    "an image": lambda x: tf.nn.conv2d(
        tf.reshape(signal(x)[0, :, :1] * tf.transpose(signal(x)[0, :, 1:]), [1, *2 * [tf.shape(signal(x))[1]], 1]),
        kernel(3, 3, 1, 2),
        2,
        "SAME",
    ),
    "one after the other": lambda x: tf.nn.conv1d(
        tf.nn.max_pool1d(tf.nn.relu(conv(3, 1, "SAME")(x)), 2, 2, "SAME"), kernel(3, 3, 1), 1, "SAME"
    ),
}


@pytest.mark.default_cases("of integers")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    def function(x):
        found = CASES[name](x)
        # Which result is where shows in the sum.
        positions = tf.cast(tf.range(tf.size(found)) + 1, tf.float32)
        return tf.reduce_sum(tf.sin(tf.cast(found, tf.float32)) * tf.reshape(positions, tf.shape(found)))

    graph = tf.function(function, autograph=False)
    own = tf2jax.convert_functional(graph, tf.TensorSpec([9]))
    both = jax.jit(jax.value_and_grad(own))
    compared = 0
    for case, values in INPUTS.items():
        x = tf.constant(values, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            try:
                expected = graph(x)
            except tf.errors.OpError:  # no window fits
                continue
        compared += 1
        value, gradient = both(x.numpy())
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-5, err_msg=case)
        try:
            expected_gradient = tape.gradient(expected, x)
        except tf.errors.OpError:  # of convolutions with gaps TensorFlow has no gradient on CPU
            continue
        # Where no window fits, TensorFlow's gradient of poolings is memory that nothing was written to.
        wanted = np.zeros(9) if expected_gradient is None or not tf.size(CASES[name](x)) else expected_gradient
        np.testing.assert_allclose(gradient, wanted, rtol=2e-5, atol=2e-5, err_msg=case)
    assert compared >= 2
