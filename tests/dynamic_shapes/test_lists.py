"""Lists filled by a dynamic loop stack to the list's length, under jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.array([1.0, 2.0], np.float32)


def written(x, limit=6, threshold=10.0, shape=(2,)):
    """Write until a sum is large: how often is data, but not how often at most."""
    states = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=shape)
    for i in tf.range(limit):
        x = x * 1.5
        states = states.write(i, x)
        if tf.reduce_sum(x) > threshold:
            break
    return states


def padded(x):
    found = written(x).stack()
    count = tf.shape(found)[0]
    return tf.pad(found, [[0, 6 - count], [0, 0]]), count, tf.reduce_mean(found), tf.reduce_min(found)


def attended(x):
    found = written(x).stack()
    weights = tf.nn.softmax(tf.reduce_sum(found, 1))
    return tf.einsum("t,td->d", weights, found), tf.reverse(found, [0])[0], tf.cumsum(found)[-1]


def joined(x):
    return tf.reduce_sum(written(x, shape=[None]).concat() ** 2), tf.reduce_sum(written(x).stack()[1:])


def gathered(x):
    states = written(x)
    positions = tf.range(states.size())
    weights = tf.cast(positions, tf.float32)[:, None]
    return tf.reduce_sum(states.gather(positions) * weights) + tf.reduce_sum(states.stack() * weights), states.size()


def last(x):
    states = written(x)
    return states.read(states.size() - 1), tf.map_fn(lambda row: row * row, states.stack())[-1]


def while_small(x):
    states = tf.TensorArray(tf.float32, size=1, dynamic_size=True, element_shape=[2]).write(0, x)
    i = 1
    while i < 8 and tf.reduce_max(x) < 20.0:
        x = x * 1.5
        states = states.write(i, x)
        i += 1
    return tf.math.reduce_logsumexp(states.stack(), 0), states.size()


NAMES = ["padded", "attended", "joined", "gathered", "last", "while_small"]


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name):
    function = tf.function(globals()[name])
    own = jax.jit(tf2jax.convert_functional(function, tf.TensorSpec(X.shape)))
    gradient_of = jax.jit(jax.grad(lambda x: jnp.sum(own(x)[0])))
    for x in (X, X / 20, X * 9):  # some iterations, all, one
        with tf.GradientTape() as tape:
            variable = tf.constant(x)
            tape.watch(variable)
            expected = function(variable)
            total = tf.reduce_sum(expected[0])
        for e, a in zip(expected, own(x), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5)
        np.testing.assert_allclose(gradient_of(x), tape.gradient(total, variable), rtol=1e-4)


@pytest.mark.full
def test_batches():
    """Each example of a batch has a length of its own."""
    function = tf.function(padded)
    own = tf2jax.convert_functional(function, tf.TensorSpec(X.shape))
    batch = np.stack([X, X / 20, X * 9])
    found = jax.jit(jax.vmap(own))(batch)
    for i, x in enumerate(batch):
        for e, a in zip(function(x), found, strict=True):
            np.testing.assert_allclose(a[i], e, rtol=1e-5)


@pytest.mark.full
def test_a_result_as_long_as_the_list():
    function = tf.function(lambda x: written(x).stack())
    spec = tf.TensorSpec(X.shape)
    with pytest.raises(tf2jax.errors.LoweringError, match=r"TensorListStack.*give the TensorArray a size"):
        jax.jit(tf2jax.convert_functional(function, spec))(X)
    with tf2jax.override_config("dynamic_shape_bound", 8):
        own = tf2jax.convert_functional(function, spec)
    expected = function(X).numpy()
    np.testing.assert_allclose(jax.jit(own)(X), np.pad(expected, [(0, 8 - len(expected)), (0, 0)]), rtol=1e-6)
