"""Stateful random ops of TF1, drawn from the node's JAX key.

Seeds are ignored: TensorFlow's bits depend on the state of its kernels. Gamma, Poisson, bounded normal, full-range
integers and shuffle use the Philox samplers with a Philox key drawn from the JAX key; the others are JAX's samplers.

TF: core/kernels/random_op.cc, core/kernels/random_poisson_op.cc.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims

from ._fill import full_int, size
from .distributions import draw_bounded_normal, draw_gamma, draw_poisson
from .philox import from_jax_key
from .stateless import permutation

_INT64 = np.dtype(np.int64)


def _register(name: str, draw: Callable[..., Any]) -> None:
    @op(name)
    def call(shape: Static, *, dtype, seed=0, seed2=0, key: Key):
        """Draw numbers by ``draw``, with JAX's bits."""
        return draw(key, shape=dims(shape), dtype=canonical(dtype))


_register("RandomUniform", jax.random.uniform)
_register("RandomStandardNormal", jax.random.normal)
_register("TruncatedNormal", functools.partial(jax.random.truncated_normal, lower=-2.0, upper=2.0))


@op("RandomUniformInt")
def random_uniform_int(shape: Static, minval, maxval, *, seed=0, seed2=0, key: Key):
    """Draw uniform integers in [minval, maxval)."""
    return jax.random.randint(key, dims(shape), minval, maxval, jnp.asarray(minval).dtype)


@op("RandomShuffle")
def random_shuffle(value, *, seed=0, seed2=0, key: Key):
    """Shuffle along the first dimension.

    TF: core/kernels/random_shuffle_op.cc.
    """
    value = jnp.asarray(value)
    if value.ndim == 0:
        return value
    return jnp.take(value, permutation(*from_jax_key(key), size(value.shape[:1])[1]), axis=0)


def _full_shape(shape: Any, parameter: Any) -> np.ndarray:
    return np.array((*dims(shape), *jnp.shape(parameter)))


@op("RandomGamma")
def random_gamma(shape: Static, alpha, *, seed=0, seed2=0, key: Key):
    """Draw gamma samples with an implicit derivative with respect to alpha."""
    return draw_gamma(_full_shape(shape, alpha), *from_jax_key(key), alpha)


@op("RandomPoissonV2")
def random_poisson_v2(shape: Static, rate, *, dtype=_INT64, seed=0, seed2=0, key: Key):
    """Draw Poisson samples."""
    return draw_poisson(_full_shape(shape, rate), *from_jax_key(key), rate, dtype)


@op("RandomPoisson")
def random_poisson(shape: Static, rate, *, seed=0, seed2=0, key: Key):
    """Draw Poisson samples of the rates' dtype."""
    return draw_poisson(_full_shape(shape, rate), *from_jax_key(key), rate, rate.dtype)


@op("NonDeterministicInts", int64="pair")
def non_deterministic_ints(shape: Static, *, dtype=_INT64, key: Key):
    """Draw integers from the full range of the dtype.

    TF: core/kernels/stateful_random_ops.cc.

    They are deterministic for a given key.
    """
    return full_int(shape, *from_jax_key(key), dtype)


@op("ParameterizedTruncatedNormal")
def parameterized_truncated_normal(shape: Static, means, stdevs, minvals, maxvals, *, seed=0, seed2=0, key: Key):
    """Draw normal samples within bounds, with parameters for each row.

    TF: core/kernels/parameterized_truncated_normal_op.cc.

    Invalid parameters return NaN, as on GPUs, where TensorFlow's CPU kernel raises an error. Derivatives are 0, as
    TensorFlow has none.

    Args:
      means: scalar or [shape[0]].
      stdevs: scalar or [shape[0]], standard deviations.
      minvals: scalar or [shape[0]], lower bounds.
      maxvals: scalar or [shape[0]], upper bounds.
    """
    sizes, _ = size(shape)
    if not sizes:
        raise OpError("the shape must have a first dimension, for the parameters")
    parameters = []
    for name, value in (("means", means), ("stdevs", stdevs), ("minvals", minvals), ("maxvals", maxvals)):
        value = lax.stop_gradient(jnp.asarray(value))
        if value.ndim > 1 or (value.ndim == 1 and value.shape[0] not in (1, sizes[0])):
            raise OpError(f"{name} must be a scalar or a vector of {sizes[0]}, got shape {value.shape}")
        parameters.append(jnp.broadcast_to(value.reshape(-1, *[1] * (len(sizes) - 1)), sizes))
    return draw_bounded_normal(shape, *from_jax_key(key), parameters)
