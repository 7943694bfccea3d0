"""Optionals against TensorFlow, known while tracing and picked by data, in branches, loops and lists."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

raw = tf.raw_ops
CASES = []
TESTED_OTHERWISE = {"OptionalFromValue", "OptionalGetValue", "OptionalHasValue", "OptionalNone"}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _some(*components):
    return raw.OptionalFromValue(components=list(components))


def _value(optional, *shapes):
    return raw.OptionalGetValue(
        optional=optional, output_types=[tf.float32] * len(shapes), output_shapes=[tf.TensorShape(s) for s in shapes]
    )


def known(x):
    two = _some(x, x[0] * 2.0)
    has = raw.OptionalHasValue(optional=two), raw.OptionalHasValue(optional=raw.OptionalNone())
    return *_value(two, [2, 3], [3]), *has


def picked_by_data(x):
    big = tf.reduce_sum(x) > 10.0
    optional = tf.cond(big, lambda: _some(x, x + 1.0), raw.OptionalNone)
    has = raw.OptionalHasValue(optional=optional)
    return has, tf.cond(has, lambda: _value(optional, [2, 3], [2, 3])[1], lambda: tf.zeros([2, 3]))


def carried_by_a_loop(x):
    # The optional changes from nothing to something inside the loop.
    def body(i, optional):
        return i + 1, tf.cond(tf.reduce_sum(x) > tf.cast(i, tf.float32), lambda: _some(x * 2.0), raw.OptionalNone)

    _, optional = tf.while_loop(lambda i, _: i < 3, body, [0, raw.OptionalNone()])
    return _value(optional, [2, 3])


@pytest.mark.parametrize("fn", [known, picked_by_data, carried_by_a_loop], ids=lambda f: f.__name__)
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_against_tensorflow(fn, factor):
    fn = tf.function(fn)
    x = X * factor
    expected = tf.nest.flatten(fn(x))
    actual = jax.tree.leaves(jax.jit(tf2jax.convert_functional(fn, tf.TensorSpec([2, 3])))(x))
    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(a, e)


def test_nothing_has_no_value():
    def fn():
        return _value(raw.OptionalNone(), [])

    with pytest.raises(ValueError, match="holds none"):
        tf2jax.convert_functional(fn)()
