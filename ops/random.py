"""Random numbers that are drawn from the node's own JAX key."""

from typing import Any

import jax
import jax.numpy as jnp

from .registry import Static, op
from .values import canonical, dims


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
    return jax.random.permutation(key, value, axis=0)
