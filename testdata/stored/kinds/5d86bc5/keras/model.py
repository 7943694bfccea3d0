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


def _dropout(x, rate, key):
    """Drop elements with a probability, and scale the others to the same mean."""
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


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


def train(params, inputs, *, rng):
    """TensorFlow function 'train'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      inputs: float32[b, 4].
      rng: a key, as jax.random.key makes it.

    Returns:
      The results (float32[b, 3]), and params with updated variables.
    """
    inputs = jnp.asarray(inputs, np.float32)
    hidden = _hidden(params["hidden"], inputs)
    add, x, batchnorm = _batch_normalization_1(params["batch_normalization"], hidden)
    select_v2 = _dropout(batchnorm, 0.2, jax.random.fold_in(rng, 0))
    head = _head(params["head"], select_v2)
    return (
        head,
        _updated(
            params, {"batch_normalization": {"moving_mean": add, "moving_variance": x}}
        ),
    )
