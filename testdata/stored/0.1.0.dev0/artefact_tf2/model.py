"""A model converted from TensorFlow.

Needs JAX and numpy only; params are a dict of arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["serving_default"]


@jax.custom_jvp
def _minimum(x, x_1):
    value = lax.min(x, x_1)
    return (value,)


@_minimum.defjvp
def _minimum_jvp(primals, tangents):
    x_2, x_3 = primals
    x_2_dot, x_3_dot = tangents
    (jvp,) = _minimum(x_2, x_3)
    jvp_1 = x_2 <= x_3
    jvp_2 = lax.select(jvp_1, x_2_dot, x_3_dot)
    return (jvp,), (jvp_2,)


def _clip_by_value(conv2_d, b):
    """TensorFlow scope clip_by_value."""
    minimum = jnp.full((b, 6, 6, 2), 1.0, np.float32)  # f32[b, 6, 6, 2]
    (minimum_1,) = _minimum(conv2_d, minimum)
    return minimum_1


@jax.custom_jvp
def _clip_by_value_1(x, x_1):
    value = lax.max(x, x_1)
    return (value,)


@_clip_by_value_1.defjvp
def _clip_by_value_1_jvp(primals, tangents):
    x_2, x_3 = primals
    x_2_dot, x_3_dot = tangents
    (jvp,) = _clip_by_value_1(x_2, x_3)
    jvp_1 = x_2 >= x_3
    jvp_2 = lax.select(jvp_1, x_2_dot, x_3_dot)
    return (jvp,), (jvp_2,)


@jax.custom_vjp
def _identity_n(x, x_1, x_2):
    return (x_1, x_2)


def _identity_n_fwd(x_3, x_4, x_5):
    jvp, jvp_1 = _identity_n(x_3, x_4, x_5)
    return (jvp, jvp_1), (x_3, jvp, jvp_1)


def _identity_n_bwd(residuals, cotangents):
    _, _, _ = residuals
    bar, _ = cotangents
    mul = jnp.full(bar.shape, 0.5, np.float32)
    mul_1 = bar * mul
    return (mul_1, None, None)


_identity_n.defvjp(_identity_n_fwd, _identity_n_bwd)


def _stateless_random_uniform():
    """TensorFlow scope stateless_random_uniform."""
    stateless_random_get_key_cou = lax.shift_right_arithmetic(
        np.array([1, 2], np.int32), np.int32(31)
    )  # i32[2]
    stateless_random_get_key_cou_1 = lax.convert_element_type(
        stateless_random_get_key_cou, np.uint32
    )  # u32[2]
    stateless_random_get_key_cou_2 = lax.convert_element_type(
        np.array([1, 2], np.int32), np.uint32
    )  # u32[2]
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
    stateless_random_get_key_cou_12 = stateless_random_get_key_cou_5 & 65535  # u32[]
    stateless_random_get_key_cou_13 = lax.shift_right_logical(
        stateless_random_get_key_cou_5, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_14 = 8019 * stateless_random_get_key_cou_12  # u32[]
    stateless_random_get_key_cou_15 = 53841 * stateless_random_get_key_cou_12  # u32[]
    stateless_random_get_key_cou_16 = lax.shift_right_logical(
        stateless_random_get_key_cou_14, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_17 = (
        stateless_random_get_key_cou_15 + stateless_random_get_key_cou_16
    )  # u32[]
    stateless_random_get_key_cou_18 = 8019 * stateless_random_get_key_cou_13  # u32[]
    stateless_random_get_key_cou_19 = stateless_random_get_key_cou_17 & 65535  # u32[]
    stateless_random_get_key_cou_20 = (
        stateless_random_get_key_cou_18 + stateless_random_get_key_cou_19
    )  # u32[]
    stateless_random_get_key_cou_21 = stateless_random_get_key_cou_5 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_22 = 53841 * stateless_random_get_key_cou_13  # u32[]
    stateless_random_get_key_cou_23 = lax.shift_right_logical(
        stateless_random_get_key_cou_17, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_24 = (
        stateless_random_get_key_cou_22 + stateless_random_get_key_cou_23
    )  # u32[]
    stateless_random_get_key_cou_25 = lax.shift_right_logical(
        stateless_random_get_key_cou_20, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_26 = (
        stateless_random_get_key_cou_24 + stateless_random_get_key_cou_25
    )  # u32[]
    stateless_random_get_key_cou_27 = stateless_random_get_key_cou_9 & 65535  # u32[]
    stateless_random_get_key_cou_28 = lax.shift_right_logical(
        stateless_random_get_key_cou_9, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_29 = 36183 * stateless_random_get_key_cou_27  # u32[]
    stateless_random_get_key_cou_30 = 52638 * stateless_random_get_key_cou_27  # u32[]
    stateless_random_get_key_cou_31 = lax.shift_right_logical(
        stateless_random_get_key_cou_29, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_32 = (
        stateless_random_get_key_cou_30 + stateless_random_get_key_cou_31
    )  # u32[]
    stateless_random_get_key_cou_33 = 36183 * stateless_random_get_key_cou_28  # u32[]
    stateless_random_get_key_cou_34 = stateless_random_get_key_cou_32 & 65535  # u32[]
    stateless_random_get_key_cou_35 = (
        stateless_random_get_key_cou_33 + stateless_random_get_key_cou_34
    )  # u32[]
    stateless_random_get_key_cou_36 = stateless_random_get_key_cou_9 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_37 = 52638 * stateless_random_get_key_cou_28  # u32[]
    stateless_random_get_key_cou_38 = lax.shift_right_logical(
        stateless_random_get_key_cou_32, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_39 = (
        stateless_random_get_key_cou_37 + stateless_random_get_key_cou_38
    )  # u32[]
    stateless_random_get_key_cou_40 = lax.shift_right_logical(
        stateless_random_get_key_cou_35, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_41 = (
        stateless_random_get_key_cou_39 + stateless_random_get_key_cou_40
    )  # u32[]
    stateless_random_get_key_cou_42 = (
        stateless_random_get_key_cou_41 ^ stateless_random_get_key_cou_7
    )  # u32[]
    stateless_random_get_key_cou_43 = stateless_random_get_key_cou_42 ^ 1053357856
    stateless_random_get_key_cou_44 = (
        stateless_random_get_key_cou_26 ^ stateless_random_get_key_cou_11
    )  # u32[]
    stateless_random_get_key_cou_45 = stateless_random_get_key_cou_44 ^ 38149673
    stateless_random_get_key_cou_46 = jnp.asarray(1053357856) + np.uint32(2654435769)
    stateless_random_get_key_cou_47 = jnp.asarray(38149673) + np.uint32(3144134277)
    stateless_random_get_key_cou_48 = stateless_random_get_key_cou_43 & 65535  # u32[]
    stateless_random_get_key_cou_49 = lax.shift_right_logical(
        stateless_random_get_key_cou_43, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_50 = 8019 * stateless_random_get_key_cou_48  # u32[]
    stateless_random_get_key_cou_51 = 53841 * stateless_random_get_key_cou_48  # u32[]
    stateless_random_get_key_cou_52 = lax.shift_right_logical(
        stateless_random_get_key_cou_50, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_53 = (
        stateless_random_get_key_cou_51 + stateless_random_get_key_cou_52
    )  # u32[]
    stateless_random_get_key_cou_54 = 8019 * stateless_random_get_key_cou_49  # u32[]
    stateless_random_get_key_cou_55 = stateless_random_get_key_cou_53 & 65535  # u32[]
    stateless_random_get_key_cou_56 = (
        stateless_random_get_key_cou_54 + stateless_random_get_key_cou_55
    )  # u32[]
    stateless_random_get_key_cou_57 = stateless_random_get_key_cou_43 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_58 = 53841 * stateless_random_get_key_cou_49  # u32[]
    stateless_random_get_key_cou_59 = lax.shift_right_logical(
        stateless_random_get_key_cou_53, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_60 = (
        stateless_random_get_key_cou_58 + stateless_random_get_key_cou_59
    )  # u32[]
    stateless_random_get_key_cou_61 = lax.shift_right_logical(
        stateless_random_get_key_cou_56, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_62 = (
        stateless_random_get_key_cou_60 + stateless_random_get_key_cou_61
    )  # u32[]
    stateless_random_get_key_cou_63 = stateless_random_get_key_cou_45 & 65535  # u32[]
    stateless_random_get_key_cou_64 = lax.shift_right_logical(
        stateless_random_get_key_cou_45, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_65 = 36183 * stateless_random_get_key_cou_63  # u32[]
    stateless_random_get_key_cou_66 = 52638 * stateless_random_get_key_cou_63  # u32[]
    stateless_random_get_key_cou_67 = lax.shift_right_logical(
        stateless_random_get_key_cou_65, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_68 = (
        stateless_random_get_key_cou_66 + stateless_random_get_key_cou_67
    )  # u32[]
    stateless_random_get_key_cou_69 = 36183 * stateless_random_get_key_cou_64  # u32[]
    stateless_random_get_key_cou_70 = stateless_random_get_key_cou_68 & 65535  # u32[]
    stateless_random_get_key_cou_71 = (
        stateless_random_get_key_cou_69 + stateless_random_get_key_cou_70
    )  # u32[]
    stateless_random_get_key_cou_72 = stateless_random_get_key_cou_45 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_73 = 52638 * stateless_random_get_key_cou_64  # u32[]
    stateless_random_get_key_cou_74 = lax.shift_right_logical(
        stateless_random_get_key_cou_68, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_75 = (
        stateless_random_get_key_cou_73 + stateless_random_get_key_cou_74
    )  # u32[]
    stateless_random_get_key_cou_76 = lax.shift_right_logical(
        stateless_random_get_key_cou_71, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_77 = (
        stateless_random_get_key_cou_75 + stateless_random_get_key_cou_76
    )  # u32[]
    stateless_random_get_key_cou_78 = (
        stateless_random_get_key_cou_77 ^ stateless_random_get_key_cou_36
    )  # u32[]
    stateless_random_get_key_cou_79 = (
        stateless_random_get_key_cou_78 ^ stateless_random_get_key_cou_46
    )  # u32[]
    stateless_random_get_key_cou_80 = (
        stateless_random_get_key_cou_62 ^ stateless_random_get_key_cou_21
    )  # u32[]
    stateless_random_get_key_cou_81 = (
        stateless_random_get_key_cou_80 ^ stateless_random_get_key_cou_47
    )  # u32[]
    stateless_random_get_key_cou_82 = stateless_random_get_key_cou_46 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_83 = stateless_random_get_key_cou_47 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_84 = stateless_random_get_key_cou_79 & 65535  # u32[]
    stateless_random_get_key_cou_85 = lax.shift_right_logical(
        stateless_random_get_key_cou_79, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_86 = 8019 * stateless_random_get_key_cou_84  # u32[]
    stateless_random_get_key_cou_87 = 53841 * stateless_random_get_key_cou_84  # u32[]
    stateless_random_get_key_cou_88 = lax.shift_right_logical(
        stateless_random_get_key_cou_86, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_89 = (
        stateless_random_get_key_cou_87 + stateless_random_get_key_cou_88
    )  # u32[]
    stateless_random_get_key_cou_90 = 8019 * stateless_random_get_key_cou_85  # u32[]
    stateless_random_get_key_cou_91 = stateless_random_get_key_cou_89 & 65535  # u32[]
    stateless_random_get_key_cou_92 = (
        stateless_random_get_key_cou_90 + stateless_random_get_key_cou_91
    )  # u32[]
    stateless_random_get_key_cou_93 = stateless_random_get_key_cou_79 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_94 = 53841 * stateless_random_get_key_cou_85  # u32[]
    stateless_random_get_key_cou_95 = lax.shift_right_logical(
        stateless_random_get_key_cou_89, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_96 = (
        stateless_random_get_key_cou_94 + stateless_random_get_key_cou_95
    )  # u32[]
    stateless_random_get_key_cou_97 = lax.shift_right_logical(
        stateless_random_get_key_cou_92, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_98 = (
        stateless_random_get_key_cou_96 + stateless_random_get_key_cou_97
    )  # u32[]
    stateless_random_get_key_cou_99 = stateless_random_get_key_cou_81 & 65535  # u32[]
    stateless_random_get_key_cou_100 = lax.shift_right_logical(
        stateless_random_get_key_cou_81, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_101 = 36183 * stateless_random_get_key_cou_99  # u32[]
    stateless_random_get_key_cou_102 = 52638 * stateless_random_get_key_cou_99  # u32[]
    stateless_random_get_key_cou_103 = lax.shift_right_logical(
        stateless_random_get_key_cou_101, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_104 = (
        stateless_random_get_key_cou_102 + stateless_random_get_key_cou_103
    )  # u32[]
    stateless_random_get_key_cou_105 = 36183 * stateless_random_get_key_cou_100  # u32[]
    stateless_random_get_key_cou_106 = stateless_random_get_key_cou_104 & 65535  # u32[]
    stateless_random_get_key_cou_107 = (
        stateless_random_get_key_cou_105 + stateless_random_get_key_cou_106
    )  # u32[]
    stateless_random_get_key_cou_108 = stateless_random_get_key_cou_81 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_109 = 52638 * stateless_random_get_key_cou_100  # u32[]
    stateless_random_get_key_cou_110 = lax.shift_right_logical(
        stateless_random_get_key_cou_104, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_111 = (
        stateless_random_get_key_cou_109 + stateless_random_get_key_cou_110
    )  # u32[]
    stateless_random_get_key_cou_112 = lax.shift_right_logical(
        stateless_random_get_key_cou_107, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_113 = (
        stateless_random_get_key_cou_111 + stateless_random_get_key_cou_112
    )  # u32[]
    stateless_random_get_key_cou_114 = (
        stateless_random_get_key_cou_113 ^ stateless_random_get_key_cou_72
    )  # u32[]
    stateless_random_get_key_cou_115 = (
        stateless_random_get_key_cou_114 ^ stateless_random_get_key_cou_82
    )  # u32[]
    stateless_random_get_key_cou_116 = (
        stateless_random_get_key_cou_98 ^ stateless_random_get_key_cou_57
    )  # u32[]
    stateless_random_get_key_cou_117 = (
        stateless_random_get_key_cou_116 ^ stateless_random_get_key_cou_83
    )  # u32[]
    stateless_random_get_key_cou_118 = stateless_random_get_key_cou_82 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_119 = stateless_random_get_key_cou_83 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_120 = stateless_random_get_key_cou_115 & 65535  # u32[]
    stateless_random_get_key_cou_121 = lax.shift_right_logical(
        stateless_random_get_key_cou_115, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_122 = 8019 * stateless_random_get_key_cou_120  # u32[]
    stateless_random_get_key_cou_123 = 53841 * stateless_random_get_key_cou_120  # u32[]
    stateless_random_get_key_cou_124 = lax.shift_right_logical(
        stateless_random_get_key_cou_122, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_125 = (
        stateless_random_get_key_cou_123 + stateless_random_get_key_cou_124
    )  # u32[]
    stateless_random_get_key_cou_126 = 8019 * stateless_random_get_key_cou_121  # u32[]
    stateless_random_get_key_cou_127 = stateless_random_get_key_cou_125 & 65535  # u32[]
    stateless_random_get_key_cou_128 = (
        stateless_random_get_key_cou_126 + stateless_random_get_key_cou_127
    )  # u32[]
    stateless_random_get_key_cou_129 = stateless_random_get_key_cou_115 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_130 = 53841 * stateless_random_get_key_cou_121  # u32[]
    stateless_random_get_key_cou_131 = lax.shift_right_logical(
        stateless_random_get_key_cou_125, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_132 = (
        stateless_random_get_key_cou_130 + stateless_random_get_key_cou_131
    )  # u32[]
    stateless_random_get_key_cou_133 = lax.shift_right_logical(
        stateless_random_get_key_cou_128, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_134 = (
        stateless_random_get_key_cou_132 + stateless_random_get_key_cou_133
    )  # u32[]
    stateless_random_get_key_cou_135 = stateless_random_get_key_cou_117 & 65535  # u32[]
    stateless_random_get_key_cou_136 = lax.shift_right_logical(
        stateless_random_get_key_cou_117, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_137 = 36183 * stateless_random_get_key_cou_135  # u32[]
    stateless_random_get_key_cou_138 = 52638 * stateless_random_get_key_cou_135  # u32[]
    stateless_random_get_key_cou_139 = lax.shift_right_logical(
        stateless_random_get_key_cou_137, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_140 = (
        stateless_random_get_key_cou_138 + stateless_random_get_key_cou_139
    )  # u32[]
    stateless_random_get_key_cou_141 = 36183 * stateless_random_get_key_cou_136  # u32[]
    stateless_random_get_key_cou_142 = stateless_random_get_key_cou_140 & 65535  # u32[]
    stateless_random_get_key_cou_143 = (
        stateless_random_get_key_cou_141 + stateless_random_get_key_cou_142
    )  # u32[]
    stateless_random_get_key_cou_144 = stateless_random_get_key_cou_117 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_145 = 52638 * stateless_random_get_key_cou_136  # u32[]
    stateless_random_get_key_cou_146 = lax.shift_right_logical(
        stateless_random_get_key_cou_140, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_147 = (
        stateless_random_get_key_cou_145 + stateless_random_get_key_cou_146
    )  # u32[]
    stateless_random_get_key_cou_148 = lax.shift_right_logical(
        stateless_random_get_key_cou_143, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_149 = (
        stateless_random_get_key_cou_147 + stateless_random_get_key_cou_148
    )  # u32[]
    stateless_random_get_key_cou_150 = (
        stateless_random_get_key_cou_149 ^ stateless_random_get_key_cou_108
    )  # u32[]
    stateless_random_get_key_cou_151 = (
        stateless_random_get_key_cou_150 ^ stateless_random_get_key_cou_118
    )  # u32[]
    stateless_random_get_key_cou_152 = (
        stateless_random_get_key_cou_134 ^ stateless_random_get_key_cou_93
    )  # u32[]
    stateless_random_get_key_cou_153 = (
        stateless_random_get_key_cou_152 ^ stateless_random_get_key_cou_119
    )  # u32[]
    stateless_random_get_key_cou_154 = stateless_random_get_key_cou_118 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_155 = stateless_random_get_key_cou_119 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_156 = stateless_random_get_key_cou_151 & 65535  # u32[]
    stateless_random_get_key_cou_157 = lax.shift_right_logical(
        stateless_random_get_key_cou_151, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_158 = 8019 * stateless_random_get_key_cou_156  # u32[]
    stateless_random_get_key_cou_159 = 53841 * stateless_random_get_key_cou_156  # u32[]
    stateless_random_get_key_cou_160 = lax.shift_right_logical(
        stateless_random_get_key_cou_158, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_161 = (
        stateless_random_get_key_cou_159 + stateless_random_get_key_cou_160
    )  # u32[]
    stateless_random_get_key_cou_162 = 8019 * stateless_random_get_key_cou_157  # u32[]
    stateless_random_get_key_cou_163 = stateless_random_get_key_cou_161 & 65535  # u32[]
    stateless_random_get_key_cou_164 = (
        stateless_random_get_key_cou_162 + stateless_random_get_key_cou_163
    )  # u32[]
    stateless_random_get_key_cou_165 = stateless_random_get_key_cou_151 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_166 = 53841 * stateless_random_get_key_cou_157  # u32[]
    stateless_random_get_key_cou_167 = lax.shift_right_logical(
        stateless_random_get_key_cou_161, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_168 = (
        stateless_random_get_key_cou_166 + stateless_random_get_key_cou_167
    )  # u32[]
    stateless_random_get_key_cou_169 = lax.shift_right_logical(
        stateless_random_get_key_cou_164, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_170 = (
        stateless_random_get_key_cou_168 + stateless_random_get_key_cou_169
    )  # u32[]
    stateless_random_get_key_cou_171 = stateless_random_get_key_cou_153 & 65535  # u32[]
    stateless_random_get_key_cou_172 = lax.shift_right_logical(
        stateless_random_get_key_cou_153, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_173 = 36183 * stateless_random_get_key_cou_171  # u32[]
    stateless_random_get_key_cou_174 = 52638 * stateless_random_get_key_cou_171  # u32[]
    stateless_random_get_key_cou_175 = lax.shift_right_logical(
        stateless_random_get_key_cou_173, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_176 = (
        stateless_random_get_key_cou_174 + stateless_random_get_key_cou_175
    )  # u32[]
    stateless_random_get_key_cou_177 = 36183 * stateless_random_get_key_cou_172  # u32[]
    stateless_random_get_key_cou_178 = stateless_random_get_key_cou_176 & 65535  # u32[]
    stateless_random_get_key_cou_179 = (
        stateless_random_get_key_cou_177 + stateless_random_get_key_cou_178
    )  # u32[]
    stateless_random_get_key_cou_180 = stateless_random_get_key_cou_153 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_181 = 52638 * stateless_random_get_key_cou_172  # u32[]
    stateless_random_get_key_cou_182 = lax.shift_right_logical(
        stateless_random_get_key_cou_176, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_183 = (
        stateless_random_get_key_cou_181 + stateless_random_get_key_cou_182
    )  # u32[]
    stateless_random_get_key_cou_184 = lax.shift_right_logical(
        stateless_random_get_key_cou_179, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_185 = (
        stateless_random_get_key_cou_183 + stateless_random_get_key_cou_184
    )  # u32[]
    stateless_random_get_key_cou_186 = (
        stateless_random_get_key_cou_185 ^ stateless_random_get_key_cou_144
    )  # u32[]
    stateless_random_get_key_cou_187 = (
        stateless_random_get_key_cou_186 ^ stateless_random_get_key_cou_154
    )  # u32[]
    stateless_random_get_key_cou_188 = (
        stateless_random_get_key_cou_170 ^ stateless_random_get_key_cou_129
    )  # u32[]
    stateless_random_get_key_cou_189 = (
        stateless_random_get_key_cou_188 ^ stateless_random_get_key_cou_155
    )  # u32[]
    stateless_random_get_key_cou_190 = stateless_random_get_key_cou_154 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_191 = stateless_random_get_key_cou_155 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_192 = stateless_random_get_key_cou_187 & 65535  # u32[]
    stateless_random_get_key_cou_193 = lax.shift_right_logical(
        stateless_random_get_key_cou_187, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_194 = 8019 * stateless_random_get_key_cou_192  # u32[]
    stateless_random_get_key_cou_195 = 53841 * stateless_random_get_key_cou_192  # u32[]
    stateless_random_get_key_cou_196 = lax.shift_right_logical(
        stateless_random_get_key_cou_194, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_197 = (
        stateless_random_get_key_cou_195 + stateless_random_get_key_cou_196
    )  # u32[]
    stateless_random_get_key_cou_198 = 8019 * stateless_random_get_key_cou_193  # u32[]
    stateless_random_get_key_cou_199 = stateless_random_get_key_cou_197 & 65535  # u32[]
    stateless_random_get_key_cou_200 = (
        stateless_random_get_key_cou_198 + stateless_random_get_key_cou_199
    )  # u32[]
    stateless_random_get_key_cou_201 = stateless_random_get_key_cou_187 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_202 = 53841 * stateless_random_get_key_cou_193  # u32[]
    stateless_random_get_key_cou_203 = lax.shift_right_logical(
        stateless_random_get_key_cou_197, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_204 = (
        stateless_random_get_key_cou_202 + stateless_random_get_key_cou_203
    )  # u32[]
    stateless_random_get_key_cou_205 = lax.shift_right_logical(
        stateless_random_get_key_cou_200, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_206 = (
        stateless_random_get_key_cou_204 + stateless_random_get_key_cou_205
    )  # u32[]
    stateless_random_get_key_cou_207 = stateless_random_get_key_cou_189 & 65535  # u32[]
    stateless_random_get_key_cou_208 = lax.shift_right_logical(
        stateless_random_get_key_cou_189, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_209 = 36183 * stateless_random_get_key_cou_207  # u32[]
    stateless_random_get_key_cou_210 = 52638 * stateless_random_get_key_cou_207  # u32[]
    stateless_random_get_key_cou_211 = lax.shift_right_logical(
        stateless_random_get_key_cou_209, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_212 = (
        stateless_random_get_key_cou_210 + stateless_random_get_key_cou_211
    )  # u32[]
    stateless_random_get_key_cou_213 = 36183 * stateless_random_get_key_cou_208  # u32[]
    stateless_random_get_key_cou_214 = stateless_random_get_key_cou_212 & 65535  # u32[]
    stateless_random_get_key_cou_215 = (
        stateless_random_get_key_cou_213 + stateless_random_get_key_cou_214
    )  # u32[]
    stateless_random_get_key_cou_216 = stateless_random_get_key_cou_189 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_217 = 52638 * stateless_random_get_key_cou_208  # u32[]
    stateless_random_get_key_cou_218 = lax.shift_right_logical(
        stateless_random_get_key_cou_212, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_219 = (
        stateless_random_get_key_cou_217 + stateless_random_get_key_cou_218
    )  # u32[]
    stateless_random_get_key_cou_220 = lax.shift_right_logical(
        stateless_random_get_key_cou_215, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_221 = (
        stateless_random_get_key_cou_219 + stateless_random_get_key_cou_220
    )  # u32[]
    stateless_random_get_key_cou_222 = (
        stateless_random_get_key_cou_221 ^ stateless_random_get_key_cou_180
    )  # u32[]
    stateless_random_get_key_cou_223 = (
        stateless_random_get_key_cou_222 ^ stateless_random_get_key_cou_190
    )  # u32[]
    stateless_random_get_key_cou_224 = (
        stateless_random_get_key_cou_206 ^ stateless_random_get_key_cou_165
    )  # u32[]
    stateless_random_get_key_cou_225 = (
        stateless_random_get_key_cou_224 ^ stateless_random_get_key_cou_191
    )  # u32[]
    stateless_random_get_key_cou_226 = stateless_random_get_key_cou_190 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_227 = stateless_random_get_key_cou_191 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_228 = stateless_random_get_key_cou_223 & 65535  # u32[]
    stateless_random_get_key_cou_229 = lax.shift_right_logical(
        stateless_random_get_key_cou_223, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_230 = 8019 * stateless_random_get_key_cou_228  # u32[]
    stateless_random_get_key_cou_231 = 53841 * stateless_random_get_key_cou_228  # u32[]
    stateless_random_get_key_cou_232 = lax.shift_right_logical(
        stateless_random_get_key_cou_230, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_233 = (
        stateless_random_get_key_cou_231 + stateless_random_get_key_cou_232
    )  # u32[]
    stateless_random_get_key_cou_234 = 8019 * stateless_random_get_key_cou_229  # u32[]
    stateless_random_get_key_cou_235 = stateless_random_get_key_cou_233 & 65535  # u32[]
    stateless_random_get_key_cou_236 = (
        stateless_random_get_key_cou_234 + stateless_random_get_key_cou_235
    )  # u32[]
    stateless_random_get_key_cou_237 = stateless_random_get_key_cou_223 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_238 = 53841 * stateless_random_get_key_cou_229  # u32[]
    stateless_random_get_key_cou_239 = lax.shift_right_logical(
        stateless_random_get_key_cou_233, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_240 = (
        stateless_random_get_key_cou_238 + stateless_random_get_key_cou_239
    )  # u32[]
    stateless_random_get_key_cou_241 = lax.shift_right_logical(
        stateless_random_get_key_cou_236, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_242 = (
        stateless_random_get_key_cou_240 + stateless_random_get_key_cou_241
    )  # u32[]
    stateless_random_get_key_cou_243 = stateless_random_get_key_cou_225 & 65535  # u32[]
    stateless_random_get_key_cou_244 = lax.shift_right_logical(
        stateless_random_get_key_cou_225, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_245 = 36183 * stateless_random_get_key_cou_243  # u32[]
    stateless_random_get_key_cou_246 = 52638 * stateless_random_get_key_cou_243  # u32[]
    stateless_random_get_key_cou_247 = lax.shift_right_logical(
        stateless_random_get_key_cou_245, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_248 = (
        stateless_random_get_key_cou_246 + stateless_random_get_key_cou_247
    )  # u32[]
    stateless_random_get_key_cou_249 = 36183 * stateless_random_get_key_cou_244  # u32[]
    stateless_random_get_key_cou_250 = stateless_random_get_key_cou_248 & 65535  # u32[]
    stateless_random_get_key_cou_251 = (
        stateless_random_get_key_cou_249 + stateless_random_get_key_cou_250
    )  # u32[]
    stateless_random_get_key_cou_252 = stateless_random_get_key_cou_225 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_253 = 52638 * stateless_random_get_key_cou_244  # u32[]
    stateless_random_get_key_cou_254 = lax.shift_right_logical(
        stateless_random_get_key_cou_248, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_255 = (
        stateless_random_get_key_cou_253 + stateless_random_get_key_cou_254
    )  # u32[]
    stateless_random_get_key_cou_256 = lax.shift_right_logical(
        stateless_random_get_key_cou_251, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_257 = (
        stateless_random_get_key_cou_255 + stateless_random_get_key_cou_256
    )  # u32[]
    stateless_random_get_key_cou_258 = (
        stateless_random_get_key_cou_257 ^ stateless_random_get_key_cou_216
    )  # u32[]
    stateless_random_get_key_cou_259 = (
        stateless_random_get_key_cou_258 ^ stateless_random_get_key_cou_226
    )  # u32[]
    stateless_random_get_key_cou_260 = (
        stateless_random_get_key_cou_242 ^ stateless_random_get_key_cou_201
    )  # u32[]
    stateless_random_get_key_cou_261 = (
        stateless_random_get_key_cou_260 ^ stateless_random_get_key_cou_227
    )  # u32[]
    stateless_random_get_key_cou_262 = stateless_random_get_key_cou_226 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_263 = stateless_random_get_key_cou_227 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_264 = stateless_random_get_key_cou_259 & 65535  # u32[]
    stateless_random_get_key_cou_265 = lax.shift_right_logical(
        stateless_random_get_key_cou_259, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_266 = 8019 * stateless_random_get_key_cou_264  # u32[]
    stateless_random_get_key_cou_267 = 53841 * stateless_random_get_key_cou_264  # u32[]
    stateless_random_get_key_cou_268 = lax.shift_right_logical(
        stateless_random_get_key_cou_266, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_269 = (
        stateless_random_get_key_cou_267 + stateless_random_get_key_cou_268
    )  # u32[]
    stateless_random_get_key_cou_270 = 8019 * stateless_random_get_key_cou_265  # u32[]
    stateless_random_get_key_cou_271 = stateless_random_get_key_cou_269 & 65535  # u32[]
    stateless_random_get_key_cou_272 = (
        stateless_random_get_key_cou_270 + stateless_random_get_key_cou_271
    )  # u32[]
    stateless_random_get_key_cou_273 = stateless_random_get_key_cou_259 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_274 = 53841 * stateless_random_get_key_cou_265  # u32[]
    stateless_random_get_key_cou_275 = lax.shift_right_logical(
        stateless_random_get_key_cou_269, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_276 = (
        stateless_random_get_key_cou_274 + stateless_random_get_key_cou_275
    )  # u32[]
    stateless_random_get_key_cou_277 = lax.shift_right_logical(
        stateless_random_get_key_cou_272, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_278 = (
        stateless_random_get_key_cou_276 + stateless_random_get_key_cou_277
    )  # u32[]
    stateless_random_get_key_cou_279 = stateless_random_get_key_cou_261 & 65535  # u32[]
    stateless_random_get_key_cou_280 = lax.shift_right_logical(
        stateless_random_get_key_cou_261, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_281 = 36183 * stateless_random_get_key_cou_279  # u32[]
    stateless_random_get_key_cou_282 = 52638 * stateless_random_get_key_cou_279  # u32[]
    stateless_random_get_key_cou_283 = lax.shift_right_logical(
        stateless_random_get_key_cou_281, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_284 = (
        stateless_random_get_key_cou_282 + stateless_random_get_key_cou_283
    )  # u32[]
    stateless_random_get_key_cou_285 = 36183 * stateless_random_get_key_cou_280  # u32[]
    stateless_random_get_key_cou_286 = stateless_random_get_key_cou_284 & 65535  # u32[]
    stateless_random_get_key_cou_287 = (
        stateless_random_get_key_cou_285 + stateless_random_get_key_cou_286
    )  # u32[]
    stateless_random_get_key_cou_288 = stateless_random_get_key_cou_261 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_289 = 52638 * stateless_random_get_key_cou_280  # u32[]
    stateless_random_get_key_cou_290 = lax.shift_right_logical(
        stateless_random_get_key_cou_284, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_291 = (
        stateless_random_get_key_cou_289 + stateless_random_get_key_cou_290
    )  # u32[]
    stateless_random_get_key_cou_292 = lax.shift_right_logical(
        stateless_random_get_key_cou_287, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_293 = (
        stateless_random_get_key_cou_291 + stateless_random_get_key_cou_292
    )  # u32[]
    stateless_random_get_key_cou_294 = (
        stateless_random_get_key_cou_293 ^ stateless_random_get_key_cou_252
    )  # u32[]
    stateless_random_get_key_cou_295 = (
        stateless_random_get_key_cou_294 ^ stateless_random_get_key_cou_262
    )  # u32[]
    stateless_random_get_key_cou_296 = (
        stateless_random_get_key_cou_278 ^ stateless_random_get_key_cou_237
    )  # u32[]
    stateless_random_get_key_cou_297 = (
        stateless_random_get_key_cou_296 ^ stateless_random_get_key_cou_263
    )  # u32[]
    stateless_random_get_key_cou_298 = stateless_random_get_key_cou_262 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_299 = stateless_random_get_key_cou_263 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_300 = stateless_random_get_key_cou_295 & 65535  # u32[]
    stateless_random_get_key_cou_301 = lax.shift_right_logical(
        stateless_random_get_key_cou_295, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_302 = 8019 * stateless_random_get_key_cou_300  # u32[]
    stateless_random_get_key_cou_303 = 53841 * stateless_random_get_key_cou_300  # u32[]
    stateless_random_get_key_cou_304 = lax.shift_right_logical(
        stateless_random_get_key_cou_302, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_305 = (
        stateless_random_get_key_cou_303 + stateless_random_get_key_cou_304
    )  # u32[]
    stateless_random_get_key_cou_306 = 8019 * stateless_random_get_key_cou_301  # u32[]
    stateless_random_get_key_cou_307 = stateless_random_get_key_cou_305 & 65535  # u32[]
    stateless_random_get_key_cou_308 = (
        stateless_random_get_key_cou_306 + stateless_random_get_key_cou_307
    )  # u32[]
    stateless_random_get_key_cou_309 = stateless_random_get_key_cou_295 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_310 = 53841 * stateless_random_get_key_cou_301  # u32[]
    stateless_random_get_key_cou_311 = lax.shift_right_logical(
        stateless_random_get_key_cou_305, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_312 = (
        stateless_random_get_key_cou_310 + stateless_random_get_key_cou_311
    )  # u32[]
    stateless_random_get_key_cou_313 = lax.shift_right_logical(
        stateless_random_get_key_cou_308, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_314 = (
        stateless_random_get_key_cou_312 + stateless_random_get_key_cou_313
    )  # u32[]
    stateless_random_get_key_cou_315 = stateless_random_get_key_cou_297 & 65535  # u32[]
    stateless_random_get_key_cou_316 = lax.shift_right_logical(
        stateless_random_get_key_cou_297, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_317 = 36183 * stateless_random_get_key_cou_315  # u32[]
    stateless_random_get_key_cou_318 = 52638 * stateless_random_get_key_cou_315  # u32[]
    stateless_random_get_key_cou_319 = lax.shift_right_logical(
        stateless_random_get_key_cou_317, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_320 = (
        stateless_random_get_key_cou_318 + stateless_random_get_key_cou_319
    )  # u32[]
    stateless_random_get_key_cou_321 = 36183 * stateless_random_get_key_cou_316  # u32[]
    stateless_random_get_key_cou_322 = stateless_random_get_key_cou_320 & 65535  # u32[]
    stateless_random_get_key_cou_323 = (
        stateless_random_get_key_cou_321 + stateless_random_get_key_cou_322
    )  # u32[]
    stateless_random_get_key_cou_324 = stateless_random_get_key_cou_297 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_325 = 52638 * stateless_random_get_key_cou_316  # u32[]
    stateless_random_get_key_cou_326 = lax.shift_right_logical(
        stateless_random_get_key_cou_320, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_327 = (
        stateless_random_get_key_cou_325 + stateless_random_get_key_cou_326
    )  # u32[]
    stateless_random_get_key_cou_328 = lax.shift_right_logical(
        stateless_random_get_key_cou_323, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_329 = (
        stateless_random_get_key_cou_327 + stateless_random_get_key_cou_328
    )  # u32[]
    stateless_random_get_key_cou_330 = (
        stateless_random_get_key_cou_329 ^ stateless_random_get_key_cou_288
    )  # u32[]
    stateless_random_get_key_cou_331 = (
        stateless_random_get_key_cou_330 ^ stateless_random_get_key_cou_298
    )  # u32[]
    stateless_random_get_key_cou_332 = (
        stateless_random_get_key_cou_314 ^ stateless_random_get_key_cou_273
    )  # u32[]
    stateless_random_get_key_cou_333 = (
        stateless_random_get_key_cou_332 ^ stateless_random_get_key_cou_299
    )  # u32[]
    stateless_random_get_key_cou_334 = stateless_random_get_key_cou_298 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_get_key_cou_335 = stateless_random_get_key_cou_299 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_get_key_cou_336 = stateless_random_get_key_cou_331 & 65535  # u32[]
    stateless_random_get_key_cou_337 = lax.shift_right_logical(
        stateless_random_get_key_cou_331, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_338 = 8019 * stateless_random_get_key_cou_336  # u32[]
    stateless_random_get_key_cou_339 = 53841 * stateless_random_get_key_cou_336  # u32[]
    stateless_random_get_key_cou_340 = lax.shift_right_logical(
        stateless_random_get_key_cou_338, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_341 = (
        stateless_random_get_key_cou_339 + stateless_random_get_key_cou_340
    )  # u32[]
    stateless_random_get_key_cou_342 = 8019 * stateless_random_get_key_cou_337  # u32[]
    stateless_random_get_key_cou_343 = stateless_random_get_key_cou_341 & 65535  # u32[]
    stateless_random_get_key_cou_344 = (
        stateless_random_get_key_cou_342 + stateless_random_get_key_cou_343
    )  # u32[]
    stateless_random_get_key_cou_345 = stateless_random_get_key_cou_331 * np.uint32(
        3528531795
    )  # u32[]
    stateless_random_get_key_cou_346 = 53841 * stateless_random_get_key_cou_337  # u32[]
    stateless_random_get_key_cou_347 = lax.shift_right_logical(
        stateless_random_get_key_cou_341, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_348 = (
        stateless_random_get_key_cou_346 + stateless_random_get_key_cou_347
    )  # u32[]
    stateless_random_get_key_cou_349 = lax.shift_right_logical(
        stateless_random_get_key_cou_344, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_350 = (
        stateless_random_get_key_cou_348 + stateless_random_get_key_cou_349
    )  # u32[]
    stateless_random_get_key_cou_351 = stateless_random_get_key_cou_333 & 65535  # u32[]
    stateless_random_get_key_cou_352 = lax.shift_right_logical(
        stateless_random_get_key_cou_333, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_353 = 36183 * stateless_random_get_key_cou_351  # u32[]
    stateless_random_get_key_cou_354 = 52638 * stateless_random_get_key_cou_351  # u32[]
    stateless_random_get_key_cou_355 = lax.shift_right_logical(
        stateless_random_get_key_cou_353, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_356 = (
        stateless_random_get_key_cou_354 + stateless_random_get_key_cou_355
    )  # u32[]
    stateless_random_get_key_cou_357 = 36183 * stateless_random_get_key_cou_352  # u32[]
    stateless_random_get_key_cou_358 = stateless_random_get_key_cou_356 & 65535  # u32[]
    stateless_random_get_key_cou_359 = (
        stateless_random_get_key_cou_357 + stateless_random_get_key_cou_358
    )  # u32[]
    stateless_random_get_key_cou_360 = stateless_random_get_key_cou_333 * np.uint32(
        3449720151
    )  # u32[]
    stateless_random_get_key_cou_361 = 52638 * stateless_random_get_key_cou_352  # u32[]
    stateless_random_get_key_cou_362 = lax.shift_right_logical(
        stateless_random_get_key_cou_356, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_363 = (
        stateless_random_get_key_cou_361 + stateless_random_get_key_cou_362
    )  # u32[]
    stateless_random_get_key_cou_364 = lax.shift_right_logical(
        stateless_random_get_key_cou_359, np.uint32(16)
    )  # u32[]
    stateless_random_get_key_cou_365 = (
        stateless_random_get_key_cou_363 + stateless_random_get_key_cou_364
    )  # u32[]
    stateless_random_get_key_cou_366 = (
        stateless_random_get_key_cou_365 ^ stateless_random_get_key_cou_324
    )  # u32[]
    stateless_random_get_key_cou_367 = (
        stateless_random_get_key_cou_366 ^ stateless_random_get_key_cou_334
    )  # u32[]
    stateless_random_get_key_cou_368 = (
        stateless_random_get_key_cou_350 ^ stateless_random_get_key_cou_309
    )  # u32[]
    stateless_random_get_key_cou_369 = (
        stateless_random_get_key_cou_368 ^ stateless_random_get_key_cou_335
    )  # u32[]
    stateless_random_get_key_cou_370 = jnp.stack(
        [stateless_random_get_key_cou_367, stateless_random_get_key_cou_360], axis=0
    )  # u32[2]
    stateless_random_get_key_cou_371 = jnp.stack(
        [
            np.uint32(0),
            np.uint32(0),
            stateless_random_get_key_cou_369,
            stateless_random_get_key_cou_345,
        ],
        axis=0,
    )  # u32[4]
    stateless_random_get_key_cou_372 = lax.reshape(
        stateless_random_get_key_cou_370, (1, 2)
    )  # u32[1, 2]
    stateless_random_get_key_cou_373 = lax.reshape(
        stateless_random_get_key_cou_371, (2, 2)
    )  # u32[2, 2]
    stateless_random_uniform_v2 = lax.reshape(stateless_random_get_key_cou_372, (2,))
    stateless_random_uniform_v2_1 = lax.reshape(stateless_random_get_key_cou_373, (4,))
    stateless_random_uniform_v2_2 = lax.iota(np.uint32, 1)  # u32[1]
    stateless_random_uniform_v2_3 = lax.slice(stateless_random_uniform_v2_1, (0,), (1,))
    stateless_random_uniform_v2_4 = lax.squeeze(stateless_random_uniform_v2_3, (0,))
    stateless_random_uniform_v2_5 = (
        stateless_random_uniform_v2_4 + stateless_random_uniform_v2_2
    )  # u32[1]
    stateless_random_uniform_v2_6 = (
        stateless_random_uniform_v2_5 < stateless_random_uniform_v2_2
    )  # bool[1]
    stateless_random_uniform_v2_7 = lax.convert_element_type(
        stateless_random_uniform_v2_6, np.uint32
    )  # u32[1]
    stateless_random_uniform_v2_8 = 0 + stateless_random_uniform_v2_7  # u32[1]
    stateless_random_uniform_v2_9 = lax.slice(stateless_random_uniform_v2_1, (1,), (2,))
    stateless_random_uniform_v2_10 = lax.squeeze(stateless_random_uniform_v2_9, (0,))
    stateless_random_uniform_v2_11 = (
        stateless_random_uniform_v2_10 + stateless_random_uniform_v2_8
    )  # u32[1]
    stateless_random_uniform_v2_12 = (
        stateless_random_uniform_v2_11 < stateless_random_uniform_v2_8
    )  # bool[1]
    stateless_random_uniform_v2_13 = lax.convert_element_type(
        stateless_random_uniform_v2_12, np.uint32
    )  # u32[1]
    stateless_random_uniform_v2_14 = lax.slice(
        stateless_random_uniform_v2_1, (2,), (3,)
    )  # u32[1]
    stateless_random_uniform_v2_15 = lax.squeeze(stateless_random_uniform_v2_14, (0,))
    stateless_random_uniform_v2_16 = (
        stateless_random_uniform_v2_15 + stateless_random_uniform_v2_13
    )  # u32[1]
    stateless_random_uniform_v2_17 = lax.slice(
        stateless_random_uniform_v2_1, (3,), (4,)
    )  # u32[1]
    stateless_random_uniform_v2_18 = lax.squeeze(stateless_random_uniform_v2_17, (0,))
    stateless_random_uniform_v2_19 = (
        stateless_random_uniform_v2_16 < stateless_random_uniform_v2_13
    )  # bool[1]
    stateless_random_uniform_v2_20 = lax.convert_element_type(
        stateless_random_uniform_v2_19, np.uint32
    )  # u32[1]
    stateless_random_uniform_v2_21 = (
        stateless_random_uniform_v2_18 + stateless_random_uniform_v2_20
    )  # u32[1]
    stateless_random_uniform_v2_22 = lax.slice(stateless_random_uniform_v2, (0,), (1,))
    stateless_random_uniform_v2_23 = lax.squeeze(stateless_random_uniform_v2_22, (0,))
    stateless_random_uniform_v2_24 = lax.slice(stateless_random_uniform_v2, (1,), (2,))
    stateless_random_uniform_v2_25 = lax.squeeze(stateless_random_uniform_v2_24, (0,))
    stateless_random_uniform_v2_26 = stateless_random_uniform_v2_5 & 65535  # u32[1]
    stateless_random_uniform_v2_27 = lax.shift_right_logical(
        stateless_random_uniform_v2_5, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_28 = 8019 * stateless_random_uniform_v2_26  # u32[1]
    stateless_random_uniform_v2_29 = 53841 * stateless_random_uniform_v2_26  # u32[1]
    stateless_random_uniform_v2_30 = lax.shift_right_logical(
        stateless_random_uniform_v2_28, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_31 = (
        stateless_random_uniform_v2_29 + stateless_random_uniform_v2_30
    )  # u32[1]
    stateless_random_uniform_v2_32 = 8019 * stateless_random_uniform_v2_27  # u32[1]
    stateless_random_uniform_v2_33 = stateless_random_uniform_v2_31 & 65535  # u32[1]
    stateless_random_uniform_v2_34 = (
        stateless_random_uniform_v2_32 + stateless_random_uniform_v2_33
    )  # u32[1]
    stateless_random_uniform_v2_35 = stateless_random_uniform_v2_5 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_36 = 53841 * stateless_random_uniform_v2_27  # u32[1]
    stateless_random_uniform_v2_37 = lax.shift_right_logical(
        stateless_random_uniform_v2_31, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_38 = (
        stateless_random_uniform_v2_36 + stateless_random_uniform_v2_37
    )  # u32[1]
    stateless_random_uniform_v2_39 = lax.shift_right_logical(
        stateless_random_uniform_v2_34, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_40 = (
        stateless_random_uniform_v2_38 + stateless_random_uniform_v2_39
    )  # u32[1]
    stateless_random_uniform_v2_41 = stateless_random_uniform_v2_16 & 65535  # u32[1]
    stateless_random_uniform_v2_42 = lax.shift_right_logical(
        stateless_random_uniform_v2_16, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_43 = 36183 * stateless_random_uniform_v2_41  # u32[1]
    stateless_random_uniform_v2_44 = 52638 * stateless_random_uniform_v2_41  # u32[1]
    stateless_random_uniform_v2_45 = lax.shift_right_logical(
        stateless_random_uniform_v2_43, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_46 = (
        stateless_random_uniform_v2_44 + stateless_random_uniform_v2_45
    )  # u32[1]
    stateless_random_uniform_v2_47 = 36183 * stateless_random_uniform_v2_42  # u32[1]
    stateless_random_uniform_v2_48 = stateless_random_uniform_v2_46 & 65535  # u32[1]
    stateless_random_uniform_v2_49 = (
        stateless_random_uniform_v2_47 + stateless_random_uniform_v2_48
    )  # u32[1]
    stateless_random_uniform_v2_50 = stateless_random_uniform_v2_16 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_51 = 52638 * stateless_random_uniform_v2_42  # u32[1]
    stateless_random_uniform_v2_52 = lax.shift_right_logical(
        stateless_random_uniform_v2_46, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_53 = (
        stateless_random_uniform_v2_51 + stateless_random_uniform_v2_52
    )  # u32[1]
    stateless_random_uniform_v2_54 = lax.shift_right_logical(
        stateless_random_uniform_v2_49, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_55 = (
        stateless_random_uniform_v2_53 + stateless_random_uniform_v2_54
    )  # u32[1]
    stateless_random_uniform_v2_56 = (
        stateless_random_uniform_v2_55 ^ stateless_random_uniform_v2_11
    )  # u32[1]
    stateless_random_uniform_v2_57 = (
        stateless_random_uniform_v2_56 ^ stateless_random_uniform_v2_23
    )  # u32[1]
    stateless_random_uniform_v2_58 = (
        stateless_random_uniform_v2_40 ^ stateless_random_uniform_v2_21
    )  # u32[1]
    stateless_random_uniform_v2_59 = (
        stateless_random_uniform_v2_58 ^ stateless_random_uniform_v2_25
    )  # u32[1]
    stateless_random_uniform_v2_60 = stateless_random_uniform_v2_23 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_61 = stateless_random_uniform_v2_25 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_62 = stateless_random_uniform_v2_57 & 65535  # u32[1]
    stateless_random_uniform_v2_63 = lax.shift_right_logical(
        stateless_random_uniform_v2_57, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_64 = 8019 * stateless_random_uniform_v2_62  # u32[1]
    stateless_random_uniform_v2_65 = 53841 * stateless_random_uniform_v2_62  # u32[1]
    stateless_random_uniform_v2_66 = lax.shift_right_logical(
        stateless_random_uniform_v2_64, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_67 = (
        stateless_random_uniform_v2_65 + stateless_random_uniform_v2_66
    )  # u32[1]
    stateless_random_uniform_v2_68 = 8019 * stateless_random_uniform_v2_63  # u32[1]
    stateless_random_uniform_v2_69 = stateless_random_uniform_v2_67 & 65535  # u32[1]
    stateless_random_uniform_v2_70 = (
        stateless_random_uniform_v2_68 + stateless_random_uniform_v2_69
    )  # u32[1]
    stateless_random_uniform_v2_71 = stateless_random_uniform_v2_57 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_72 = 53841 * stateless_random_uniform_v2_63  # u32[1]
    stateless_random_uniform_v2_73 = lax.shift_right_logical(
        stateless_random_uniform_v2_67, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_74 = (
        stateless_random_uniform_v2_72 + stateless_random_uniform_v2_73
    )  # u32[1]
    stateless_random_uniform_v2_75 = lax.shift_right_logical(
        stateless_random_uniform_v2_70, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_76 = (
        stateless_random_uniform_v2_74 + stateless_random_uniform_v2_75
    )  # u32[1]
    stateless_random_uniform_v2_77 = stateless_random_uniform_v2_59 & 65535  # u32[1]
    stateless_random_uniform_v2_78 = lax.shift_right_logical(
        stateless_random_uniform_v2_59, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_79 = 36183 * stateless_random_uniform_v2_77  # u32[1]
    stateless_random_uniform_v2_80 = 52638 * stateless_random_uniform_v2_77  # u32[1]
    stateless_random_uniform_v2_81 = lax.shift_right_logical(
        stateless_random_uniform_v2_79, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_82 = (
        stateless_random_uniform_v2_80 + stateless_random_uniform_v2_81
    )  # u32[1]
    stateless_random_uniform_v2_83 = 36183 * stateless_random_uniform_v2_78  # u32[1]
    stateless_random_uniform_v2_84 = stateless_random_uniform_v2_82 & 65535  # u32[1]
    stateless_random_uniform_v2_85 = (
        stateless_random_uniform_v2_83 + stateless_random_uniform_v2_84
    )  # u32[1]
    stateless_random_uniform_v2_86 = stateless_random_uniform_v2_59 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_87 = 52638 * stateless_random_uniform_v2_78  # u32[1]
    stateless_random_uniform_v2_88 = lax.shift_right_logical(
        stateless_random_uniform_v2_82, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_89 = (
        stateless_random_uniform_v2_87 + stateless_random_uniform_v2_88
    )  # u32[1]
    stateless_random_uniform_v2_90 = lax.shift_right_logical(
        stateless_random_uniform_v2_85, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_91 = (
        stateless_random_uniform_v2_89 + stateless_random_uniform_v2_90
    )  # u32[1]
    stateless_random_uniform_v2_92 = (
        stateless_random_uniform_v2_91 ^ stateless_random_uniform_v2_50
    )  # u32[1]
    stateless_random_uniform_v2_93 = (
        stateless_random_uniform_v2_92 ^ stateless_random_uniform_v2_60
    )  # u32[1]
    stateless_random_uniform_v2_94 = (
        stateless_random_uniform_v2_76 ^ stateless_random_uniform_v2_35
    )  # u32[1]
    stateless_random_uniform_v2_95 = (
        stateless_random_uniform_v2_94 ^ stateless_random_uniform_v2_61
    )  # u32[1]
    stateless_random_uniform_v2_96 = stateless_random_uniform_v2_60 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_97 = stateless_random_uniform_v2_61 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_98 = stateless_random_uniform_v2_93 & 65535  # u32[1]
    stateless_random_uniform_v2_99 = lax.shift_right_logical(
        stateless_random_uniform_v2_93, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_100 = 8019 * stateless_random_uniform_v2_98  # u32[1]
    stateless_random_uniform_v2_101 = 53841 * stateless_random_uniform_v2_98  # u32[1]
    stateless_random_uniform_v2_102 = lax.shift_right_logical(
        stateless_random_uniform_v2_100, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_103 = (
        stateless_random_uniform_v2_101 + stateless_random_uniform_v2_102
    )  # u32[1]
    stateless_random_uniform_v2_104 = 8019 * stateless_random_uniform_v2_99  # u32[1]
    stateless_random_uniform_v2_105 = stateless_random_uniform_v2_103 & 65535  # u32[1]
    stateless_random_uniform_v2_106 = (
        stateless_random_uniform_v2_104 + stateless_random_uniform_v2_105
    )  # u32[1]
    stateless_random_uniform_v2_107 = stateless_random_uniform_v2_93 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_108 = 53841 * stateless_random_uniform_v2_99  # u32[1]
    stateless_random_uniform_v2_109 = lax.shift_right_logical(
        stateless_random_uniform_v2_103, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_110 = (
        stateless_random_uniform_v2_108 + stateless_random_uniform_v2_109
    )  # u32[1]
    stateless_random_uniform_v2_111 = lax.shift_right_logical(
        stateless_random_uniform_v2_106, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_112 = (
        stateless_random_uniform_v2_110 + stateless_random_uniform_v2_111
    )  # u32[1]
    stateless_random_uniform_v2_113 = stateless_random_uniform_v2_95 & 65535  # u32[1]
    stateless_random_uniform_v2_114 = lax.shift_right_logical(
        stateless_random_uniform_v2_95, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_115 = 36183 * stateless_random_uniform_v2_113  # u32[1]
    stateless_random_uniform_v2_116 = 52638 * stateless_random_uniform_v2_113  # u32[1]
    stateless_random_uniform_v2_117 = lax.shift_right_logical(
        stateless_random_uniform_v2_115, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_118 = (
        stateless_random_uniform_v2_116 + stateless_random_uniform_v2_117
    )  # u32[1]
    stateless_random_uniform_v2_119 = 36183 * stateless_random_uniform_v2_114  # u32[1]
    stateless_random_uniform_v2_120 = stateless_random_uniform_v2_118 & 65535  # u32[1]
    stateless_random_uniform_v2_121 = (
        stateless_random_uniform_v2_119 + stateless_random_uniform_v2_120
    )  # u32[1]
    stateless_random_uniform_v2_122 = stateless_random_uniform_v2_95 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_123 = 52638 * stateless_random_uniform_v2_114  # u32[1]
    stateless_random_uniform_v2_124 = lax.shift_right_logical(
        stateless_random_uniform_v2_118, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_125 = (
        stateless_random_uniform_v2_123 + stateless_random_uniform_v2_124
    )  # u32[1]
    stateless_random_uniform_v2_126 = lax.shift_right_logical(
        stateless_random_uniform_v2_121, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_127 = (
        stateless_random_uniform_v2_125 + stateless_random_uniform_v2_126
    )  # u32[1]
    stateless_random_uniform_v2_128 = (
        stateless_random_uniform_v2_127 ^ stateless_random_uniform_v2_86
    )  # u32[1]
    stateless_random_uniform_v2_129 = (
        stateless_random_uniform_v2_128 ^ stateless_random_uniform_v2_96
    )  # u32[1]
    stateless_random_uniform_v2_130 = (
        stateless_random_uniform_v2_112 ^ stateless_random_uniform_v2_71
    )  # u32[1]
    stateless_random_uniform_v2_131 = (
        stateless_random_uniform_v2_130 ^ stateless_random_uniform_v2_97
    )  # u32[1]
    stateless_random_uniform_v2_132 = stateless_random_uniform_v2_96 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_133 = stateless_random_uniform_v2_97 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_134 = stateless_random_uniform_v2_129 & 65535  # u32[1]
    stateless_random_uniform_v2_135 = lax.shift_right_logical(
        stateless_random_uniform_v2_129, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_136 = 8019 * stateless_random_uniform_v2_134  # u32[1]
    stateless_random_uniform_v2_137 = 53841 * stateless_random_uniform_v2_134  # u32[1]
    stateless_random_uniform_v2_138 = lax.shift_right_logical(
        stateless_random_uniform_v2_136, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_139 = (
        stateless_random_uniform_v2_137 + stateless_random_uniform_v2_138
    )  # u32[1]
    stateless_random_uniform_v2_140 = 8019 * stateless_random_uniform_v2_135  # u32[1]
    stateless_random_uniform_v2_141 = stateless_random_uniform_v2_139 & 65535  # u32[1]
    stateless_random_uniform_v2_142 = (
        stateless_random_uniform_v2_140 + stateless_random_uniform_v2_141
    )  # u32[1]
    stateless_random_uniform_v2_143 = stateless_random_uniform_v2_129 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_144 = 53841 * stateless_random_uniform_v2_135  # u32[1]
    stateless_random_uniform_v2_145 = lax.shift_right_logical(
        stateless_random_uniform_v2_139, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_146 = (
        stateless_random_uniform_v2_144 + stateless_random_uniform_v2_145
    )  # u32[1]
    stateless_random_uniform_v2_147 = lax.shift_right_logical(
        stateless_random_uniform_v2_142, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_148 = (
        stateless_random_uniform_v2_146 + stateless_random_uniform_v2_147
    )  # u32[1]
    stateless_random_uniform_v2_149 = stateless_random_uniform_v2_131 & 65535  # u32[1]
    stateless_random_uniform_v2_150 = lax.shift_right_logical(
        stateless_random_uniform_v2_131, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_151 = 36183 * stateless_random_uniform_v2_149  # u32[1]
    stateless_random_uniform_v2_152 = 52638 * stateless_random_uniform_v2_149  # u32[1]
    stateless_random_uniform_v2_153 = lax.shift_right_logical(
        stateless_random_uniform_v2_151, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_154 = (
        stateless_random_uniform_v2_152 + stateless_random_uniform_v2_153
    )  # u32[1]
    stateless_random_uniform_v2_155 = 36183 * stateless_random_uniform_v2_150  # u32[1]
    stateless_random_uniform_v2_156 = stateless_random_uniform_v2_154 & 65535  # u32[1]
    stateless_random_uniform_v2_157 = (
        stateless_random_uniform_v2_155 + stateless_random_uniform_v2_156
    )  # u32[1]
    stateless_random_uniform_v2_158 = stateless_random_uniform_v2_131 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_159 = 52638 * stateless_random_uniform_v2_150  # u32[1]
    stateless_random_uniform_v2_160 = lax.shift_right_logical(
        stateless_random_uniform_v2_154, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_161 = (
        stateless_random_uniform_v2_159 + stateless_random_uniform_v2_160
    )  # u32[1]
    stateless_random_uniform_v2_162 = lax.shift_right_logical(
        stateless_random_uniform_v2_157, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_163 = (
        stateless_random_uniform_v2_161 + stateless_random_uniform_v2_162
    )  # u32[1]
    stateless_random_uniform_v2_164 = (
        stateless_random_uniform_v2_163 ^ stateless_random_uniform_v2_122
    )  # u32[1]
    stateless_random_uniform_v2_165 = (
        stateless_random_uniform_v2_164 ^ stateless_random_uniform_v2_132
    )  # u32[1]
    stateless_random_uniform_v2_166 = (
        stateless_random_uniform_v2_148 ^ stateless_random_uniform_v2_107
    )  # u32[1]
    stateless_random_uniform_v2_167 = (
        stateless_random_uniform_v2_166 ^ stateless_random_uniform_v2_133
    )  # u32[1]
    stateless_random_uniform_v2_168 = stateless_random_uniform_v2_132 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_169 = stateless_random_uniform_v2_133 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_170 = stateless_random_uniform_v2_165 & 65535  # u32[1]
    stateless_random_uniform_v2_171 = lax.shift_right_logical(
        stateless_random_uniform_v2_165, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_172 = 8019 * stateless_random_uniform_v2_170  # u32[1]
    stateless_random_uniform_v2_173 = 53841 * stateless_random_uniform_v2_170  # u32[1]
    stateless_random_uniform_v2_174 = lax.shift_right_logical(
        stateless_random_uniform_v2_172, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_175 = (
        stateless_random_uniform_v2_173 + stateless_random_uniform_v2_174
    )  # u32[1]
    stateless_random_uniform_v2_176 = 8019 * stateless_random_uniform_v2_171  # u32[1]
    stateless_random_uniform_v2_177 = stateless_random_uniform_v2_175 & 65535  # u32[1]
    stateless_random_uniform_v2_178 = (
        stateless_random_uniform_v2_176 + stateless_random_uniform_v2_177
    )  # u32[1]
    stateless_random_uniform_v2_179 = stateless_random_uniform_v2_165 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_180 = 53841 * stateless_random_uniform_v2_171  # u32[1]
    stateless_random_uniform_v2_181 = lax.shift_right_logical(
        stateless_random_uniform_v2_175, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_182 = (
        stateless_random_uniform_v2_180 + stateless_random_uniform_v2_181
    )  # u32[1]
    stateless_random_uniform_v2_183 = lax.shift_right_logical(
        stateless_random_uniform_v2_178, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_184 = (
        stateless_random_uniform_v2_182 + stateless_random_uniform_v2_183
    )  # u32[1]
    stateless_random_uniform_v2_185 = stateless_random_uniform_v2_167 & 65535  # u32[1]
    stateless_random_uniform_v2_186 = lax.shift_right_logical(
        stateless_random_uniform_v2_167, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_187 = 36183 * stateless_random_uniform_v2_185  # u32[1]
    stateless_random_uniform_v2_188 = 52638 * stateless_random_uniform_v2_185  # u32[1]
    stateless_random_uniform_v2_189 = lax.shift_right_logical(
        stateless_random_uniform_v2_187, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_190 = (
        stateless_random_uniform_v2_188 + stateless_random_uniform_v2_189
    )  # u32[1]
    stateless_random_uniform_v2_191 = 36183 * stateless_random_uniform_v2_186  # u32[1]
    stateless_random_uniform_v2_192 = stateless_random_uniform_v2_190 & 65535  # u32[1]
    stateless_random_uniform_v2_193 = (
        stateless_random_uniform_v2_191 + stateless_random_uniform_v2_192
    )  # u32[1]
    stateless_random_uniform_v2_194 = stateless_random_uniform_v2_167 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_195 = 52638 * stateless_random_uniform_v2_186  # u32[1]
    stateless_random_uniform_v2_196 = lax.shift_right_logical(
        stateless_random_uniform_v2_190, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_197 = (
        stateless_random_uniform_v2_195 + stateless_random_uniform_v2_196
    )  # u32[1]
    stateless_random_uniform_v2_198 = lax.shift_right_logical(
        stateless_random_uniform_v2_193, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_199 = (
        stateless_random_uniform_v2_197 + stateless_random_uniform_v2_198
    )  # u32[1]
    stateless_random_uniform_v2_200 = (
        stateless_random_uniform_v2_199 ^ stateless_random_uniform_v2_158
    )  # u32[1]
    stateless_random_uniform_v2_201 = (
        stateless_random_uniform_v2_200 ^ stateless_random_uniform_v2_168
    )  # u32[1]
    stateless_random_uniform_v2_202 = (
        stateless_random_uniform_v2_184 ^ stateless_random_uniform_v2_143
    )  # u32[1]
    stateless_random_uniform_v2_203 = (
        stateless_random_uniform_v2_202 ^ stateless_random_uniform_v2_169
    )  # u32[1]
    stateless_random_uniform_v2_204 = stateless_random_uniform_v2_168 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_205 = stateless_random_uniform_v2_169 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_206 = stateless_random_uniform_v2_201 & 65535  # u32[1]
    stateless_random_uniform_v2_207 = lax.shift_right_logical(
        stateless_random_uniform_v2_201, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_208 = 8019 * stateless_random_uniform_v2_206  # u32[1]
    stateless_random_uniform_v2_209 = 53841 * stateless_random_uniform_v2_206  # u32[1]
    stateless_random_uniform_v2_210 = lax.shift_right_logical(
        stateless_random_uniform_v2_208, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_211 = (
        stateless_random_uniform_v2_209 + stateless_random_uniform_v2_210
    )  # u32[1]
    stateless_random_uniform_v2_212 = 8019 * stateless_random_uniform_v2_207  # u32[1]
    stateless_random_uniform_v2_213 = stateless_random_uniform_v2_211 & 65535  # u32[1]
    stateless_random_uniform_v2_214 = (
        stateless_random_uniform_v2_212 + stateless_random_uniform_v2_213
    )  # u32[1]
    stateless_random_uniform_v2_215 = stateless_random_uniform_v2_201 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_216 = 53841 * stateless_random_uniform_v2_207  # u32[1]
    stateless_random_uniform_v2_217 = lax.shift_right_logical(
        stateless_random_uniform_v2_211, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_218 = (
        stateless_random_uniform_v2_216 + stateless_random_uniform_v2_217
    )  # u32[1]
    stateless_random_uniform_v2_219 = lax.shift_right_logical(
        stateless_random_uniform_v2_214, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_220 = (
        stateless_random_uniform_v2_218 + stateless_random_uniform_v2_219
    )  # u32[1]
    stateless_random_uniform_v2_221 = stateless_random_uniform_v2_203 & 65535  # u32[1]
    stateless_random_uniform_v2_222 = lax.shift_right_logical(
        stateless_random_uniform_v2_203, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_223 = 36183 * stateless_random_uniform_v2_221  # u32[1]
    stateless_random_uniform_v2_224 = 52638 * stateless_random_uniform_v2_221  # u32[1]
    stateless_random_uniform_v2_225 = lax.shift_right_logical(
        stateless_random_uniform_v2_223, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_226 = (
        stateless_random_uniform_v2_224 + stateless_random_uniform_v2_225
    )  # u32[1]
    stateless_random_uniform_v2_227 = 36183 * stateless_random_uniform_v2_222  # u32[1]
    stateless_random_uniform_v2_228 = stateless_random_uniform_v2_226 & 65535  # u32[1]
    stateless_random_uniform_v2_229 = (
        stateless_random_uniform_v2_227 + stateless_random_uniform_v2_228
    )  # u32[1]
    stateless_random_uniform_v2_230 = stateless_random_uniform_v2_203 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_231 = 52638 * stateless_random_uniform_v2_222  # u32[1]
    stateless_random_uniform_v2_232 = lax.shift_right_logical(
        stateless_random_uniform_v2_226, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_233 = (
        stateless_random_uniform_v2_231 + stateless_random_uniform_v2_232
    )  # u32[1]
    stateless_random_uniform_v2_234 = lax.shift_right_logical(
        stateless_random_uniform_v2_229, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_235 = (
        stateless_random_uniform_v2_233 + stateless_random_uniform_v2_234
    )  # u32[1]
    stateless_random_uniform_v2_236 = (
        stateless_random_uniform_v2_235 ^ stateless_random_uniform_v2_194
    )  # u32[1]
    stateless_random_uniform_v2_237 = (
        stateless_random_uniform_v2_236 ^ stateless_random_uniform_v2_204
    )  # u32[1]
    stateless_random_uniform_v2_238 = (
        stateless_random_uniform_v2_220 ^ stateless_random_uniform_v2_179
    )  # u32[1]
    stateless_random_uniform_v2_239 = (
        stateless_random_uniform_v2_238 ^ stateless_random_uniform_v2_205
    )  # u32[1]
    stateless_random_uniform_v2_240 = stateless_random_uniform_v2_204 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_241 = stateless_random_uniform_v2_205 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_242 = stateless_random_uniform_v2_237 & 65535  # u32[1]
    stateless_random_uniform_v2_243 = lax.shift_right_logical(
        stateless_random_uniform_v2_237, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_244 = 8019 * stateless_random_uniform_v2_242  # u32[1]
    stateless_random_uniform_v2_245 = 53841 * stateless_random_uniform_v2_242  # u32[1]
    stateless_random_uniform_v2_246 = lax.shift_right_logical(
        stateless_random_uniform_v2_244, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_247 = (
        stateless_random_uniform_v2_245 + stateless_random_uniform_v2_246
    )  # u32[1]
    stateless_random_uniform_v2_248 = 8019 * stateless_random_uniform_v2_243  # u32[1]
    stateless_random_uniform_v2_249 = stateless_random_uniform_v2_247 & 65535  # u32[1]
    stateless_random_uniform_v2_250 = (
        stateless_random_uniform_v2_248 + stateless_random_uniform_v2_249
    )  # u32[1]
    stateless_random_uniform_v2_251 = stateless_random_uniform_v2_237 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_252 = 53841 * stateless_random_uniform_v2_243  # u32[1]
    stateless_random_uniform_v2_253 = lax.shift_right_logical(
        stateless_random_uniform_v2_247, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_254 = (
        stateless_random_uniform_v2_252 + stateless_random_uniform_v2_253
    )  # u32[1]
    stateless_random_uniform_v2_255 = lax.shift_right_logical(
        stateless_random_uniform_v2_250, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_256 = (
        stateless_random_uniform_v2_254 + stateless_random_uniform_v2_255
    )  # u32[1]
    stateless_random_uniform_v2_257 = stateless_random_uniform_v2_239 & 65535  # u32[1]
    stateless_random_uniform_v2_258 = lax.shift_right_logical(
        stateless_random_uniform_v2_239, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_259 = 36183 * stateless_random_uniform_v2_257  # u32[1]
    stateless_random_uniform_v2_260 = 52638 * stateless_random_uniform_v2_257  # u32[1]
    stateless_random_uniform_v2_261 = lax.shift_right_logical(
        stateless_random_uniform_v2_259, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_262 = (
        stateless_random_uniform_v2_260 + stateless_random_uniform_v2_261
    )  # u32[1]
    stateless_random_uniform_v2_263 = 36183 * stateless_random_uniform_v2_258  # u32[1]
    stateless_random_uniform_v2_264 = stateless_random_uniform_v2_262 & 65535  # u32[1]
    stateless_random_uniform_v2_265 = (
        stateless_random_uniform_v2_263 + stateless_random_uniform_v2_264
    )  # u32[1]
    stateless_random_uniform_v2_266 = stateless_random_uniform_v2_239 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_267 = 52638 * stateless_random_uniform_v2_258  # u32[1]
    stateless_random_uniform_v2_268 = lax.shift_right_logical(
        stateless_random_uniform_v2_262, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_269 = (
        stateless_random_uniform_v2_267 + stateless_random_uniform_v2_268
    )  # u32[1]
    stateless_random_uniform_v2_270 = lax.shift_right_logical(
        stateless_random_uniform_v2_265, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_271 = (
        stateless_random_uniform_v2_269 + stateless_random_uniform_v2_270
    )  # u32[1]
    stateless_random_uniform_v2_272 = (
        stateless_random_uniform_v2_271 ^ stateless_random_uniform_v2_230
    )  # u32[1]
    stateless_random_uniform_v2_273 = (
        stateless_random_uniform_v2_272 ^ stateless_random_uniform_v2_240
    )  # u32[1]
    stateless_random_uniform_v2_274 = (
        stateless_random_uniform_v2_256 ^ stateless_random_uniform_v2_215
    )  # u32[1]
    stateless_random_uniform_v2_275 = (
        stateless_random_uniform_v2_274 ^ stateless_random_uniform_v2_241
    )  # u32[1]
    stateless_random_uniform_v2_276 = stateless_random_uniform_v2_240 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_277 = stateless_random_uniform_v2_241 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_278 = stateless_random_uniform_v2_273 & 65535  # u32[1]
    stateless_random_uniform_v2_279 = lax.shift_right_logical(
        stateless_random_uniform_v2_273, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_280 = 8019 * stateless_random_uniform_v2_278  # u32[1]
    stateless_random_uniform_v2_281 = 53841 * stateless_random_uniform_v2_278  # u32[1]
    stateless_random_uniform_v2_282 = lax.shift_right_logical(
        stateless_random_uniform_v2_280, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_283 = (
        stateless_random_uniform_v2_281 + stateless_random_uniform_v2_282
    )  # u32[1]
    stateless_random_uniform_v2_284 = 8019 * stateless_random_uniform_v2_279  # u32[1]
    stateless_random_uniform_v2_285 = stateless_random_uniform_v2_283 & 65535  # u32[1]
    stateless_random_uniform_v2_286 = (
        stateless_random_uniform_v2_284 + stateless_random_uniform_v2_285
    )  # u32[1]
    stateless_random_uniform_v2_287 = stateless_random_uniform_v2_273 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_288 = 53841 * stateless_random_uniform_v2_279  # u32[1]
    stateless_random_uniform_v2_289 = lax.shift_right_logical(
        stateless_random_uniform_v2_283, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_290 = (
        stateless_random_uniform_v2_288 + stateless_random_uniform_v2_289
    )  # u32[1]
    stateless_random_uniform_v2_291 = lax.shift_right_logical(
        stateless_random_uniform_v2_286, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_292 = (
        stateless_random_uniform_v2_290 + stateless_random_uniform_v2_291
    )  # u32[1]
    stateless_random_uniform_v2_293 = stateless_random_uniform_v2_275 & 65535  # u32[1]
    stateless_random_uniform_v2_294 = lax.shift_right_logical(
        stateless_random_uniform_v2_275, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_295 = 36183 * stateless_random_uniform_v2_293  # u32[1]
    stateless_random_uniform_v2_296 = 52638 * stateless_random_uniform_v2_293  # u32[1]
    stateless_random_uniform_v2_297 = lax.shift_right_logical(
        stateless_random_uniform_v2_295, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_298 = (
        stateless_random_uniform_v2_296 + stateless_random_uniform_v2_297
    )  # u32[1]
    stateless_random_uniform_v2_299 = 36183 * stateless_random_uniform_v2_294  # u32[1]
    stateless_random_uniform_v2_300 = stateless_random_uniform_v2_298 & 65535  # u32[1]
    stateless_random_uniform_v2_301 = (
        stateless_random_uniform_v2_299 + stateless_random_uniform_v2_300
    )  # u32[1]
    stateless_random_uniform_v2_302 = stateless_random_uniform_v2_275 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_303 = 52638 * stateless_random_uniform_v2_294  # u32[1]
    stateless_random_uniform_v2_304 = lax.shift_right_logical(
        stateless_random_uniform_v2_298, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_305 = (
        stateless_random_uniform_v2_303 + stateless_random_uniform_v2_304
    )  # u32[1]
    stateless_random_uniform_v2_306 = lax.shift_right_logical(
        stateless_random_uniform_v2_301, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_307 = (
        stateless_random_uniform_v2_305 + stateless_random_uniform_v2_306
    )  # u32[1]
    stateless_random_uniform_v2_308 = (
        stateless_random_uniform_v2_307 ^ stateless_random_uniform_v2_266
    )  # u32[1]
    stateless_random_uniform_v2_309 = (
        stateless_random_uniform_v2_308 ^ stateless_random_uniform_v2_276
    )  # u32[1]
    stateless_random_uniform_v2_310 = (
        stateless_random_uniform_v2_292 ^ stateless_random_uniform_v2_251
    )  # u32[1]
    stateless_random_uniform_v2_311 = (
        stateless_random_uniform_v2_310 ^ stateless_random_uniform_v2_277
    )  # u32[1]
    stateless_random_uniform_v2_312 = stateless_random_uniform_v2_276 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_313 = stateless_random_uniform_v2_277 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_314 = stateless_random_uniform_v2_309 & 65535  # u32[1]
    stateless_random_uniform_v2_315 = lax.shift_right_logical(
        stateless_random_uniform_v2_309, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_316 = 8019 * stateless_random_uniform_v2_314  # u32[1]
    stateless_random_uniform_v2_317 = 53841 * stateless_random_uniform_v2_314  # u32[1]
    stateless_random_uniform_v2_318 = lax.shift_right_logical(
        stateless_random_uniform_v2_316, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_319 = (
        stateless_random_uniform_v2_317 + stateless_random_uniform_v2_318
    )  # u32[1]
    stateless_random_uniform_v2_320 = 8019 * stateless_random_uniform_v2_315  # u32[1]
    stateless_random_uniform_v2_321 = stateless_random_uniform_v2_319 & 65535  # u32[1]
    stateless_random_uniform_v2_322 = (
        stateless_random_uniform_v2_320 + stateless_random_uniform_v2_321
    )  # u32[1]
    stateless_random_uniform_v2_323 = stateless_random_uniform_v2_309 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_324 = 53841 * stateless_random_uniform_v2_315  # u32[1]
    stateless_random_uniform_v2_325 = lax.shift_right_logical(
        stateless_random_uniform_v2_319, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_326 = (
        stateless_random_uniform_v2_324 + stateless_random_uniform_v2_325
    )  # u32[1]
    stateless_random_uniform_v2_327 = lax.shift_right_logical(
        stateless_random_uniform_v2_322, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_328 = (
        stateless_random_uniform_v2_326 + stateless_random_uniform_v2_327
    )  # u32[1]
    stateless_random_uniform_v2_329 = stateless_random_uniform_v2_311 & 65535  # u32[1]
    stateless_random_uniform_v2_330 = lax.shift_right_logical(
        stateless_random_uniform_v2_311, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_331 = 36183 * stateless_random_uniform_v2_329  # u32[1]
    stateless_random_uniform_v2_332 = 52638 * stateless_random_uniform_v2_329  # u32[1]
    stateless_random_uniform_v2_333 = lax.shift_right_logical(
        stateless_random_uniform_v2_331, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_334 = (
        stateless_random_uniform_v2_332 + stateless_random_uniform_v2_333
    )  # u32[1]
    stateless_random_uniform_v2_335 = 36183 * stateless_random_uniform_v2_330  # u32[1]
    stateless_random_uniform_v2_336 = stateless_random_uniform_v2_334 & 65535  # u32[1]
    stateless_random_uniform_v2_337 = (
        stateless_random_uniform_v2_335 + stateless_random_uniform_v2_336
    )  # u32[1]
    stateless_random_uniform_v2_338 = stateless_random_uniform_v2_311 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_339 = 52638 * stateless_random_uniform_v2_330  # u32[1]
    stateless_random_uniform_v2_340 = lax.shift_right_logical(
        stateless_random_uniform_v2_334, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_341 = (
        stateless_random_uniform_v2_339 + stateless_random_uniform_v2_340
    )  # u32[1]
    stateless_random_uniform_v2_342 = lax.shift_right_logical(
        stateless_random_uniform_v2_337, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_343 = (
        stateless_random_uniform_v2_341 + stateless_random_uniform_v2_342
    )  # u32[1]
    stateless_random_uniform_v2_344 = (
        stateless_random_uniform_v2_343 ^ stateless_random_uniform_v2_302
    )  # u32[1]
    stateless_random_uniform_v2_345 = (
        stateless_random_uniform_v2_344 ^ stateless_random_uniform_v2_312
    )  # u32[1]
    stateless_random_uniform_v2_346 = (
        stateless_random_uniform_v2_328 ^ stateless_random_uniform_v2_287
    )  # u32[1]
    stateless_random_uniform_v2_347 = (
        stateless_random_uniform_v2_346 ^ stateless_random_uniform_v2_313
    )  # u32[1]
    stateless_random_uniform_v2_348 = stateless_random_uniform_v2_312 + np.uint32(
        2654435769
    )  # u32[]
    stateless_random_uniform_v2_349 = stateless_random_uniform_v2_313 + np.uint32(
        3144134277
    )  # u32[]
    stateless_random_uniform_v2_350 = stateless_random_uniform_v2_345 & 65535  # u32[1]
    stateless_random_uniform_v2_351 = lax.shift_right_logical(
        stateless_random_uniform_v2_345, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_352 = 8019 * stateless_random_uniform_v2_350  # u32[1]
    stateless_random_uniform_v2_353 = 53841 * stateless_random_uniform_v2_350  # u32[1]
    stateless_random_uniform_v2_354 = lax.shift_right_logical(
        stateless_random_uniform_v2_352, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_355 = (
        stateless_random_uniform_v2_353 + stateless_random_uniform_v2_354
    )  # u32[1]
    stateless_random_uniform_v2_356 = 8019 * stateless_random_uniform_v2_351  # u32[1]
    stateless_random_uniform_v2_357 = stateless_random_uniform_v2_355 & 65535  # u32[1]
    stateless_random_uniform_v2_358 = (
        stateless_random_uniform_v2_356 + stateless_random_uniform_v2_357
    )  # u32[1]
    stateless_random_uniform_v2_359 = stateless_random_uniform_v2_345 * np.uint32(
        3528531795
    )  # u32[1]
    stateless_random_uniform_v2_360 = 53841 * stateless_random_uniform_v2_351  # u32[1]
    stateless_random_uniform_v2_361 = lax.shift_right_logical(
        stateless_random_uniform_v2_355, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_362 = (
        stateless_random_uniform_v2_360 + stateless_random_uniform_v2_361
    )  # u32[1]
    stateless_random_uniform_v2_363 = lax.shift_right_logical(
        stateless_random_uniform_v2_358, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_364 = (
        stateless_random_uniform_v2_362 + stateless_random_uniform_v2_363
    )  # u32[1]
    stateless_random_uniform_v2_365 = stateless_random_uniform_v2_347 & 65535  # u32[1]
    stateless_random_uniform_v2_366 = lax.shift_right_logical(
        stateless_random_uniform_v2_347, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_367 = 36183 * stateless_random_uniform_v2_365  # u32[1]
    stateless_random_uniform_v2_368 = 52638 * stateless_random_uniform_v2_365  # u32[1]
    stateless_random_uniform_v2_369 = lax.shift_right_logical(
        stateless_random_uniform_v2_367, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_370 = (
        stateless_random_uniform_v2_368 + stateless_random_uniform_v2_369
    )  # u32[1]
    stateless_random_uniform_v2_371 = 36183 * stateless_random_uniform_v2_366  # u32[1]
    stateless_random_uniform_v2_372 = stateless_random_uniform_v2_370 & 65535  # u32[1]
    stateless_random_uniform_v2_373 = (
        stateless_random_uniform_v2_371 + stateless_random_uniform_v2_372
    )  # u32[1]
    stateless_random_uniform_v2_374 = stateless_random_uniform_v2_347 * np.uint32(
        3449720151
    )  # u32[1]
    stateless_random_uniform_v2_375 = 52638 * stateless_random_uniform_v2_366  # u32[1]
    stateless_random_uniform_v2_376 = lax.shift_right_logical(
        stateless_random_uniform_v2_370, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_377 = (
        stateless_random_uniform_v2_375 + stateless_random_uniform_v2_376
    )  # u32[1]
    stateless_random_uniform_v2_378 = lax.shift_right_logical(
        stateless_random_uniform_v2_373, np.uint32(16)
    )  # u32[1]
    stateless_random_uniform_v2_379 = (
        stateless_random_uniform_v2_377 + stateless_random_uniform_v2_378
    )  # u32[1]
    stateless_random_uniform_v2_380 = (
        stateless_random_uniform_v2_379 ^ stateless_random_uniform_v2_338
    )  # u32[1]
    stateless_random_uniform_v2_381 = (
        stateless_random_uniform_v2_380 ^ stateless_random_uniform_v2_348
    )  # u32[1]
    stateless_random_uniform_v2_382 = (
        stateless_random_uniform_v2_364 ^ stateless_random_uniform_v2_323
    )  # u32[1]
    stateless_random_uniform_v2_383 = (
        stateless_random_uniform_v2_382 ^ stateless_random_uniform_v2_349
    )  # u32[1]
    stateless_random_uniform_v2_384 = jnp.stack(
        [
            stateless_random_uniform_v2_381,
            stateless_random_uniform_v2_374,
            stateless_random_uniform_v2_383,
            stateless_random_uniform_v2_359,
        ],
        axis=1,
    )  # u32[1, 4]
    stateless_random_uniform_v2_385 = lax.reshape(stateless_random_uniform_v2_384, (4,))
    stateless_random_uniform_v2_386 = stateless_random_uniform_v2_385 & 8388607
    stateless_random_uniform_v2_387 = stateless_random_uniform_v2_386 | 1065353216
    stateless_random_uniform_v2_388 = lax.bitcast_convert_type(
        stateless_random_uniform_v2_387, np.float32
    )  # f32[4]
    stateless_random_uniform_v2_389 = stateless_random_uniform_v2_388 - 1.0  # f32[4]
    stateless_random_uniform_v2_390 = lax.slice(
        stateless_random_uniform_v2_389, (0,), (3,)
    )  # f32[3]
    mul = jnp.full((3,), 1.0, np.float32)  # f32[3]
    mul_1 = stateless_random_uniform_v2_390 * mul  # f32[3]
    return mul_1


def serving_default(params, image):
    """TensorFlow function 'serving_default'.

    Args:
      params: dict from variable name to array.
      image: float32[b, 6, 6, 1].

    Returns:
      The results, and params with updated variables.
    """
    image = jnp.asarray(image, np.float32)
    b = image.shape[0]
    calls = params["calls"]  # i32[]
    assign_add_variable_op = calls + 1  # i32[]
    kernel = params["kernel"]  # f32[3, 3, 1, 2]
    conv2_d = lax.conv_general_dilated(
        image,
        kernel,
        window_strides=(1, 1),
        padding=((1, 1), (1, 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # f32[b, 6, 6, 2]
    minimum = _clip_by_value(conv2_d, b)  # f32[b, 6, 6, 2]
    clip_by_value = jnp.full((b, 6, 6, 2), -1.0, np.float32)  # f32[b, 6, 6, 2]
    (clip_by_value_1,) = _clip_by_value_1(minimum, clip_by_value)
    identity_n = lax.stop_gradient(clip_by_value_1)  # f32[b, 6, 6, 2]
    identity_n_1 = lax.stop_gradient(conv2_d)  # f32[b, 6, 6, 2]
    identity_n_2, _ = _identity_n(conv2_d, identity_n, identity_n_1)
    while_1 = jnp.full((3, b, 2), 0.0, np.float32)  # f32[3, b, 2]

    def while_body(carry, xs):
        carry_1, carry_2 = carry
        _, _, x = xs
        tanh = lax.tanh(carry_2)  # f32[b, 6, 6, 2]
        cast = lax.convert_element_type(x, np.float32)  # f32[]
        mul = 0.1 * cast  # f32[]
        add = lax.broadcast_in_dim(mul, (b, 6, 6, 2), ())  # f32[b, 6, 6, 2]
        add_1 = tanh + add  # f32[b, 6, 6, 2]
        mean = lax.reduce_sum(add_1, axes=(1, 2))  # f32[b, 2]
        mean_1 = mean / 36.0  # f32[b, 2]
        tensor_list_set_item = x < 0  # bool[]
        tensor_list_set_item_1 = x + 3  # i32[]
        tensor_list_set_item_2 = lax.select(
            tensor_list_set_item, tensor_list_set_item_1, x
        )  # i32[]
        tensor_list_set_item_3 = lax.broadcast_in_dim(tensor_list_set_item_2, (1,), ())
        tensor_list_set_item_4 = lax.scatter(
            carry_1,
            tensor_list_set_item_3,
            mean_1,
            dimension_numbers=lax.ScatterDimensionNumbers(
                update_window_dims=(0, 1),
                inserted_window_dims=(0,),
                scatter_dims_to_operand_dims=(0,),
            ),
            indices_are_sorted=True,
            unique_indices=True,
            mode=lax.GatherScatterMode.FILL_OR_DROP,
        )  # f32[3, b, 2]
        return (tensor_list_set_item_4, add_1), None

    (while_2, while_3), _ = lax.scan(
        while_body,
        (while_1, identity_n_2),
        (
            np.array([0, 1, 2], np.int32),
            np.array([0, 1, 2], np.int32),
            np.array([0, 1, 2], np.int32),
        ),
        length=3,
    )
    sum_1 = lax.reduce_sum(while_3, axes=(0, 1, 2, 3))  # f32[]
    greater = sum_1 > 0.0  # bool[]
    cond = lax.convert_element_type(greater, np.int32)  # i32[]
    cond_1 = lax.clamp(np.int32(0), cond, np.int32(1))  # i32[]

    def cond_false():
        return (while_3,)

    def cond_true():
        mul_1 = jnp.full((b, 6, 6, 2), 2.0, np.float32)  # f32[b, 6, 6, 2]
        mul_2 = while_3 * mul_1  # f32[b, 6, 6, 2]
        return (mul_2,)

    (cond_2,) = lax.switch(cond_1, [cond_false, cond_true])
    mul_3 = _stateless_random_uniform()  # f32[3]
    stateless_random_uniform = jnp.full((3,), 0.0, np.float32)  # f32[3]
    stateless_random_uniform_1 = mul_3 + stateless_random_uniform  # f32[3]
    mean_2 = lax.reduce_sum(cond_2, axes=(1, 2))  # f32[b, 2]
    mean_3 = mean_2 / 36.0  # f32[b, 2]
    dense = params["dense"]  # f32[2, 3]
    matmul = mean_3 @ dense  # f32[b, 3]
    add_1_1 = lax.broadcast_in_dim(stateless_random_uniform_1, (b, 3), (1,))
    add_1_2 = matmul + add_1_1  # f32[b, 3]
    softmax = lax.reduce_max(add_1_2, axes=(1,))  # f32[b]
    softmax_1 = lax.max(np.float32(-jnp.inf), softmax)  # f32[b]
    softmax_2 = lax.broadcast_in_dim(softmax_1, (b, 1), (0,))  # f32[b, 1]
    softmax_3 = lax.stop_gradient(softmax_2)  # f32[b, 1]
    softmax_4 = add_1_2 - softmax_3  # f32[b, 3]
    softmax_5 = lax.exp(softmax_4)  # f32[b, 3]
    softmax_6 = lax.reduce_sum(softmax_5, axes=(1,))  # f32[b]
    softmax_7 = lax.broadcast_in_dim(softmax_6, (b, 1), (0,))  # f32[b, 1]
    softmax_8 = softmax_5 / softmax_7  # f32[b, 3]
    arg_max = jnp.full((b, 3), -3.4028235e38, np.float32)  # f32[b, 3]
    arg_max_1 = add_1_2 > arg_max  # bool[b, 3]
    arg_max_2 = lax.select(arg_max_1, add_1_2, arg_max)  # f32[b, 3]
    arg_max_3 = lax.argmax(arg_max_2, 1, np.int32)  # i32[b]
    outputs = {"probabilities": softmax_8, "best": arg_max_3, "rows": while_2}
    return outputs, {**params, "calls": assign_add_variable_op}
