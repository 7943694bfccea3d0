"""Rounding to integers at random."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.values.int64 import to_u32_pair

from ._fill import check_algorithm, units
from .philox import block, skip


@op("StochasticCastToInt", words="whole")
def stochastic_cast_to_int(input: Any, key: Any, counter: Any, alg: Static, *, Tout: Any) -> Any:
    """Rounds up or down at random, so that the mean is the number. See tf.raw_ops.StochasticCastToInt.

    Bits are TensorFlow's, save from float32 or float64 to int32: there its kernel takes several numbers of one step of
    the generator, how many depends on the processor that TensorFlow was built for. What is too large becomes the
    largest integer, also where TensorFlow's overflows (int16 from float16 or bfloat16, int32 from float32).
    """
    check_algorithm(alg)
    x = jnp.asarray(input)
    limits = jnp.iinfo(Tout)
    low, high = (np.asarray(v).astype(x.dtype) for v in (limits.min, limits.max))
    kept = (jnp.floor(x) == x) | (x >= high) | (x <= low) | jnp.isnan(x)
    flat = ~kept.reshape(-1)
    # Only numbers that are rounded take a step of the generator.
    index = (jnp.cumsum(flat, dtype=np.uint32) - flat.astype(np.uint32)).reshape(x.shape)
    # The kernel hands the counter's first integer to the generator as its seed, and the key as its stream.
    key_words, stream = to_u32_pair(counter).reshape(-1)[:2], to_u32_pair(key).reshape(-1)
    words = block(skip((np.uint32(0), np.uint32(0), stream[0], stream[1]), index), (key_words[0], key_words[1]))
    number = units(jnp.stack(words[:2], axis=-1) if x.dtype == np.float64 else words[0], x.dtype)
    number = number.reshape(x.shape)
    one = jnp.ones((), x.dtype)
    rounded = jnp.where(x < 0, jnp.floor(x + number), jnp.floor(x + one - number))
    rounded = jnp.where(kept, jnp.where(jnp.isnan(x), 0, x), rounded)
    within = jnp.clip(rounded, low, high).astype(Tout)
    return jnp.where(x >= high, np.asarray(limits.max, Tout), within)
