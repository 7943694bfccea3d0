"""model.keras, converted from TensorFlow.

Needs JAX and numpy only; params are a dict of arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["serving_default", "train"]


@jax.custom_jvp
def _relu(x):
    value = lax.max(x, np.float32(0.0))
    return (value,)


@_relu.defjvp
def _relu_jvp(primals, tangents):
    (x_1,) = primals
    (x_1_dot,) = tangents
    (value_1,) = _relu(x_1)
    value_2 = x_1 > 0.0
    value_3 = jnp.full(x_1.shape, 0.0, np.float32)
    value_4 = lax.select(value_2, x_1_dot, value_3)
    return (value_1,), (value_4,)


def _hidden_1(params, inputs, b):
    """TensorFlow scope hidden_1."""
    kernel = params["hidden/kernel"]  # f32[4, 5]
    bias = params["hidden/bias"]  # f32[5]
    mat_mul = inputs @ kernel  # f32[b, 5]
    bias_add = lax.broadcast_in_dim(bias, (b, 5), (1,))  # f32[b, 5]
    bias_add_1 = mat_mul + bias_add  # f32[b, 5]
    (relu,) = _relu(bias_add_1)
    return relu


@jax.custom_jvp
def _rsqrt(x):
    value = lax.rsqrt(x)
    return (value,)


@_rsqrt.defjvp
def _rsqrt_jvp(primals, tangents):
    (x_1,) = primals
    (x_1_dot,) = tangents
    (value_1,) = _rsqrt(x_1)
    value_2 = -0.5 * value_1
    value_3 = value_2 * value_1
    value_4 = value_3 * value_1
    value_5 = lax.mul(x_1_dot, value_4)
    return (value_1,), (value_5,)


def _batch_normalization_1(params, relu, b):
    """TensorFlow scope batch_normalization_1."""
    moving_variance = params["batch_normalization/moving_variance"]  # f32[5]
    gamma = params["batch_normalization/gamma"]  # f32[5]
    moving_mean = params["batch_normalization/moving_mean"]  # f32[5]
    beta = params["batch_normalization/beta"]  # f32[5]
    add = moving_variance + 0.001  # f32[5]
    (rsqrt,) = _rsqrt(add)
    mul = rsqrt * gamma  # f32[5]
    mul_1 = lax.broadcast_in_dim(mul, (b, 5), (1,))  # f32[b, 5]
    mul_1_1 = relu * mul_1  # f32[b, 5]
    mul_2 = moving_mean * mul  # f32[5]
    sub = beta - mul_2  # f32[5]
    add_1 = lax.broadcast_in_dim(sub, (b, 5), (1,))  # f32[b, 5]
    add_1_1 = mul_1_1 + add_1  # f32[b, 5]
    return add_1_1


def _head_1(params, add_1, b):
    """TensorFlow scope head_1."""
    kernel = params["head/kernel"]  # f32[5, 3]
    bias = params["head/bias"]  # f32[3]
    mat_mul = add_1 @ kernel  # f32[b, 3]
    bias_add = lax.broadcast_in_dim(bias, (b, 3), (1,))  # f32[b, 3]
    bias_add_1 = mat_mul + bias_add  # f32[b, 3]
    return bias_add_1


def serving_default(params, inputs):
    """TensorFlow function 'serving_default'.

    Args:
      params: dict from variable name to array.
      inputs: float32[b, 4].

    Returns:
      The results, and params with updated variables.
    """
    inputs = jnp.asarray(inputs, np.float32)
    b = inputs.shape[0]
    relu = _hidden_1(params, inputs, b)  # f32[b, 5]
    add_1 = _batch_normalization_1(params, relu, b)  # f32[b, 5]
    bias_add = _head_1(params, add_1, b)  # f32[b, 3]
    outputs = bias_add
    return outputs, params


def _batch_normalization_1_1(params, relu, b):
    """TensorFlow scope batch_normalization_1."""
    moving_mean = params["batch_normalization/moving_mean"]  # f32[5]
    moving_variance = params["batch_normalization/moving_variance"]  # f32[5]
    gamma = params["batch_normalization/gamma"]  # f32[5]
    beta = params["batch_normalization/beta"]  # f32[5]
    mean = lax.reduce_sum(relu, axes=(0,))  # f32[5]
    mean_1 = jnp.asarray(b, np.int32)  # i32[]
    mean_2 = lax.convert_element_type(mean_1, np.float32)  # f32[]
    mean_3 = mean / mean_2  # f32[5]
    mean_4 = lax.broadcast_in_dim(mean_3, (1, 5), (1,))  # f32[1, 5]
    stop_gradient = lax.stop_gradient(mean_4)  # f32[1, 5]
    squared_difference = relu - stop_gradient  # f32[b, 5]
    squared_difference_1 = lax.square(squared_difference)  # f32[b, 5]
    variance = lax.reduce_sum(squared_difference_1, axes=(0,))  # f32[5]
    variance_1 = jnp.asarray(b, np.int32)  # i32[]
    variance_2 = lax.convert_element_type(variance_1, np.float32)  # f32[]
    variance_3 = variance / variance_2  # f32[5]
    variance_4 = lax.broadcast_in_dim(variance_3, (1, 5), (1,))  # f32[1, 5]
    squeeze = lax.squeeze(mean_4, (0,))  # f32[5]
    squeeze_1 = lax.squeeze(variance_4, (0,))  # f32[5]
    mul = moving_mean * 0.99  # f32[5]
    mul_1 = squeeze * 0.01  # f32[5]
    add = mul + mul_1  # f32[5]
    mul_2 = moving_variance * 0.99  # f32[5]
    mul_3 = squeeze_1 * 0.01  # f32[5]
    add_1 = mul_2 + mul_3  # f32[5]
    add_2 = squeeze_1 + 0.001  # f32[5]
    (rsqrt,) = _rsqrt(add_2)
    mul_4 = rsqrt * gamma  # f32[5]
    mul_1_1 = lax.broadcast_in_dim(mul_4, (b, 5), (1,))  # f32[b, 5]
    mul_1_2 = relu * mul_1_1  # f32[b, 5]
    mul_2_1 = squeeze * mul_4  # f32[5]
    sub = beta - mul_2_1  # f32[5]
    add_1_1 = lax.broadcast_in_dim(sub, (b, 5), (1,))  # f32[b, 5]
    add_1_2 = mul_1_2 + add_1_1  # f32[b, 5]
    return add, add_1, add_1_2


def _dropout_1(params, add_1_1, b):
    """TensorFlow scope dropout_1."""
    seed_generator_state = params["seed_generator_1/seed_generator_state"]  # i32[2]
    mul = seed_generator_state * 1  # i32[2]
    add = seed_generator_state + np.array([0, 1], np.int32)  # i32[2]
    floor_mod = jnp.full((2,), 2147483646, np.int32)  # i32[2]
    floor_mod_1 = floor_mod == 0  # bool[2]
    floor_mod_2 = jnp.full((2,), 1, np.int32)  # i32[2]
    floor_mod_3 = lax.select(floor_mod_1, floor_mod_2, floor_mod)  # i32[2]
    floor_mod_4 = lax.rem(mul, floor_mod_3)  # i32[2]
    floor_mod_5 = floor_mod_4 != 0  # bool[2]
    floor_mod_6 = floor_mod_4 < 0  # bool[2]
    floor_mod_7 = floor_mod_3 < 0  # bool[2]
    floor_mod_8 = floor_mod_6 != floor_mod_7  # bool[2]
    floor_mod_9 = floor_mod_8 & floor_mod_5  # bool[2]
    floor_mod_10 = floor_mod_4 + floor_mod_3  # i32[2]
    floor_mod_11 = lax.select(floor_mod_9, floor_mod_10, floor_mod_4)  # i32[2]
    mul_1 = add_1_1 * 1.25  # f32[b, 5]
    stateless_random_get_key_cou = lax.shift_right_arithmetic(
        floor_mod_11, np.int32(31)
    )  # i32[2]
    stateless_random_get_key_cou_1 = lax.convert_element_type(
        stateless_random_get_key_cou, np.uint32
    )  # u32[2]
    stateless_random_get_key_cou_2 = lax.convert_element_type(floor_mod_11, np.uint32)
    stateless_random_get_key_cou_3 = jnp.stack(
        [stateless_random_get_key_cou_2, stateless_random_get_key_cou_1], axis=1
    )  # u32[2, 2]
    stateless_random_get_key_cou_4 = lax.slice(
        stateless_random_get_key_cou_3, (0, 0), (1, 1)
    )  # u32[1, 1]
    stateless_random_get_key_cou_5 = lax.squeeze(stateless_random_get_key_cou_4, (0, 1))
    stateless_random_get_key_cou_6 = lax.slice(
        stateless_random_get_key_cou_3, (0, 1), (1, 2)
    )  # u32[1, 1]
    stateless_random_get_key_cou_7 = lax.squeeze(stateless_random_get_key_cou_6, (0, 1))
    stateless_random_get_key_cou_8 = lax.slice(
        stateless_random_get_key_cou_3, (1, 0), (2, 1)
    )  # u32[1, 1]
    stateless_random_get_key_cou_9 = lax.squeeze(stateless_random_get_key_cou_8, (0, 1))
    stateless_random_get_key_cou_10 = lax.slice(
        stateless_random_get_key_cou_3, (1, 1), (2, 2)
    )  # u32[1, 1]
    stateless_random_get_key_cou_11 = lax.squeeze(
        stateless_random_get_key_cou_10, (0, 1)
    )  # u32[]
    stateless_random_get_key_cou_12 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_5
    )  # u32[]
    stateless_random_get_key_cou_13 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_5
    )  # u32[]
    stateless_random_get_key_cou_14 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_9
    )  # u32[]
    stateless_random_get_key_cou_15 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_9
    )  # u32[]
    stateless_random_get_key_cou_16 = (
        stateless_random_get_key_cou_15 ^ stateless_random_get_key_cou_7
    )  # u32[]
    stateless_random_get_key_cou_17 = stateless_random_get_key_cou_16 ^ 1053357856
    stateless_random_get_key_cou_18 = (
        stateless_random_get_key_cou_13 ^ stateless_random_get_key_cou_11
    )  # u32[]
    stateless_random_get_key_cou_19 = stateless_random_get_key_cou_18 ^ 38149673
    stateless_random_get_key_cou_20 = jnp.asarray(1053357856) + np.uint32(2654435769)
    stateless_random_get_key_cou_21 = jnp.asarray(38149673) + np.uint32(3144134277)
    stateless_random_get_key_cou_22 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_17
    )  # u32[]
    stateless_random_get_key_cou_23 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_17
    )  # u32[]
    stateless_random_get_key_cou_24 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_19
    )  # u32[]
    stateless_random_get_key_cou_25 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_19
    )  # u32[]
    stateless_random_get_key_cou_26 = (
        stateless_random_get_key_cou_25 ^ stateless_random_get_key_cou_14
    )  # u32[]
    stateless_random_get_key_cou_27 = (
        stateless_random_get_key_cou_26 ^ stateless_random_get_key_cou_20
    )  # u32[]
    stateless_random_get_key_cou_28 = (
        stateless_random_get_key_cou_23 ^ stateless_random_get_key_cou_12
    )  # u32[]
    stateless_random_get_key_cou_29 = (
        stateless_random_get_key_cou_28 ^ stateless_random_get_key_cou_21
    )  # u32[]
    stateless_random_get_key_cou_30 = stateless_random_get_key_cou_20 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_31 = stateless_random_get_key_cou_21 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_32 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_27
    )  # u32[]
    stateless_random_get_key_cou_33 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_27
    )  # u32[]
    stateless_random_get_key_cou_34 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_29
    )  # u32[]
    stateless_random_get_key_cou_35 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_29
    )  # u32[]
    stateless_random_get_key_cou_36 = (
        stateless_random_get_key_cou_35 ^ stateless_random_get_key_cou_24
    )  # u32[]
    stateless_random_get_key_cou_37 = (
        stateless_random_get_key_cou_36 ^ stateless_random_get_key_cou_30
    )  # u32[]
    stateless_random_get_key_cou_38 = (
        stateless_random_get_key_cou_33 ^ stateless_random_get_key_cou_22
    )  # u32[]
    stateless_random_get_key_cou_39 = (
        stateless_random_get_key_cou_38 ^ stateless_random_get_key_cou_31
    )  # u32[]
    stateless_random_get_key_cou_40 = stateless_random_get_key_cou_30 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_41 = stateless_random_get_key_cou_31 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_42 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_37
    )  # u32[]
    stateless_random_get_key_cou_43 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_37
    )  # u32[]
    stateless_random_get_key_cou_44 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_39
    )  # u32[]
    stateless_random_get_key_cou_45 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_39
    )  # u32[]
    stateless_random_get_key_cou_46 = (
        stateless_random_get_key_cou_45 ^ stateless_random_get_key_cou_34
    )  # u32[]
    stateless_random_get_key_cou_47 = (
        stateless_random_get_key_cou_46 ^ stateless_random_get_key_cou_40
    )  # u32[]
    stateless_random_get_key_cou_48 = (
        stateless_random_get_key_cou_43 ^ stateless_random_get_key_cou_32
    )  # u32[]
    stateless_random_get_key_cou_49 = (
        stateless_random_get_key_cou_48 ^ stateless_random_get_key_cou_41
    )  # u32[]
    stateless_random_get_key_cou_50 = stateless_random_get_key_cou_40 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_51 = stateless_random_get_key_cou_41 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_52 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_47
    )  # u32[]
    stateless_random_get_key_cou_53 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_47
    )  # u32[]
    stateless_random_get_key_cou_54 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_49
    )  # u32[]
    stateless_random_get_key_cou_55 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_49
    )  # u32[]
    stateless_random_get_key_cou_56 = (
        stateless_random_get_key_cou_55 ^ stateless_random_get_key_cou_44
    )  # u32[]
    stateless_random_get_key_cou_57 = (
        stateless_random_get_key_cou_56 ^ stateless_random_get_key_cou_50
    )  # u32[]
    stateless_random_get_key_cou_58 = (
        stateless_random_get_key_cou_53 ^ stateless_random_get_key_cou_42
    )  # u32[]
    stateless_random_get_key_cou_59 = (
        stateless_random_get_key_cou_58 ^ stateless_random_get_key_cou_51
    )  # u32[]
    stateless_random_get_key_cou_60 = stateless_random_get_key_cou_50 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_61 = stateless_random_get_key_cou_51 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_62 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_57
    )  # u32[]
    stateless_random_get_key_cou_63 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_57
    )  # u32[]
    stateless_random_get_key_cou_64 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_59
    )  # u32[]
    stateless_random_get_key_cou_65 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_59
    )  # u32[]
    stateless_random_get_key_cou_66 = (
        stateless_random_get_key_cou_65 ^ stateless_random_get_key_cou_54
    )  # u32[]
    stateless_random_get_key_cou_67 = (
        stateless_random_get_key_cou_66 ^ stateless_random_get_key_cou_60
    )  # u32[]
    stateless_random_get_key_cou_68 = (
        stateless_random_get_key_cou_63 ^ stateless_random_get_key_cou_52
    )  # u32[]
    stateless_random_get_key_cou_69 = (
        stateless_random_get_key_cou_68 ^ stateless_random_get_key_cou_61
    )  # u32[]
    stateless_random_get_key_cou_70 = stateless_random_get_key_cou_60 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_71 = stateless_random_get_key_cou_61 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_72 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_67
    )  # u32[]
    stateless_random_get_key_cou_73 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_67
    )  # u32[]
    stateless_random_get_key_cou_74 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_69
    )  # u32[]
    stateless_random_get_key_cou_75 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_69
    )  # u32[]
    stateless_random_get_key_cou_76 = (
        stateless_random_get_key_cou_75 ^ stateless_random_get_key_cou_64
    )  # u32[]
    stateless_random_get_key_cou_77 = (
        stateless_random_get_key_cou_76 ^ stateless_random_get_key_cou_70
    )  # u32[]
    stateless_random_get_key_cou_78 = (
        stateless_random_get_key_cou_73 ^ stateless_random_get_key_cou_62
    )  # u32[]
    stateless_random_get_key_cou_79 = (
        stateless_random_get_key_cou_78 ^ stateless_random_get_key_cou_71
    )  # u32[]
    stateless_random_get_key_cou_80 = stateless_random_get_key_cou_70 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_81 = stateless_random_get_key_cou_71 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_82 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_77
    )  # u32[]
    stateless_random_get_key_cou_83 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_77
    )  # u32[]
    stateless_random_get_key_cou_84 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_79
    )  # u32[]
    stateless_random_get_key_cou_85 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_79
    )  # u32[]
    stateless_random_get_key_cou_86 = (
        stateless_random_get_key_cou_85 ^ stateless_random_get_key_cou_74
    )  # u32[]
    stateless_random_get_key_cou_87 = (
        stateless_random_get_key_cou_86 ^ stateless_random_get_key_cou_80
    )  # u32[]
    stateless_random_get_key_cou_88 = (
        stateless_random_get_key_cou_83 ^ stateless_random_get_key_cou_72
    )  # u32[]
    stateless_random_get_key_cou_89 = (
        stateless_random_get_key_cou_88 ^ stateless_random_get_key_cou_81
    )  # u32[]
    stateless_random_get_key_cou_90 = stateless_random_get_key_cou_80 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_91 = stateless_random_get_key_cou_81 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_92 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_87
    )  # u32[]
    stateless_random_get_key_cou_93 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_87
    )  # u32[]
    stateless_random_get_key_cou_94 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_89
    )  # u32[]
    stateless_random_get_key_cou_95 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_89
    )  # u32[]
    stateless_random_get_key_cou_96 = (
        stateless_random_get_key_cou_95 ^ stateless_random_get_key_cou_84
    )  # u32[]
    stateless_random_get_key_cou_97 = (
        stateless_random_get_key_cou_96 ^ stateless_random_get_key_cou_90
    )  # u32[]
    stateless_random_get_key_cou_98 = (
        stateless_random_get_key_cou_93 ^ stateless_random_get_key_cou_82
    )  # u32[]
    stateless_random_get_key_cou_99 = (
        stateless_random_get_key_cou_98 ^ stateless_random_get_key_cou_91
    )  # u32[]
    stateless_random_get_key_cou_100 = stateless_random_get_key_cou_90 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_101 = stateless_random_get_key_cou_91 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_102 = (
        np.uint32(3528531795) * stateless_random_get_key_cou_97
    )  # u32[]
    stateless_random_get_key_cou_103 = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou_97
    )  # u32[]
    stateless_random_get_key_cou_104 = (
        np.uint32(3449720151) * stateless_random_get_key_cou_99
    )  # u32[]
    stateless_random_get_key_cou_105 = lax.mulhi(
        np.uint32(3449720151), stateless_random_get_key_cou_99
    )  # u32[]
    stateless_random_get_key_cou_106 = (
        stateless_random_get_key_cou_105 ^ stateless_random_get_key_cou_94
    )  # u32[]
    stateless_random_get_key_cou_107 = (
        stateless_random_get_key_cou_106 ^ stateless_random_get_key_cou_100
    )  # u32[]
    stateless_random_get_key_cou_108 = (
        stateless_random_get_key_cou_103 ^ stateless_random_get_key_cou_92
    )  # u32[]
    stateless_random_get_key_cou_109 = (
        stateless_random_get_key_cou_108 ^ stateless_random_get_key_cou_101
    )  # u32[]
    stateless_random_get_key_cou_110 = jnp.stack(
        [stateless_random_get_key_cou_107, stateless_random_get_key_cou_104], axis=0
    )  # u32[2]
    stateless_random_get_key_cou_111 = jnp.stack(
        [
            np.uint32(0),
            np.uint32(0),
            stateless_random_get_key_cou_109,
            stateless_random_get_key_cou_102,
        ],
        axis=0,
    )  # u32[4]
    stateless_random_get_key_cou_112 = lax.reshape(
        stateless_random_get_key_cou_110, (1, 2)
    )  # u32[1, 2]
    stateless_random_get_key_cou_113 = lax.reshape(
        stateless_random_get_key_cou_111, (2, 2)
    )  # u32[2, 2]
    stateless_random_uniform_v2 = lax.reshape(stateless_random_get_key_cou_112, (2,))
    stateless_random_uniform_v2_1 = lax.reshape(stateless_random_get_key_cou_113, (4,))
    stateless_random_uniform_v2_2 = lax.broadcasted_iota(
        np.uint32, (-(-5 * b // 4), 4), 0
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_3 = lax.broadcasted_iota(
        np.uint32, (-(-5 * b // 4), 4), 1
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_4 = lax.slice(stateless_random_uniform_v2_1, (0,), (1,))
    stateless_random_uniform_v2_5 = lax.squeeze(stateless_random_uniform_v2_4, (0,))
    stateless_random_uniform_v2_6 = (
        stateless_random_uniform_v2_5 + stateless_random_uniform_v2_2
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_7 = (
        stateless_random_uniform_v2_6 < stateless_random_uniform_v2_2
    )  # bool[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_8 = lax.convert_element_type(
        stateless_random_uniform_v2_7, np.uint32
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_9 = 0 + stateless_random_uniform_v2_8
    stateless_random_uniform_v2_10 = lax.slice(
        stateless_random_uniform_v2_1, (1,), (2,)
    )  # u32[1]
    stateless_random_uniform_v2_11 = lax.squeeze(stateless_random_uniform_v2_10, (0,))
    stateless_random_uniform_v2_12 = (
        stateless_random_uniform_v2_11 + stateless_random_uniform_v2_9
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_13 = (
        stateless_random_uniform_v2_12 < stateless_random_uniform_v2_9
    )  # bool[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_14 = lax.convert_element_type(
        stateless_random_uniform_v2_13, np.uint32
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_15 = lax.slice(
        stateless_random_uniform_v2_1, (2,), (3,)
    )  # u32[1]
    stateless_random_uniform_v2_16 = lax.squeeze(stateless_random_uniform_v2_15, (0,))
    stateless_random_uniform_v2_17 = (
        stateless_random_uniform_v2_16 + stateless_random_uniform_v2_14
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_18 = lax.slice(
        stateless_random_uniform_v2_1, (3,), (4,)
    )  # u32[1]
    stateless_random_uniform_v2_19 = lax.squeeze(stateless_random_uniform_v2_18, (0,))
    stateless_random_uniform_v2_20 = (
        stateless_random_uniform_v2_17 < stateless_random_uniform_v2_14
    )  # bool[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_21 = lax.convert_element_type(
        stateless_random_uniform_v2_20, np.uint32
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_22 = (
        stateless_random_uniform_v2_19 + stateless_random_uniform_v2_21
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_23 = lax.slice(stateless_random_uniform_v2, (0,), (1,))
    stateless_random_uniform_v2_24 = lax.squeeze(stateless_random_uniform_v2_23, (0,))
    stateless_random_uniform_v2_25 = lax.slice(stateless_random_uniform_v2, (1,), (2,))
    stateless_random_uniform_v2_26 = lax.squeeze(stateless_random_uniform_v2_25, (0,))
    stateless_random_uniform_v2_27 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_6
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_28 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_6
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_29 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_17
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_30 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_17
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_31 = (
        stateless_random_uniform_v2_30 ^ stateless_random_uniform_v2_12
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_32 = (
        stateless_random_uniform_v2_31 ^ stateless_random_uniform_v2_24
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_33 = (
        stateless_random_uniform_v2_28 ^ stateless_random_uniform_v2_22
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_34 = (
        stateless_random_uniform_v2_33 ^ stateless_random_uniform_v2_26
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_35 = stateless_random_uniform_v2_24 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_36 = stateless_random_uniform_v2_26 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_37 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_32
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_38 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_32
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_39 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_34
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_40 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_34
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_41 = (
        stateless_random_uniform_v2_40 ^ stateless_random_uniform_v2_29
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_42 = (
        stateless_random_uniform_v2_41 ^ stateless_random_uniform_v2_35
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_43 = (
        stateless_random_uniform_v2_38 ^ stateless_random_uniform_v2_27
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_44 = (
        stateless_random_uniform_v2_43 ^ stateless_random_uniform_v2_36
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_45 = stateless_random_uniform_v2_35 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_46 = stateless_random_uniform_v2_36 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_47 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_42
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_48 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_42
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_49 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_44
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_50 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_44
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_51 = (
        stateless_random_uniform_v2_50 ^ stateless_random_uniform_v2_39
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_52 = (
        stateless_random_uniform_v2_51 ^ stateless_random_uniform_v2_45
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_53 = (
        stateless_random_uniform_v2_48 ^ stateless_random_uniform_v2_37
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_54 = (
        stateless_random_uniform_v2_53 ^ stateless_random_uniform_v2_46
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_55 = stateless_random_uniform_v2_45 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_56 = stateless_random_uniform_v2_46 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_57 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_52
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_58 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_52
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_59 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_54
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_60 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_54
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_61 = (
        stateless_random_uniform_v2_60 ^ stateless_random_uniform_v2_49
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_62 = (
        stateless_random_uniform_v2_61 ^ stateless_random_uniform_v2_55
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_63 = (
        stateless_random_uniform_v2_58 ^ stateless_random_uniform_v2_47
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_64 = (
        stateless_random_uniform_v2_63 ^ stateless_random_uniform_v2_56
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_65 = stateless_random_uniform_v2_55 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_66 = stateless_random_uniform_v2_56 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_67 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_62
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_68 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_62
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_69 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_64
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_70 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_64
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_71 = (
        stateless_random_uniform_v2_70 ^ stateless_random_uniform_v2_59
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_72 = (
        stateless_random_uniform_v2_71 ^ stateless_random_uniform_v2_65
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_73 = (
        stateless_random_uniform_v2_68 ^ stateless_random_uniform_v2_57
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_74 = (
        stateless_random_uniform_v2_73 ^ stateless_random_uniform_v2_66
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_75 = stateless_random_uniform_v2_65 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_76 = stateless_random_uniform_v2_66 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_77 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_72
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_78 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_72
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_79 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_74
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_80 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_74
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_81 = (
        stateless_random_uniform_v2_80 ^ stateless_random_uniform_v2_69
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_82 = (
        stateless_random_uniform_v2_81 ^ stateless_random_uniform_v2_75
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_83 = (
        stateless_random_uniform_v2_78 ^ stateless_random_uniform_v2_67
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_84 = (
        stateless_random_uniform_v2_83 ^ stateless_random_uniform_v2_76
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_85 = stateless_random_uniform_v2_75 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_86 = stateless_random_uniform_v2_76 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_87 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_82
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_88 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_82
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_89 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_84
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_90 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_84
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_91 = (
        stateless_random_uniform_v2_90 ^ stateless_random_uniform_v2_79
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_92 = (
        stateless_random_uniform_v2_91 ^ stateless_random_uniform_v2_85
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_93 = (
        stateless_random_uniform_v2_88 ^ stateless_random_uniform_v2_77
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_94 = (
        stateless_random_uniform_v2_93 ^ stateless_random_uniform_v2_86
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_95 = stateless_random_uniform_v2_85 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_96 = stateless_random_uniform_v2_86 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_97 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_92
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_98 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_92
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_99 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_94
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_100 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_94
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_101 = (
        stateless_random_uniform_v2_100 ^ stateless_random_uniform_v2_89
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_102 = (
        stateless_random_uniform_v2_101 ^ stateless_random_uniform_v2_95
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_103 = (
        stateless_random_uniform_v2_98 ^ stateless_random_uniform_v2_87
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_104 = (
        stateless_random_uniform_v2_103 ^ stateless_random_uniform_v2_96
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_105 = stateless_random_uniform_v2_95 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_106 = stateless_random_uniform_v2_96 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_107 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_102
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_108 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_102
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_109 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_104
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_110 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_104
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_111 = (
        stateless_random_uniform_v2_110 ^ stateless_random_uniform_v2_99
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_112 = (
        stateless_random_uniform_v2_111 ^ stateless_random_uniform_v2_105
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_113 = (
        stateless_random_uniform_v2_108 ^ stateless_random_uniform_v2_97
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_114 = (
        stateless_random_uniform_v2_113 ^ stateless_random_uniform_v2_106
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_115 = stateless_random_uniform_v2_105 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_116 = stateless_random_uniform_v2_106 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_117 = (
        np.uint32(3528531795) * stateless_random_uniform_v2_112
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_118 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2_112
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_119 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_114
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_120 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_114
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_121 = (
        stateless_random_uniform_v2_120 ^ stateless_random_uniform_v2_109
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_122 = (
        stateless_random_uniform_v2_121 ^ stateless_random_uniform_v2_115
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_123 = (
        stateless_random_uniform_v2_118 ^ stateless_random_uniform_v2_107
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_124 = (
        stateless_random_uniform_v2_123 ^ stateless_random_uniform_v2_116
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_125 = stateless_random_uniform_v2_3 == 0
    stateless_random_uniform_v2_126 = lax.select(
        stateless_random_uniform_v2_125,
        stateless_random_uniform_v2_122,
        stateless_random_uniform_v2_117,
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_127 = stateless_random_uniform_v2_3 == 1
    stateless_random_uniform_v2_128 = lax.select(
        stateless_random_uniform_v2_127,
        stateless_random_uniform_v2_119,
        stateless_random_uniform_v2_126,
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_129 = stateless_random_uniform_v2_3 == 2
    stateless_random_uniform_v2_130 = lax.select(
        stateless_random_uniform_v2_129,
        stateless_random_uniform_v2_124,
        stateless_random_uniform_v2_128,
    )  # u32[- floordiv(- 5*b, 4), 4]
    stateless_random_uniform_v2_131 = lax.reshape(
        stateless_random_uniform_v2_130, (-4 * (-5 * b // 4),)
    )  # u32[- 4*floordiv(- 5*b, 4)]
    stateless_random_uniform_v2_132 = stateless_random_uniform_v2_131 & 8388607
    stateless_random_uniform_v2_133 = stateless_random_uniform_v2_132 | 1065353216
    stateless_random_uniform_v2_134 = lax.bitcast_convert_type(
        stateless_random_uniform_v2_133, np.float32
    )  # f32[- 4*floordiv(- 5*b, 4)]
    stateless_random_uniform_v2_135 = stateless_random_uniform_v2_134 - 1.0
    stateless_random_uniform_v2_136 = jnp.full((1,), 0, np.int32)  # i32[1]
    stateless_random_uniform_v2_137 = lax.gather(
        stateless_random_uniform_v2_135,
        stateless_random_uniform_v2_136,
        dimension_numbers=lax.GatherDimensionNumbers(
            offset_dims=(0,), collapsed_slice_dims=(), start_index_map=(0,)
        ),
        slice_sizes=(5 * b,),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
        unique_indices=True,
        indices_are_sorted=True,
    )  # f32[5*b]
    stateless_random_uniform_v2_138 = lax.reshape(
        stateless_random_uniform_v2_137, (b, 5)
    )  # f32[b, 5]
    mul_2 = stateless_random_uniform_v2_138 * 1.0  # f32[b, 5]
    stateless_random_uniform = mul_2 + 0.0  # f32[b, 5]
    greater_equal = stateless_random_uniform >= 0.2  # bool[b, 5]
    select_v2 = jnp.full((b, 5), 0.0, np.float32)  # f32[b, 5]
    select_v2_1 = lax.select(greater_equal, mul_1, select_v2)  # f32[b, 5]
    return add, select_v2_1


def _head_1_1(params, select_v2, b):
    """TensorFlow scope head_1."""
    kernel = params["head/kernel"]  # f32[5, 3]
    bias = params["head/bias"]  # f32[3]
    mat_mul = select_v2 @ kernel  # f32[b, 3]
    bias_add = lax.broadcast_in_dim(bias, (b, 3), (1,))  # f32[b, 3]
    bias_add_1 = mat_mul + bias_add  # f32[b, 3]
    return bias_add_1


def train(params, inputs):
    """TensorFlow function 'train'.

    Args:
      params: dict from variable name to array.
      inputs: float32[b, 4].

    Returns:
      The results, and params with updated variables.
    """
    inputs = jnp.asarray(inputs, np.float32)
    b = inputs.shape[0]
    relu = _hidden_1(params, inputs, b)  # f32[b, 5]
    add, add_1, add_1_1 = _batch_normalization_1_1(params, relu, b)
    add_2, select_v2 = _dropout_1(params, add_1_1, b)
    bias_add = _head_1_1(params, select_v2, b)  # f32[b, 3]
    outputs = bias_add
    return (
        outputs, {**params, "batch_normalization/moving_mean": add, "batch_normalization/moving_variance": add_1, "seed_generator_1/seed_generator_state": add_2}
    )
