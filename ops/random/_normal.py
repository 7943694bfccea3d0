"""Standard normals, and those within two standard deviations.

Box and Muller's transform, and rejection. The truncated sampler is jitted, so that a call outside `jax.jit` compiles
once and not operation by operation.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import while_loop

from ._uniform import uint32_to_float, uint64_to_double
from .philox import at, block, skip, stack_columns

_CHUNK = 4096  # groups of numbers of which one is resampled at a time


def box_muller(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two standard normals from two uniform numbers in [0, 1)."""
    dtype = first.dtype
    # A lower bound for the logarithm, as in TensorFlow's BoxMullerFloat.
    radius = jnp.sqrt(np.asarray(-2, dtype) * jnp.log(jnp.maximum(first, np.asarray(1e-7, dtype))))
    angle = np.asarray(2 * math.pi, dtype) * second
    return jnp.sin(angle) * radius, jnp.cos(angle) * radius


@functools.partial(jax.jit, static_argnames=("count", "dtype"))
def truncated_normal(key: Any, counter: Any, count: int, dtype: Any) -> Any:
    """Return standard normals within two standard deviations.

    Args:
      dtype: float64, or a dtype that is computed in float32. Four samples (float64: two) form a group, which has its
        own range of the counter.
    """
    double = np.dtype(dtype) == np.float64
    size = 2 if double else 4
    groups = math.ceil(count / size)

    def draw(start: Any, step: Any) -> list[Any]:
        words = block(skip(start, step), (key[0], key[1]))
        if double:
            return list(box_muller(uint64_to_double(*words[:2]), uint64_to_double(*words[2:])))
        return [n for i in (0, 2) for n in box_muller(uint32_to_float(words[i]), uint32_to_float(words[i + 1]))]

    def advance(index: Any, steps: int, state: Any, first: Any = 0) -> Any:
        accepted, *samples = state
        start = at(counter, index, 256 * size // 4)
        for step in range(steps):
            for number in draw(start, first + np.uint32(step)):
                accept = jnp.abs(number) < 2
                samples = [jnp.where(accept & (accepted == i), number, s) for i, s in enumerate(samples)]
                accepted = accepted + accept.astype(np.int32)
        return accepted, *samples

    def initial(index: Any) -> Any:
        missing = jnp.full(index.shape, np.nan, np.float64 if double else np.float32)
        return jnp.zeros(index.shape, np.int32), *[missing] * size

    # Sufficient for all but one group of a hundred thousand (doubles: of a million).
    steps = 3 if double else 2
    # Vectors, which XLA's CPU backend computes once for all columns of a row.
    index = lax.iota(np.uint32, groups)
    vectors = advance(index, steps, initial(index))[1:]
    samples = stack_columns(lambda row: [lax.broadcast_in_dim(v, row.shape, (0,)) for v in vectors], groups, size)
    chunks = -(-groups // _CHUNK)

    def incomplete(samples: Any) -> Any:
        return jnp.isnan(samples[:, -1])

    def complete(samples: Any) -> Any:
        """Resample the first incomplete group of each chunk."""
        flags = jnp.pad(incomplete(samples), (0, chunks * _CHUNK - groups)).reshape(chunks, _CHUNK)
        index = jnp.argmax(flags, 1).astype(np.uint32) + np.uint32(_CHUNK) * lax.iota(np.uint32, chunks)

        def step(carry: Any) -> Any:
            number, state = carry
            return number + np.uint32(1), advance(index, 1, state, number)

        start = (jnp.zeros((), np.uint32), initial(index))
        state = while_loop(lambda carry: jnp.any(carry[1][0] < size), step, start)[1]
        rows = jnp.where(jnp.any(flags, 1), index, np.uint32(groups))
        return samples.at[rows].set(jnp.stack(state[1:], 1), mode="drop")

    return while_loop(lambda samples: jnp.any(incomplete(samples)), complete, samples).reshape(-1)[:count]
