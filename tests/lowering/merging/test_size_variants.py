"""Branches of other sizes, and counts as sizes, under unbounded jit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tf2jax_lite.errors import Tf2JaxError

X = np.arange(1, 13.0).reshape(3, 4).astype(np.float32)
MASKS = [
    np.array([[True, False, True, True], [False, False, True, False], [False] * 4]),
    np.array([[False, True, True, False], [True] * 4, [False, True, False, True]]),
    np.zeros((3, 4), bool),
    np.ones((3, 4), bool),
]


def count(mask, axis=None):
    return tf.reduce_sum(tf.cast(mask, tf.int32), axis=axis)


def hard_negatives(x, m):
    """Return the three worst negatives per positive, for detector training."""
    positive = m[0]
    loss = tf.square(x[1] - 7)
    negatives = tf.where(positive, 0.0, loss)
    taken = tf.minimum(3 * count(positive), tf.size(negatives) - count(positive))
    return tf.reduce_sum(tf.math.top_k(negatives, taken).values) + tf.reduce_sum(tf.boolean_mask(loss, positive))


def global_attention(x, m):
    """Return Longformer's attention: as many columns as the longest row's."""
    counts = count(m, axis=1)
    most = tf.reduce_max(counts)
    any_ = most > 0
    where = tf.where(m)
    inside = tf.where(tf.range(most) < counts[:, None])

    def with_columns():
        return tf.concat([tf.scatter_nd(inside, tf.gather_nd(x, where), [3, most]), x], 1)

    scores = tf.nn.softmax(tf.cond(any_, with_columns, lambda: x))
    return tf.reduce_sum(
        tf.cond(any_, lambda: scores[:, most:] * x + tf.reduce_sum(scores[:, :most]), lambda: scores * x)
    )


def picked_twice(x, m):
    """In the second branch by a predicate, the size that the first gave is known."""
    first = m[0, 0]
    y = tf.cond(first, lambda: x[:, 1:3], lambda: x)
    return tf.reduce_sum(tf.cond(first, lambda: y * x[:, :2], lambda: tf.reshape(y, [4, 3]) * 2))


BRANCHES = {
    "of known sizes": lambda x, m: tf.reduce_sum(tf.cond(m[0, 0], lambda: x[:1], lambda: x[:2]) ** 2),
    "softmax": lambda x, m: tf.reduce_sum(tf.nn.softmax(tf.cond(m[0, 0], lambda: x[0] / 9, lambda: x[0, :2] / 5)) ** 2),
    "of a size found inside": lambda x, m: tf.reduce_mean(
        tf.cond(m[0, 0], lambda: tf.concat([x, tf.boolean_mask(x, m[:, 0])], 0), lambda: x)
    ),
    "along another axis": lambda x, m: tf.reduce_sum(tf.sin(tf.cond(m[0, 0], lambda: tf.concat([x, x], 1), lambda: x))),
    "three": lambda x, m: tf.reduce_mean(
        tf.switch_case(count(m[:2, 0]), [lambda: x[0], lambda: x[0, :3], lambda: x[0, 1:2]])
    ),
    "that meet": lambda x, m: (lambda a, b: tf.reduce_sum(a * b))(
        *tf.cond(m[0, 0], lambda: (x[0], x[1]), lambda: (x[0, :2], x[2, 2:]))
    ),
    "asked for": lambda x, m: (
        x[0, 0] + tf.cast(tf.shape(tf.cond(m[0, 0], lambda: x[:1], lambda: x[:2]))[0], tf.float32)
    ),
    "picked twice": picked_twice,
    "global attention": global_attention,
}
COUNTS = {
    "range": lambda x, m: tf.reduce_sum(tf.cast(tf.range(tf.reduce_max(count(m, 1))), tf.float32)) * x[0, 0],
    "ones": lambda x, m: tf.reduce_sum(tf.ones([count(m), 3]) * x[0, 0]),
    "sequence mask": lambda x, m: tf.reduce_sum(tf.cast(tf.sequence_mask(count(m, 1)), tf.float32)) * x[0, 0],
    "positions": lambda x, m: tf.reduce_sum(x[0, : tf.argmax(x[1] * tf.cast(m[1], tf.float32)) + 1]),
    "part": lambda x, m: tf.reduce_sum(
        tf.sort(tf.reshape(x, [-1]))[: tf.cast(0.5 * tf.cast(count(m), tf.float32), tf.int32)]
    ),
    "repeat": lambda x, m: tf.reduce_sum(tf.repeat(x[:, 0], count(m, 1)) ** 2),
    "segments": lambda x, m: tf.reduce_max(
        tf.math.unsorted_segment_sum(x[0], tf.cumsum(tf.cast(m[0], tf.int32)), count(m[0]) + 1)
    ),
    "one hot": lambda x, m: tf.reduce_mean(tf.one_hot(tf.argmax(x, 1), count(m[0]) + 1)) * x[0, 0],
    "fold": lambda x, m: tf.foldl(lambda a, i: a * x[0, i] + 1, tf.range(count(m[0])), initializer=x[1, 1]),
    "hard negatives": hard_negatives,
}


@pytest.mark.default_cases("picked twice", "hard negatives")
@pytest.mark.parametrize("name", [*BRANCHES, *COUNTS])
def test_values_gradients_and_batches(name):
    function = tf.function({**BRANCHES, **COUNTS}[name])
    converted = tf2jax.convert_functional(function, tf.TensorSpec([3, 4]), tf.TensorSpec([3, 4], tf.bool))
    both = jax.jit(jax.value_and_grad(converted), compiler_options=fast_options())
    expected = []
    for mask in MASKS:
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x, tf.constant(mask))
        gradient = tf.convert_to_tensor(tape.gradient(value, x, unconnected_gradients="zero")).numpy()
        expected.append(value.numpy())
        own_value, own_gradient = both(X, mask)
        np.testing.assert_allclose(own_value, value.numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(own_gradient, gradient, rtol=1e-4, atol=1e-5)
    mapped = jax.jit(jax.vmap(converted, in_axes=(None, 0)), compiler_options=fast_options())
    np.testing.assert_allclose(mapped(X, np.stack(MASKS)), expected, rtol=1e-5, atol=1e-5)


REFUSED = {
    "a result": (lambda x, m: tf.cond(m[0, 0], lambda: x[:1], lambda: x[:2]), "differs in shape or dtype"),
    "another rank": (
        lambda x, m: tf.cond(m[0, 0], lambda: x[0], lambda: x),
        "differs in shape or dtype",
    ),
    "what nothing limits": (
        lambda x, m: tf.reduce_sum(tf.range(tf.cast(x[0, 0], tf.int32))),
        "must be known while tracing",
    ),
}


@pytest.mark.default_cases("a result")
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, message = REFUSED[name]
    converted = tf2jax.convert_functional(tf.function(function), tf.TensorSpec([3, 4]), tf.TensorSpec([3, 4], tf.bool))
    with pytest.raises(Tf2JaxError, match=message):
        jax.jit(converted)(X, MASKS[0])


@pytest.mark.full
def test_results_are_padded_with_a_bound():
    with tf2jax.override_config("dynamic_shape_bound", 3):
        converted = tf2jax.convert_functional(
            tf.function(lambda x, m: tf.cond(m[0, 0], lambda: x[:1], lambda: x[:2])),
            *(tf.TensorSpec([3, 4], dtype) for dtype in (tf.float32, tf.bool)),
        )
    found = np.asarray(jax.jit(converted)(X, MASKS[1]))
    np.testing.assert_array_equal(found[:2], X[:2])
