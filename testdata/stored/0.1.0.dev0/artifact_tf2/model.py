"""A model converted from TensorFlow.

Needs JAX and numpy only; params are nested dicts of arrays.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["load_params", "serving_default"]


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


def _conv(x, kernel, strides=(1, 1), padding="SAME", dilation=(1, 1), groups=1):
    """Convolve images, whose last axis is the channels."""
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _philox(counter, key):
    """Return four words of the generator Philox 4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1 = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
    for _ in range(10):
        c1, c3 = lax.mulhi(m1, c2) ^ c1 ^ k0, lax.mulhi(m0, c0) ^ c3 ^ k1
        c0, c1, c2, c3 = c1, m1 * c2, c3, m0 * c0
        k0, k1 = k0 + np.uint32(0x9E3779B9), k1 + np.uint32(0xBB67AE85)
    return c0, c1, c2, c3


def _philox_uniform(key, counter, shape):
    """Draw TensorFlow's uniform numbers in [0, 1)."""
    size = math.prod(shape)
    step = lax.broadcasted_iota(np.uint32, (-(-size // 4), 4), 0)
    column = lax.broadcasted_iota(np.uint32, (-(-size // 4), 4), 1)
    c0 = counter[0] + step
    carry = (c0 < step).astype(np.uint32)
    c1 = counter[1] + carry
    carry = (c1 < carry).astype(np.uint32)
    c2 = counter[2] + carry
    carry = (c2 < carry).astype(np.uint32)
    words = _philox((c0, c1, c2, counter[3] + carry), key)
    words = jnp.select([column == i for i in range(4)], words)
    mantissa = (words.reshape(-1)[:size] & 0x7FFFFF) | 0x3F800000
    return (lax.bitcast_convert_type(mantissa, np.float32) - 1).reshape(shape)


@jax.custom_jvp
def _minimum(x, x_1):
    return jnp.minimum(x, x_1)


@_minimum.defjvp
def _minimum_jvp(primals, tangents):
    x, x_1 = primals
    x_dot, x_dot_1 = tangents
    hidden = _minimum(x, x_1)
    return hidden, jnp.where(x <= x_1, x_dot, x_dot_1)


@jax.custom_jvp
def _clip_by_value(x, x_1):
    return jnp.maximum(x, x_1)


@_clip_by_value.defjvp
def _clip_by_value_jvp(primals, tangents):
    x, x_1 = primals
    x_dot, x_dot_1 = tangents
    hidden = _clip_by_value(x, x_1)
    return hidden, jnp.where(x >= x_1, x_dot, x_dot_1)


@jax.custom_jvp
def _identity_n(x, x_1):
    return x_1


@_identity_n.defjvp
def _identity_n_jvp(primals, tangents):
    x, x_1 = primals
    x_dot, _ = tangents
    hidden = _identity_n(x, x_1)
    return hidden, x_dot * 0.5


def _block(
    stateless_random_get_key_counter,
    x,
    stateless_random_get_key_counter_1,
    stateless_random_get_key_counter_2,
    value,
    value_1,
):
    """Apply a repeated block: 4 arrays -> 4 arrays."""
    stateless_random_get_key_counter_3 = (
        np.uint32(3528531795) * stateless_random_get_key_counter
    )
    stateless_random_get_key_counter = lax.mulhi(
        np.uint32(3528531795), stateless_random_get_key_counter
    )
    stateless_random_get_key_counter_4 = np.uint32(3449720151) * x
    x = lax.mulhi(np.uint32(3449720151), x)
    x = x ^ stateless_random_get_key_counter_1
    x = x ^ value
    stateless_random_get_key_counter = (
        stateless_random_get_key_counter ^ stateless_random_get_key_counter_2
    )
    stateless_random_get_key_counter = stateless_random_get_key_counter ^ value_1
    return (
        stateless_random_get_key_counter_3,
        stateless_random_get_key_counter_4,
        x,
        stateless_random_get_key_counter,
    )


def _stateless_random_uniform():
    """Compute stateless random uniform (stateless_random_uniform):  -> f32[3]."""
    stateless_random_get_key_counter = lax.shift_right_arithmetic(
        np.array([1, 2], np.int32), np.int32(31)
    )
    stateless_random_get_key_counter = stateless_random_get_key_counter.astype(
        np.uint32
    )
    x = np.array([1, 2], np.int32).astype(np.uint32)
    stateless_random_get_key_counter = jnp.stack(
        [x, stateless_random_get_key_counter], axis=1
    )
    x = stateless_random_get_key_counter[0, 0]
    stateless_random_get_key_counter_1 = stateless_random_get_key_counter[0, -1]
    stateless_random_get_key_counter_2 = stateless_random_get_key_counter[-1, 0]
    stateless_random_get_key_counter = stateless_random_get_key_counter[-1, -1]
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
        (
            stateless_random_get_key_counter,
            stateless_random_get_key_counter_1,
            x,
            stateless_random_get_key_counter_2,
        ) = _block(
            x,
            stateless_random_get_key_counter_2,
            stateless_random_get_key_counter_1,
            stateless_random_get_key_counter,
            value=value,
            value_1=value_1,
        )
    x = jnp.stack([x, stateless_random_get_key_counter_1], axis=0)
    stateless_random_get_key_counter = jnp.stack(
        [
            np.uint32(0),
            np.uint32(0),
            stateless_random_get_key_counter_2,
            stateless_random_get_key_counter,
        ],
        axis=0,
    )
    return _philox_uniform(x, stateless_random_get_key_counter, (3,))


def serving_default(params, image):
    """TensorFlow function 'serving_default'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      image: float32[b, 6, 6, 1].

    Returns:
      The results (int32[b], float32[b, 3], float32[3, b, 2]), and params with updated variables.
    """
    image = jnp.asarray(image, np.float32)
    b = image.shape[0]
    assign_add_variable_op = params["calls"] + 1
    conv2_d = _conv(image, params["kernel"])
    hidden = _minimum(conv2_d, jnp.ones((b, 6, 6, 2), np.float32))
    x = jnp.full((b, 6, 6, 2), -1.0, np.float32)
    hidden = _clip_by_value(hidden, x)
    hidden = _identity_n(conv2_d, lax.stop_gradient(hidden))

    def step(state, x):
        hidden = jnp.tanh(state) + 0.1 * x.astype(np.float32)
        return hidden, jnp.mean(hidden, axis=(1, 2))

    hidden, x = lax.scan(step, hidden, np.array([0, 1, 2], np.int32))
    cond = (jnp.sum(hidden) > 0.0).astype(np.int32)
    cond = lax.clamp(np.int32(0), cond, np.int32(1))

    def cond_false():
        return hidden

    def cond_true():
        return hidden * 2.0

    stateless_random_uniform = _stateless_random_uniform()
    mean = jnp.mean(lax.switch(cond, [cond_false, cond_true]), axis=(1, 2))
    residual = mean @ params["dense"] + stateless_random_uniform
    probabilities = jax.nn.softmax(residual)
    hidden = jnp.where(residual > -3.4028235e38, residual, -3.4028235e38)
    indices = lax.argmax(hidden, 1, np.int32)
    return (
        {"probabilities": probabilities, "best": indices, "rows": x},
        _updated(params, {"calls": assign_add_variable_op}),
    )
