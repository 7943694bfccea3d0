"""Stateless random ops: TensorFlow's bits exactly."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tf2jax_lite.errors import OpError

from .philox import bits, from_words, scramble, to_words
from .registry import Static, op
from .values import canonical, dims

_PHILOX, _AUTO = 1, 3
_UINT64, _FLOAT32 = np.dtype(np.uint64), np.dtype(np.float32)


def _check(alg: Any) -> None:
    if int(alg) not in (_PHILOX, _AUTO):
        raise OpError(f"random algorithm {int(alg)} is not supported; use 'philox' or 'auto_select'")


@op("StatelessRandomGetAlg", host=lambda: np.array(_PHILOX, np.int32))
def stateless_random_get_alg() -> Any:
    """Philox, as on every CPU. See tf.raw_ops.StatelessRandomGetAlg."""
    return np.array(_PHILOX, np.int32)


@op("StatelessRandomGetKeyCounter")
def stateless_random_get_key_counter(seed: Any) -> tuple[Any, Any]:
    """Returns key and counter for a seed. See tf.raw_ops.StatelessRandomGetKeyCounter."""
    key, counter = scramble(seed)
    return from_words(key.reshape(1, 2)), from_words(counter.reshape(2, 2))


@op("StatelessRandomGetKeyCounterAlg")
def stateless_random_get_key_counter_alg(seed: Any) -> tuple[Any, Any, Any]:
    """Returns key, counter and algorithm. See tf.raw_ops.StatelessRandomGetKeyCounterAlg."""
    return (*stateless_random_get_key_counter(seed), np.array(_PHILOX, np.int32))


def _size(shape: Any) -> tuple[tuple[int, ...], int]:
    wanted = dims(shape)
    if not all(isinstance(d, int) for d in wanted):
        raise OpError("TensorFlow's random bits need a shape known while tracing, and this one is symbolic")
    return wanted, math.prod(wanted)


def _state(key: Any, counter: Any) -> tuple[Any, Any]:
    return jnp.asarray(to_words(key)).reshape(-1), jnp.asarray(to_words(counter)).reshape(-1)


def _unit(words: Any, dtype: Any) -> Any:
    """Returns floats in [0, 1): the words' low bits as mantissa, minus one."""
    if dtype == np.float32:
        return lax.bitcast_convert_type((words & np.uint32(0x7FFFFF)) | np.uint32(127 << 23), np.float32) - np.float32(
            1
        )
    if dtype == np.float64:
        pairs = words.reshape(-1, 2)
        high = (pairs[:, 0] & np.uint32(0xFFFFF)) | np.uint32(1023 << 20)
        return lax.bitcast_convert_type(jnp.stack([pairs[:, 1], high], -1), np.float64) - np.float64(1)
    small = words.astype(np.uint16)
    if dtype == np.float16:
        return lax.bitcast_convert_type((small & np.uint16(0x3FF)) | np.uint16(15 << 10), np.float16) - np.float16(1)
    value = lax.bitcast_convert_type((small & np.uint16(0x7F)) | np.uint16(127 << 7), ml_dtypes.bfloat16)
    return value - jnp.ones((), value.dtype)


def _words_per(dtype: Any) -> int:
    return 2 if np.dtype(dtype).itemsize == 8 else 1


def _uniform(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    wanted, count = _size(shape)
    dtype = np.dtype(dtype)
    narrow = canonical(dtype)
    # Without 64-bit mode a double is drawn as TensorFlow draws a float.
    return _unit(bits(key, counter, count * _words_per(narrow)), narrow).reshape(wanted)


def _normal(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    wanted, count = _size(shape)
    dtype = canonical(dtype)
    even = count + count % 2
    wide = np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)
    units = _unit(bits(key, counter, even * _words_per(wide)), wide).reshape(-1, 2)
    first = jnp.maximum(units[:, 0], np.asarray(1e-7, wide))
    angle = np.asarray(2 * math.pi, wide) * units[:, 1]
    radius = jnp.sqrt(np.asarray(-2, wide) * jnp.log(first))
    pairs = jnp.stack([jnp.sin(angle) * radius, jnp.cos(angle) * radius], axis=-1)
    return pairs.reshape(-1)[:count].reshape(wanted).astype(dtype)


def _full_int(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    wanted, count = _size(shape)
    dtype = canonical(dtype)
    words = bits(key, counter, count * _words_per(dtype))
    if _words_per(dtype) == 2:
        words = lax.bitcast_convert_type(words.reshape(-1, 2), np.uint64)
    return lax.bitcast_convert_type(words, dtype).reshape(wanted)


def _int(shape: Any, key: Any, counter: Any, minval: Any, maxval: Any, dtype: Any) -> Any:
    dtype = canonical(dtype)
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    low, high = jnp.asarray(minval, dtype), jnp.asarray(maxval, dtype)
    span = high.astype(unsigned) - low.astype(unsigned)
    drawn = _full_int(shape, key, counter, unsigned)
    return (low.astype(unsigned) + lax.rem(drawn, jnp.broadcast_to(span, drawn.shape))).astype(dtype)


@op("StatelessRandomUniformV2")
def stateless_random_uniform_v2(shape: Static, key: Any, counter: Any, alg: Static, *, dtype: Any = _FLOAT32) -> Any:
    """Uniform in [0, 1). See tf.raw_ops.StatelessRandomUniformV2."""
    _check(alg)
    return _uniform(shape, *_state(key, counter), dtype)


@op("StatelessRandomUniform")
def stateless_random_uniform(shape: Static, seed: Any, *, dtype: Any = _FLOAT32) -> Any:
    """Uniform in [0, 1). See tf.raw_ops.StatelessRandomUniform."""
    return _uniform(shape, *scramble(seed), dtype)


@op("StatelessRandomNormalV2")
def stateless_random_normal_v2(shape: Static, key: Any, counter: Any, alg: Static, *, dtype: Any = _FLOAT32) -> Any:
    """Standard normal, by Box and Muller. See tf.raw_ops.StatelessRandomNormalV2."""
    _check(alg)
    return _normal(shape, *_state(key, counter), dtype)


@op("StatelessRandomNormal")
def stateless_random_normal(shape: Static, seed: Any, *, dtype: Any = _FLOAT32) -> Any:
    """Standard normal, by Box and Muller. See tf.raw_ops.StatelessRandomNormal."""
    return _normal(shape, *scramble(seed), dtype)


@op("StatelessRandomUniformIntV2")
def stateless_random_uniform_int_v2(
    shape: Static, key: Any, counter: Any, alg: Static, minval: Any, maxval: Any, *, dtype: Any
) -> Any:
    """Uniform integers in [minval, maxval). See tf.raw_ops.StatelessRandomUniformIntV2."""
    _check(alg)
    return _int(shape, *_state(key, counter), minval, maxval, dtype)


@op("StatelessRandomUniformInt")
def stateless_random_uniform_int(shape: Static, seed: Any, minval: Any, maxval: Any, *, dtype: Any) -> Any:
    """Uniform integers in [minval, maxval). See tf.raw_ops.StatelessRandomUniformInt."""
    return _int(shape, *scramble(seed), minval, maxval, dtype)


@op("StatelessRandomUniformFullIntV2")
def stateless_random_uniform_full_int_v2(
    shape: Static, key: Any, counter: Any, alg: Static, *, dtype: Any = _UINT64
) -> Any:
    """Uniform over all integers of the type. See tf.raw_ops.StatelessRandomUniformFullIntV2."""
    _check(alg)
    return _full_int(shape, *_state(key, counter), dtype)


@op("StatelessRandomUniformFullInt")
def stateless_random_uniform_full_int(shape: Static, seed: Any, *, dtype: Any = _UINT64) -> Any:
    """Uniform over all integers of the type. See tf.raw_ops.StatelessRandomUniformFullInt."""
    return _full_int(shape, *scramble(seed), dtype)
