"""A model converted from TensorFlow.

Needs JAX and numpy only; params are nested dicts of arrays.
"""

import jax
import jax.numpy as jnp

__all__ = ["half", "load_params"]


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


def half(params, x):
    """TensorFlow function 'half'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      x: bfloat16[b, 4].

    Returns:
      The results (bfloat16[b, 4]), and params with updated variables.
    """
    x = jnp.asarray(x, jnp.bfloat16)
    return jax.nn.softmax(x @ params["weights"]), params
