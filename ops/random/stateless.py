"""Stateless uniform, normal, integers and shuffle, with TensorFlow's bits.

TF: core/kernels/stateless_random_ops_v2.cc, core/kernels/stateless_random_ops.cc.
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
from tf2jax_lite.values.int64 import from_u32_pair
from tf2jax_lite.xla_cpu.swaps import permutation_of_swaps

from ._fill import check_algorithm, full_int, normal, size, state, truncated_normal, uniform, uniform_int
from .philox import bits, scramble

_PHILOX = 1
_UINT64, _FLOAT32 = np.dtype(np.uint64), np.dtype(np.float32)


@op("StatelessRandomGetAlg", fold=lambda: np.array(_PHILOX, np.int32))
def stateless_random_get_alg():
    """Return the algorithm, 1 for Philox as on every CPU."""
    return np.array(_PHILOX, np.int32)


@op("StatelessRandomGetKeyCounter", int64="pair")
def stateless_random_get_key_counter(seed):
    """Return the Philox key (uint64 [1]) and counter (uint64 [2]) for a seed."""
    key, counter = scramble(seed)
    return from_u32_pair(key.reshape(1, 2)), from_u32_pair(counter.reshape(2, 2))


@op("StatelessRandomGetKeyCounterAlg", int64="pair")
def stateless_random_get_key_counter_alg(seed):
    """Return key, counter and algorithm for a seed."""
    return (*stateless_random_get_key_counter(seed), np.array(_PHILOX, np.int32))


def _register(name: str, draw: Callable[..., Any], default: np.dtype) -> None:
    @op(f"{name}V2", int64="pair")
    def call_v2(shape: Static, key, counter, alg: Static, *, dtype=default):
        """Draw numbers by ``draw``."""
        check_algorithm(alg)
        return draw(shape, *state(key, counter), dtype)

    @op(name, int64="pair")
    def call(shape: Static, seed, *, dtype=default):
        """Draw numbers by ``draw``.

        ``seed`` is int32 or int64 [2]; see `call_v2` for the others.
        """
        return draw(shape, *scramble(seed), dtype)


_register("StatelessRandomUniform", uniform, _FLOAT32)  # in [0, 1)
_register("StatelessRandomNormal", normal, _FLOAT32)  # by Box and Muller's transform
_register("StatelessRandomUniformFullInt", full_int, _UINT64)
_register("StatelessTruncatedNormal", truncated_normal, _FLOAT32)  # within two standard deviations


@op("StatelessRandomUniformIntV2", int64="pair")
def stateless_random_uniform_int_v2(shape: Static, key, counter, alg: Static, minval, maxval, *, dtype):
    """Draw uniform integers in [minval, maxval)."""
    check_algorithm(alg)
    return uniform_int(shape, *state(key, counter), minval, maxval, dtype)


@op("StatelessRandomUniformInt", int64="pair")
def stateless_random_uniform_int(shape: Static, seed, minval, maxval, *, dtype):
    """Draw uniform integers in [minval, maxval)."""
    return uniform_int(shape, *scramble(seed), minval, maxval, dtype)


@functools.partial(jax.jit, static_argnames="size")
def permutation(key: Any, counter: Any, size: int) -> Any:
    """Return a permutation of ``size`` indices by Fisher-Yates swaps.

    It is TensorFlow's: step i swaps entries i and j_i >= i, where j_i comes from word i.
    """
    step = lax.iota(np.uint32, size)
    words = bits(key, counter, size).reshape(-1)[:size]  # that of the last step does not count
    return permutation_of_swaps((step + lax.rem(words, np.uint32(size) - step)).astype(np.int32))


@op("StatelessShuffle", int64="pair")
def stateless_shuffle(value, key, counter, alg: Static):
    """Shuffle along the first dimension by Fisher-Yates swaps."""
    check_algorithm(alg)
    value = jnp.asarray(value)
    if value.ndim == 0 or value.shape[0] == 1:
        return value
    count = size(value.shape[:1])[1]
    return jnp.take(value, permutation(*state(key, counter), count), axis=0)
