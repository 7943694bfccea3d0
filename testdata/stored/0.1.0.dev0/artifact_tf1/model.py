"""A model converted from TensorFlow.

Needs JAX and numpy only; params are nested dicts of arrays.
"""

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


def _while_1(params, x):
    """Compute while (while): f32[b, 3] -> f32[b, 3]."""

    def step(state, _):
        return jnp.tanh(state @ params), None

    x, _ = lax.scan(step, x, None, length=3)
    return x


def _branch(condition, x):
    """Compute branch (branch): bool[], f32[b, 3] -> f32[b, 3]."""
    if_1 = lax.clamp(np.int32(0), condition.astype(np.int32), np.int32(1))

    def if_false():
        return x - 1.0

    def if_true():
        return x + 1.0

    return lax.switch(if_1, [if_false, if_true])


def serving_default(params, x):
    """TensorFlow function 'serving_default'.

    Args:
      params: nested dicts of arrays by scope, as load_params returns them.
      x: float32[b, 3].

    Returns:
      The results (float32[b, 3]), and params with updated variables.
    """
    x = jnp.asarray(x, np.float32)
    while_1 = _while_1(params["w"], x)
    branch = _branch(jnp.sum(while_1) > 0.0, while_1)
    return {"y": branch}, params
