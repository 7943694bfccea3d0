"""Gradient functions' custom gradients are traced for second derivatives.

They are traced no further.
"""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite import ir
from tf2jax_lite.frontend.gradients.rewrite import Reach


def _counted(traced):
    """Return a function with gradient 3 for 1, that records requests of it."""

    @tf.custom_gradient
    def inner(x):
        def grad(dy):
            traced.append("inner")
            return 3.0 * dy

        return tf.identity(x), grad

    return inner


def _in_loop(inner, x, **options):
    return tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, inner(x)), (0, x), **options)[1]


# What the gradient function makes of x by way of `inner`, and whether a second derivative gets to it.
CASES = {
    "plain": (lambda inner, x: inner(x * x), True),
    "stopped": (lambda inner, x: tf.stop_gradient(inner(x * x)), False),
    "integers": (lambda inner, x: tf.cast(tf.cast(inner(x * x), tf.int32), tf.float32), False),
    "called": (lambda inner, x: tf.function(inner)(x * x), True),
    "called, stopped": (lambda inner, x: tf.stop_gradient(tf.function(inner)(x * x)), False),
    "in a loop": (lambda inner, x: _in_loop(inner, x * x), True),
    "in a loop without gradients": (lambda inner, x: _in_loop(inner, x * x, back_prop=False), False),
    "in a branch": (lambda inner, x: tf.cond(x[0] > 0, lambda: inner(x * x), lambda: x), True),
    "in a list": (lambda inner, x: tf.TensorArray(tf.float32, 1).write(0, inner(x * x)).stack()[0], True),
}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_second_derivative(name):
    make, expected = CASES[name]
    traced = []
    inner = _counted(traced)

    @tf.custom_gradient
    def outer(x):
        return tf.identity(x), lambda dy: dy * make(inner, x)

    function = tf.function(lambda x: tf.reduce_sum(outer(x)))
    jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([2]))
    assert bool(traced) == expected
    x = tf.constant([1.5, 2.5])
    with tf.GradientTape() as second:
        second.watch(x)
        with tf.GradientTape() as first:
            first.watch(x)
            y = function(x)
        gradient = first.gradient(y, x)
    np.testing.assert_allclose(jax.grad(jax_fn)(x.numpy()), gradient)
    by_tf = second.gradient(gradient, x, unconnected_gradients="zero")
    np.testing.assert_allclose(jax.grad(lambda x: jax.grad(jax_fn)(x).sum())(x.numpy()), by_tf)


@pytest.mark.full
def test_a_straight_through_estimator_is_passed():
    """An op without a derivative has one where the graph overrides it."""

    def node(name, op, source, attrs):
        return ir.Node(name, op, (ir.TensorRef(source),), (None,), (), attrs, output_dtypes=(np.dtype(np.float32),))

    def reached(attrs):
        nodes = (node("a", "IdentityN", "x", {}), node("b", "Sign", "a", attrs))
        reach = Reach()
        reach.add({"f": ir.Function("f", (ir.Argument("x", np.dtype(np.float32)),), nodes, (ir.TensorRef("b"),))})
        reach.ask("f", [ir.TensorRef("b")])
        return reach.reaches("f", "a")

    assert not reached({})
    assert reached({"_gradient_op_type": "Pass"})


@pytest.mark.full
def test_functions_asked_for_before_they_are_known():
    float32 = np.dtype(np.float32)
    call = ir.Node(
        "call",
        "PartitionedCall",
        (ir.TensorRef("x"),),
        (1,),
        (),
        {"f": ir.FunctionRef("g")},
        output_dtypes=(float32,),
    )
    inner = ir.Node("inner", "Neg", (ir.TensorRef("y"),), (None,), (), {}, output_dtypes=(float32,))
    reach = Reach()
    reach.add({"f": ir.Function("f", (ir.Argument("x", float32),), (call,), (ir.TensorRef("call"),))})
    reach.ask("f", [ir.TensorRef("call")])
    assert not reach.reaches("g", "inner")
    reach.add({"g": ir.Function("g", (ir.Argument("y", float32),), (inner,), (ir.TensorRef("inner"),))})
    assert reach.reaches("g", "inner")
