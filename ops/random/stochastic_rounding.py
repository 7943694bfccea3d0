"""Stochastic rounding of floats to integers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.values.int64 import to_u32_pair

from ._samples import check_algorithm, unit_floats
from .philox import block, skip


@op("StochasticCastToInt", int64="pair")
def stochastic_cast_to_int(input, key, counter, alg: Static, *, Tout):
    """Round up or down at random, so that the expectation is the input.

    TF: core/kernels/stochastic_cast_op.cc.

    Bits are TensorFlow's, except from float32 or float64 to int32: its kernel uses several numbers of a step of the
    generator there, depending on the processor that TensorFlow was built for. Inputs that are too large return the
    largest integer, also where TensorFlow overflows (float16 or bfloat16 to int16, float32 to int32).
    """
    check_algorithm(alg)
    x = jnp.asarray(input)
    limits = jnp.iinfo(Tout)
    low, high = (np.asarray(v).astype(x.dtype) for v in (limits.min, limits.max))
    unrounded = (jnp.floor(x) == x) | (x >= high) | (x <= low) | jnp.isnan(x)
    flat = ~unrounded.reshape(-1)
    # Only rounded numbers use a step of the generator.
    index = (jnp.cumsum(flat, dtype=np.uint32) - flat.astype(np.uint32)).reshape(x.shape)
    # The kernel passes the counter's first integer to the generator as its seed, and the key as its stream.
    key_words, stream = to_u32_pair(counter).reshape(-1)[:2], to_u32_pair(key).reshape(-1)
    words = block(skip((np.uint32(0), np.uint32(0), stream[0], stream[1]), index), (key_words[0], key_words[1]))
    number = unit_floats(jnp.stack(words[:2], axis=-1) if x.dtype == np.float64 else words[0], x.dtype)
    number = number.reshape(x.shape)
    one = jnp.ones((), x.dtype)
    rounded = jnp.where(x < 0, jnp.floor(x + number), jnp.floor(x + one - number))
    rounded = jnp.where(unrounded, jnp.where(jnp.isnan(x), 0, x), rounded)
    clipped = jnp.clip(rounded, low, high).astype(Tout)
    return jnp.where(x >= high, np.asarray(limits.max, Tout), clipped)
