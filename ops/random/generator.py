"""Draws from tf.random.Generator, whose state is a variable of three 64-bit integers: TensorFlow's bits exactly.

Without 64-bit mode the state is `Words`.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import from_u32_pair, to_u32_pair
from tf2jax_lite.values.static import static_value

from ._fill import check_algorithm, full_int, normal, size, truncated_normal, uniform, uniform_int
from .distributions import draw_binomial
from .philox import skip

_FLOAT32, _INT64, _UINT64 = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.uint64)


def _words(resource: Any, least: int = 3) -> Any:
    """Returns a generator's state as words (n, 2): two integers are the counter, the third is the key."""
    if resource.dtype != np.int64:
        raise OpError(f"the state of a random generator is 64-bit integers, but it arrives as {resource.dtype}")
    if resource.ndim != 1 or not isinstance(resource.shape[0], int) or resource.shape[0] < least:
        raise OpError(f"a random generator's state is a vector of {least} integers, not of shape {resource.shape}")
    return jnp.asarray(to_u32_pair(resource))


def _key_and_counter(words: Any) -> tuple[Any, Any]:
    return words[2], words[:2].reshape(-1)


def _advanced(words: Any, delta: Any) -> Any:
    """Returns the state after ``delta`` numbers: each moves the counter by 256, whatever was drawn."""
    return from_u32_pair(_counted(words, delta), np.int64)


def _counted(words: Any, delta: Any) -> Any:
    # Eight bits leave the low word for the high one, as in a product of 64-bit integers.
    low, high = to_u32_pair(delta)
    low, high = low << np.uint32(8), (high << np.uint32(8)) | (low >> np.uint32(24))
    counter = jnp.stack(skip(words[:2].reshape(-1), low, high)).reshape(2, 2)
    return lax.concatenate([counter, words[2:]], 0)


def _start(resource: Any, algorithm: Any, shape: Any) -> tuple[Any, tuple[Any, Any]]:
    """Returns the state after drawing a tensor, and key and counter to draw it with."""
    check_algorithm(algorithm)
    words = _words(resource)
    return _advanced(words, np.asarray(size(shape)[1], np.int64)), _key_and_counter(words)


@op("RngReadAndSkip", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def rng_read_and_skip(resource: Any, alg: Static, delta: Any) -> tuple[Any, Any]:
    """Moves the generator on and returns its state before. See tf.raw_ops.RngReadAndSkip."""
    check_algorithm(alg)
    words = _words(resource)
    return _advanced(words, delta), from_u32_pair(words, np.int64)


@op("RngSkip", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def rng_skip(resource: Any, algorithm: Static, delta: Any) -> Any:
    """Moves the generator on. See tf.raw_ops.RngSkip."""
    check_algorithm(algorithm)
    return _advanced(_words(resource), delta)


@op("StatefulUniform", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def stateful_uniform(resource: Any, algorithm: Static, shape: Static, *, dtype: Any = _FLOAT32) -> tuple[Any, Any]:
    """Uniform in [0, 1). See tf.raw_ops.StatefulUniform."""
    after, start = _start(resource, algorithm, shape)
    return after, uniform(shape, *start, dtype)


@op("StatefulUniformInt", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def stateful_uniform_int(
    resource: Any, algorithm: Static, shape: Static, minval: Any, maxval: Any, *, dtype: Any = _INT64
) -> tuple[Any, Any]:
    """Uniform integers in [minval, maxval). See tf.raw_ops.StatefulUniformInt."""
    after, start = _start(resource, algorithm, shape)
    return after, uniform_int(shape, *start, minval, maxval, dtype)


@op("StatefulUniformFullInt", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def stateful_uniform_full_int(
    resource: Any, algorithm: Static, shape: Static, *, dtype: Any = _UINT64
) -> tuple[Any, Any]:
    """Uniform over all integers of the type. See tf.raw_ops.StatefulUniformFullInt."""
    after, start = _start(resource, algorithm, shape)
    return after, full_int(shape, *start, dtype)


@op("StatefulStandardNormalV2", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def stateful_standard_normal_v2(
    resource: Any, algorithm: Static, shape: Static, *, dtype: Any = _FLOAT32
) -> tuple[Any, Any]:
    """Standard normal. See tf.raw_ops.StatefulStandardNormalV2."""
    after, start = _start(resource, algorithm, shape)
    return after, normal(shape, *start, dtype)


@op("StatefulStandardNormal", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def stateful_standard_normal(resource: Any, shape: Static, *, dtype: Any = _FLOAT32) -> tuple[Any, Any]:
    """Standard normal, from a state that begins with its algorithm. See tf.raw_ops.StatefulStandardNormal.

    A traced algorithm is taken to be Philox, the only one of TensorFlow's CPU kernels.
    """
    words, found = _words(resource, 4), static_value(resource)
    if found is not None:
        check_algorithm(found[0])
    after = _counted(words[1:], np.asarray(size(shape)[1], np.int64))
    drawn = normal(shape, *_key_and_counter(words[1:]), dtype)
    return from_u32_pair(lax.concatenate([words[:1], after], 0), np.int64), drawn


@op("StatefulTruncatedNormal", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def stateful_truncated_normal(
    resource: Any, algorithm: Static, shape: Static, *, dtype: Any = _FLOAT32
) -> tuple[Any, Any]:
    """Standard normal within two standard deviations. See tf.raw_ops.StatefulTruncatedNormal."""
    after, start = _start(resource, algorithm, shape)
    return after, truncated_normal(shape, *start, dtype)


@op("StatefulRandomBinomial", reads=("resource",), writes=("resource",), words="whole", wide=("resource",))
def stateful_random_binomial(
    resource: Any, algorithm: Static, shape: Static, counts: Any, probs: Any, *, dtype: Any = _INT64
) -> tuple[Any, Any]:
    """Binomial variables. See tf.raw_ops.StatefulRandomBinomial."""
    check_algorithm(algorithm)
    words = _words(resource)
    drawn = draw_binomial(shape, *_key_and_counter(words), counts, probs, dtype)
    batch = math.prod(np.broadcast_shapes(np.shape(counts), np.shape(probs)))
    each = drawn.size // batch if batch else 0
    # The kernel's own estimate of what it needs.
    after = _advanced(words, np.asarray(batch * 2 * 100 * (each + 3) // 4, np.int64))
    return after, drawn
