"""Dynamic dimensions minus a number equal TensorFlow's if nonnegative."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

RNG = np.random.default_rng(0)
INPUTS = {  # by how many rows are kept
    "two": np.float32([[-1, 2, 3], [4, 5, 6], [7, -8, 9]]),
    "some": RNG.normal(0.5, size=(7, 3)).astype(np.float32),
    "all": np.abs(RNG.normal(size=(6, 3))).astype(np.float32),
}


def rows(x):
    found = tf.boolean_mask(x, x[:, 0] > 0)
    return found, tf.shape(found)[0]


def lagged(x):
    k, n = rows(x)
    return tf.reduce_sum(tf.slice(k, [1, 0], [n - 1, 3]) * tf.slice(k, [0, 0], [n - 1, 3]), 0)


def flattened(x):
    k, n = rows(x)
    flat = tf.reshape(k[1:], [(n - 1) * 3])
    return tf.reduce_sum(flat * tf.cast(tf.range((n - 1) * 3), tf.float32))


def guarded(x):
    k, n = rows(x)
    return tf.cond(n > 4, lambda: tf.reduce_sum((tf.ones([n - 3, 3]) + k[3:]) ** 2, 0), lambda: x[0])


CASES = {
    "zeros": lambda x: tf.reduce_sum((rows(x)[0][2:] + tf.zeros([rows(x)[1] - 2, 3])) ** 2),
    "joined": lambda x: tf.reduce_sum(
        rows(x)[0] * tf.concat([tf.fill([rows(x)[1] - 2], 2.0), [1.0, 3.0]], 0)[:, None], 0
    ),
    "tf.slice": lagged,
    "broadcast": lambda x: tf.reduce_sum(tf.broadcast_to([1.0, 2, 3], [rows(x)[1] - 2, 3]) * rows(x)[0][:-2]),
    "tiled": lambda x: tf.reduce_sum(tf.tile(rows(x)[0][:1], [rows(x)[1] - 1, 1]) * rows(x)[0][1:], 0),
    "one-hot": lambda x: tf.reduce_sum(
        tf.one_hot(tf.range(rows(x)[1]), rows(x)[1] - 1)[:, :, None] * rows(x)[0][None, 1:], [0, 1]
    ),
    "flattened": flattened,
    "two parts": lambda x: tf.reduce_sum(tf.split(rows(x)[0], [rows(x)[1] - 1, 1])[0] ** 2, 0),
    "three parts": lambda x: tf.reduce_sum(tf.split(rows(x)[0], [1, rows(x)[1] - 2, 1])[1] + rows(x)[0][1:-1], 0),
    "remainder": lambda x: tf.split(rows(x)[0], [-1, 2])[1] + tf.reduce_sum(tf.split(rows(x)[0], [-1, 2])[0], 0),
    "columns": lambda x: tf.reduce_sum(tf.split(tf.transpose(rows(x)[0]), [rows(x)[1] - 2, 2], 1)[0], 1),
    "parts that are joined": lambda x: tf.reduce_sum(
        tf.concat([part * 2 for part in tf.split(rows(x)[0], [rows(x)[1] - 2, 2])], 0) * rows(x)[0], 0
    ),
    "in a branch": guarded,
}


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    function = tf.function(CASES[name], autograph=False, input_signature=[tf.TensorSpec([None, 3])])
    own = tf2jax.convert_functional(function, tf.TensorSpec([None, 3]))

    def total(x):
        return own(x).sum(), own(x)

    gradient_of = jax.jit(jax.grad(total, has_aux=True))
    for x in map(np.float32, INPUTS.values()):
        with tf.GradientTape() as tape:
            tape.watch(given := tf.constant(x))
            expected = function(given)
        gradient, result = gradient_of(x)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(gradient, tape.gradient(expected, given), rtol=1e-5, atol=1e-5)


@pytest.mark.default_cases("two parts")
@pytest.mark.parametrize("name", ["two parts", "three parts", "remainder", "parts that are joined", "joined"])
def test_fewer_rows_than_are_taken_off_give_nan(name):
    own = tf2jax.convert_functional(tf.function(CASES[name], autograph=False), tf.TensorSpec([None, 3]))
    x = -np.abs(INPUTS["all"])
    assert np.isnan(jax.jit(own)(x)).all()
