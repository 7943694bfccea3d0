"""A model converted from TensorFlow.

Needs JAX and numpy only; params are a dict of arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["scores", "draw", "half"]


def scores(params, inputs, scale):
    """TensorFlow function 'scores'.

    Args:
      params: dict from variable name to array.
      inputs_ids: int32[b, 2*n].
      inputs_mask: bool[b, n].
      scale: float32[].

    Returns:
      The results, and params with updated variables.
    """
    inputs_ids = inputs["ids"]
    inputs_mask = inputs["mask"]
    inputs_ids = jnp.asarray(inputs_ids, np.int32)
    inputs_mask = jnp.asarray(inputs_mask, np.bool_)
    scale = jnp.asarray(scale, np.float32)
    n = inputs_mask.shape[1]
    b = inputs_ids.shape[0]
    calls = params["calls"]  # i32[]
    assign_add_variable_op = calls + 1  # i32[]
    gather = lax.broadcast_in_dim(inputs_ids, (b, 2 * n, 1), (0, 1))  # i32[b, 2*n, 1]
    table = params["table"]  # f32[6, 4]
    gather_1 = lax.gather(
        table,
        gather,
        dimension_numbers=lax.GatherDimensionNumbers(
            offset_dims=(2,), collapsed_slice_dims=(0,), start_index_map=(0,)
        ),
        slice_sizes=(1, 4),
        mode=lax.GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )  # f32[b, 2*n, 4]
    mul = gather_1 * scale  # f32[b, 2*n, 4]
    reshape = lax.reshape(mul, (b, n, 2, 4))  # f32[b, n, 2, 4]
    mean = lax.reduce_sum(reshape, axes=(2,))  # f32[b, n, 4]
    mean_1 = mean / 2.0  # f32[b, n, 4]
    strided_slice_1 = lax.reshape(inputs_mask, (b, n, 1))  # bool[b, n, 1]
    neg = -mean_1  # f32[b, n, 4]
    select_v2 = lax.broadcast_in_dim(strided_slice_1, (b, n, 4), (0, 1, 2))
    select_v2_1 = lax.select(select_v2, mean_1, neg)  # f32[b, n, 4]
    neg_1 = -select_v2_1  # f32[b, n, 4]
    value = jnp.full((b, 4), 0.0, np.float32)  # f32[b, 4]
    weights = params["weights"]  # f32[4, 4]

    def while_body(carry, xs):
        (carry_1,) = carry
        _, x = xs
        matmul = carry_1 @ weights  # f32[b, 4]
        sum_1 = lax.reduce_sum(neg_1, axes=(1,))  # f32[b, 4]
        cast = lax.convert_element_type(x, np.float32)  # f32[]
        mul_1 = sum_1 * cast  # f32[b, 4]
        add = matmul + mul_1  # f32[b, 4]
        tanh = lax.tanh(add)  # f32[b, 4]
        return (tanh,), None

    (while_1,), _ = lax.scan(
        while_body,
        (value,),
        (np.array([0, 1, 2], np.int32), np.array([0, 1, 2], np.int32)),
        length=3,
    )
    sum_2 = lax.reduce_sum(while_1, axes=(0, 1))  # f32[]
    greater = sum_2 > 0.0  # bool[]
    cond = lax.convert_element_type(greater, np.int32)  # i32[]
    cond_1 = lax.clamp(np.int32(0), cond, np.int32(1))  # i32[]

    def cond_false():
        return (while_1,)

    def cond_true():
        mul_2 = while_1 * 2.0  # f32[b, 4]
        return (mul_2,)

    (cond_2,) = lax.switch(cond_1, [cond_false, cond_true])
    arg_max = jnp.full((b, 4), -3.4028235e38, np.float32)  # f32[b, 4]
    arg_max_1 = cond_2 > arg_max  # bool[b, 4]
    arg_max_2 = lax.select(arg_max_1, cond_2, arg_max)  # f32[b, 4]
    arg_max_3 = lax.stop_gradient(arg_max_2)  # f32[b, 4]
    arg_max_4 = lax.argmax(arg_max_3, 1, np.int32)  # i32[b]
    outputs = {"state": cond_2, "best": (arg_max_4, assign_add_variable_op)}
    return outputs, {**params, "calls": assign_add_variable_op}


def _random_normal(rng, b):
    """TensorFlow scope random_normal."""
    random_standard_normal = jax.random.fold_in(rng, np.uint32(2929458349))  # key[]
    random_standard_normal_1 = jnp.full((1, 1), -0.99999994, np.float32)  # f32[1, 1]
    random_standard_normal_2 = jnp.full((1, 1), 1.0, np.float32)  # f32[1, 1]
    random_standard_normal_3 = jax.random.bits(
        random_standard_normal, (b, 4), np.uint32
    )  # u32[b, 4]
    random_standard_normal_4 = lax.shift_right_logical(
        random_standard_normal_3, np.uint32(9)
    )  # u32[b, 4]
    random_standard_normal_5 = random_standard_normal_4 | 1065353216  # u32[b, 4]
    random_standard_normal_6 = lax.bitcast_convert_type(
        random_standard_normal_5, np.float32
    )  # f32[b, 4]
    random_standard_normal_7 = random_standard_normal_6 - 1.0  # f32[b, 4]
    random_standard_normal_8 = random_standard_normal_2 - random_standard_normal_1
    random_standard_normal_9 = random_standard_normal_7 * random_standard_normal_8
    random_standard_normal_10 = random_standard_normal_9 + random_standard_normal_1
    random_standard_normal_11 = lax.max(
        random_standard_normal_1, random_standard_normal_10
    )  # f32[b, 4]
    random_standard_normal_12 = lax.erf_inv(random_standard_normal_11)  # f32[b, 4]
    random_standard_normal_13 = 1.4142135 * random_standard_normal_12  # f32[b, 4]
    mul = random_standard_normal_13 * 1.0  # f32[b, 4]
    return mul


def draw(params, x, *, rng):
    """TensorFlow function 'draw'.

    Args:
      params: dict from variable name to array.
      x: float32[b, 4].
      rng: a key, as jax.random.key makes it.

    Returns:
      The results, and params with updated variables.
    """
    x = jnp.asarray(x, np.float32)
    b = x.shape[0]
    mul = _random_normal(rng, b)  # f32[b, 4]
    random_normal = mul + 0.0  # f32[b, 4]
    add = x + random_normal  # f32[b, 4]
    random_uniform = jax.random.fold_in(rng, np.uint32(1110911477))  # key[]
    random_uniform_1 = lax.max(np.int32(-2147483648), np.int32(2147483647))  # i32[]
    random_uniform_2 = lax.min(np.int32(2147483647), random_uniform_1)  # i32[]
    random_uniform_3 = 10 > random_uniform_2  # bool[]
    random_uniform_4 = lax.max(np.int32(-2147483648), np.int32(0))  # i32[]
    random_uniform_5 = lax.min(np.int32(2147483647), random_uniform_4)  # i32[]
    random_uniform_6 = lax.max(np.int32(-2147483648), np.int32(10))  # i32[]
    random_uniform_7 = lax.min(np.int32(2147483647), random_uniform_6)  # i32[]
    random_uniform_8 = lax.broadcast_in_dim(random_uniform_5, (1,), ())  # i32[1]
    random_uniform_9 = lax.broadcast_in_dim(random_uniform_7, (1,), ())  # i32[1]
    random_uniform_10 = jax.random.split(random_uniform, (2,))  # key[2]
    random_uniform_11 = lax.slice(random_uniform_10, (0,), (1,), (1,))  # key[1]
    random_uniform_12 = lax.squeeze(random_uniform_11, (0,))  # key[]
    random_uniform_13 = lax.slice(random_uniform_10, (1,), (2,), (1,))  # key[1]
    random_uniform_14 = lax.squeeze(random_uniform_13, (0,))  # key[]
    random_uniform_15 = jax.random.bits(random_uniform_12, (3,), np.uint32)  # u32[3]
    random_uniform_16 = jax.random.bits(random_uniform_14, (3,), np.uint32)  # u32[3]
    random_uniform_17 = random_uniform_9 - random_uniform_8  # i32[1]
    random_uniform_18 = lax.convert_element_type(random_uniform_17, np.uint32)  # u32[1]
    random_uniform_19 = random_uniform_9 <= random_uniform_8  # bool[1]
    random_uniform_20 = jnp.full((1,), 1, np.uint32)  # u32[1]
    random_uniform_21 = lax.select(
        random_uniform_19, random_uniform_20, random_uniform_18
    )  # u32[1]
    random_uniform_22 = random_uniform_9 > random_uniform_8  # bool[1]
    random_uniform_23 = random_uniform_3 & random_uniform_22  # bool[1]
    random_uniform_24 = random_uniform_21 + 1  # u32[1]
    random_uniform_25 = lax.select(
        random_uniform_23, random_uniform_24, random_uniform_21
    )  # u32[1]
    random_uniform_26 = lax.rem(np.uint32(65536), random_uniform_25)  # u32[1]
    random_uniform_27 = random_uniform_26 * random_uniform_26  # u32[1]
    random_uniform_28 = lax.rem(random_uniform_27, random_uniform_25)  # u32[1]
    random_uniform_29 = lax.rem(random_uniform_15, random_uniform_25)  # u32[3]
    random_uniform_30 = random_uniform_29 * random_uniform_28  # u32[3]
    random_uniform_31 = lax.rem(random_uniform_16, random_uniform_25)  # u32[3]
    random_uniform_32 = random_uniform_30 + random_uniform_31  # u32[3]
    random_uniform_33 = lax.rem(random_uniform_32, random_uniform_25)  # u32[3]
    random_uniform_34 = lax.convert_element_type(random_uniform_33, np.int32)  # i32[3]
    random_uniform_35 = random_uniform_8 + random_uniform_34  # i32[3]
    outputs = (add, random_uniform_35)
    return outputs, params


@jax.custom_jvp
def _softmax(x):
    b = x.shape[0]
    value = lax.reduce_max(x, axes=(1,))
    value_1 = lax.max(np.float32(-jnp.inf), value)
    value_2 = lax.broadcast_in_dim(value_1, (b, 1), (0,))
    value_3 = lax.stop_gradient(value_2)
    value_4 = x - value_3
    value_5 = lax.exp(value_4)
    value_6 = lax.reduce_sum(value_5, axes=(1,))
    value_7 = lax.broadcast_in_dim(value_6, (b, 1), (0,))
    value_8 = value_5 / value_7
    return (value_8,)


@_softmax.defjvp
def _softmax_jvp(primals, tangents):
    (x_1,) = primals
    (x_1_dot,) = tangents
    b = x_1.shape[0]
    (value_9,) = _softmax(x_1)
    value_10 = value_9 * x_1_dot
    value_11 = lax.reduce_sum(value_10, axes=(1,))
    value_12 = lax.broadcast_in_dim(value_11, (b, 1), (0,))
    value_13 = x_1_dot - value_12
    value_14 = value_9 * value_13
    return (value_9,), (value_14,)


def half(params, x):
    """TensorFlow function 'half'.

    Args:
      params: dict from variable name to array.
      x: float32[b, 4].

    Returns:
      The results, and params with updated variables.
    """
    x = jnp.asarray(x, np.float32)
    weights = params["weights"]  # f32[4, 4]
    matmul = x @ weights  # f32[b, 4]
    (softmax,) = _softmax(matmul)
    outputs = softmax
    return outputs, params
