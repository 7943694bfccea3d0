"""A model converted from TensorFlow.

Needs JAX and numpy only; params are a dict of arrays.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["serving_default"]


def _branch(greater, while_1, b):
    """TensorFlow scope branch."""
    if_1 = lax.convert_element_type(greater, np.int32)  # i32[]
    if_2 = lax.clamp(np.int32(0), if_1, np.int32(1))  # i32[]

    def if_false():
        sub = jnp.full((b, 3), 1.0, np.float32)  # f32[b, 3]
        sub_1 = while_1 - sub  # f32[b, 3]
        return (sub_1,)

    def if_true():
        add = jnp.full((b, 3), 1.0, np.float32)  # f32[b, 3]
        add_1 = while_1 + add  # f32[b, 3]
        return (add_1,)

    (if_3,) = lax.switch(if_2, [if_false, if_true])
    return if_3


def serving_default(params, x):
    """TensorFlow function 'serving_default'.

    Args:
      params: dict from variable name to array.
      x: float32[b, 3].

    Returns:
      The results, and params with updated variables.
    """
    x = jnp.asarray(x, np.float32)
    b = x.shape[0]
    w = params["w"]  # f32[3, 3]

    def while_body(carry, xs):
        (carry_1,) = carry
        _, _ = xs
        mat_mul = carry_1 @ w  # f32[b, 3]
        tanh = lax.tanh(mat_mul)  # f32[b, 3]
        return (tanh,), None

    (while_1,), _ = lax.scan(
        while_body,
        (x,),
        (np.array([0, 1, 2], np.int32), np.array([0, 1, 2], np.int32)),
        length=3,
    )
    sum_1 = lax.reduce_sum(while_1, axes=(0, 1))  # f32[]
    greater = sum_1 > 0.0  # bool[]
    if_1 = _branch(greater, while_1, b)  # f32[b, 3]
    outputs = {"y": if_1}
    return outputs, params
