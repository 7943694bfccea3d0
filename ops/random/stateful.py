"""Random numbers that are drawn from the node's own JAX key."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims

from ._fill import full_int, size
from .distributions import draw_bounded_normal, draw_gamma, draw_poisson

_INT64 = np.dtype(np.int64)


def _philox(key: Any) -> tuple[Any, Any]:
    """Returns a Philox key and counter, for those distributions that are drawn as TensorFlow draws them."""
    words = jax.random.bits(key, (6,), np.uint32)
    return words[:2], words[2:]


@op("RandomUniform", needs_key=True)
def random_uniform(shape: Static, *, dtype: Any, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Uniform in [0, 1); bits are JAX's, since TensorFlow's depend on its state. See tf.raw_ops.RandomUniform."""
    return jax.random.uniform(key, dims(shape), canonical(dtype))


@op("RandomUniformInt", needs_key=True)
def random_uniform_int(shape: Static, minval: Any, maxval: Any, *, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Uniform integers in [minval, maxval). See tf.raw_ops.RandomUniformInt."""
    return jax.random.randint(key, dims(shape), minval, maxval, jnp.asarray(minval).dtype)


@op("RandomStandardNormal", needs_key=True)
def random_standard_normal(shape: Static, *, dtype: Any, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Standard normal. See tf.raw_ops.RandomStandardNormal."""
    return jax.random.normal(key, dims(shape), canonical(dtype))


@op("TruncatedNormal", needs_key=True)
def truncated_normal(shape: Static, *, dtype: Any, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Standard normal within two standard deviations. See tf.raw_ops.TruncatedNormal."""
    return jax.random.truncated_normal(key, -2.0, 2.0, dims(shape), canonical(dtype))


@op("RandomShuffle", needs_key=True)
def random_shuffle(value: Any, *, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Shuffles along the first dimension. See tf.raw_ops.RandomShuffle."""
    return jax.random.permutation(key, value, axis=0) if jnp.ndim(value) else jnp.asarray(value)


def _samples_of_each(shape: Any, parameter: Any) -> tuple[Any, ...]:
    return (*dims(shape), *jnp.shape(parameter))


@op("RandomGamma", needs_key=True)
def random_gamma(shape: Static, alpha: Any, *, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Gamma variables, ``shape`` of them for each alpha, with a derivative by alpha. See tf.raw_ops.RandomGamma."""
    return draw_gamma(np.array(_samples_of_each(shape, alpha)), *_philox(key), alpha)


@op("RandomPoissonV2", needs_key=True)
def random_poisson_v2(shape: Static, rate: Any, *, dtype: Any = _INT64, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Poisson variables, ``shape`` of them for each rate. See tf.raw_ops.RandomPoissonV2."""
    return draw_poisson(np.array(_samples_of_each(shape, rate)), *_philox(key), rate, dtype)


@op("RandomPoisson", needs_key=True)
def random_poisson(shape: Static, rate: Any, *, seed: int = 0, seed2: int = 0, key: Any) -> Any:
    """Poisson variables of the rates' type. See tf.raw_ops.RandomPoisson."""
    return draw_poisson(np.array(_samples_of_each(shape, rate)), *_philox(key), rate, rate.dtype)


@op("NonDeterministicInts", needs_key=True, words="whole")
def non_deterministic_ints(shape: Static, *, dtype: Any = _INT64, key: Any) -> Any:
    """Any integers of a type; they follow from the key. See tf.raw_ops.NonDeterministicInts."""
    return full_int(shape, *_philox(key), dtype)


@op("ParameterizedTruncatedNormal", needs_key=True)
def parameterized_truncated_normal(
    shape: Static, means: Any, stdevs: Any, minvals: Any, maxvals: Any, *, seed: int = 0, seed2: int = 0, key: Any
) -> Any:
    """Normal variables within bounds, parameters by first dimension. See tf.raw_ops.ParameterizedTruncatedNormal.

    Bad parameters give NaN, as on GPUs, where TensorFlow's CPU kernel raises an error. No derivatives, as there.
    """
    wanted, _ = size(shape)
    if not wanted:
        raise OpError("the shape must have a first dimension, for the parameters")
    each = []
    for name, value in (("means", means), ("stdevs", stdevs), ("minvals", minvals), ("maxvals", maxvals)):
        value = lax.stop_gradient(jnp.asarray(value))
        if value.ndim > 1 or (value.ndim == 1 and value.shape[0] not in (1, wanted[0])):
            raise OpError(f"{name} must be one number or {wanted[0]}, got shape {value.shape}")
        each.append(jnp.broadcast_to(value.reshape(-1, *[1] * (len(wanted) - 1)), wanted))
    return draw_bounded_normal(shape, *_philox(key), each)
