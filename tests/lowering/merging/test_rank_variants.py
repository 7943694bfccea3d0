"""Branch results of different ranks: users run in each branch until equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def or_zero(x):
    """Return losses if any, else a number: ``K.switch`` in Mask R-CNN."""
    kept = tf.boolean_mask(x, x > 1.5)
    losses = tf.cond(tf.size(kept) > 0, lambda: tf.math.log(kept), lambda: tf.constant(0.0))
    return tf.reduce_mean(losses)


def found_inside(x):
    def some():
        return tf.sqrt(tf.boolean_mask(x, x > 1.5)) * x[0, 0]

    return tf.reduce_sum(tf.cond(x[0, 0] > 2.0, some, lambda: x[1, 1] * 3.0) * x[0, 1])


def added(x):
    return x + tf.cond(x[0, 0] > 2.0, lambda: x * x, lambda: x[0, 0])


def of_three(x):
    which = tf.cast(x[0, 0], tf.int32)
    return tf.reduce_sum(tf.switch_case(which, [lambda: x, lambda: x[0], lambda: x[0, 0]]) ** 2)


def rank_and_shape(x):
    found = tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0])
    return tf.reduce_sum(found * tf.cast(tf.rank(found), tf.float32)) * tf.cast(tf.shape(found)[-1], tf.float32)


def ranks(x):
    return tf.rank(tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0, 0]))


def flattened(x):
    found = tf.cond(x[0, 0] > 2.0, lambda: tf.reshape(x, [-1]) * 2.0, lambda: x)
    return tf.reshape(found, [4])


def called(x):
    found = tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0, 0])
    return tf.function(lambda y: tf.reduce_max(tf.exp(y)) + tf.reduce_min(y))(found)


def twice(x):
    """Two results by one predicate meet."""
    one = tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0, 0])
    two = tf.cond(x[0, 0] > 2.0, lambda: x[0], lambda: x[1, 1])
    return tf.reduce_sum(one * two)


def both(x):
    """Of two predicates."""
    one = tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0, 0])
    two = tf.cond(x[1, 0] > 2.0, lambda: x[0], lambda: x[1, 1])
    return tf.reduce_sum(one * two)


def infinite(x):
    """Return a branch whose other one has an infinite derivative."""
    found = tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0, 0] * 0.0 + 1.0)
    return tf.reduce_sum(tf.sqrt(found) / tf.cast(tf.size(found), tf.float32))


FUNCTIONS = [or_zero, found_inside, added, of_three, rank_and_shape, flattened, called, twice, both, infinite]


@pytest.mark.full
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_and_gradients(function):
    graph = tf.function(function, autograph=False)
    own = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape))
    batch = np.stack([X, X / 4, X * 3])
    many = jax.jit(jax.vmap(own))(batch)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(own(x))))
    for i, x in enumerate(batch):
        with tf.GradientTape() as tape:
            variable = tf.constant(x)
            tape.watch(variable)
            expected = graph(variable)
        np.testing.assert_allclose(jax.jit(own)(x), expected, rtol=1e-6)
        np.testing.assert_allclose(many[i], expected, rtol=1e-6)
        np.testing.assert_allclose(gradient(x), np.asarray(tape.gradient(expected, variable)), rtol=1e-5)


def test_numbers_that_each_branch_knows():
    own = jax.jit(tf2jax.convert_functional(tf.function(ranks, autograph=False), tf.TensorSpec(X.shape)))
    assert [int(own(x)) for x in (X, X * 3)] == [0, 2]
    assert own(X).dtype == np.int32


def twice_assigned(v, x):
    found = tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0, 0])
    v.assign(tf.zeros_like(v) + found)
    return tf.reduce_sum(v)


@pytest.mark.full
def test_what_is_assigned():
    """What is stored has one shape where the value that is made of either has."""
    v = tf.Variable(tf.zeros([2, 2]))
    own, params = tf2jax.convert(tf.function(lambda x: twice_assigned(v, x), autograph=False), tf.TensorSpec([2, 2]))
    _, after = jax.jit(own)(params, X)
    np.testing.assert_allclose(next(iter(after.values())), np.ones([2, 2]))


def as_it_is(x):
    return tf.cond(x[0, 0] > 2.0, lambda: x, lambda: x[0, 0])


def carried(x):
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 100.0, lambda y: (y * 2.0,), (as_it_is(x),))[0]


@pytest.mark.full
@pytest.mark.parametrize("function", [as_it_is, carried], ids=lambda f: f.__name__)
def test_refused(function):
    own = jax.jit(tf2jax.convert_functional(tf.function(function, autograph=False), tf.TensorSpec(X.shape)))
    with pytest.raises(tf2jax.errors.LoweringError, match=r"'cond.*' \(StatelessIf\): result 0 differs in shape"):
        own(X)
