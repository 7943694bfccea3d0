"""Assertions."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import checkify

import tf2jax_lite as tf2jax

CASES = []
TESTED_OTHERWISE = {"Assert"}


def fn(x):
    tf.debugging.Assert(tf.reduce_all(x > 0), ["not positive", x])
    return x + 1.0


SPEC = tf.TensorSpec([2])
GOOD, BAD = np.ones(2, np.float32), -np.ones(2, np.float32)


def test_traced_assertions_are_no_checks_by_default():
    jax_fn = tf2jax.convert_functional(fn, SPEC)
    np.testing.assert_array_equal(jax.jit(jax_fn)(BAD), 0)


def test_checkify():
    with tf2jax.override_config("enable_checkify_for_asserts", True):
        jax_fn = tf2jax.convert_functional(fn, SPEC)
    checked = jax.jit(checkify.checkify(jax_fn))
    error, out = checked(GOOD)
    error.throw()
    np.testing.assert_array_equal(out, 2)
    error, _ = checked(BAD)
    with pytest.raises(checkify.JaxRuntimeError, match="not positive"):
        error.throw()


def test_statically_false():
    def with_shape(x):
        tf.debugging.Assert(tf.shape(x)[0] > 2, ["too short"])
        return x

    jax_fn = tf2jax.convert_functional(with_shape, tf.TensorSpec([None]))
    with pytest.raises(ValueError, match="too short"):
        jax.jit(jax_fn)(GOOD)
    assert jax.jit(jax_fn)(np.ones(3, np.float32)).shape == (3,)
