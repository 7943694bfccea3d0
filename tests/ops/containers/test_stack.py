"""Stacks against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite import errors

raw = tf.raw_ops
CASES = []
TESTED_OTHERWISE = {"StackCloseV2", "StackPopV2", "StackPushV2", "StackV2"}
X = np.arange(6, dtype=np.float32).reshape(3, 2)


def push_and_pop(x):
    stack = raw.StackV2(max_size=-1, elem_type=tf.float32)
    pushed = [raw.StackPushV2(handle=stack, elem=x[i] * 2.0) for i in range(3)]
    popped = [raw.StackPopV2(handle=stack, elem_type=tf.float32) for _ in range(2)]
    raw.StackCloseV2(handle=stack)
    return pushed, popped


def two_stacks_in_functions(x):
    @tf.function
    def inner(x):
        stack = raw.StackV2(max_size=5, elem_type=tf.float32, stack_name="mine")
        raw.StackPushV2(handle=stack, elem=x)
        raw.StackPushV2(handle=stack, elem=x + 1.0)
        return raw.StackPopV2(handle=stack, elem_type=tf.float32)

    return inner(x), inner(x * 3.0)


@pytest.mark.full
@pytest.mark.parametrize("fn", [push_and_pop, two_stacks_in_functions], ids=lambda f: f.__name__)
def test_against_tensorflow(fn):
    fn = tf.function(fn, autograph=False)
    expected = tf.nest.flatten(fn(X))
    converted = tf2jax.convert(fn, tf.TensorSpec([3, 2]))
    for run in (converted[0], jax.jit(converted[0])):
        actual, params = run(converted[1], X)
        assert not params
        for e, a in zip(expected, jax.tree.leaves(actual), strict=True):
            np.testing.assert_array_equal(a, e)


@pytest.mark.full
def test_empty():
    def fn(x):
        stack = raw.StackV2(max_size=-1, elem_type=tf.float32)
        return raw.StackPopV2(handle=stack, elem_type=tf.float32) + x

    with pytest.raises(errors.LoweringError, match="empty"):
        tf2jax.convert_functional(tf.function(fn, autograph=False), tf.TensorSpec([3, 2]))(X)
