"""Stateful random ops of TF1, drawn from the node's JAX key.

Seeds are ignored: TensorFlow's bits depend on the state of its kernels. Gamma, Poisson, bounded normal, full-range
integers and shuffle use the Philox samplers with a Philox key drawn from the JAX key; the others are JAX's samplers.
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
from tf2jax_lite.values.tensors import ArrayOrPair
from tf2jax_lite.values.types import Array, DTypeLike

from ._fill import full_int, size
from .distributions import draw_bounded_normal, draw_gamma, draw_poisson
from .philox import from_jax_key
from .stateless import permutation

_INT64 = np.dtype(np.int64)


def _register(name: str, draw: Callable[..., Any]) -> None:
    @op(name)
    def call(shape: Static, *, dtype: DTypeLike, seed: int = 0, seed2: int = 0, key: Key) -> Array:
        """Draw numbers by ``draw``, with JAX's bits.

        TF: core/kernels/random_op.cc.

        Args:
          shape: static ints.
          dtype: dtype of the result.
          seed: ignored.
          seed2: ignored.
          key: a JAX PRNG key.

        Returns:
          ``dtype``, of ``shape``.
        """
        return draw(key, shape=dims(shape), dtype=canonical(dtype))


_register("RandomUniform", jax.random.uniform)
_register("RandomStandardNormal", jax.random.normal)
_register("TruncatedNormal", functools.partial(jax.random.truncated_normal, lower=-2.0, upper=2.0))


@op("RandomUniformInt")
def random_uniform_int(
    shape: Static, minval: Array, maxval: Array, *, seed: int = 0, seed2: int = 0, key: Key
) -> Array:
    """Draw uniform integers in [minval, maxval).

    TF: tf.raw_ops.RandomUniformInt (core/kernels/random_op.cc).

    Args:
      shape: static ints.
      minval: int scalar, lower bound.
      maxval: int scalar, exclusive upper bound.
      seed: ignored.
      seed2: ignored.
      key: a JAX PRNG key.

    Returns:
      The dtype of ``minval``, of ``shape``.
    """
    return jax.random.randint(key, dims(shape), minval, maxval, jnp.asarray(minval).dtype)


@op("RandomShuffle")
def random_shuffle(value: Array, *, seed: int = 0, seed2: int = 0, key: Key) -> Array:
    """Shuffle along the first dimension.

    TF: tf.raw_ops.RandomShuffle (core/kernels/random_shuffle_op.cc).
    """
    value = jnp.asarray(value)
    if value.ndim == 0:
        return value
    return jnp.take(value, permutation(*from_jax_key(key), size(value.shape[:1])[1]), axis=0)


def _full_shape(shape: Any, parameter: Any) -> np.ndarray:
    return np.array((*dims(shape), *jnp.shape(parameter)))


@op("RandomGamma")
def random_gamma(shape: Static, alpha: Array, *, seed: int = 0, seed2: int = 0, key: Key) -> Array:
    """Draw gamma samples with an implicit derivative with respect to alpha.

    TF: tf.raw_ops.RandomGamma (core/kernels/random_op.cc).

    Args:
      shape: static ints.
      alpha: float, shape parameter.
      seed: ignored.
      seed2: ignored.
      key: a JAX PRNG key.

    Returns:
      [*shape, *alpha.shape]; the dtype of ``alpha``.

    Raises:
      OpError: the shape is symbolic.
    """
    return draw_gamma(_full_shape(shape, alpha), *from_jax_key(key), alpha)


@op("RandomPoissonV2")
def random_poisson_v2(
    shape: Static, rate: Array, *, dtype: DTypeLike = _INT64, seed: int = 0, seed2: int = 0, key: Key
) -> Array:
    """Draw Poisson samples.

    TF: tf.raw_ops.RandomPoissonV2 (core/kernels/random_poisson_op.cc).

    Args:
      shape: static ints.
      rate: float, rate.
      dtype: dtype of the result.
      seed: ignored.
      seed2: ignored.
      key: a JAX PRNG key.

    Returns:
      ``dtype`` [*shape, *rate.shape].

    Raises:
      OpError: the shape is symbolic.
    """
    return draw_poisson(_full_shape(shape, rate), *from_jax_key(key), rate, dtype)


@op("RandomPoisson")
def random_poisson(shape: Static, rate: Array, *, seed: int = 0, seed2: int = 0, key: Key) -> Array:
    """Draw Poisson samples of the rates' dtype.

    TF: tf.raw_ops.RandomPoisson (core/kernels/random_poisson_op.cc).

    Args:
      shape: static ints.
      rate: float, rate.
      seed: ignored.
      seed2: ignored.
      key: a JAX PRNG key.

    Returns:
      [*shape, *rate.shape]; the dtype of ``rate``.

    Raises:
      OpError: the shape is symbolic.
    """
    return draw_poisson(_full_shape(shape, rate), *from_jax_key(key), rate, rate.dtype)


@op("NonDeterministicInts", int64="pair")
def non_deterministic_ints(shape: Static, *, dtype: DTypeLike = _INT64, key: Key) -> ArrayOrPair:
    """Draw integers from the full range of the dtype.

    TF: tf.raw_ops.NonDeterministicInts (core/kernels/stateful_random_ops.cc).

    They are deterministic for a given key.

    Args:
      shape: static ints.
      dtype: dtype of the result.
      key: a JAX PRNG key.

    Returns:
      ``dtype``, of ``shape``.
    """
    return full_int(shape, *from_jax_key(key), dtype)


@op("ParameterizedTruncatedNormal")
def parameterized_truncated_normal(
    shape: Static,
    means: Array,
    stdevs: Array,
    minvals: Array,
    maxvals: Array,
    *,
    seed: int = 0,
    seed2: int = 0,
    key: Key,
) -> Array:
    """Draw normal samples within bounds, with parameters for each row.

    TF: tf.raw_ops.ParameterizedTruncatedNormal (core/kernels/parameterized_truncated_normal_op.cc).

    Invalid parameters return NaN, as on GPUs, where TensorFlow's CPU kernel raises an error. Derivatives are 0, as
    TensorFlow has none.

    Args:
      shape: static ints.
      means: scalar or [shape[0]].
      stdevs: scalar or [shape[0]], standard deviations.
      minvals: scalar or [shape[0]], lower bounds.
      maxvals: scalar or [shape[0]], upper bounds.
      seed: ignored.
      seed2: ignored.
      key: a JAX PRNG key.

    Returns:
      An array of ``shape`` and the parameters' dtype.

    Raises:
      OpError: the shape is symbolic or empty, or a parameter has another shape.
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
