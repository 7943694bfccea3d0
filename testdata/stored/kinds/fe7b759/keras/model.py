"""model.keras, converted from TensorFlow.

Needs JAX and numpy only; params are nested dicts of arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["load_params", "serving_default", "train"]


def load_params(*paths):
    """Read params.safetensors, or several such files, as a nested dict by scope."""
    from safetensors.numpy import load_file

    flat = {name: value for path in paths for name, value in load_file(path).items()}
    params = {}
    for name, value in flat.items():
        *scopes, leaf = name.split("/")
        inner = params
        for scope in scopes:
            inner = inner.setdefault(scope, {})
        inner[leaf] = value
    return params


def _updated(params, changes):
    """Return params with other values for some of them."""
    return {
        **params,
        **{
            name: _updated(params[name], value) if isinstance(value, dict) else value
            for name, value in changes.items()
        },
    }


def _batch_norm(x, mean, variance, gamma, beta, epsilon):
    """Normalize the last axis by a mean and variance, then scale and shift."""
    scale = lax.rsqrt(variance + epsilon) * gamma
    return x * scale + (beta - mean * scale)


def _hidden(params, x):
    """TensorFlow scope hidden_1: f32[b, 4] -> f32[b, 5]."""
    return jax.nn.relu(x @ params["kernel"] + params["bias"])


def _batch_normalization(params, x):
    """TensorFlow scope batch_normalization_1: f32[b, 5] -> f32[b, 5]."""
    return _batch_norm(
        x,
        params["moving_mean"],
        params["moving_variance"],
        params["gamma"],
        params["beta"],
        epsilon=0.001,
    )


def _head(params, x):
    """TensorFlow scope head_1: f32[b, 5] -> f32[b, 3]."""
    return x @ params["kernel"] + params["bias"]


def _batchnorm(params, hidden, squeeze, x):
    """TensorFlow scope batchnorm: f32[b, 5], f32[5], f32[5] -> f32[b, 5]."""
    return _batch_norm(
        hidden, squeeze, x, params["gamma"], params["beta"], epsilon=0.001
    )


def _batch_normalization_1(params, x):
    """TensorFlow scope batch_normalization_1: f32[b, 5] -> f32[5], f32[5], f32[b, 5]."""
    mean = jnp.mean(x, axis=0, keepdims=True)
    squared_difference = x - lax.stop_gradient(mean)
    squeeze = jnp.squeeze(mean, 0)
    h = jnp.mean(jnp.square(squared_difference), axis=0)
    add = params["moving_variance"] * 0.99 + h * 0.01
    batchnorm = _batchnorm(params, x, squeeze, h)
    return params["moving_mean"] * 0.99 + squeeze * 0.01, add, batchnorm


def _block(
    stateless_random_uniform_v2,
    x,
    h,
    stateless_random_uniform_v2_1,
    stateless_random_uniform_v2_2,
    stateless_random_uniform_v2_3,
):
    """Repeated part: u32[- floordiv(- 5*b, 4), 4], u32[- floordiv(- 5*b, 4), 4], u32[- floordiv(- 5*b, 4), 4], u32[], u32[- floordiv(- 5*b, 4), 4], u32[] -> u32[- floordiv(- 5*b, 4), 4], u32[- floordiv(- 5*b, 4), 4], u32[- floordiv(- 5*b, 4), 4], u32[- floordiv(- 5*b, 4), 4], u32[], u32[]."""
    stateless_random_uniform_v2_4 = np.uint32(3528531795) * stateless_random_uniform_v2
    stateless_random_uniform_v2 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2
    )
    stateless_random_uniform_v2_5 = np.uint32(3449720151) * x
    x = lax.mulhi(np.uint32(3449720151), x)
    x = x ^ h
    x = x ^ stateless_random_uniform_v2_1
    stateless_random_uniform_v2 = (
        stateless_random_uniform_v2 ^ stateless_random_uniform_v2_2
    )
    stateless_random_uniform_v2 = (
        stateless_random_uniform_v2 ^ stateless_random_uniform_v2_3
    )
    h = stateless_random_uniform_v2_1 + np.uint32(2654435769)
    stateless_random_uniform_v2_1 = stateless_random_uniform_v2_3 + np.uint32(
        3144134277
    )
    return (
        stateless_random_uniform_v2_4,
        stateless_random_uniform_v2_5,
        x,
        stateless_random_uniform_v2,
        h,
        stateless_random_uniform_v2_1,
    )


def _block_1(
    stateless_random_get_key_cou, x, h, stateless_random_get_key_cou_1, value, value_1
):
    """Repeated part: u32[], u32[], u32[], u32[] -> u32[], u32[], u32[], u32[]."""
    stateless_random_get_key_cou_2 = (
        np.uint32(3528531795) * stateless_random_get_key_cou
    )
    stateless_random_get_key_cou = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_cou
    )
    stateless_random_get_key_cou_3 = np.uint32(3449720151) * x
    x = lax.mulhi(np.uint32(3449720151), x)
    x = x ^ h
    x = x ^ value
    stateless_random_get_key_cou = (
        stateless_random_get_key_cou ^ stateless_random_get_key_cou_1
    )
    stateless_random_get_key_cou = stateless_random_get_key_cou ^ value_1
    return (
        stateless_random_get_key_cou_2,
        stateless_random_get_key_cou_3,
        x,
        stateless_random_get_key_cou,
    )


def _stateless_random_uniform(x, b):
    """TensorFlow scope stateless_random_uniform: i32[2] -> f32[b, 5]."""
    stateless_random_get_key_cou = lax.shift_right_arithmetic(x, np.int32(31))
    stateless_random_get_key_cou = stateless_random_get_key_cou.astype(np.uint32)
    x = x.astype(np.uint32)
    stateless_random_get_key_cou = jnp.stack([x, stateless_random_get_key_cou], axis=1)
    x = stateless_random_get_key_cou[:1, :1]
    x = jnp.squeeze(x, (0, 1))
    h = stateless_random_get_key_cou[:1, 1:]
    h = jnp.squeeze(h, (0, 1))
    stateless_random_get_key_cou_1 = stateless_random_get_key_cou[1:, :1]
    stateless_random_get_key_cou_1 = jnp.squeeze(stateless_random_get_key_cou_1, (0, 1))
    stateless_random_get_key_cou = stateless_random_get_key_cou[1:, 1:]
    stateless_random_get_key_cou = jnp.squeeze(stateless_random_get_key_cou, (0, 1))
    for value, value_1 in (
        (1053357856, 38149673),
        (np.uint32(3707793625), np.uint32(3182283950)),
        (2067262098, 2031450931),
        (426730571, 880617912),
        (np.uint32(3081166340), np.uint32(4024752189)),
        (1440634813, np.uint32(2873919170)),
        (np.uint32(4095070582), 1723086151),
        (np.uint32(2454539055), 572253132),
        (814007528, np.uint32(3716387409)),
        (np.uint32(3468443297), np.uint32(2565554390)),
    ):
        stateless_random_get_key_cou, h, x, stateless_random_get_key_cou_1 = _block_1(
            x,
            stateless_random_get_key_cou_1,
            h,
            stateless_random_get_key_cou,
            value=value,
            value_1=value_1,
        )
    x = jnp.stack([x, h], axis=0)
    stateless_random_get_key_cou = jnp.stack(
        [
            np.uint32(0),
            np.uint32(0),
            stateless_random_get_key_cou_1,
            stateless_random_get_key_cou,
        ],
        axis=0,
    )
    stateless_random_uniform_v2 = lax.broadcasted_iota(
        np.uint32, (-(-5 * b // 4), 4), 0
    )
    h = lax.broadcasted_iota(np.uint32, (-(-5 * b // 4), 4), 1)
    stateless_random_uniform_v2_1 = stateless_random_get_key_cou[:1]
    stateless_random_uniform_v2_1 = jnp.squeeze(stateless_random_uniform_v2_1, 0)
    stateless_random_uniform_v2 = (
        stateless_random_uniform_v2_1 + stateless_random_uniform_v2
    )
    stateless_random_uniform_v2_1 = lax.broadcasted_iota(
        np.uint32, (-(-5 * b // 4), 1), 0
    )
    stateless_random_uniform_v2_1 = (
        stateless_random_uniform_v2 < stateless_random_uniform_v2_1
    )
    stateless_random_uniform_v2_1 = stateless_random_uniform_v2_1.astype(np.uint32)
    stateless_random_uniform_v2_1 = 0 + stateless_random_uniform_v2_1
    stateless_random_uniform_v2_2 = stateless_random_get_key_cou[1:2]
    stateless_random_uniform_v2_2 = jnp.squeeze(stateless_random_uniform_v2_2, 0)
    stateless_random_uniform_v2_2 = (
        stateless_random_uniform_v2_2 + stateless_random_uniform_v2_1
    )
    stateless_random_uniform_v2_1 = (
        stateless_random_uniform_v2_2 < stateless_random_uniform_v2_1
    )
    stateless_random_uniform_v2_1 = stateless_random_uniform_v2_1.astype(np.uint32)
    stateless_random_uniform_v2_3 = stateless_random_get_key_cou[2:3]
    stateless_random_uniform_v2_3 = jnp.squeeze(stateless_random_uniform_v2_3, 0)
    stateless_random_uniform_v2_3 = (
        stateless_random_uniform_v2_3 + stateless_random_uniform_v2_1
    )
    stateless_random_uniform_v2_4 = stateless_random_get_key_cou[3:]
    stateless_random_uniform_v2_4 = jnp.squeeze(stateless_random_uniform_v2_4, 0)
    stateless_random_uniform_v2_1 = (
        stateless_random_uniform_v2_3 < stateless_random_uniform_v2_1
    )
    stateless_random_uniform_v2_1 = stateless_random_uniform_v2_1.astype(np.uint32)
    stateless_random_uniform_v2_1 = (
        stateless_random_uniform_v2_4 + stateless_random_uniform_v2_1
    )
    stateless_random_uniform_v2_4 = x[:1]
    stateless_random_uniform_v2_4 = jnp.squeeze(stateless_random_uniform_v2_4, 0)
    x = x[1:]
    x = jnp.squeeze(x, 0)
    for _ in range(9):
        (
            stateless_random_uniform_v2_1,
            stateless_random_uniform_v2_2,
            stateless_random_uniform_v2,
            stateless_random_uniform_v2_3,
            stateless_random_uniform_v2_4,
            x,
        ) = _block(
            stateless_random_uniform_v2,
            stateless_random_uniform_v2_3,
            stateless_random_uniform_v2_2,
            stateless_random_uniform_v2_4,
            stateless_random_uniform_v2_1,
            x,
        )
    stateless_random_uniform_v2_5 = np.uint32(3528531795) * stateless_random_uniform_v2
    stateless_random_uniform_v2 = lax.mulhi(
        np.uint32(3528531795), stateless_random_uniform_v2
    )
    stateless_random_uniform_v2_6 = (
        np.uint32(3449720151) * stateless_random_uniform_v2_3
    )
    stateless_random_uniform_v2_3 = lax.mulhi(
        np.uint32(3449720151), stateless_random_uniform_v2_3
    )
    stateless_random_uniform_v2_2 = (
        stateless_random_uniform_v2_3 ^ stateless_random_uniform_v2_2
    )
    stateless_random_uniform_v2_2 = (
        stateless_random_uniform_v2_2 ^ stateless_random_uniform_v2_4
    )
    stateless_random_uniform_v2 = (
        stateless_random_uniform_v2 ^ stateless_random_uniform_v2_1
    )
    stateless_random_uniform_v2 = stateless_random_uniform_v2 ^ x
    x = h == 0
    x = jnp.where(x, stateless_random_uniform_v2_2, stateless_random_uniform_v2_5)
    stateless_random_uniform_v2_1 = h == 1
    x = jnp.where(stateless_random_uniform_v2_1, stateless_random_uniform_v2_6, x)
    h = h == 2
    stateless_random_uniform_v2 = jnp.where(h, stateless_random_uniform_v2, x)
    stateless_random_uniform_v2 = jnp.reshape(stateless_random_uniform_v2, (-1,))
    stateless_random_uniform_v2 = stateless_random_uniform_v2 & 8388607
    stateless_random_uniform_v2 = stateless_random_uniform_v2 | 1065353216
    stateless_random_uniform_v2 = lax.bitcast_convert_type(
        stateless_random_uniform_v2, np.float32
    )
    stateless_random_uniform_v2 = stateless_random_uniform_v2 - 1.0
    x = jnp.full((1,), 0, np.int32)
    stateless_random_uniform_v2 = lax.gather(
        stateless_random_uniform_v2,
        x,
        dimension_numbers=lax.GatherDimensionNumbers(
            offset_dims=(0,), collapsed_slice_dims=(), start_index_map=(0,)
        ),
        slice_sizes=(5 * b,),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
        unique_indices=True,
        indices_are_sorted=True,
    )
    return jnp.reshape(stateless_random_uniform_v2, (-1, 5))


def _dropout(params, x):
    """TensorFlow scope dropout_1: f32[b, 5] -> i32[2], f32[b, 5]."""
    b = x.shape[0]
    floor_mod = jnp.full((2,), 2147483646, np.int32) == 0
    floor_mod = jnp.where(floor_mod, np.int32(1), np.int32(2147483646))
    h = lax.rem(params, floor_mod)
    floor_mod_1 = ((h < 0) != (floor_mod < 0)) & (h != 0)
    floor_mod = jnp.where(floor_mod_1, h + floor_mod, h)
    stateless_random_uniform = _stateless_random_uniform(floor_mod, b=b)
    stateless_random_uniform = stateless_random_uniform + 0.0
    greater_equal = stateless_random_uniform >= 0.2
    select_v2 = jnp.where(greater_equal, x * 1.25, 0.0)
    return params + np.array([0, 1], np.int32), select_v2


def serving_default(params, inputs):
    """TensorFlow function 'serving_default'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      inputs: float32[b, 4].

    Returns:
      The results (float32[b, 3]), and params with updated variables.
    """
    inputs = jnp.asarray(inputs, np.float32)
    hidden = _hidden(params["hidden"], inputs)
    batch_normalization = _batch_normalization(params["batch_normalization"], hidden)
    head = _head(params["head"], batch_normalization)
    return head, params


def train(params, inputs):
    """TensorFlow function 'train'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      inputs: float32[b, 4].

    Returns:
      The results (float32[b, 3]), and params with updated variables.
    """
    inputs = jnp.asarray(inputs, np.float32)
    hidden = _hidden(params["hidden"], inputs)
    add, x, batchnorm = _batch_normalization_1(params["batch_normalization"], hidden)
    h, select_v2 = _dropout(
        params["seed_generator_1"]["seed_generator_state"], batchnorm
    )
    head = _head(params["head"], select_v2)
    return (
        head,
        _updated(
            params,
            {
                "batch_normalization": {"moving_mean": add, "moving_variance": x},
                "seed_generator_1": {"seed_generator_state": h},
            },
        ),
    )
