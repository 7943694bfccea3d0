"""Ops of tf.random.Generator, with TensorFlow's bits exactly.

The state is a variable of three 64-bit integers. The first two integers are the counter, the third is the key. Without
64-bit mode the state is `Words`.

TF: core/kernels/stateful_random_ops.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import UpdateInt64
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import from_u32_pair, to_u32_pair
from tf2jax_lite.values.static import static_value

from ._samples import check_algorithm, full_int, normal, size, truncated_normal, uniform, uniform_int
from .philox import skip
from .stateless import draw_binomial

_FLOAT32, _INT64, _UINT64 = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.uint64)


def _words(resource: Any, min_size: int = 3) -> Any:
    """Return a generator's state as words, uint32 [n, 2]."""
    if resource.dtype != np.int64:
        raise OpError(f"the state of a random generator is 64-bit integers, got {resource.dtype}")
    if resource.ndim != 1 or not isinstance(resource.shape[0], int) or resource.shape[0] < min_size:
        raise OpError(f"a random generator's state is a vector of {min_size} integers, not of shape {resource.shape}")
    return jnp.asarray(to_u32_pair(resource))


def _key_and_counter(words: Any) -> tuple[Any, Any]:
    return words[2], words[:2].reshape(-1)


def _advanced(words: Any, delta: Any) -> Any:
    """Return the state after ``delta`` numbers, each 256 further, whatever they are."""
    return from_u32_pair(_advanced_words(words, delta), np.int64)


def _advanced_words(words: Any, delta: Any) -> Any:
    # 256 * delta as 64-bit integer.
    low, high = to_u32_pair(delta)
    low, high = low << np.uint32(8), (high << np.uint32(8)) | (low >> np.uint32(24))
    counter = jnp.stack(skip(words[:2].reshape(-1), low, high)).reshape(2, 2)
    return lax.concatenate([counter, words[2:]], 0)


def _start(resource: Any, algorithm: Any, shape: Any) -> tuple[Any, tuple[Any, Any]]:
    """Return the state after drawing a tensor, and the key and counter for it."""
    check_algorithm(algorithm)
    words = _words(resource)
    return _advanced(words, np.asarray(size(shape)[1], np.int64)), _key_and_counter(words)


@op("RngReadAndSkip", int64="pair")
def rng_read_and_skip(resource: UpdateInt64, alg: Static, delta):
    """Advance the generator and return its previous state.

    Args:
      delta: int64 scalar, number of values to skip.

    Returns:
      The next state and the previous state, int64 [3].
    """
    check_algorithm(alg)
    words = _words(resource)
    return _advanced(words, delta), from_u32_pair(words, np.int64)


@op("RngSkip", int64="pair")
def rng_skip(resource: UpdateInt64, algorithm: Static, delta):
    """Advance the generator.

    Args:
      delta: int64 scalar, number of values to skip.

    Returns:
      The next state, int64 [3].
    """
    check_algorithm(algorithm)
    return _advanced(_words(resource), delta)


def _register(name: str, draw: Callable[..., Any], default: np.dtype) -> None:
    @op(name, int64="pair")
    def call(resource: UpdateInt64, algorithm: Static, shape: Static, *, dtype=default):
        """Draw numbers by ``draw``."""
        after, start = _start(resource, algorithm, shape)
        return after, draw(shape, *start, dtype)


_register("StatefulUniform", uniform, _FLOAT32)  # in [0, 1)
_register("StatefulUniformFullInt", full_int, _UINT64)
_register("StatefulStandardNormalV2", normal, _FLOAT32)
_register("StatefulTruncatedNormal", truncated_normal, _FLOAT32)  # within two standard deviations


@op("StatefulUniformInt", int64="pair")
def stateful_uniform_int(resource: UpdateInt64, algorithm: Static, shape: Static, minval, maxval, *, dtype=_INT64):
    """Draw uniform integers in [minval, maxval)."""
    after, start = _start(resource, algorithm, shape)
    return after, uniform_int(shape, *start, minval, maxval, dtype)


@op("StatefulStandardNormal", int64="pair")
def stateful_standard_normal(resource: UpdateInt64, shape: Static, *, dtype=_FLOAT32):
    """Draw standard normals, for a state that begins with the algorithm.

    A traced algorithm is assumed to be Philox, the only one of TensorFlow's CPU kernels.

    Args:
      resource: int64 [4], the algorithm, counter and key.
    """
    words, value = _words(resource, 4), static_value(resource)
    if value is not None:
        check_algorithm(value[0])
    after = _advanced_words(words[1:], np.asarray(size(shape)[1], np.int64))
    samples = normal(shape, *_key_and_counter(words[1:]), dtype)
    return from_u32_pair(lax.concatenate([words[:1], after], 0), np.int64), samples


@op("StatefulRandomBinomial", int64="pair")
def stateful_random_binomial(resource: UpdateInt64, algorithm: Static, shape: Static, counts, probs, *, dtype=_INT64):
    """Draw binomial samples.

    TF: core/kernels/random_binomial_op.cc.
    """
    check_algorithm(algorithm)
    words = _words(resource)
    samples = draw_binomial(shape, *_key_and_counter(words), counts, probs, dtype)
    batch = math.prod(np.broadcast_shapes(np.shape(counts), np.shape(probs)))
    per_parameter = samples.size // batch if batch else 0
    # The kernel's own upper bound of the numbers that it draws.
    after = _advanced(words, np.asarray(batch * 2 * 100 * (per_parameter + 3) // 4, np.int64))
    return after, samples
