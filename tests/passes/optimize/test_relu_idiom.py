"""A maximum by jax2tf for jax.nn.relu, and no other, has relu's gradient."""

import jax
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax


@pytest.mark.full
@pytest.mark.parametrize(
    ("scope", "option", "expected"),
    [("jax2tf/jit_relu_", True, 0.0), ("jax2tf/jit_relu_", False, 1.0), ("jit_relu_", True, 1.0)],
)
def test_gradient_at_zero(scope, option, expected):
    @tf.function
    def fn(x):
        with tf.name_scope(scope):
            return tf.maximum(x, tf.constant(0.0))

    with tf2jax.override_config("infer_relu_from_jax2tf", option):
        jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([]))
    assert jax_fn(2.0) == 2.0 and jax_fn(-2.0) == 0.0
    assert jax.grad(jax_fn)(0.0) == expected
