"""A model converted from TensorFlow.

Needs JAX and numpy only; params are nested dicts of arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["draw", "half", "load_params", "scores"]


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


def _take(x, indices, axis=0):
    """Take slices along an axis; those of indices out of range are zeros."""
    where = (slice(None),) * axis + (indices,)
    return (
        jnp.asarray(x)
        .at[where]
        .get(mode="fill", fill_value=0, wrap_negative_indices=False)
    )


def _random_normal(x, b):
    """Compute random normal (random_normal): key[] -> f32[b, 4]."""
    random_standard_normal = jax.random.fold_in(x, np.uint32(2929458349))
    x = jnp.full((1, 1), -0.99999994, np.float32)
    random_standard_normal = jax.random.bits(random_standard_normal, (b, 4), np.uint32)
    random_standard_normal = lax.shift_right_logical(
        random_standard_normal, np.uint32(9)
    )
    random_standard_normal = random_standard_normal | 1065353216
    random_standard_normal = lax.bitcast_convert_type(
        random_standard_normal, np.float32
    )
    random_standard_normal = random_standard_normal - 1.0
    x = 1.0 - x
    random_standard_normal = random_standard_normal * x
    random_standard_normal = random_standard_normal + -0.99999994
    random_standard_normal = jnp.maximum(-0.99999994, random_standard_normal)
    random_standard_normal = lax.erf_inv(random_standard_normal)
    return 1.4142135 * random_standard_normal


def scores(params, inputs, scale):
    """TensorFlow function 'scores'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      inputs_ids: int32[b, 2*n].
      inputs_mask: bool[b, n].
      scale: float32[].

    Returns:
      The results (int32[b], int32[], float32[b, 4]), and params with updated variables.
    """
    inputs_ids = inputs["ids"]
    inputs_mask = inputs["mask"]
    inputs_ids = jnp.asarray(inputs_ids, np.int32)
    inputs_mask = jnp.asarray(inputs_mask, np.bool_)
    scale = jnp.asarray(scale, np.float32)
    n = inputs_mask.shape[1]
    b = inputs_ids.shape[0]
    assign_add_variable_op = params["calls"] + 1
    hidden = _take(params["table"], inputs_ids)
    mean = jnp.mean(jnp.reshape(hidden * scale, (b, n, 2, 4)), axis=2)
    hidden = -jnp.where(inputs_mask[..., None], mean, -mean)
    x = jnp.zeros((b, 4), np.float32)

    def step(state, x):
        x = jnp.sum(hidden, axis=1) * x.astype(np.float32)
        return jnp.tanh(state @ params["weights"] + x), None

    hidden, _ = lax.scan(step, x, np.array([0, 1, 2], np.int32))
    cond = (jnp.sum(hidden) > 0.0).astype(np.int32)
    cond = lax.clamp(np.int32(0), cond, np.int32(1))

    def cond_false():
        return hidden

    def cond_true():
        return hidden * 2.0

    cond = lax.switch(cond, [cond_false, cond_true])
    hidden = jnp.where(cond > -3.4028235e38, cond, -3.4028235e38)
    indices = lax.argmax(hidden, 1, np.int32)
    return (
        {"state": cond, "best": (indices, assign_add_variable_op)},
        _updated(params, {"calls": assign_add_variable_op}),
    )


def draw(params, x, *, rng):
    """TensorFlow function 'draw'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      x: float32[b, 4].
      rng: a key, as jax.random.key makes it.

    Returns:
      The results (float32[b, 4], int32[3]), and params with updated variables.
    """
    x = jnp.asarray(x, np.float32)
    b = x.shape[0]
    random_normal = _random_normal(rng, b=b)
    random_uniform = jax.random.fold_in(rng, 1110911477)
    random_uniform_1 = jnp.maximum(np.int32(-2147483648), np.int32(2147483647))
    random_uniform_1 = 10 > jnp.minimum(2147483647, random_uniform_1)
    random_uniform_2 = jnp.maximum(np.int32(-2147483648), np.int32(0))
    random_uniform_2 = jnp.minimum(2147483647, random_uniform_2)
    random_uniform_3 = jnp.maximum(np.int32(-2147483648), np.int32(10))
    random_uniform_3 = jnp.minimum(2147483647, random_uniform_3)
    random_uniform_4 = random_uniform_2[..., None]
    random_uniform = jax.random.split(random_uniform, (2,))
    random_uniform_5 = random_uniform[0]
    random_uniform = random_uniform[-1]
    random_uniform_5 = jax.random.bits(random_uniform_5, (3,), np.uint32)
    random_uniform = jax.random.bits(random_uniform, (3,), np.uint32)
    random_uniform_6 = (random_uniform_3 - random_uniform_2)[..., None]
    random_uniform_6 = random_uniform_6.astype(np.uint32)
    random_uniform_7 = random_uniform_3 <= random_uniform_4
    random_uniform_6 = jnp.where(random_uniform_7, 1, random_uniform_6)
    random_uniform_3 = random_uniform_3 > random_uniform_4
    random_uniform_1 = random_uniform_1 & random_uniform_3
    random_uniform_3 = random_uniform_6 + 1
    random_uniform_1 = jnp.where(random_uniform_1, random_uniform_3, random_uniform_6)
    random_uniform_3 = lax.rem(np.uint32(65536), random_uniform_1)
    random_uniform_3 = jnp.square(random_uniform_3)
    random_uniform_3 = lax.rem(random_uniform_3, random_uniform_1)
    random_uniform_4 = lax.rem(random_uniform_5, random_uniform_1)
    random_uniform_3 = random_uniform_4 * random_uniform_3
    random_uniform = lax.rem(random_uniform, random_uniform_1)
    random_uniform = random_uniform_3 + random_uniform
    random_uniform = lax.rem(random_uniform, random_uniform_1)
    random_uniform = random_uniform.astype(np.int32)
    random_uniform = random_uniform_2 + random_uniform
    return (x + (random_normal + 0.0), random_uniform), params


def half(params, x):
    """TensorFlow function 'half'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      x: float32[b, 4].

    Returns:
      The results (float32[b, 4]), and params with updated variables.
    """
    x = jnp.asarray(x, np.float32)
    return jax.nn.softmax(x @ params["weights"]), params
