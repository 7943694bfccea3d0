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


def _batch_norm(x, params, train=False, epsilon=0.001, momentum=0.99):
    """Normalize the last axis by moving statistics, or by the batch's if train.

    Training updates the moving statistics in params, which the caller copies.
    """
    mean, variance = params["moving_mean"], params["moving_variance"]
    if train:
        axes = tuple(range(x.ndim - 1))
        new = jnp.mean(x, axis=axes), jnp.var(x, axis=axes)
        params["moving_mean"] = momentum * mean + (1 - momentum) * new[0]
        params["moving_variance"] = momentum * variance + (1 - momentum) * new[1]
        mean, variance = new
    scale = lax.rsqrt(variance + epsilon) * params.get("gamma", 1)
    return x * scale + (params.get("beta", 0) - mean * scale)


def _dropout(x, rng, layer, rate=0.2):
    """Drop elements, and scale the others to the same mean; without a key return x."""
    if rng is None:
        return x
    key = jax.random.fold_in(rng, layer)
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


def _model(params, inputs, train=False, rng=None):
    """Return the model's results in inference mode, or in training mode."""
    inputs = jnp.asarray(inputs, np.float32)
    hidden = inputs @ params["hidden"]["kernel"]
    hidden = jax.nn.relu(hidden + params["hidden"]["bias"])
    batch_normalization = _batch_norm(
        hidden, params["batch_normalization"], train=train
    )
    dropout = _dropout(batch_normalization, rng, layer=0)
    return dropout @ params["head"]["kernel"] + params["head"]["bias"]


def serving_default(params, inputs):
    """TensorFlow function 'serving_default'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      inputs: float32[b, 4].

    Returns:
      The results (float32[b, 3]), and params with updated variables.
    """
    return _model(params, inputs), params


def train(params, inputs, *, rng):
    """TensorFlow function 'train'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      inputs: float32[b, 4].
      rng: a key, as jax.random.key makes it.

    Returns:
      The results (float32[b, 3]), and params with updated variables.
    """
    params = jax.tree.map(lambda array: array, params)  # new dicts, which layers update
    return _model(params, inputs, train=True, rng=rng), params
