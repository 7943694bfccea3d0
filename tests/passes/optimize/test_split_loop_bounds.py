"""Loop conditions on a minimum of limits, one static: bounded loops."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.array([0.3, -0.2, 1.7], np.float32)


def least_outside(x, n):
    limit = tf.minimum(tf.minimum(n, 6), tf.size(x) * 3)
    return tf.while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, tf.sin(y) * 1.5 + x), [0, x])[1]


def least_in_the_condition(x, n):
    return tf.while_loop(lambda i, y: i <= tf.minimum(n, 4), lambda i, y: (i + 1, tf.sin(y) + x), [0, x])[1]


def limit_on_the_left(x, n):
    limit = tf.minimum(n, 5)
    keep = lambda i, y: tf.logical_and(limit > i, tf.reduce_sum(y) < 50.0)  # noqa: E731
    return tf.while_loop(keep, lambda i, y: (i + 1, tf.sin(y) + x), [0, x])[1]


def loops_inside(x, n):
    def outer(i, y):
        limit = tf.minimum(n + i, 2)
        return i + 1, tf.while_loop(lambda j, z: j < limit, lambda j, z: (j + 1, tf.sin(z) + x), [0, y])[1]

    limit = tf.minimum(n, 3)
    return tf.while_loop(lambda i, y: i < limit, outer, [0, x])[1]


def not_a_number(x, n):
    """End the loop by a comparison with NaN, whichever limit it is."""
    limit = tf.minimum(tf.cast(n, tf.float32) * np.nan, 4.0)
    return tf.while_loop(lambda i, y: i < limit, lambda i, y: (i + 1.0, y + x), [0.0, x])[1]


@pytest.mark.default_cases("limit_on_the_left")
@pytest.mark.parametrize(
    "fn",
    [least_outside, least_in_the_condition, limit_on_the_left, loops_inside, not_a_number],
    ids=lambda f: f.__name__,
)
def test_gradients_go_through_what_is_bounded(fn):
    function = tf.function(fn)
    with tf2jax.override_config("loop_bound", "scan"):
        jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([3]), tf.TensorSpec([], tf.int32))
    gradient = jax.jit(jax.value_and_grad(lambda x, n: jax_fn(x, n).sum()))
    for n in (0, 2, 9):
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(function(x, n))
        value, found = gradient(X, n)
        np.testing.assert_allclose(value, y, rtol=1e-5)
        np.testing.assert_allclose(found, tape.gradient(y, x), rtol=1e-4)


@pytest.mark.full
def test_variables_that_change_in_the_loop_are_no_limit():
    """The limit itself is a loop variable: only what it starts as is the least of two."""

    @tf.function
    def fn(x, n):
        limit = tf.minimum(n, 2)
        return tf.while_loop(lambda i, m, y: i < m, lambda i, m, y: (i + 2, m + 1, y + x), [0, limit, x])[2]

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([3]), tf.TensorSpec([], tf.int32))
    np.testing.assert_allclose(jax.jit(jax_fn)(X, 7), fn(X, 7), rtol=1e-6)
