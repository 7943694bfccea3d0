"""A model converted from TensorFlow.

Needs JAX and numpy only; params are a dict of arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["half"]


@jax.custom_jvp
def _softmax(x):
    b = x.shape[0]
    value = lax.reduce_max(x, axes=(1,))
    value_1 = lax.max(jnp.bfloat16(-jnp.inf), value)
    value_2 = lax.broadcast_in_dim(value_1, (b, 1), (0,))
    value_3 = lax.stop_gradient(value_2)
    value_4 = x - value_3
    value_5 = lax.exp(value_4)
    value_6 = lax.convert_element_type(value_5, np.float32)
    value_7 = lax.reduce_sum(value_6, axes=(1,))
    value_8 = lax.broadcast_in_dim(value_7, (b, 1), (0,))
    value_9 = lax.convert_element_type(value_8, jnp.bfloat16)
    value_10 = value_5 / value_9
    return (value_10,)


@_softmax.defjvp
def _softmax_jvp(primals, tangents):
    (x_1,) = primals
    (x_1_dot,) = tangents
    b = x_1.shape[0]
    (value_11,) = _softmax(x_1)
    value_12 = value_11 * x_1_dot
    value_13 = lax.convert_element_type(value_12, np.float32)
    value_14 = lax.reduce_sum(value_13, axes=(1,))
    value_15 = lax.broadcast_in_dim(value_14, (b, 1), (0,))
    value_16 = lax.convert_element_type(value_15, jnp.bfloat16)
    value_17 = x_1_dot - value_16
    value_18 = value_11 * value_17
    return (value_11,), (value_18,)


def half(params, x):
    """TensorFlow function 'half'.

    Args:
      params: dict from variable name to array.
      x: bfloat16[b, 4].

    Returns:
      The results, and params with updated variables.
    """
    x = jnp.asarray(x, jnp.bfloat16)
    weights = params["weights"]  # bf16[4, 4]
    matmul = x @ weights  # bf16[b, 4]
    (softmax,) = _softmax(matmul)
    outputs = softmax
    return outputs, params
