"""Stack resources become TensorLists: plain, in calls, and in loops."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import UnsupportedError
from tf2jax_lite.pipeline.convert import graph_of

raw = tf.raw_ops
SPEC = tf.TensorSpec([2], tf.float32)
X = np.float32([0.5, -2.0])


def push(stack, value):
    return raw.StackPushV2(handle=stack, elem=value)


def pop(stack):
    return raw.StackPopV2(handle=stack, elem_type=tf.float32)


def in_order(x):
    stack = raw.StackV2(max_size=-1, elem_type=tf.float32)
    first, second = push(stack, x), push(stack, x * 3.0)
    return first + second, pop(stack), pop(stack)


def filled_in_a_call(x):
    stack = raw.StackV2(max_size=-1, elem_type=tf.float32)

    @tf.function(autograph=False)
    def fill(x):
        push(stack, x + 1.0)
        return push(stack, x * x)

    total = fill(x)
    return total + pop(stack), pop(stack)


@pytest.mark.full
@pytest.mark.parametrize("fn", [in_order, filled_in_a_call], ids=lambda fn: fn.__name__)
def test_stacks_to_lists_keeps_values(fn):
    function = tf.function(fn, autograph=False)
    converted = tf2jax.convert_functional(function, SPEC)
    assert not [node.op for _, node in graph_of(converted).walk() if node.op.startswith("Stack")]
    for run in (converted, jax.jit(converted)):
        for actual, expected in zip(run(X), function(X), strict=True):
            np.testing.assert_allclose(actual, expected)


@pytest.mark.full
def test_stacks_to_lists_with_one_stack_as_two_arguments_raises():
    @tf.function(autograph=False)
    def both(one, other, x):
        push(one, x)
        return push(other, x)

    def fn(x):
        stack = raw.StackV2(max_size=-1, elem_type=tf.float32)
        return both(stack, stack, x)

    with pytest.raises(UnsupportedError, match="one stack as two inputs"):
        tf2jax.convert_functional(tf.function(fn, autograph=False), SPEC)
