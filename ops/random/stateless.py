"""Stateless random ops: TensorFlow's bits exactly."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.values.int64 import from_u32_pair

from ._fill import check_algorithm, full_int, normal, size, state, truncated_normal, uniform, uniform_int
from ._samplers import permutation
from .philox import scramble

_PHILOX = 1
_UINT64, _FLOAT32 = np.dtype(np.uint64), np.dtype(np.float32)


@op("StatelessRandomGetAlg", host=lambda: np.array(_PHILOX, np.int32))
def stateless_random_get_alg() -> Any:
    """Philox, as on every CPU. See tf.raw_ops.StatelessRandomGetAlg."""
    return np.array(_PHILOX, np.int32)


@op("StatelessRandomGetKeyCounter", words="whole")
def stateless_random_get_key_counter(seed: Any) -> tuple[Any, Any]:
    """Returns key and counter for a seed. See tf.raw_ops.StatelessRandomGetKeyCounter."""
    key, counter = scramble(seed)
    return from_u32_pair(key.reshape(1, 2)), from_u32_pair(counter.reshape(2, 2))


@op("StatelessRandomGetKeyCounterAlg", words="whole")
def stateless_random_get_key_counter_alg(seed: Any) -> tuple[Any, Any, Any]:
    """Returns key, counter and algorithm. See tf.raw_ops.StatelessRandomGetKeyCounterAlg."""
    return (*stateless_random_get_key_counter(seed), np.array(_PHILOX, np.int32))


@op("StatelessRandomUniformV2", words="whole")
def stateless_random_uniform_v2(shape: Static, key: Any, counter: Any, alg: Static, *, dtype: Any = _FLOAT32) -> Any:
    """Uniform in [0, 1). See tf.raw_ops.StatelessRandomUniformV2."""
    check_algorithm(alg)
    return uniform(shape, *state(key, counter), dtype)


@op("StatelessRandomUniform", words="whole")
def stateless_random_uniform(shape: Static, seed: Any, *, dtype: Any = _FLOAT32) -> Any:
    """Uniform in [0, 1). See tf.raw_ops.StatelessRandomUniform."""
    return uniform(shape, *scramble(seed), dtype)


@op("StatelessRandomNormalV2", words="whole")
def stateless_random_normal_v2(shape: Static, key: Any, counter: Any, alg: Static, *, dtype: Any = _FLOAT32) -> Any:
    """Standard normal, by Box and Muller. See tf.raw_ops.StatelessRandomNormalV2."""
    check_algorithm(alg)
    return normal(shape, *state(key, counter), dtype)


@op("StatelessRandomNormal", words="whole")
def stateless_random_normal(shape: Static, seed: Any, *, dtype: Any = _FLOAT32) -> Any:
    """Standard normal, by Box and Muller. See tf.raw_ops.StatelessRandomNormal."""
    return normal(shape, *scramble(seed), dtype)


@op("StatelessRandomUniformIntV2", words="whole")
def stateless_random_uniform_int_v2(
    shape: Static, key: Any, counter: Any, alg: Static, minval: Any, maxval: Any, *, dtype: Any
) -> Any:
    """Uniform integers in [minval, maxval). See tf.raw_ops.StatelessRandomUniformIntV2."""
    check_algorithm(alg)
    return uniform_int(shape, *state(key, counter), minval, maxval, dtype)


@op("StatelessRandomUniformInt", words="whole")
def stateless_random_uniform_int(shape: Static, seed: Any, minval: Any, maxval: Any, *, dtype: Any) -> Any:
    """Uniform integers in [minval, maxval). See tf.raw_ops.StatelessRandomUniformInt."""
    return uniform_int(shape, *scramble(seed), minval, maxval, dtype)


@op("StatelessRandomUniformFullIntV2", words="whole")
def stateless_random_uniform_full_int_v2(
    shape: Static, key: Any, counter: Any, alg: Static, *, dtype: Any = _UINT64
) -> Any:
    """Uniform over all integers of the type. See tf.raw_ops.StatelessRandomUniformFullIntV2."""
    check_algorithm(alg)
    return full_int(shape, *state(key, counter), dtype)


@op("StatelessRandomUniformFullInt", words="whole")
def stateless_random_uniform_full_int(shape: Static, seed: Any, *, dtype: Any = _UINT64) -> Any:
    """Uniform over all integers of the type. See tf.raw_ops.StatelessRandomUniformFullInt."""
    return full_int(shape, *scramble(seed), dtype)


@op("StatelessTruncatedNormalV2", words="whole")
def stateless_truncated_normal_v2(shape: Static, key: Any, counter: Any, alg: Static, *, dtype: Any = _FLOAT32) -> Any:
    """Standard normal within two standard deviations. See tf.raw_ops.StatelessTruncatedNormalV2."""
    check_algorithm(alg)
    return truncated_normal(shape, *state(key, counter), dtype)


@op("StatelessTruncatedNormal", words="whole")
def stateless_truncated_normal(shape: Static, seed: Any, *, dtype: Any = _FLOAT32) -> Any:
    """Standard normal within two standard deviations. See tf.raw_ops.StatelessTruncatedNormal."""
    return truncated_normal(shape, *scramble(seed), dtype)


@op("StatelessShuffle", words="whole")
def stateless_shuffle(value: Any, key: Any, counter: Any, alg: Static) -> Any:
    """Shuffles along the first dimension, swap by swap. See tf.raw_ops.StatelessShuffle."""
    check_algorithm(alg)
    value = jnp.asarray(value)
    if value.ndim == 0 or value.shape[0] == 1:
        return value
    count = size(value.shape[:1])[1]
    return jnp.take(value, permutation(*state(key, counter), count), axis=0)
