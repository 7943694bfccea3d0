"""Plans: the parts of a step that depend on its op alone."""

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax


def test_variadic_inputs_are_traced():
    """Inputs of a user's op with ``*inputs`` have no names, so none is static."""
    with tf2jax.override_op("Sum", lambda *inputs, keep_dims=False: inputs[0] + inputs[1][0]):
        fn = tf2jax.convert_functional(
            tf.function(lambda x, axis: tf.reduce_sum(x, axis)), tf.TensorSpec([2]), tf.TensorSpec([1], tf.int32)
        )
        np.testing.assert_array_equal(jax.jit(fn)(jnp.ones(2), jnp.array([3])), [4, 4])
