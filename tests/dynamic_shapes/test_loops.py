"""Loops over elements that data selects: values and gradients."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.array([1.5, -2.0, 3.0, -0.5, 5.0, 0.25], np.float32)
INPUTS = {
    "some": X,
    "all": np.abs(X),
    "one": np.array([-1, -2, -3, 4, -5, -6], np.float32),
    "none": -np.abs(X),
}
ROWS = tf.constant(np.linspace(-1, 2, 18).reshape(6, 3), tf.float32)


def kept(x, y=None):
    return tf.boolean_mask(x if y is None else y, x > 0)


def rows(x):
    return kept(x, ROWS * x[:, None])


def for_rows(x):
    total = tf.zeros(3)
    for row in rows(x):
        total = tf.tanh(total + row)
    return total


def until(x):
    total = tf.zeros(3)
    for row in rows(x):
        total = tf.sqrt(total + tf.abs(row))
        if tf.reduce_sum(total) > 3.0:
            break
    return total


def until_small(x):
    """Carry a data-dependent size through a loop without static trip count."""
    found = tf.while_loop(
        lambda v: tf.reduce_sum(v * v) > 0.2, lambda v: [v * 0.7 - 0.01 * tf.sin(v * x[0])], [kept(x) * 4.0]
    )
    return tf.reduce_sum(tf.cos(found[0]))


def numbered(x):
    found, total = kept(x), 0.0
    for i in tf.range(tf.size(found)):
        total = total * 0.5 + tf.math.log(found[i])
    return total


def infinite_afterwards(x):
    """End before an iteration that would divide by 0."""
    found = kept(x)
    n = tf.size(found)

    def step(i, total):
        left = tf.cast(n - i, tf.float32)
        return i + 1, total + found[i] / tf.sqrt(left) + tf.math.log(left * found[i])

    return tf.while_loop(lambda i, total: i < n, step, (0, 0.0))[1]


def nested(x):
    def one(v):
        return tf.reduce_sum(tf.map_fn(lambda w: tf.sqrt(v * w), kept(x) + v))

    return tf.reduce_sum(tf.map_fn(one, kept(x)))


def recurrent(layer):
    layer.build((1, None, 3))
    return lambda x: tf.reduce_sum(layer(rows(x)[None]), [0, 1] if layer.return_sequences else -1)


def of_both(x):
    """Loop as often as two sizes together."""
    found, others = kept(x), tf.boolean_mask(x, x < 1)
    n = tf.size(found) + tf.size(others)
    return tf.while_loop(
        lambda i, total: i < n,
        lambda i, total: (i + 1, total + tf.math.log(1 + tf.cast(i, tf.float32)) * x[0]),
        (0, 0.0),
    )[1]


LOOPS = {
    "map": lambda x: tf.reduce_sum(tf.map_fn(lambda v: v * v + 1.0, kept(x))),
    "map of rows": lambda x: tf.reduce_sum(tf.map_fn(lambda row: tf.math.log(tf.abs(row)) * row, rows(x)), 0),
    "scan": lambda x: tf.reduce_sum(tf.scan(lambda state, row: tf.tanh(state + row), rows(x), tf.zeros(3))),
    "fold": lambda x: tf.foldl(lambda state, v: tf.sqrt(state + v * v), kept(x), 0.0),
    "fold backwards": lambda x: tf.foldr(lambda state, v: state * 0.5 + v * v, kept(x), 1.0),
    "LSTM": recurrent(tf.keras.layers.LSTM(2)),
    "GRU": recurrent(tf.keras.layers.GRU(2, return_sequences=True, go_backwards=True)),
    "for": for_rows,
    "for and break": until,
    "while": until_small,
    "numbers": numbered,
    "infinite afterwards": infinite_afterwards,
    "nested": nested,
    "two sizes": of_both,
}


def converted(function):
    own, params = tf2jax.convert(tf.function(function), tf.TensorSpec(X.shape, tf.float32))
    return lambda x: own(params, x)[0]


def with_gradient(graph, x):
    with tf.GradientTape() as tape:
        x = tf.constant(x)
        tape.watch(x)
        value = graph(x)
    return value.numpy(), tf.convert_to_tensor(tape.gradient(value, x)).numpy()


@pytest.mark.full
@pytest.mark.parametrize("name", LOOPS)
def test_values_and_gradients(name):
    graph, own = tf.function(LOOPS[name]), converted(LOOPS[name])

    def both(x):
        value = own(x)
        return value, jax.grad(lambda x: own(x).sum())(x)

    expected = [with_gradient(graph, x) for x in INPUTS.values()]
    one = jax.jit(both)
    for (case, x), (value, gradient) in zip(INPUTS.items(), expected, strict=True):
        found, actual_gradient = one(x)
        np.testing.assert_allclose(found, value, rtol=3e-5, atol=1e-6, err_msg=case)
        np.testing.assert_allclose(actual_gradient, gradient, rtol=1e-4, atol=1e-5, err_msg=f"gradient of {case}")
    gradients = jax.jit(jax.vmap(both))(np.stack(list(INPUTS.values())))[1]
    np.testing.assert_allclose(gradients, [g for _, g in expected], rtol=1e-4, atol=1e-5)
